"""Adapter and base to the checkpoints that are served: merged BF16, NVFP4, GGUF."""
