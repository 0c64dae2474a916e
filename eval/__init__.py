"""Measuring checkpoints on the held-out rows."""
