"""A rule's page: what it does, why it is bad, example, use instead; printed from the tested rule."""

from __future__ import annotations

from gpudoctor.rulebook.rule import Rule

_SEEN_BY = {"source": "the source", "trace": "a capture", "run": "the probes of a run", "memory": "memory snapshots", "log": "logs", "machine": "the environment"}


def page(rule: Rule) -> str:
    """The page in Markdown."""
    kinds = list(dict.fromkeys(d.kind for d in rule.detectors))
    parts = [
        f"# {rule.id} {rule.slug}",
        f"{rule.severity.name} · {rule.confidence.name} · seen in {', '.join(_SEEN_BY[k] for k in kinds)}",
        "## What it does", rule.summary,
        "## Why it is bad", rule.why,
        "## Example", f"```{rule.language}\n{rule.bad}\n```",
        "## Use instead", rule.fix, f"```{rule.language}\n{rule.good}\n```",
    ]
    if rule.params:
        rows = "\n".join(f"| `{p.name}` | {p.value} | {p.unit} | {p.doc} |" for p in rule.params)
        parts += ["## Parameters", f"| name | default | unit | meaning |\n|---|---|---|---|\n{rows}"]
    if rule.references:
        parts += ["## References", "\n".join(f"- {r}" for r in rule.references)]
    return "\n\n".join(parts) + "\n"
