"""The built-in training run and its experiments."""
