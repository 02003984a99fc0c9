"""Keeping processes alive, and ending those that live and do nothing."""
