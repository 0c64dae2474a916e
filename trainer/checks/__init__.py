"""What `make verify` looks at, one subject a file; `check.py` holds the words that they share."""
