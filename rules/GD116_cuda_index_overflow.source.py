"""int indices made of blockIdx and blockDim that are bounded by a 64-bit parameter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.cuda import functions, line, text, walk
from gpudoctor.source.evidence import at_line

_WIDE = re.compile(r"\b(size_t|int64_t|uint64_t|long|ptrdiff_t|ssize_t)\b")
_NARROW = re.compile(r"^(const\s+)?(int|int32_t|unsigned|unsigned int|uint32_t|auto)$")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Kernels only."""
    for function in functions(module):
        if function.space != "global":
            continue
        wide = {name for name, kind in function.parameters if _WIDE.search(kind) and "*" not in kind and "&" not in kind}
        if not wide:
            continue
        for node in walk(function.body):
            if node.type != "declaration":
                continue
            kind = text(node.child_by_field_name("type")) if node.child_by_field_name("type") is not None else ""
            for made in (c for c in node.named_children if c.type == "init_declarator"):
                name, value = text(made.child_by_field_name("declarator")), text(made.child_by_field_name("value"))
                if kind in ("int", "int32_t") and "blockIdx" in value and "blockDim" in value:
                    bound = _bound(function, name, wide)
                    if bound:
                        yield at_line(module, line(node), index=name, type=kind, bound=bound)


def _bound(function: Any, name: str, wide: set[str]) -> str:
    for node in walk(function.body):
        if node.type == "binary_expression":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if left is not None and right is not None and text(left) == name and text(right) in wide and node.children[1].type in ("<", ">=", "<=", ">"):
                return text(right)
    return ""
