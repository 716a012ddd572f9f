"""`gpudoctor compare`: two runs or captures side by side."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudoctor.cli.options import Common, common_options, emit
from gpudoctor.errors import InconclusiveError

if TYPE_CHECKING:
    from gpudoctor.model import Report
    from gpudoctor.timeline.ingest import Ingested


@click.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@common_options
@click.option("--memory-limit", metavar="SIZE", help="Most memory for tables, e.g. 4GB; what does not fit spills to disk.")
@click.option("--no-cache", is_flag=True, help="Neither use nor write the cache beside the captures.")
@click.pass_context
def command(ctx: click.Context, before: Path, after: Path, common: Common, memory_limit: str | None, no_cache: bool) -> None:
    """Compare BEFORE with AFTER: step time, communication, waits, gaps, memory; and the findings that are new.

    A change counts only beyond the noise of the steps. Exit 1 if AFTER has a finding at or above --fail-on that BEFORE
    has not; 3 if the two cannot be compared.
    """
    from gpudoctor.cli.progress import progress
    from gpudoctor.report.comparison import compare, data, render
    from gpudoctor.timeline.ingest import IngestOptions, ingest

    config = common.config(before)
    with progress("reading captures") as bar:
        options = IngestOptions(memory_limit=memory_limit, cache=not no_cache, progress=bar.update, debug="--debug" in sys.argv)
        a, b = ingest([before], options), ingest([after], options)
    sections = compare(a.store, b.store)
    if not sections:
        raise InconclusiveError(f"{before} and {after} have nothing in common that could be compared: give two captures with steps, two runs or two memory snapshots")
    report = _new_findings(a, b, common, (before, after))
    report.summary["comparison"] = data(sections)
    if common.format == "terminal":
        text = io.StringIO()
        render(sections, (str(before), str(after)), text if common.output else sys.stdout)
        if common.output is None:
            sys.stdout.write("\n")
    ctx.exit(emit(report, common, config))


def _new_findings(a: Ingested, b: Ingested, common: Common, paths: tuple[Path, Path]) -> Report:
    """AFTER's report, without the findings that BEFORE has too."""
    from gpudoctor.model import Report, Subject
    from gpudoctor.report.build import build_report
    from gpudoctor.report.drifted import drift_findings
    from gpudoctor.rulebook.load import load_rules

    config = common.config(paths[0])
    book = load_rules(map(Path, config.rules), config.allow_python_rules, cases=False).choose(config.select, config.ignore)
    old, new = (build_report(Subject(read.subject_kind, [str(path)]), book, config, store=read.store, kinds=read.kinds) for read, path in ((a, paths[0]), (b, paths[1])))
    known, still = {f.fingerprint for f in old.findings}, {f.fingerprint for f in new.findings}
    gone = [{"rule": f.rule, "name": f.name, "message": f.message} for f in old.findings if f.fingerprint not in still]
    return Report(Subject(b.subject_kind, [str(p) for p in paths]), [*drift_findings(book, a.store, b.store), *(f for f in new.findings if f.fingerprint not in known)], new.abstained,
                  {"new_findings_only": True, "gone": gone})
