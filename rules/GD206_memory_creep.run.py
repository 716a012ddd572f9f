"""Growth that goes on: the median slope between samples, and the sign of most of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from gpudoctor.model import Evidence

_MOST = 400


def check(store: Any, params: Mapping[str, Any]) -> Iterator[Evidence]:
    rows = store.query(
        "SELECT rank, device, step, max(allocated) AS allocated FROM mem_sample WHERE phase = 'step' AND allocated IS NOT NULL "
        "GROUP BY rank, device, step ORDER BY rank, device, step"
    )
    series: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        series[row["rank"], row["device"]].append((row["step"], row["allocated"]))
    for (rank, device), points in series.items():
        steady = points[max(5, len(points) // 4):]
        if len(steady) < params["min_steps"]:
            continue
        grown, slope = _growth(steady), _slope(steady)
        least = params["min_bytes"] if device >= 0 else params["min_host_bytes"]
        if grown < max(least, params["share"] * steady[0][1]) or not _goes_on(steady, slope):
            continue
        what = f"memory in use on device {device}" if device >= 0 else "the process's memory on the host"
        yield Evidence(rank=rank, device=device if device >= 0 else None, group=f"device {device}",
                       values={"what": what, "slope": slope, "grown": grown, "steps": steady[-1][0] - steady[0][0]})


def _growth(points: list[tuple[int, int]]) -> float:
    fifth = max(3, len(points) // 5)
    return median(v for _, v in points[-fifth:]) - median(v for _, v in points[:fifth])


def _slope(points: list[tuple[int, int]]) -> float:
    """The median of the slopes between all pairs, or of an even choice of them."""
    chosen = points[:: max(1, len(points) // _MOST)]
    half = len(chosen) // 2
    return median((b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(chosen, chosen[half:], strict=False) if b[0] > a[0])


def _goes_on(points: list[tuple[int, int]], slope: float) -> bool:
    """Each third grows, and none by much less than the slope over all says."""
    third = len(points) // 3
    parts = [points[:third], points[third : 2 * third], points[2 * third :]]
    return slope > 0 and all(_slope(p) >= 0.5 * slope for p in parts)
