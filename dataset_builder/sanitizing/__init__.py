"""The parts of the scrubber (dataset_builder/sanitize.py): what finds a secret, and what replaces it."""
