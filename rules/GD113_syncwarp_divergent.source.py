"""Barriers under conditions that vary by lane (warp barriers) or within the block (block barriers)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.cuda import calls, functions, line, text
from gpudoctor.source.divergence import BY_LANE, BY_WARP, Divergence
from gpudoctor.source.evidence import at_line

_WARP = re.compile(r"__syncwarp$|__(shfl(_up|_down|_xor)?|ballot|any|all|reduce_\w+|match_\w+)_sync$")
_BLOCK = re.compile(r"__syncthreads(_count|_and|_or)?$")
_FULL = re.compile(r"^\(?\s*(0x[fF]{8}[uU]?|~0[uU]?|-1|FULL_MASK|0xffffffffffffffff)?\s*(,|\))")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """One finding a barrier, naming the innermost condition at fault. Partial masks are taken as meant."""
    if "sync" not in module.text:
        return
    for function in functions(module):
        if function.space == "host":
            continue
        found = [(name, node) for name, node in calls(function.body) if _WARP.match(name) or _BLOCK.match(name)]
        if not found:
            continue
        divergence = Divergence(function)
        for name, node in found:
            block = _BLOCK.match(name) is not None
            arguments = node.child_by_field_name("arguments")
            if not block and arguments is not None and not _FULL.match(text(arguments)):
                continue
            worst = [c for c, level in divergence.around(function.body, node) if level >= (BY_WARP if block else BY_LANE)]
            if worst:
                yield at_line(module, line(node), call=text(node), condition=" ".join(text(worst[-1]).split())[:60], group_name="block" if block else "warp")
