"""Hold what was measured against the base and the budget; each breach is a finding."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpudoctor.gate.budget import Budget
from gpudoctor.gate.changes import Change
from gpudoctor.gate.measures import PHASES, Measures
from gpudoctor.gate.noise import Ratio, divergence, ratio
from gpudoctor.model import Confidence, Finding, Location, Severity
from gpudoctor.units import share

Runs = Sequence[Measures]


@dataclass(frozen=True, slots=True)
class Limit:
    """An absolute limit: the measure's name, the gate's rule for it, and how a number reads."""

    name: str
    words: str
    unit: str


LIMITS = (
    Limit("step_ms", "a step takes", "ms"), Limit("exposed_comm_ms", "a step waits for collectives", "ms"), Limit("syncs_per_step", "a step synchronises", "times"),
    Limit("peak_memory_gib", "the fullest card holds", "GiB"), Limit("imbalance", "the cards' memory differs by", "of the fullest"),
)


def new_findings(base: Sequence[Finding], head: Sequence[Finding], budget: Budget) -> list[Finding]:
    """Findings of the head that the base lacks and the budget does not allow, those that fail first."""
    known = {f.fingerprint for f in base}
    fresh = [f for f in head if f.fingerprint not in known and f.name not in budget.allow and f.rule not in budget.allow]
    return sorted(fresh, key=lambda f: (not f.fails(budget.fail_on), -f.severity))


def slower(base: Runs, head: Runs, budget: Budget) -> Ratio | None:
    """The ratio of step times, if its whole interval lies beyond the slowdown that the budget allows."""
    found = step_ratio(base, head)
    return found if found is not None and found.low > 1 + budget.slowdown else None


def step_ratio(base: Runs, head: Runs) -> Ratio | None:
    """head ÷ base of the step time over interleaved pairs."""
    pairs = [(b.step_ms, h.step_ms) for b, h in zip(base, head, strict=False) if b.step_ms and h.step_ms]
    return ratio([b for b, _ in pairs], [h for _, h in pairs])


def slowdown_finding(base: Runs, head: Runs, found: Ratio, changes: Sequence[Change]) -> Finding:
    """Say how much slower, in which phase, and which changed lines could be the cause."""
    extra = (found.estimate - 1) * _median([b.step_ms for b in base if b.step_ms])
    phase = max(PHASES, key=lambda p: _median([h.phases_ms.get(p, 0) for h in head]) - _median([b.phases_ms.get(p, 0) for b in base]))
    shown = ", ".join(str(c) for c in changes[:5]) or "none in the sources"
    message = f"A step takes {found}: {extra:+.2f} ms, most of it in {phase}. Changed lines: {shown}."
    fix = "Move the added work out of the step, or accept the cost with `gpudoctor gate --accept --reason …`."
    finding = _finding("GD701", "step-slower", message, fix, {"ratio": found.estimate, "low": found.low, "high": found.high, "phase": phase, "cost_per": "step"}, changes)
    finding.cost_ns = round(extra * 1e6)
    return finding


def more_communication(base: Measures, head: Measures, budget: Budget, changes: Sequence[Change]) -> Finding | None:
    """A finding if a rank sends more bytes per step than the base by more than the budget allows; counted, so free of noise."""
    if not base.comm_mib or not head.comm_mib or head.comm_mib <= base.comm_mib * (1 + budget.comm_growth):
        return None
    grown = {site: mib - base.comm_sites.get(site, 0.0) for site, mib in head.comm_sites.items()}
    site = max(grown, key=lambda s: grown[s], default=None)
    place = _site_place(head, site) if site and grown[site] > 0 else None
    at = f" The growth is at {place.path}:{place.line}." if place else ""
    message = f"Each rank sends {head.comm_mib:.3g} MiB a step, {head.comm_mib / base.comm_mib:.2f} times the {base.comm_mib:.3g} MiB before.{at}"
    finding = _finding("GD702", "more-communication", message, "Send each gradient once; leave the averaging to DDP.", {"mib": head.comm_mib, "base_mib": base.comm_mib}, changes)
    finding.location = place or finding.location
    return finding


def _site_place(measured: Measures, site: str) -> Location:
    return Location(site.partition("\t")[0], measured.comm_lines[site])


def over_budget(head: Runs, budget: Budget) -> Iterator[Finding]:
    """A finding for each absolute limit that every run of the head breaks."""
    for limit in LIMITS:
        allowed = getattr(budget, limit.name)
        values = [v for m in head if (v := getattr(m, limit.name)) is not None]
        if allowed is None or not values or min(values) <= allowed:
            continue
        told = share(_median(values)) if limit.name == "imbalance" else f"{_median(values):.4g} {limit.unit}"
        message = f"{limit.words[0].upper()}{limit.words[1:]} {told}; the budget is {allowed:.4g}."
        yield _finding("GD703", "over-budget", message, f"Bring it down, or raise gate.{limit.name.replace('_', '-')} with a reason.", {"measure": limit.name, "value": _median(values), "budget": allowed})


def unmeasured(head: Runs, budget: Budget) -> list[str]:
    """Limits that the budget sets and no run could measure."""
    return [limit.name for limit in LIMITS if getattr(budget, limit.name) is not None and all(getattr(m, limit.name) is None for m in head)]


def drifted(base: Measures, head: Measures, budget: Budget) -> Finding | None:
    """A finding if some layer's gradient distribution moved further than the budget allows (Jensen–Shannon distance)."""
    if budget.gradient_drift is None:
        return None
    moved = {name: divergence(base.gradients[name], bins) for name, bins in head.gradients.items() if name in base.gradients}
    if not moved or (worst := max(moved, key=lambda n: moved[n])) is None or moved[worst] <= budget.gradient_drift:
        return None
    message = f"The gradients of {worst} are distributed differently: Jensen–Shannon distance {moved[worst]:.3f}, budget {budget.gradient_drift:.3f}."
    return _finding("GD704", "gradient-drift", message, "Compare the two runs with `gpudoctor compare`; a change of loss scale, data order or averaging shows like this.", {"layer": worst, "distance": moved[worst]})


def _finding(rule: str, name: str, message: str, fix: str, values: dict[str, object], changes: Sequence[Change] = ()) -> Finding:
    place = Location(changes[0].path, changes[0].first, changes[0].last) if changes else None
    print_ = hashlib.sha256(f"{rule}\0{values.get('measure', '')}".encode()).hexdigest()[:16]
    return Finding(rule, name, Severity.error, Confidence.certain, message, fix, place, count=1, values=dict(values), fingerprint=print_)


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0
