"""What changed in memory between two subjects: by device, and by the place that allocated."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.timeline.store import Store

_BY_DEVICE = """
SELECT rank, device, sum(bytes)::BIGINT AS reserved, coalesce(sum(bytes) FILTER (WHERE state <> 'inactive'), 0)::BIGINT AS live
FROM mem_block GROUP BY rank, device ORDER BY rank, device
"""
_BY_PLACE = """
WITH place AS (
  SELECT rank, stack_id, first(file ORDER BY depth) AS file, first(line ORDER BY depth) AS line FROM mem_stack
  WHERE NOT regexp_matches(file, '[/\\\\](site|dist)-packages[/\\\\]|[/\\\\]torch[/\\\\]|^<frozen') GROUP BY rank, stack_id
)
SELECT coalesce(p.file || ':' || p.line, 'no stack recorded') AS place, sum(b.bytes)::BIGINT AS live, count(*) AS blocks
FROM mem_block AS b LEFT JOIN place AS p ON p.rank = b.rank AND p.stack_id = b.stack_id
WHERE b.state <> 'inactive' GROUP BY ALL ORDER BY place
"""


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """Bytes before and after; `what` is live or reserved memory of a device, or the live memory of a place `file:line`."""

    what: str
    before: int
    after: int
    blocks_before: int = 0
    blocks_after: int = 0

    @property
    def grown(self) -> int:
        return self.after - self.before


def compare_memory(a: Store, b: Store, most: int = 20) -> list[MemoryChange]:
    """Compare two stores with allocator snapshots: devices first, then the places that changed most, the largest change first.

    Empty if either holds no snapshot.
    """
    if not a.count("mem_block") or not b.count("mem_block"):
        return []
    changes = []
    for kind in ("reserved", "live"):
        before, after = _by_device(a, kind), _by_device(b, kind)
        changes += [MemoryChange(f"rank {r}, device {d}: {kind}", before.get((r, d), 0), after.get((r, d), 0)) for r, d in sorted(before.keys() | after.keys())]
    old, new = _by_place(a), _by_place(b)
    places = [MemoryChange(p, *(old.get(p, (0, 0))[:1]), *(new.get(p, (0, 0))[:1]), old.get(p, (0, 0))[1], new.get(p, (0, 0))[1]) for p in sorted(old.keys() | new.keys())]
    places = [p for p in places if p.grown]
    return changes + sorted(places, key=lambda p: (-abs(p.grown), p.what))[:most]


def _by_device(store: Store, kind: str) -> dict[tuple[int, int], int]:
    return {(row["rank"], row["device"]): row[kind] for row in store.query(_BY_DEVICE)}


def _by_place(store: Store) -> dict[str, tuple[int, int]]:
    return {row["place"]: (row["live"], row["blocks"]) for row in store.query(_BY_PLACE)}
