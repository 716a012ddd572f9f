"""Gradients of two runs side by side: one card against two, the same seed and the same global batch.

Two signals for each layer. *Norms, step by step*: with one seed and one global batch the reduced gradient of the first
steps is the same number, but for the order of its sums; later steps amplify that, so only the first common steps judge.
*Distributions over training*: log2 histograms of all common steps, by Jensen–Shannon and Kolmogorov–Smirnov distance.

A layer has drifted if its norm is off by more than `NORM` (`NORM_16` for 16-bit gradients) in the median of the first
`FIRST` common steps. Where some layers are off ten times as much as the median layer, only those are told: a wrong layer
moves the others after it. Runs whose layers are off by unlike factors from the first step on do not share a seed: they are
judged by the Jensen–Shannon distance alone, against `JS` and three times what halves of one run are apart.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from gpudoctor.timeline.compare import Change
from gpudoctor.timeline.store import Store

FIRST = 4
NORM, NORM_16 = 0.01, 0.05
JS = 0.2
UNIFORM = 0.02

Histogram = dict[int, float]


@dataclass(frozen=True, slots=True)
class Drift:
    """One layer: second norm over first in the first common steps, distances in 0…1, and whether it has drifted."""

    name: str
    ratio: float
    js: float | None
    ks: float | None
    steps: int
    drifted: bool


def compare_gradients(a: Store, b: Store) -> list[Drift]:
    """All layers that both runs have, worst first; empty if they have none, no common step, or another global batch."""
    if not _same_batch(a, b):
        return []
    first, second, narrow = _norms(a), _norms(b), _narrow(a) | _narrow(b)
    histograms = _histograms(a), _histograms(b)
    logs: dict[str, list[float]] = {}
    for name in sorted(first.keys() & second.keys()):
        steps = [s for s in sorted(first[name].keys() & second[name].keys()) if first[name][s] > 0 and second[name][s] > 0][:FIRST]
        if steps:
            logs[name] = [float(np.log(second[name][s] / first[name][s])) for s in steps]
    if not logs:
        return []
    off = {name: float(np.median(np.abs(values))) for name, values in logs.items()}
    drifted = _off_layers(logs, off, narrow)
    noise = _own_noise(a)
    found = []
    for name, values in logs.items():
        distances = _distances(histograms[0].get(name), histograms[1].get(name))
        apart = name in drifted if drifted is not None else distances is not None and distances[0] > max(JS, 3 * noise.get(name, 0.0))
        js, ks = distances if distances is not None else (None, None)
        found.append(Drift(name, float(np.exp(np.median(values))), js, ks, len(values), apart))
    return sorted(found, key=lambda d: (not d.drifted, -abs(float(np.log(d.ratio))), d.name))


def gradient_changes(a: Store, b: Store) -> list[Change]:
    """The comparison as rows of `compare`: layers that drifted (how far from 1 they are), or one row that says how near all are."""
    layers = compare_gradients(a, b)
    drifted = [d for d in layers if d.drifted]
    if drifted:
        return [Change(_told(d), "n", 1.0, max(d.ratio, 1 / d.ratio, 1 + (d.js or 0.0)), None, None) for d in drifted[:20]]
    if not layers:
        return []
    worst = max(layers, key=lambda d: abs(float(np.log(d.ratio))))
    return [Change(f"gradients of {len(layers)} layers: ratio of norms, most in {worst.name}", "n", 1.0, worst.ratio, 0.0, 0.0)]


def _told(drift: Drift) -> str:
    apart = "" if drift.js is None else f", distributions {drift.js:.2f} apart (JS)"
    return f"drift: gradient of {drift.name}, norm ×{drift.ratio:.3g}{apart}"


def _off_layers(logs: dict[str, list[float]], off: dict[str, float], narrow: set[str]) -> set[str] | None:
    """Layers whose norms are off; None if the two runs do not share a seed, so that norms say nothing."""
    over = {name for name, value in off.items() if value > (NORM_16 if name in narrow else NORM)}
    if not over:
        return set()
    starts = np.array([values[0] for values in logs.values()])
    agree = np.mean(np.abs(starts) <= NORM)
    if agree == 0 and len(starts) > 1 and float(np.ptp(starts)) > UNIFORM:
        return None
    typical = float(np.median(list(off.values())))
    leading = {name for name in over if off[name] > 10 * typical}
    return leading or over


def _same_batch(a: Store, b: Store) -> bool:
    sums = [
        s.query("SELECT median(n) AS n FROM (SELECT step, sum(samples) AS n FROM step WHERE samples > 0 AND step >= 0 GROUP BY step)")[0]["n"] for s in (a, b)
    ]
    return None in sums or abs(sums[0] - sums[1]) <= 0.01 * max(sums)


def _norms(store: Store) -> dict[str, dict[int, float]]:
    rows = store.query(
        """SELECT p.name, s.step, median(s.norm) AS norm FROM grad_stat AS s JOIN param AS p ON p.rank = s.rank AND p.param_id = s.param_id
        WHERE s.stage = 'reduced' AND isfinite(s.norm) AND s.rank = (SELECT min(rank) FROM grad_stat) GROUP BY p.name, s.step""")
    norms: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        norms[str(row["name"])][int(row["step"])] = float(row["norm"])
    return norms


def _narrow(store: Store) -> set[str]:
    return {str(r["name"]) for r in store.query("SELECT DISTINCT name FROM param WHERE dtype IN ('float16', 'bfloat16')")}


def _histograms(store: Store, part: str = "true") -> dict[str, Histogram]:
    """Shares of elements by log2 magnitude for each layer, over the steps that `part` (SQL of our own) picks."""
    rows = store.query(
        f"""SELECT p.name, h.bin, sum(h.count) AS n FROM grad_hist AS h JOIN param AS p ON p.rank = h.rank AND p.param_id = h.param_id
        WHERE h.stage = 'reduced' AND h.rank = (SELECT min(rank) FROM grad_hist) AND {part} GROUP BY p.name, h.bin""")
    counts: dict[str, Histogram] = defaultdict(dict)
    for row in rows:
        counts[str(row["name"])][int(row["bin"])] = float(row["n"])
    return {name: {k: v / sum(h.values()) for k, v in h.items()} for name, h in counts.items()}


def _own_noise(store: Store) -> dict[str, float]:
    """How far the first and the second half of one run are apart."""
    middle = "(SELECT median(step) FROM grad_hist)"
    early, late = _histograms(store, f"h.step <= {middle}"), _histograms(store, f"h.step > {middle}")
    return {name: d[0] for name in early if (d := _distances(early[name], late.get(name))) is not None}


def _distances(p: Histogram | None, q: Histogram | None) -> tuple[float, float] | None:
    """Jensen–Shannon distance (square root, base 2) and Kolmogorov–Smirnov distance of two binned distributions."""
    if not p or not q:
        return None
    bins = sorted(p.keys() | q.keys())
    x, y = (np.array([h.get(k, 0.0) for k in bins]) for h in (p, q))
    middle = (x + y) / 2
    divergence = sum(float(np.sum(np.where(v > 0, v * np.log2(np.where(v > 0, v, 1.0) / middle), 0.0))) for v in (x, y)) / 2
    return float(np.sqrt(max(0.0, divergence))), float(np.max(np.abs(np.cumsum(x - y))))
