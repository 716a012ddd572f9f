"""From what the ranks recorded to findings, by the rules of a run alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpudoctor.model import Finding, Severity
from gpudoctor.rulebook.detect import detect_in_tables
from gpudoctor.rulebook.group import findings_from
from gpudoctor.rulebook.load import load_rules
from gpudoctor.timeline.derive import derive
from gpudoctor.timeline.ingest.records import read
from gpudoctor.timeline.store import Store
from tests.probes.ranks import run_ranks

SETUP = """
import os, random, torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(11 + rank)
"""


def store_of(folder: Path) -> Store:
    """The tables of a run folder's probe records."""
    store = Store()
    for path in sorted((folder / "capture").glob("probe.rank*.jsonl")):
        read(path, None, store)
    derive(store)
    return store


def judge(folder: Path) -> list[Finding]:
    """What the rules say about a run folder, notes left out."""
    seen = detect_in_tables(load_rules(), store_of(folder), ["run"])
    return [f for f in findings_from(seen.evidence) if f.severity > Severity.note]


def diagnose(folder: Path, script: str, ranks: int = 2, check: bool = True, **options: Any) -> list[Finding]:
    """Run a script whose process group is set up by `SETUP`, and judge it; no probe may fail."""
    records = run_ranks(folder, SETUP + script, ranks, check, **options)
    failed = [row for table, row in records if table == "fact" and row.get("kind") == "probe-failed"]
    assert not failed, failed
    return judge(folder / "run")


def names(findings: list[Finding]) -> list[str]:
    """Slugs, worst first."""
    return [f.name for f in findings]
