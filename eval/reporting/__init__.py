"""The report of a run: what was measured, gathered once and shown as HTML and as Markdown."""
