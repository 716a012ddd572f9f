"""What is missing when a table was not captured, in words, and which evidence would fill it."""

from __future__ import annotations

from collections.abc import Iterable, Set

from gpudoctor.rulebook.rule import Kind
from gpudoctor.tables.run import TABLES as RUN_TABLES

_CAPTURE = ("there is no GPU capture", "a capture: `gpudoctor run` on a GPU, nsys, or torch.profiler with CUDA sync events")
_RUN = ("the ranks were not watched", "`gpudoctor run train.py`")
_RACES = ("streams were not watched inside the ranks", "`gpudoctor run --sanitize train.py` on a GPU")
_SNAPSHOT = ("there is no allocator snapshot", "torch.cuda.memory._dump_snapshot() after _record_memory_history()")
_LOG = ("there are no NCCL logs", "NCCL_DEBUG=INFO, its output given to `gpudoctor analyze`")
_MACHINE = ("no card was seen", "a machine whose NVIDIA driver answers")

_BY_TABLE = {
    **dict.fromkeys(("gpu_op", "api", "sync", "event_record", "stream", "gpu_mem", "pystack", "cpu_op", "nvtx"), _CAPTURE),
    "race": _RACES,
    **dict.fromkeys(("mem_block", "mem_event", "mem_stack"), _SNAPSHOT),
    **dict.fromkeys(("log_line", "transport"), _LOG),
    **dict.fromkeys(("gpu", "link", "env_var", "host"), _MACHINE),
}


_ONLY_ON_DEMAND = ("race",)
_OF_A_RUN = {t.name for t in RUN_TABLES} | {"mem_sample"}


def unanswered(kind: Kind, needs: Iterable[str], captured: Set[str]) -> list[str]:
    """Return the needed tables that were not captured.

    Where the ranks were watched, a run's table without rows answers: what it tells did not happen.
    """
    watched = kind == "run" and "step" in captured
    return [t for t in needs if t not in captured and not (watched and t in _OF_A_RUN and t not in _ONLY_ON_DEMAND)]


def words(tables: Iterable[str]) -> tuple[str, str]:
    """Return (what is missing, what would help) for tables that were not captured; a run's own tables are the default."""
    return next((_BY_TABLE[t] for t in tables if t in _BY_TABLE), _RUN)
