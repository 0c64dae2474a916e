"""The training itself: rows, steps, losses, states."""
