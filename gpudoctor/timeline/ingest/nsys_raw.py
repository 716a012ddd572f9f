"""The raw tables of an nsys export: which columns gpudoctor reads, and what every reader of them must offer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

import pyarrow as pa

_ACTIVITY = "start end deviceId contextId streamId correlationId globalPid"

WANTED: dict[str, str] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_ACTIVITY} demangledName shortName graphNodeId graphId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_ACTIVITY} bytes copyKind srcKind dstKind srcDeviceId dstDeviceId graphNodeId graphId",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_ACTIVITY} bytes memKind graphNodeId graphId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid correlationId nameId returnValue",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start end contextId streamId correlationId globalPid eventId eventSyncId",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "contextId streamId correlationId globalPid eventId eventSyncId",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": "start globalPid deviceId address bytes memKind memoryOperationType correlationId",
    "NVTX_EVENTS": "start end text:text textId globalTid",
    "PROFILER_OVERHEAD": "start end globalTid",
    "TARGET_INFO_CUDA_STREAM": "streamId processId contextId priority flag",
    "TARGET_INFO_CUDA_CONTEXT_INFO": "nullStreamId processId deviceId contextId",
    "TARGET_INFO_GPU": "name:text cuDevice busLocation:text totalMemory smCount uuid:text computeMajor computeMinor",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs",
    "ANALYSIS_DETAILS": "startTime stopTime",
    "DIAGNOSTIC_EVENT": "severity text:text",
    "StringIds": "id value:text",
}
ONLY = {"NVTX_EVENTS": ("eventType", (59, 60)), "CUPTI_ACTIVITY_KIND_RUNTIME": ("eventClass", (0, 1))}
"""Rows that are read: of NVTX, push/pop and start/end ranges; of calls, those of CUDA's runtime and driver, which backtraces repeat as a class of their own."""
LONGEST_TEXT = 4096


class RawTables(Protocol):
    """An nsys export as raw tables, wherever they lie."""

    def filled(self, table: str) -> bool:
        """True if the export has the table and a row in it."""

    def processes(self, table: str, column: str) -> set[int]:
        """The distinct values of `column >> 24`: process ids with host and machine."""

    def columns(self, table: str) -> set[str]:
        """The table's columns; empty if there is no such table."""

    def readers(self, table: str) -> list[pa.RecordBatchReader]:
        """The wanted columns as batches: int64 or string, columns that the export lacks are null. A large table comes in parts, to be read side by side."""

    def backtraces(self) -> Iterator[tuple[int, int, str]]:
        """globalTid, correlation id and JSON payload of every call whose Python frames were recorded."""

    def metadata(self) -> dict[str, str]:
        """The few facts about capture and export that are safe to keep."""


def wanted(table: str) -> list[tuple[str, bool]]:
    """The wanted columns of `table`, each with whether it is text."""
    return [(name, kind == "text") for name, _, kind in (c.partition(":") for c in WANTED[table].split())]


def schema(table: str) -> pa.Schema:
    """The Arrow schema of what `reader` returns."""
    return schema_of(wanted(table))


def schema_of(columns: Iterable[tuple[str, bool]]) -> pa.Schema:
    """The Arrow schema of columns, each with whether it is text."""
    return pa.schema([(name, pa.string() if text else pa.int64()) for name, text in columns])


_SAFE = (
    "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION", "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE",
    "PROCESS_0:COLLECT_GPU_MEMORY_USAGE", "PROCESS_0:COLLECT_CUDA_TRACE", "PROCESS_0:COLLECT_NVTX_TRACE",
)
_SECRET = re.compile(r"token|secret|passw|passphrase|credential|(api|access|private|account|storage|auth)_?key|auth(orization)?$", re.IGNORECASE)
_NUMBERS = {"RANK": "rank", "OMPI_COMM_WORLD_RANK": "rank", "PMI_RANK": "rank", "SLURM_PROCID": "rank", "WORLD_SIZE": "world_size"}


def safe_metadata(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What may be kept of a report's metadata: a few settings, and of the environment how many variables there are.

    How many of them have a secret's name is counted, and rank and world size, which are numbers, are taken; no other
    variable is.
    """
    out: dict[str, str] = {}
    variables = secrets = 0
    for name, value in pairs:
        if name in _SAFE:
            out[name] = value[:200]
        elif name.endswith(":ENVIRONMENT_VARIABLE"):
            variables += 1
            key, _, quoted = value.partition("=")
            number = quoted.strip().strip('"')
            secrets += _SECRET.search(key) is not None and bool(number)
            if key in _NUMBERS and number.isdecimal() and len(number) < 7:
                out.setdefault(_NUMBERS[key], number)
    return out | {"env_vars": str(variables), "secrets": str(secrets)}
