"""OpenAI's files and batches: JSON lines of requests, each answered as its endpoint answers it."""
