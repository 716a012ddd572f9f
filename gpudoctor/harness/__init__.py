"""The built-in training run: a small transformer on seeded text, trained in several ways, and experiments on it.

`run.run_experiments` starts the ranks and collects results; everything that imports torch runs inside them.
"""
