"""The live gate: real MCP servers, and a judgement of what is different in the world afterwards."""
