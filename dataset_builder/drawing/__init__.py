"""Values for a JSON schema: valid, real-looking, and of one side of the split."""
