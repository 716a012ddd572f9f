"""torchrun's engine with one addition: how each rank ended is written down.

Run as `python -m gpudoctor.launch.agent ENDS TORCHRUN-ARGUMENTS…`; ENDS is a file that receives
`{rank: {"pid", "exit_code", "signal"}}` as JSON for every rank that failed.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run torchrun with `arguments[1:]`; 0, 1 if a rank failed, 128 + signal if the agent itself was told to stop."""
    ends = Path(arguments[0])
    _die_with_parent()
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.run(run.parse_args(arguments[1:]))
    except ChildFailedError as error:
        _write(ends, error)
        return 1
    except SignalException as stopped:
        return 128 + int(stopped.sigval)
    return 0


def _write(ends: Path, error: ChildFailedError) -> None:  # type: ignore[name-defined]  # noqa: F821
    rows = {
        rank: {"pid": f.pid, "exit_code": f.exitcode if f.exitcode >= 0 else 128 - f.exitcode, "signal": max(0, -f.exitcode)}
        for rank, f in error.failures.items()
    }
    with suppress(OSError):
        ends.write_text(json.dumps(rows), "utf-8")


def _die_with_parent() -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
