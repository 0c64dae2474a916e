"""MCP servers: their config, what they answer, what of it changed, the rules that they state."""
