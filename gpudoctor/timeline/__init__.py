"""From captures to canonical tables, and from those to derived ones. The only room that knows DuckDB."""
