"""Bytes that an operation touches, and whether two such sets meet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Shape = tuple[int, tuple[int, ...], tuple[int, ...], int]
"""First byte, sizes, strides in elements, bytes per element."""

MAX_RUNS = 4096


def extent(start: int, sizes: Sequence[int], strides: Sequence[int], width: int) -> int:
    """The end (exclusive) of the smallest range that holds a strided tensor; `start` if it is empty."""
    last = 0
    for size, stride in zip(sizes, strides, strict=True):
        if size == 0:
            return start
        last += (size - 1) * stride
    return start + (last + 1) * width


def is_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """True if the tensor fills its extent without gaps, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(sizes, strides, strict=True) if size != 1):
        if stride > expected or (stride == 0 and size > 1):
            return stride == 0 and expected == 1
        expected = max(expected, stride * size)
    return True


def meet(a: Shape, b: Shape) -> bool | None:
    """True if two strided tensors share a byte; None if that would take too long to tell."""
    runs_a, runs_b = _runs(a), _runs(b)
    if runs_a is None or runs_b is None:
        return None
    ia, ib = iter(sorted(runs_a)), iter(sorted(runs_b))
    one, other = next(ia, None), next(ib, None)
    while one is not None and other is not None:
        if one[0] < other[1] and other[0] < one[1]:
            return True
        if one[1] <= other[0]:
            one = next(ia, None)
        else:
            other = next(ib, None)
    return False


def _runs(shape: Shape) -> list[tuple[int, int]] | None:
    """The contiguous runs of bytes of a tensor."""
    start, sizes, strides, width = shape
    dims = sorted((stride, size) for size, stride in zip(sizes, strides, strict=True) if size > 1 and stride)
    run = 1
    while dims and dims[0][0] <= run:
        stride, size = dims.pop(0)
        run = max(run, stride * (size - 1) + run)
    count = 1
    for _, size in dims:
        count *= size
    if count > MAX_RUNS:
        return None
    return [(start + offset * width, start + (offset + run) * width) for offset in _offsets(dims)]


def _offsets(dims: list[tuple[int, int]]) -> Iterator[int]:
    if not dims:
        yield 0
        return
    stride, size = dims[-1]
    for outer in range(size):
        for inner in _offsets(dims[:-1]):
            yield outer * stride + inner
