"""Where an API process listens, whom it believes, and what a connection may do."""
