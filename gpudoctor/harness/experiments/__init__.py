"""One experiment a file: `run(context)` is called on every rank and rank 0's result counts."""
