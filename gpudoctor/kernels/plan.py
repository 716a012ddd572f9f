"""How a launch divides its work: heads before the first 16-byte boundary, tiles, chunks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from gpudoctor.kernels.variant import ELEMENTS, Variant

VECTOR_BYTES = 16
CHUNK = 8
"""Tiles that a block takes in a large deterministic launch."""


def head_of(pointers: Sequence[int], numel: int, itemsize: int) -> int:
    """Elements before the first 16-byte boundary that all `pointers` share; -1 if they share none."""
    offsets = {pointer % VECTOR_BYTES for pointer in pointers}
    if len(offsets) > 1 or any(offset % itemsize for offset in offsets):
        return -1
    return min(numel, -offsets.pop() % VECTOR_BYTES // itemsize)


def tiles_of(numel: int, head: int, variant: Variant) -> int:
    """Tiles that cover `numel` elements; none for an empty tensor."""
    if numel == 0:
        return 0
    lanes = VECTOR_BYTES // ELEMENTS[variant.element]
    vectors = -(-numel // lanes) if head < 0 else (numel - head) // lanes
    return max(1, -(-vectors // variant.tile_vectors))


def chunk_of(tiles: int) -> int:
    """Tiles a block takes: few where there are few, so that they spread over the card. Depends on nothing else, and so do the bits."""
    return max(1, min(CHUNK, tiles // 2048))


def table_of(rows: Sequence[tuple[Sequence[int], int, int]], variant: Variant) -> tuple[list[int], list[int]]:
    """The table of a multi-tensor launch and where each tensor begins on the line of tiles.

    A row is (input pointers, output pointer or 0, elements). Lengths: rows * (inputs + 3), rows + 1.
    """
    itemsize = ELEMENTS[variant.element]
    table: list[int] = []
    counts: list[int] = []
    for inputs, out, numel in rows:
        head = head_of([*inputs, *([out] if out else [])], numel, itemsize)
        table += [*inputs, out, numel, head]
        counts.append(tiles_of(numel, head, variant))
    return table, [0, *accumulate(counts)]
