"""Who calls, what they may ask for, and what is counted of it."""
