"""The parts of a merge: what is done, checked, computed and written."""
