"""Build a report from evidence and render it."""
