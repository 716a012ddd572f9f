"""The whole gate: measure both sides, judge, and say it as a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from gpudoctor.errors import InconclusiveError
from gpudoctor.gate.baseline import Baseline
from gpudoctor.gate.budget import Budget
from gpudoctor.gate.changes import Change, changed_lines, git
from gpudoctor.gate.judge import (
    drifted,
    more_communication,
    new_findings,
    over_budget,
    slowdown_finding,
    slower,
    step_ratio,
    unmeasured,
)
from gpudoctor.gate.runs import Progress, Side, interleave, worktree
from gpudoctor.model import Abstention, Confidence, Finding, Report, Severity, Subject


@dataclass(slots=True)
class Verdict:
    """The report, whether the merge must stop, and the runs to keep as a baseline."""

    report: Report
    fails: bool
    inconclusive: bool
    head: Side
    base_revision: str


def gate_against_revision(revision: str, budget: Budget, kept: Baseline | None, root: Path, tell: Progress) -> Verdict:
    """Compare the working tree with `revision`, both run here and now in turn."""
    top = Path(git("rev-parse", "--show-toplevel", cwd=root).strip())
    base_revision = git("merge-base", revision, "HEAD", cwd=root).strip()
    inside = root.resolve().relative_to(top.resolve())
    with worktree(base_revision, root) as tree, TemporaryDirectory(prefix="gpudoctor-gate-runs-") as out:
        base, head = Side("base", tree / inside), Side("head", root)
        interleave(base, head, budget, budget.repeats, Path(out), tell)
        if not head.failure and not base.failure and slower(base.runs, head.runs, budget):
            tell("slower so far; measuring as often again before saying so")
            interleave(base, head, budget, budget.repeats, Path(out), tell)
    if base.failure:
        raise InconclusiveError(f"the base {revision} cannot be measured: {base.failure}")
    return _judge(base, head, budget, kept, changed_lines(base_revision, root), base_revision)


def gate_against_baseline(baseline: Baseline | None, budget: Budget, machine: str, root: Path, tell: Progress) -> Verdict:
    """Compare the working tree with a kept baseline; without one only budgets and findings are judged."""
    with TemporaryDirectory(prefix="gpudoctor-gate-runs-") as out:
        head = Side("head", root)
        interleave(None, head, budget, budget.repeats, Path(out), tell)
    if baseline is None or not baseline.runs:
        return _judge(None, head, budget, baseline, [], "")
    base = Side("base", root, baseline.runs, [Finding(f, "", Severity.note, Confidence.possible, "", "", fingerprint=f) for f in baseline.findings])
    return _judge(base, head, budget, baseline, [], baseline.revision, same_machine=baseline.machine == machine)


def _judge(base: Side | None, head: Side, budget: Budget, kept: Baseline | None, changes: Sequence[Change], base_revision: str, same_machine: bool = True) -> Verdict:
    report = Report(Subject("run", [str(budget.script)]))
    if head.failure:
        report.findings = [_broken(head)]
        return Verdict(report, True, False, head, base_revision)
    ratio = step_ratio(base.runs, head.runs) if base and same_machine else None
    found = new_findings(base.findings if base else [], head.findings, budget)
    for finding in found:
        finding.values["measured"] = f"with it a step takes {ratio}" if ratio else "its cost was not measured"
        finding.message = f"{finding.message} (new in this change; {finding.values['measured']})"
    found += over_budget(head.runs, budget)
    if base and base.runs:
        if same_machine and (slow := slower(base.runs, head.runs, budget)):
            found.append(slowdown_finding(base.runs, head.runs, slow, changes))
        found += filter(None, (more_communication(base.runs[0], head.runs[0], budget, changes), drifted(base.runs[0], head.runs[0], budget)))
    report.findings = [f for f in found if kept is None or not kept.accepts(f, base_revision)]
    missing = unmeasured(head.runs, budget)
    report.abstained = [Abstention("GD703", "over-budget", f"{m} could not be measured", "a capture on a GPU") for m in missing]
    incomparable = bool(base and not same_machine)
    if incomparable:
        report.abstained.append(Abstention("GD701", "step-slower", "the baseline comes from another machine", "a baseline kept on this machine, or --against a revision"))
    report.summary = {"gate": {"pairs": len(head.runs), "step": str(ratio) if ratio else None, "base": base_revision, "accepted": len(found) - len(report.findings)}}
    fails = any(f.fails(budget.fail_on) for f in report.findings)
    return Verdict(report, fails, bool(missing) or incomparable, head, base_revision)


def _broken(head: Side) -> Finding:
    return Finding("GD700", "script-fails", Severity.error, Confidence.certain, f"The script does not train any more: {head.failure}", "Run it by hand, mend it, then push again.", fingerprint="script-fails")
