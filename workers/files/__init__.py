"""A model's files: where they are, what makes them what they are, and what was made of them."""
