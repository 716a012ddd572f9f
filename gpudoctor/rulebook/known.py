"""Baselines of known findings: a file of fingerprints, so that only new findings are reported."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from gpudoctor.errors import InputError
from gpudoctor.model import Finding

SCHEMA = "gpudoctor.known-findings/1"


def write_known(path: Path, findings: Iterable[Finding]) -> int:
    """Write the findings' fingerprints to `path` and return how many; rule, place and message are there for the reader."""
    entries = [{"fingerprint": f.fingerprint, "rule": f.name, "path": f.location.path if f.location else "", "message": f.message} for f in findings]
    entries.sort(key=lambda e: (e["path"], e["rule"], e["fingerprint"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema": SCHEMA, "findings": entries}, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return len(entries)


def read_known(path: Path) -> Counter[str]:
    """Fingerprints and how often each is known; InputError if the file is not such a baseline."""
    try:
        raw = json.loads(path.read_text("utf-8"))
        if raw["schema"] != SCHEMA:
            raise ValueError(f"schema {raw['schema']}")
        return Counter(str(entry["fingerprint"]) for entry in raw["findings"])
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); make it with --write-baseline") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a baseline of findings ({error}); make one with --write-baseline") from None


def new_findings(findings: Iterable[Finding], known: Counter[str]) -> tuple[list[Finding], int]:
    """(findings that are not known, how many were)."""
    left = Counter(known)
    new: list[Finding] = []
    hidden = 0
    for finding in findings:
        if left[finding.fingerprint] > 0:
            left[finding.fingerprint] -= 1
            hidden += 1
        else:
            new.append(finding)
    return new, hidden
