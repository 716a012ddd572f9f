"""The stream-race detector of `--sanitize`: who touched which bytes on which stream, and what ordered them."""
