"""The report of a finished run: its tables, its captures and the script's source."""

from __future__ import annotations

from pathlib import Path

from gpudoctor.cli.options import Common
from gpudoctor.config import Config
from gpudoctor.launch.session import Session
from gpudoctor.model import Report, Subject
from gpudoctor.report.build import build_report
from gpudoctor.rulebook.load import load_rules
from gpudoctor.rundir import RunDir
from gpudoctor.source import load_project
from gpudoctor.timeline.derive import derive
from gpudoctor.timeline.store import Store


def report_on(run: RunDir, session: Session, sources: tuple[Path, ...], common: Common) -> tuple[Report, Config]:
    """Read the run folder and judge it, together with `sources`."""
    config = common.config(sources[0] if sources else Path.cwd())
    book = load_rules(map(Path, config.rules), config.allow_python_rules).choose(config.select, config.ignore)
    store = Store()
    _load(store, run)
    derive(store)
    report = build_report(Subject("run", [str(run.root)]), book, config, store=store, kinds=("run", "trace", "memory", "log"),
                          project=load_project(sources) if sources else None)
    store.close()
    return report, config


def _load(store: Store, run: RunDir) -> None:
    import json

    for path in sorted(run.capture.glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            try:
                table, columns = json.loads(line)
            except ValueError:
                continue
            lists = {k: v for k, v in columns.items() if isinstance(v, list)}
            n = max(map(len, lists.values()), default=1)
            store.add_rows(table, [{k: (v[i] if k in lists else v) for k, v in columns.items()} for i in range(n)])
