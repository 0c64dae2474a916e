"""From MCP servers and skills to a dataset: schemas, requests, skills, buckets."""
