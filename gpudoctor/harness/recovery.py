"""A rank is killed; torchrun starts all anew from the checkpoint; is the loss curve the undisturbed one, bit for bit?

This runs outside the ranks: it starts torchrun twice and compares what the runs left.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from gpudoctor.harness.ranks import start_torchrun
from gpudoctor.harness.result import Column, Plot, Result, Series

TITLE = "Recovery: a rank is killed and the run goes on from its checkpoint"
COLUMNS = [Column("step", "n"), Column("loss, undisturbed"), Column("loss, after recovery"), Column("identical"), Column("computed by")]
EVERY = 5


def run(ranks: int, steps: int, seed: int, options: dict[str, Any], logs: Path, timeout_s: float) -> Result:
    """Train undisturbed, then with the last rank killed by SIGKILL two steps after a checkpoint."""
    kill = min(steps - 1, EVERY * max(1, steps // EVERY // 2) + 2)
    with tempfile.TemporaryDirectory(prefix="gpudoctor-") as scratch:
        ends, curves = [], []
        for name, kill_step in (("undisturbed", -1), ("killed", kill)):
            folder = Path(scratch) / name
            folder.mkdir()
            spec = folder / "spec.json"
            spec.write_text(json.dumps({"steps": steps, "seed": seed, "options": options, "folder": str(folder), "every": EVERY, "kill_step": kill_step, "patience_s": 0.8 * timeout_s}))
            outcome = start_torchrun(ranks, 1, "gpudoctor.harness.recoverable", [str(spec)], logs / f"harness.recovery.{name}.txt", timeout_s, {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
            if outcome.problem:
                return Result("recovery", TITLE, f"failed: the {name} run: {outcome.problem}", "failed")
            ends.append(json.loads((folder / "end.json").read_text()))
            curves.append([json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()])
    return compare(curves[0], curves[1], ends[0], ends[1], steps, kill, ranks)


def compare(undisturbed: list[dict[str, Any]], killed: list[dict[str, Any]], end: dict[str, Any], killed_end: dict[str, Any], steps: int, kill: int, ranks: int) -> Result:
    """Step by step; a step computed twice counts as its last computation, and both must agree."""
    straight = {line["step"]: line["loss"] for line in undisturbed}
    first = {line["step"]: line["loss"] for line in killed if line["attempt"] == 0}
    again = {line["step"]: line["loss"] for line in killed if line["attempt"] > 0}
    rows: list[list[Any]] = []
    for step in range(steps):
        by = "before the kill" if step not in again else "after the restart" if step not in first else "both"
        after = again.get(step, first.get(step))
        same = after == straight.get(step) and first.get(step, after) == after and after is not None
        rows.append([step, _number(straight.get(step)), _number(after), "yes" if same else "NO", by if after is not None else "nobody"])
    lost = [row[0] for row in rows if row[4] == "nobody"]
    apart = [row[0] for row in rows if row[3] == "NO"]
    resumed = min(again, default=None)
    same_end = end["weights"] == killed_end["weights"]
    text = verdict(lost, apart, resumed, kill, ranks, same_end)
    plot = Plot("Loss", "step", "loss", [Series("undisturbed", *_curve(rows, 1)), Series("killed and recovered", *_curve(rows, 2))])
    good = not lost and not apart and resumed is not None and same_end
    return Result("recovery", TITLE, text, "ok" if good else "bad", COLUMNS, rows, [plot], end["limits"], end["setting"])


def verdict(lost: list[int], apart: list[int], resumed: int | None, kill: int, ranks: int, same_end: bool) -> str:
    if resumed is None:
        return f"rank {ranks - 1} was killed at step {kill} and no restart went on"
    if lost:
        return f"steps {lost} were lost"
    if apart:
        return f"the loss differs from the undisturbed run at steps {apart}: the checkpoint misses a part of the state"
    if not same_end:
        return "every loss is the same, yet the final weights differ"
    return f"rank {ranks - 1} was killed at step {kill}; torchrun started all {ranks} ranks anew from step {resumed}; {kill - resumed} finished step{'s' * (kill - resumed != 1)} came again, none was lost, and losses and weights are identical bit for bit"


def _number(text: str | None) -> float | str:
    return float.fromhex(text) if text is not None else ""


def _curve(rows: list[list[Any]], column: int) -> tuple[list[float], list[float]]:
    seen = [row for row in rows if row[column] != ""]
    return [float(row[0]) for row in seen], [row[column] for row in seen]
