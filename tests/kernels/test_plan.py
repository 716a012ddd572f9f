"""The division of work, followed block by block as `walk.cuh` and `finalise.cuh` do it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.kernels.plan import chunk_of, head_of, table_of, tiles_of
from gpudoctor.kernels.variant import Entry, Variant, shipped, tuned

SMALL = Variant(Entry.many, "F32", 2, block=32, unroll=1)


def test_heads() -> None:
    assert head_of([0, 32], 100, 4) == 0
    assert head_of([4, 20], 100, 4) == 3
    assert head_of([4, 20], 2, 4) == 2
    assert head_of([4, 8], 100, 4) == -1
    assert head_of([2, 2], 100, 2) == 7
    assert head_of([2, 2], 100, 4) == -1


def test_tiles() -> None:
    assert tiles_of(0, 0, SMALL) == 0
    assert tiles_of(1, 0, SMALL) == 1
    assert tiles_of(128, 0, SMALL) == 1
    assert tiles_of(129, 0, SMALL) == 1  # the odd element is the last tile's tail
    assert tiles_of(132, 0, SMALL) == 2
    assert tiles_of(132, -1, SMALL) == 2


def elements_of(tile: int, numel: int, head: int, variant: Variant) -> list[int]:
    """The elements that aggregate.cuh's tile() touches."""
    lanes, per_tile = variant.lanes, variant.tile_vectors
    if head < 0:
        return list(range(tile * per_tile * lanes, min(numel, (tile + 1) * per_tile * lanes)))
    whole = (numel - head) // lanes
    first, last = tile * per_tile, (tile + 1) * per_tile
    found = [head + v * lanes + k for v in range(first, min(last, whole)) for k in range(lanes)]
    if tile == 0:
        found += range(head)
    if last >= whole:
        found += range(head + whole * lanes, numel)
    return found


@given(st.integers(0, 3000), st.integers(-1, 7), st.sampled_from(["F32", "BF16"]))
@settings(deadline=None)
def test_each_element_is_taken_once(numel: int, head: int, element: str) -> None:
    variant = Variant(Entry.flat, element, block=32, unroll=2)
    head = min(head, numel, variant.lanes - 1)
    taken = [i for tile in range(tiles_of(numel, head, variant)) for i in elements_of(tile, numel, head, variant)]
    assert sorted(taken) == list(range(numel))


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=30), st.integers(1, 9))
@settings(deadline=None)
def test_slots_are_disjoint_and_found_again(sizes: list[int], chunk: int) -> None:
    table, first = table_of([((16, 32), 48, n) for n in sizes], SMALL)
    assert len(table) == 5 * len(sizes)
    total = first[-1]
    written: dict[int, int] = {}
    for block in range(-(-total // chunk)):
        tile, stop = block * chunk, min(total, (block + 1) * chunk)
        t = max(n for n in range(len(sizes)) if first[n] <= tile)
        while tile < stop:
            end = min(stop, first[t + 1])
            if end > tile:
                assert block + t not in written
                written[block + t] = t
                tile = end
            t += 1
    for t in range(len(sizes)):
        begin = first[t] // chunk + t
        end = (first[t + 1] - 1) // chunk + t + 1 if first[t + 1] > first[t] else begin
        assert [written.get(slot) for slot in range(begin, end)] == [t] * (end - begin)
    assert set(written.values()) == {t for t, n in enumerate(sizes) if n}
    assert max(written, default=0) < -(-total // chunk) + len(sizes)


def test_chunks_grow_with_the_work_only() -> None:
    assert [chunk_of(n) for n in (0, 1, 2000, 8192, 1 << 20)] == [1, 1, 1, 4, 8]


def test_shipped_variants_fit_every_card() -> None:
    for variant in shipped():
        assert variant.block * variant.resident <= 1024  # threads a multiprocessor of sm_75 holds
        assert variant == tuned(variant) or variant.entry not in (Entry.flat, Entry.many)
