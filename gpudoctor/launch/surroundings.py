"""The machine that a run was on: cards, links and facts, in the run folder beside what the ranks recorded."""

from __future__ import annotations

import json
from contextlib import suppress

from gpudoctor.machine.examine import examine
from gpudoctor.machine.live import LiveMachine
from gpudoctor.machine.seam import Machine
from gpudoctor.rundir import RunDir

_KEPT = ("gpu", "link", "machine_fact")


def record_machine(run: RunDir, machine: Machine | None = None) -> None:
    """Write capture/machine.jsonl; without copies over the links, which would disturb the run. Never raises."""
    with suppress(Exception):
        tables = examine(machine or LiveMachine(copy=False)).tables()
        lines = [json.dumps([table, row]) for table in _KEPT for row in tables.get(table, ())]
        if tables["gpu"] and not tables["link"]:
            lines.append(json.dumps(["link", {"host": []}]))  # one card: there is nothing between cards to judge
        (run.capture / "machine.jsonl").write_text("".join(line + "\n" for line in lines), "utf-8")
