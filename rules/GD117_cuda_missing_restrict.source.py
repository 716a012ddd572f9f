"""Kernels with a const pointer and a mutable one, and no __restrict__ at all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.cuda import functions, line
from gpudoctor.source.evidence import at_line


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """One note a kernel."""
    for function in functions(module):
        pointers = [(n, k) for n, k in function.parameters if "*" in k] if function.space == "global" else []
        read = [n for n, k in pointers if re.search(r"\bconst\b", k)]
        written = [n for n, k in pointers if not re.search(r"\bconst\b", k)]
        if read and written and not any("restrict" in k for _, k in pointers):
            yield at_line(module, line(function.node), kernel=function.name, read=read[0], written=written[0])
