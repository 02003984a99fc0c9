"""The loop of one worker: jobs taken, prepared, batched, run and answered."""
