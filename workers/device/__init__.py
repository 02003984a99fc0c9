"""Devices by name, the turns of workers that share one, and what fits into its memory."""
