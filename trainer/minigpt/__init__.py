"""The MiniGPT lab: LoRA and QLoRA by hand on irregular verbs; docs/minigpt.md is its guide."""
