"""Base, machine check and training."""
