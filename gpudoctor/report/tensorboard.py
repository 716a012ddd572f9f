"""TensorBoard event files from a run's tables: scalars and ready-made histograms, one run a rank and phase.

`write_events(store, run.tensorboard)` gives `LOGDIR/rank0.local`, `LOGDIR/rank0.reduced`, `LOGDIR/rank0` …; several runs side by side
are several folders in one logdir (`tensorboard --logdir gpudoctor-runs`). No tensor is read: histograms are the 64 log2
bins that the probes counted. Needs the package tensorboard.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from gpudoctor.errors import MissingExtraError
from gpudoctor.timeline.store import Store

_SCALARS = {
    "step/duration_ms": 'SELECT rank, step, ("end" - start) / 1e6 AS value, "end" AS at FROM step WHERE source = \'probe\'',
    "step/data_ms": "SELECT rank, step, data_ns / 1e6 AS value, \"end\" AS at FROM step WHERE data_ns IS NOT NULL",
    "step/forward_ms": "SELECT rank, step, forward_ns / 1e6 AS value, \"end\" AS at FROM step WHERE forward_ns IS NOT NULL",
    "step/backward_ms": "SELECT rank, step, backward_ns / 1e6 AS value, \"end\" AS at FROM step WHERE backward_ns IS NOT NULL",
    "step/optimizer_ms": "SELECT rank, step, optimizer_ns / 1e6 AS value, \"end\" AS at FROM step WHERE optimizer_ns IS NOT NULL",
    "step/learning_rate": "SELECT rank, step, lr AS value, \"end\" AS at FROM step WHERE lr IS NOT NULL",
    "amp/scale": "SELECT rank, step, scale AS value, NULL AS at FROM amp WHERE scale IS NOT NULL",
    "memory/allocated_MiB": "SELECT rank, step, max(allocated) / 1048576.0 AS value, max(t) AS at FROM mem_sample WHERE allocated IS NOT NULL AND step IS NOT NULL GROUP BY rank, step",
    "memory/reserved_MiB": "SELECT rank, step, max(reserved) / 1048576.0 AS value, max(t) AS at FROM mem_sample WHERE reserved IS NOT NULL AND step IS NOT NULL GROUP BY rank, step",
}
_NORMS = """SELECT s.rank, s.stage, s.step, coalesce(p.name, 'parameter ' || s.param_id) AS name, s.norm AS value
  FROM grad_stat AS s LEFT JOIN param AS p ON p.rank = s.rank AND p.param_id = s.param_id WHERE isfinite(s.norm)"""
_TOTALS = "SELECT rank, stage, step, sqrt(sum(norm * norm)) AS value FROM grad_stat WHERE isfinite(norm) GROUP BY rank, stage, step"
_HISTOGRAMS = """SELECT h.rank, h.stage, h.step, coalesce(p.name, 'parameter ' || h.param_id) AS name, h.bin, h.count, s.norm, s.absmax
  FROM grad_hist AS h LEFT JOIN param AS p ON p.rank = h.rank AND p.param_id = h.param_id
  LEFT JOIN grad_stat AS s ON s.rank = h.rank AND s.step = h.step AND s.param_id = h.param_id AND s.stage = h.stage"""


def write_events(store: Store, logdir: Path) -> list[Path]:
    """Write event files below `logdir` and return the folders made; nothing is made for a store without steps.

    Raises MissingExtraError if tensorboard is not installed.
    """
    writers = _Writers(logdir)
    for tag, sql in _SCALARS.items():
        for row in _ordered(store, sql):
            writers.scalar(_folder(row), tag, row)
    for row in _ordered(store, _TOTALS):
        writers.scalar(_folder(row), "gradient/norm", row)
    for row in _ordered(store, _NORMS):
        writers.scalar(_folder(row), f"gradient_norm/{row['name']}", row)
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in _ordered(store, _HISTOGRAMS):
        groups[_folder(row), f"gradient_log2/{row['name']}", int(row["step"])].append(row)
    for (folder, tag, step), rows in groups.items():
        writers.histogram(folder, tag, step, rows)
    return writers.close()


def _ordered(store: Store, sql: str) -> list[dict[str, Any]]:
    return store.query(f"SELECT * FROM ({sql}) ORDER BY ALL")


def _folder(row: dict[str, Any]) -> str:
    return f"rank{row['rank']}" + (f".{row['stage']}" if row.get("stage") else "")


class _Writers:
    """One event file for each folder, opened when it is first written to."""

    def __init__(self, logdir: Path) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise MissingExtraError("tensorboard is not installed; `pip install gpudoctor[run]` brings it, `--no-tensorboard` does without") from None
        self._event, self._summary, self._open_file = event_pb2, summary_pb2, EventFileWriter
        self._logdir = logdir
        self._files: dict[str, Any] = {}

    def scalar(self, folder: str, tag: str, row: dict[str, Any]) -> None:
        """One number at one step."""
        value = self._summary.Summary.Value(tag=tag, simple_value=float(row["value"]))
        self._put(folder, int(row["step"]), value, row.get("at"))

    def histogram(self, folder: str, tag: str, step: int, rows: list[dict[str, Any]]) -> None:
        """Counts by log2 magnitude, as TensorBoard's HistogramProto over log2|g|."""
        rows = sorted(rows, key=lambda r: int(r["bin"]))
        count = sum(int(r["count"]) for r in rows)
        if not count:
            return
        bins = {int(r["bin"]): int(r["count"]) for r in rows}
        edges = range(min(bins), max(bins) + 1)
        middles = sum((b + 0.5) * n for b, n in bins.items()), sum((b + 0.5) ** 2 * n for b, n in bins.items())
        proto = self._summary.HistogramProto(
            min=float(edges[0]), max=float(edges[-1] + 1), num=float(count), sum=middles[0], sum_squares=middles[1],
            bucket_limit=[float(b + 1) for b in edges], bucket=[float(bins.get(b, 0)) for b in edges],
        )
        self._put(folder, step, self._summary.Summary.Value(tag=tag, histo=proto), None)

    def close(self) -> list[Path]:
        """Flush all files and return their folders."""
        for file in self._files.values():
            file.close()
        return [self._logdir / name for name in self._files]

    def _put(self, folder: str, step: int, value: Any, at_ns: int | None) -> None:
        if folder not in self._files:
            self._files[folder] = self._open_file(str(self._logdir / folder))
        event = self._event.Event(wall_time=(at_ns or step * 1_000_000_000) / 1e9, step=step, summary=self._summary.Summary(value=[value]))
        self._files[folder].add_event(event)
