"""Named baselines: measures, accepted findings with their reasons, and the machine they come from."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpudoctor.errors import InputError, UsageError
from gpudoctor.gate.measures import Measures
from gpudoctor.model import Finding
from gpudoctor.rundir import write_atomic

SCHEMA = "gpudoctor.baseline/1"
FOLDER = Path(".gpudoctor") / "baselines"
# Verdicts about a difference hold for one base only; findings hold until they go away.
RELATIVE = ("GD701", "GD702", "GD704")


@dataclass(slots=True)
class Baseline:
    """What was measured under `name` on machine `machine`, and what was accepted since."""

    name: str
    machine: str = ""
    revision: str = ""
    runs: list[Measures] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    accepted: list[dict[str, str]] = field(default_factory=list)

    def accepts(self, finding: Finding, base_revision: str) -> bool:
        """True if somebody accepted this finding, for this base where it is about a difference."""
        return any(a["fingerprint"] == finding.fingerprint and (finding.rule not in RELATIVE or a["base"] == base_revision) for a in self.accepted)

    def accept(self, findings: list[Finding], reason: str, base_revision: str) -> None:
        """Note `findings` as accepted for `reason`."""
        day = time.strftime("%Y-%m-%d")
        self.accepted += [{"fingerprint": f.fingerprint, "rule": f.rule, "name": f.name, "reason": reason, "date": day, "base": base_revision} for f in findings]


def path_of(name: str, root: Path) -> Path:
    """Where the baseline `name` lies; UsageError for a name that is no plain word."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise UsageError(f"baseline {name!r}: use letters, digits, '.', '_' and '-'")
    return root / FOLDER / f"{name}.json"


def load_baseline(name: str, root: Path) -> Baseline | None:
    """Return the baseline, None if it was never kept; InputError if the file is damaged."""
    path = path_of(name, root)
    if not path.is_file():
        return None
    try:
        raw: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if raw["schema"] != SCHEMA:
            raise InputError(f"{path}: schema {raw['schema']}, this gpudoctor reads {SCHEMA}")
        return Baseline(raw["name"], raw["machine"], raw["revision"], [Measures.from_dict(m) for m in raw["runs"]], raw["findings"], raw["accepted"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a baseline ({error!r}); restore it from git or keep a new one with --accept") from None


def save_baseline(baseline: Baseline, root: Path) -> Path:
    """Write the baseline and return its path."""
    path = path_of(baseline.name, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "schema": SCHEMA, "name": baseline.name, "machine": baseline.machine, "revision": baseline.revision,
        "runs": [m.as_dict() for m in baseline.runs], "findings": sorted(baseline.findings), "accepted": baseline.accepted,
    }
    write_atomic(path, json.dumps(document, indent=1, sort_keys=True) + "\n")
    return path
