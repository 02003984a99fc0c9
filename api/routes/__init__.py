"""One file an endpoint group; each has a `routes` table."""
