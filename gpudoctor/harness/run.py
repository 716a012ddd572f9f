"""Start the ranks, let them run experiments one after another, and collect the results; free of torch."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpudoctor.errors import MissingExtraError, UsageError
from gpudoctor.harness import recovery
from gpudoctor.harness.ranks import start_ranks
from gpudoctor.harness.result import Result
from gpudoctor.rundir import RunDir

EXPERIMENTS = {
    "drift": "Every strategy's loss against one card's.",
    "aggregate": "Adding gradients: our kernel, PyTorch, an all-reduce.",
    "bandwidth": "What the links carry and what a step asks of them.",
    "launch": "Eager against CUDA graph, by batch size.",
    "amp": "The loss scale from 65536 through an overflow.",
    "preallocate": "A real reservation of memory, and what it changes.",
    "scale": "Throughput on 1 to N ranks.",
    "recovery": "A rank is killed; the run goes on from its checkpoint.",
}


def run_experiments(names: Sequence[str], run: RunDir, ranks: int = 0, steps: int = 20, seed: int = 0, cpu: bool = False, timeout_s: float = 240.0,
                    tell: Callable[[Result], None] = lambda result: None) -> list[Result]:
    """Run the experiments (`all` for every one) and write each to `capture/harness.NAME.json`; `tell` gets each as it ends.

    `ranks` 0 means one a GPU, and two at least. Raises UsageError for an unknown name, MissingExtraError without PyTorch.
    """
    chosen = list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))
    unknown = [name for name in chosen if name not in EXPERIMENTS]
    if unknown:
        raise UsageError(f"no experiment {unknown[0]}; there are {', '.join(EXPERIMENTS)} and all")
    if ranks < 0 or steps < 6:
        raise UsageError("--ranks must be 1 or more and --steps 6 or more")
    if find_spec("torch") is None:
        raise MissingExtraError("the harness needs PyTorch; pip install 'gpudoctor[run]'")
    ranks = ranks or max(2, 0 if cpu else _gpus())
    results: list[Result] = []

    def done(result: Result) -> None:
        result.write(result_path(run, result.experiment))
        results.append(result)
        tell(result)

    _together([name for name in chosen if name != "recovery"], run, ranks, steps, seed, {"cpu": cpu}, timeout_s, done)
    if "recovery" in chosen:
        begin = time.perf_counter()
        result = recovery.run(ranks, steps, seed, {"cpu": cpu}, run.logs, timeout_s)
        result.seconds = time.perf_counter() - begin
        done(result)
    run.update_info(harness={r.experiment: {"state": r.state, "verdict": r.verdict, "seconds": round(r.seconds, 3)} for r in results})
    return results


def result_path(run: RunDir, experiment: str) -> Path:
    return run.capture / f"harness.{experiment}.json"


def read_results(run: RunDir) -> list[Result]:
    """All results in a run folder, in the order of EXPERIMENTS."""
    return [Result.read(result_path(run, name)) for name in EXPERIMENTS if result_path(run, name).is_file()]


def _together(names: Sequence[str], run: RunDir, ranks: int, steps: int, seed: int, options: dict[str, Any], timeout_s: float, done: Callable[[Result], None]) -> None:
    """Run the experiments on one set of ranks, and those after one that fails on a new set."""
    pending = list(names)
    with tempfile.TemporaryDirectory(prefix="gpudoctor-") as scratch:
        folder, spec = Path(scratch), Path(scratch) / "spec.json"

        def collect() -> float:
            """Hand on what has ended; returns how many are left."""
            while pending and (folder / f"{pending[0]}.json").is_file():
                done(Result.read(folder / f"{pending.pop(0)}.json"))
            return len(pending)

        while pending:
            spec.write_text(json.dumps({"experiments": pending, "steps": steps, "seed": seed, "options": options, "folder": scratch}))
            logs = [run.logs / f"harness.{pending[0]}.rank{rank}.txt" for rank in range(ranks)]
            outcome = start_ranks(ranks, "gpudoctor.harness.worker", [str(spec)], logs, timeout_s, collect)
            if collect():
                name = pending.pop(0)
                done(Result(name, EXPERIMENTS[name], f"failed: {outcome.problem or 'rank 0 left no result'}", "failed"))


def _gpus() -> int:
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return int(pynvml.nvmlDeviceGetCount())
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # no driver, no NVML, no card: the same answer
        return 0
