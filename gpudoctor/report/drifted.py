"""Two runs whose gradients differ, as a finding: rule gradient-distribution-drift on run against run."""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.model import Evidence, Finding
from gpudoctor.rulebook.group import findings_from
from gpudoctor.rulebook.load import RuleBook
from gpudoctor.timeline.compare_gradients import compare_gradients
from gpudoctor.timeline.store import Store

SLUG = "gradient-distribution-drift"
_MESSAGE = "the two runs' gradients differ in {parameter_count} of {layers} layers, most in {parameter}: its norm in B is {times:n} times that in A{distance}"
_FIX = """With one seed and one global batch the averaged gradients of both runs are equal. A common factor: count the averages (the loss is a mean on
each rank, DDP averages over ranks; no second division, no multiplication by the world size). Single layers: look whether DDP holds them, and whether the loss reaches them on every rank."""


def drift_findings(book: RuleBook, a: Store, b: Store) -> list[Finding]:
    """One finding over all layers that drifted between two runs; none if the rule is switched off or nothing drifted."""
    rule = next((r for r in book if r.slug == SLUG), None)
    layers = compare_gradients(a, b) if rule is not None else []
    drifted = [d for d in layers if d.drifted]
    if rule is None or not drifted:
        return []
    worst = drifted[0]
    distance = "" if worst.js is None else f", the distributions {worst.js:.2f} apart (Jensen–Shannon)"
    values = {"parameter": worst.name, "parameter_count": len(drifted), "layers": len(layers), "times": worst.ratio, "distance": distance,
              "parameters": [d.name for d in drifted[:20]]}
    return findings_from([(replace(rule, message=_MESSAGE, fix=_FIX), Evidence(count=worst.steps, group="runs", values=values))])
