"""Start a command on N ranks of this machine and wait for all of them; free of torch."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudoctor.errors import UsageError

PACKAGE_PARENT = Path(__file__).parents[2]
_BELOW_EPHEMERAL = range(20_000, 32_768)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a start ended: empty `problem` if every process returned 0."""

    problem: str = ""


def start_ranks(ranks: int, module: str, arguments: Sequence[str], logs: Sequence[Path], timeout_s: float, progress: Callable[[], float] = lambda: 0.0) -> Outcome:
    """Run `python -m module arguments` on ranks 0 … ranks-1, output to `logs`; the first failure ends all, and so do `timeout_s` seconds in which `progress` stays the same."""
    port = str(free_port())
    processes = []
    with contextlib.ExitStack() as files:
        for rank in range(ranks):
            output = files.enter_context(logs[rank].open("wb"))
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            processes.append(subprocess.Popen([sys.executable, "-m", module, *arguments], env={**environment(ranks), **place},
                                              stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True))
        return _wait(processes, logs, timeout_s, progress)


def start_torchrun(ranks: int, restarts: int, module: str, arguments: Sequence[str], log: Path, timeout_s: float, extra: Mapping[str, str] | None = None) -> Outcome:
    """The same under torchrun, which starts all ranks anew up to `restarts` times when one dies."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}",
               "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1", "--monitor-interval=0.1", "-m", module, *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env={**environment(ranks), **(extra or {})}, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
        return _wait([process], [log], timeout_s, lambda: 0.0)


def environment(ranks: int) -> dict[str, str]:
    """This process's environment, without a launcher's place in it and with our package on the path."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TORCHELASTIC_") and k not in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "ROLE_RANK")}
    kept["PYTHONPATH"] = os.pathsep.join([str(PACKAGE_PARENT), *filter(None, [kept.get("PYTHONPATH")])])
    kept.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // ranks)))
    kept.setdefault("PYTHONUNBUFFERED", "1")
    if sys.platform == "linux":
        kept.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this machine, whatever its name resolves to
    return kept


def free_port() -> int:
    """A TCP port to listen on later: below those that a system gives to outgoing connections, which could take it meanwhile."""
    for port in [*random.SystemRandom().sample(_BELOW_EPHEMERAL, 64), 0]:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise UsageError("no TCP port is free on 127.0.0.1; see ss -ltn")


def _wait(processes: Sequence[subprocess.Popen[bytes]], logs: Sequence[Path], timeout_s: float, progress: Callable[[], float]) -> Outcome:
    deadline, reached = time.monotonic() + timeout_s, progress()
    problem = ""
    try:
        while not problem:
            states = [p.poll() for p in processes]
            failed = next((n for n, state in enumerate(states) if state), None)
            if failed is not None:
                problem = _told(states[failed] or 0, logs[failed], f"rank {failed}" if len(processes) > 1 else "the run")
            elif all(state == 0 for state in states):
                return Outcome()
            elif progress() != reached:
                deadline, reached = time.monotonic() + timeout_s, progress()
            elif time.monotonic() > deadline:
                problem = f"not finished after {timeout_s:.0f} s; see {logs[0]}"
            else:
                time.sleep(0.02)
    finally:
        for process in processes:
            _end(process)
    return Outcome(problem)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it started; each is the leader of its own session."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _told(state: int, log: Path, who: str) -> str:
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if ("Error" in line or "error:" in line) and not line.startswith(("File", "raise", "Traceback"))]
    how = f"signal {-state}" if state < 0 else f"exit code {state}"
    return f"{who} ended with {how}: {(errors or lines or ['no output'])[-1][:300]}"
