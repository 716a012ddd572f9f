"""Reports that lie on disk: findings.json and report.html of a run folder."""

from __future__ import annotations

from contextlib import suppress
from io import StringIO
from pathlib import Path

import pyarrow.parquet as pq

from gpudoctor.errors import InputError, MissingExtraError
from gpudoctor.harness.run import read_results
from gpudoctor.model import Report
from gpudoctor.report import as_json, experiments, html
from gpudoctor.report.plots import chart_rows
from gpudoctor.rundir import RunDir
from gpudoctor.tables import TABLES
from gpudoctor.timeline.derive import derive
from gpudoctor.timeline.store import Store


def keep(run: RunDir, report: Report) -> None:
    """Write the report into the run folder: JSON, and the HTML page where its extra is installed; OSError if the disk takes neither."""
    with open(run.findings, "w", encoding="utf-8") as file:
        as_json.render(report, file)
    page = StringIO()
    with suppress(MissingExtraError):
        html.render(report, page)
        run.html.write_text(page.getvalue(), "utf-8")


def load_kept(path: Path, charts: bool = False) -> Report:
    """Load a report from a JSON file or a run folder; InputError says what to do where there is none."""
    file = RunDir(path).findings if path.is_dir() else path
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{path}: holds no report; `gpudoctor analyze {path}` makes one") from None
    report = as_json.load(text, str(file))
    if charts and path.is_dir() and RunDir(path).tables.is_dir():
        store = store_from(RunDir(path).tables)
        derive(store)
        report.plots = chart_rows(store, report.findings)
    if charts and path.is_dir():
        experiments.join(report, read_results(RunDir(path)))
    return report


def store_from(folder: Path) -> Store:
    """Open the canonical tables that a run folder keeps as Parquet; what cannot be read is left out."""
    store = Store()
    for name in TABLES:
        file = folder / f"{name}.parquet"
        if file.is_file():
            try:
                store.add(name, pq.read_table(file))
            except (OSError, ValueError, KeyError):
                continue
    return store
