"""What users write: skills, subagents, plans, transcripts, and what these tell one to do."""
