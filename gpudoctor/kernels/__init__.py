"""Gradient aggregation at memory speed, its statistics in the same pass; a double-precision reference beside it.

`ops` holds the PyTorch operators, `hook` the DDP communication hook, `peer` aggregation across cards.
"""
