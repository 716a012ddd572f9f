"""From an examined machine to a report: its tables, the rules that judge machines, its facts."""

from __future__ import annotations

from pathlib import Path

from gpudoctor.config import Config
from gpudoctor.machine.examine import Examined
from gpudoctor.model import Report, Subject
from gpudoctor.report.build import build_report
from gpudoctor.rulebook.load import load_rules
from gpudoctor.timeline.derive import derive
from gpudoctor.timeline.store import Store


def environment_report(examined: Examined, config: Config) -> Report:
    """Judge a machine by every rule that has a `machine` detector; `summary["machine"]` holds the facts."""
    store = Store()
    for table, rows in examined.tables().items():
        if rows:
            store.add_rows(table, rows)
        if table not in ("gpu", "link", "device_process") or not examined.fact("driver_error"):
            store.captured.add(table)
    derive(store)
    book = load_rules(map(Path, config.rules), config.allow_python_rules, cases=False).choose(config.select, config.ignore)
    report = build_report(Subject("environment", [examined.host]), book, config, store=store, kinds=("machine",))
    store.close()
    report.summary["machine"] = examined.summary()
    if not examined.cards:
        report.summary["inconclusive"] = True
    return report
