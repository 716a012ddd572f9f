"""Launches in functions that never look at an error, and runtime calls whose result is dropped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence, Severity
from gpudoctor.source import Module
from gpudoctor.source.cuda import calls, functions, launches, line, text
from gpudoctor.source.evidence import at_line

_CHECK = re.compile(r"(cuda|hip)(GetLastError|PeekAtLastError)|\b\w*(CHECK|Check|check|ERRCHK|errchk|Errchk|checkCuda|ASSERT|SAFE)\w*\s*\(|cuGetError")
_CALLS = frozenset(("cudaMalloc", "cudaMemcpy", "cudaMemcpyAsync", "cudaMallocHost", "cudaMallocAsync", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMallocManaged"))


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """One finding a function for launches, one a function for calls."""
    done: set[str] = set()
    for launch in launches(module):
        function = launch.function
        if function is None or function.name in done or function.space != "host":
            continue
        after = function.node.text[launch.node.end_byte - function.node.start_byte:].decode("utf-8", "replace")
        before = module.text.encode()[max(0, launch.node.start_byte - 80): launch.node.start_byte].decode("utf-8", "replace").rpartition(";")[2]
        if not _CHECK.search(after) and not _CHECK.search(before):
            done.add(function.name)
            yield at_line(module, line(launch.node), what=f"{launch.kernel}<<<…>>>")
    for function in functions(module):
        dropped = [(n, c) for n, c in calls(function.body) if n in _CALLS and c.parent is not None and c.parent.type == "expression_statement"] if function.space == "host" else []
        if dropped and "LastError" not in text(function.body):
            yield at_line(module, line(dropped[0][1]), group="call", severity=Severity.note, what=dropped[0][0])
