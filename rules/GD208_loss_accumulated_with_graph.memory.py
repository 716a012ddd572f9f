"""Blocks that live on from every iteration of a loop, from several places at once: the graph of each iteration is kept."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import median
from typing import Any

from gpudoctor.model import Confidence, Evidence, Location, Severity

Stack = tuple[tuple[str, str, int], ...]

_LIVE = """
WITH made AS (
  SELECT rank, device, address, max(seq) AS seq FROM mem_event WHERE action = 'alloc' GROUP BY rank, device, address
)
SELECT b.rank, b.device, e.stack_id, m.seq, b.bytes
FROM mem_block AS b JOIN made AS m USING (rank, device, address) JOIN mem_event AS e ON e.rank = m.rank AND e.device = m.device AND e.seq = m.seq
WHERE b.state = 'active' AND e.stack_id IS NOT NULL
ORDER BY b.rank, b.device, m.seq
"""
_MADE = "SELECT rank, device, stack_id, count(*) AS n FROM mem_event WHERE action = 'alloc' GROUP BY ALL"
_RANGE = "SELECT rank, device, min(seq) AS first, max(seq) AS last FROM mem_event GROUP BY ALL"
_FRAMES = "SELECT rank, stack_id, file, func, line FROM mem_stack ORDER BY rank, stack_id, depth DESC"


def check(store: Any, params: Mapping[str, Any]) -> Iterator[Evidence]:
    kept: dict[tuple[int, int], dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for row in store.query(_LIVE):
        kept[row["rank"], row["device"]][row["stack_id"]].append((row["seq"], row["bytes"]))
    if not kept:
        return
    made = {(r["rank"], r["device"], r["stack_id"]): r["n"] for r in store.query(_MADE)}
    ranges = {(r["rank"], r["device"]): (r["first"], r["last"]) for r in store.query(_RANGE)}
    stacks = _stacks(store)
    for (rank, device), by_stack in sorted(kept.items()):
        steady = {
            s: blocks for s, blocks in by_stack.items()
            if len(blocks) >= params["iterations"] and _is_even([seq for seq, _ in blocks], ranges[rank, device])
        }
        counts = Counter(len(blocks) for blocks in steady.values())
        if not counts:
            continue
        often = max(counts, key=lambda n: (counts[n], n))
        together = {s: b for s, b in steady.items() if often - 1 <= len(b) <= often + 1}
        size = sum(n for blocks in together.values() for _, n in blocks)
        each = [s for (r, d, s), n in made.items() if (r, d) == (rank, device) and n >= often - 1]
        paths = [stacks.get((rank, s), ()) for s in sorted({*together, *each})]
        if len(together) < 2 or size < params["min_bytes"] or any(made.get((rank, device, s), 0) > 2.5 * often + 2 for s in together):
            continue
        shared = _shared(paths)
        if any(name == "_call_impl" for _, name, _ in shared) or all(len(p) == len(shared) for p in paths):
            continue
        inside = any(name in ("_call_impl", "forward") for s in together for _, name, _ in stacks.get((rank, s), ()))
        place = _place(max(together, key=lambda s: sum(n for _, n in together[s])), rank, stacks)
        yield Evidence(
            rank=rank, device=device, count=often, location=place, group=f"device {device}",
            severity=None if inside else Severity.note, confidence=Confidence.likely if inside else Confidence.possible,
            values={
                "iterations": often, "bytes": size, "places": len(together),
                "message": "{iterations:n} iterations have each left blocks of {places:n} places alive, {bytes:B} in all: something keeps each iteration's graph",
                "fix": "Detach what is kept across iterations (`total += loss.detach()`), and run evaluation under `torch.no_grad()`.",
            },
        )


def _is_even(seqs: list[int], whole: tuple[int, int]) -> bool:
    """Spread over half the trace or more, to its end, at like distances."""
    gaps = [b - a for a, b in pairwise(seqs)]
    usual = median(gaps)
    return usual > 1 and 2 * (seqs[-1] - seqs[0]) >= whole[1] - whole[0] and whole[1] - seqs[-1] <= 3 * usual + 8 and sum(0.5 * usual <= g <= 2 * usual for g in gaps) >= 0.7 * len(gaps)


def _stacks(store: Any) -> dict[tuple[int, int], Stack]:
    """Frames by rank and stack, outermost first."""
    found: dict[tuple[int, int], list[tuple[str, str, int]]] = defaultdict(list)
    for row in store.query(_FRAMES):
        found[row["rank"], row["stack_id"]].append((row["file"], row["func"], row["line"]))
    return {key: tuple(frames) for key, frames in found.items()}


def _shared(paths: list[Stack]) -> Stack:
    """The outermost frames that all have, up to where the loop's body parts them."""
    length = 0
    for frames in zip(*paths, strict=False):
        if len(set(frames)) > 1:
            break
        length += 1
    return paths[0][:length]


def _place(stack: int, rank: int, stacks: Mapping[tuple[int, int], Stack]) -> Location | None:
    for file, _, line in reversed(stacks.get((rank, stack), ())):
        if "-packages" not in file and not file.startswith("<") and "/torch/" not in file:
            return Location(file, line)
    return None
