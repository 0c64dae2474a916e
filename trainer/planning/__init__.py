"""What a run trains and takes, before it runs."""
