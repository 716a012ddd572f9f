"""Start experiments one after another, each on ranks of its own, and collect their results; free of torch."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpudoctor.errors import InputError, MissingExtraError, UsageError
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
    "recovery": "A rank is killed; the run goes on from its checkpoint.",
    "scale": "Throughput on 1 to N ranks.",
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
    results = []
    for name in chosen:
        begin = time.perf_counter()
        result = _one(name, run, ranks, steps, seed, {"cpu": cpu}, timeout_s)
        result.seconds = time.perf_counter() - begin
        result.write(result_path(run, name))
        results.append(result)
        tell(result)
    run.update_info(harness={r.experiment: {"state": r.state, "verdict": r.verdict, "seconds": round(r.seconds, 3)} for r in results})
    return results


def result_path(run: RunDir, experiment: str) -> Path:
    return run.capture / f"harness.{experiment}.json"


def read_results(run: RunDir) -> list[Result]:
    """All results in a run folder, in the order of EXPERIMENTS."""
    return [Result.read(result_path(run, name)) for name in EXPERIMENTS if result_path(run, name).is_file()]


def _one(name: str, run: RunDir, ranks: int, steps: int, seed: int, options: dict[str, Any], timeout_s: float) -> Result:
    if name == "recovery":
        return recovery.run(ranks, steps, seed, options, run.logs, timeout_s)
    with tempfile.TemporaryDirectory(prefix="gpudoctor-") as scratch:
        spec, out = Path(scratch) / "spec.json", Path(scratch) / "result.json"
        spec.write_text(json.dumps({"experiment": name, "steps": steps, "seed": seed, "options": options, "out": str(out)}))
        logs = [run.logs / f"harness.{name}.rank{rank}.txt" for rank in range(ranks)]
        outcome = start_ranks(ranks, "gpudoctor.harness.worker", [str(spec)], logs, timeout_s)
        if outcome.problem:
            return Result(name, EXPERIMENTS[name], f"failed: {outcome.problem}", "failed")
        try:
            return Result.read(out)
        except InputError:
            return Result(name, EXPERIMENTS[name], "failed: rank 0 left no result", "failed")


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
