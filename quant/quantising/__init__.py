"""The parts of quantising: by llm-compressor or by delta, and what is kept of the tune."""
