"""From `--model` to a family and an engine that run."""
