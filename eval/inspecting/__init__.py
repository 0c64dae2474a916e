"""Inspect (inspect-ai) as the harness: tasks, concurrency, logs with their viewer, answers kept."""
