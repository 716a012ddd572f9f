"""What is missing when a table was not captured, in words, and which evidence would fill it."""

from __future__ import annotations

from collections.abc import Iterable

_CAPTURE = ("there is no GPU capture", "a capture: `gpudoctor run` on a GPU, nsys, or torch.profiler with CUDA sync events")
_RUN = ("the ranks were not watched", "`gpudoctor run train.py`")
_SNAPSHOT = ("there is no allocator snapshot", "torch.cuda.memory._dump_snapshot() after _record_memory_history()")
_LOG = ("there are no NCCL logs", "NCCL_DEBUG=INFO, its output given to `gpudoctor analyze`")
_MACHINE = ("no card was seen", "a machine whose NVIDIA driver answers")

_BY_TABLE = {
    **dict.fromkeys(("gpu_op", "api", "sync", "event_record", "stream", "gpu_mem", "pystack", "cpu_op", "nvtx"), _CAPTURE),
    **dict.fromkeys(("mem_block", "mem_event", "mem_stack"), _SNAPSHOT),
    **dict.fromkeys(("log_line", "transport"), _LOG),
    **dict.fromkeys(("gpu", "link", "env_var", "host"), _MACHINE),
}


def words(tables: Iterable[str]) -> tuple[str, str]:
    """Return (what is missing, what would help) for tables that were not captured; a run's own tables are the default."""
    return next((_BY_TABLE[t] for t in tables if t in _BY_TABLE), _RUN)
