"""The queue between the HTTP front door and the workers, and everything said through it."""
