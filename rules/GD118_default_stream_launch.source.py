"""Launches without a stream where streams are in play."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.cuda import launches, line, text
from gpudoctor.source.evidence import at_line

_DEFAULT = ("0", "nullptr", "NULL", "cudaStreamLegacy", "cudaStreamDefault")
_TORCH = re.compile(r"#include\s*[<\"](torch/|ATen/|c10/)")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """In functions that make or receive streams, and in PyTorch extensions."""
    extension = _TORCH.search(module.text) is not None
    for launch in launches(module):
        stream = launch.settings[3].strip() if len(launch.settings) > 3 else "0"
        if stream not in _DEFAULT or launch.function is None or launch.function.space != "host":
            continue
        if "cudaStreamCreate" in text(launch.function.body) or any("cudaStream_t" in k for _, k in launch.function.parameters):
            yield at_line(module, line(launch.node), kernel=launch.kernel, beside="a stream that the function has at hand")
        elif extension and "CUDAStream" not in text(launch.function.body):
            yield at_line(module, line(launch.node), kernel=launch.kernel, beside="the stream that PyTorch made current")
