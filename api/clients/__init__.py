"""Clients for Python programs, over HTTP or through the queue."""
