"""One module a profile; its only name is PROFILE."""
