"""A doctor for PyTorch data-parallel training."""

__version__ = "0.1.0"
