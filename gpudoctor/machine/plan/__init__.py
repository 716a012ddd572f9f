"""What a model costs to train, on which cards it fits, by which strategy, and why."""
