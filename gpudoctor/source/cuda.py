"""CUDA sources through tree-sitter: functions, launches and calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from gpudoctor.source.project import Module

Node = Any


@dataclass(frozen=True, slots=True)
class CudaFunction:
    """A function definition; `space` is global, device or host."""

    name: str
    space: str
    node: Node
    body: Node
    parameters: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """`kernel<<<grid, block, shared, stream>>>(…)`."""

    kernel: str
    node: Node
    settings: tuple[str, ...]
    function: CudaFunction | None


@cache
def _parser() -> Any:
    import tree_sitter_cuda
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_cuda.language()))


def functions(module: Module) -> list[CudaFunction]:
    """All function definitions of a CUDA module, parsed once."""
    found: list[CudaFunction] | None = module.__dict__.get("_functions")
    if found is None:
        root = _parser().parse(module.text.encode()).root_node
        found = module.__dict__["_functions"] = [f for n in walk(root) if n.type == "function_definition" and (f := _function(n)) is not None]
    return found


def walk(node: Node) -> Iterator[Node]:
    """The node and all below, in source order."""
    stack = [node]
    while stack:
        n = stack.pop()
        yield n
        stack.extend(reversed(n.children))


def text(node: Node) -> str:
    return str(node.text.decode("utf-8", "replace"))


def line(node: Node) -> int:
    """The node's line, from 1."""
    return int(node.start_point[0]) + 1


def calls(node: Node) -> Iterator[tuple[str, Node]]:
    """(name, node) of each call below, launches left out."""
    for n in walk(node):
        if n.type == "call_expression" and not any(c.type == "kernel_call_syntax" for c in n.children):
            callee = n.child_by_field_name("function") or n.children[0]
            yield text(callee), n


def launches(module: Module) -> Iterator[Launch]:
    """All kernel launches."""
    for function in functions(module):
        for n in walk(function.body):
            if n.type == "call_expression":
                syntax = next((c for c in n.children if c.type == "kernel_call_syntax"), None)
                if syntax is not None:
                    yield Launch(text(n.children[0]), n, tuple(text(c) for c in syntax.named_children), function)


def _function(node: Node) -> CudaFunction | None:
    body = node.child_by_field_name("body")
    declarator = node.child_by_field_name("declarator")
    if body is None or declarator is None:
        return None
    inner = next((n for n in walk(declarator) if n.type == "function_declarator"), None)
    if inner is None:
        return None
    head = node.text[: body.start_byte - node.start_byte].decode("utf-8", "replace")
    space = "global" if "__global__" in head else "device" if "__device__" in head else "host"
    parameters = inner.child_by_field_name("parameters")
    listed = tuple(_parameter(p) for p in parameters.named_children if p.type in ("parameter_declaration", "optional_parameter_declaration")) if parameters is not None else ()
    return CudaFunction(text(inner.child_by_field_name("declarator") or inner.children[0]), space, node, body, listed)


def _parameter(node: Node) -> tuple[str, str]:
    """(name, type as written, with stars and qualifiers)."""
    whole = text(node)
    name = next((text(n) for n in reversed(list(walk(node))) if n.type == "identifier"), "")
    return name, whole.rpartition(name)[0].strip() if name else whole
