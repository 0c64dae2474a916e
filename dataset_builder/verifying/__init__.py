"""What every row must pass, and what of a dataset is shown."""
