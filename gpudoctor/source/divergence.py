"""Which lanes reach a place in a kernel: how conditions vary between the threads of a block and of a warp."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.source.cuda import CudaFunction, Node, text, walk

UNIFORM, BY_WARP, BY_LANE = 0, 1, 2
_WARP_WORDS = re.compile(r"warp", re.I)
_MATH = frozenset(("min", "max", "abs", "fabsf", "fminf", "fmaxf", "sqrtf", "static_cast", "int", "float", "size_t", "__ldg", "floorf", "ceilf"))
_WARP_RESULTS = re.compile(r"__(any|all|ballot|reduce_\w+|shfl)_sync$|__activemask")


class Divergence:
    """How each variable of a function varies: the same in the block, by warp, or by lane."""

    def __init__(self, function: CudaFunction) -> None:
        self.levels: dict[str, int] = {}
        self.linear: set[str] = set()
        for _ in range(3):
            before = dict(self.levels)
            self._pass(function.body)
            if self.levels == before:
                break

    def level(self, node: Node) -> int:
        """How the value of an expression varies."""
        kind = node.type
        if kind == "identifier":
            return self.levels.get(text(node), UNIFORM)
        if kind == "field_expression":
            return _builtin(text(node), self.level(node.children[0]))
        if kind == "call_expression":
            return self._call(node)
        if kind in ("binary_expression", "assignment_expression"):
            return self._binary(node)
        if kind in ("lambda_expression", "string_literal", "number_literal", "sizeof_expression", "type_descriptor", "primitive_type"):
            return UNIFORM
        return max((self.level(c) for c in node.named_children), default=UNIFORM)

    def _call(self, node: Node) -> int:
        name = text(node.children[0])
        if _WARP_RESULTS.search(name) or "laneid" in name.lower() or "lane_id" in name:
            return BY_LANE if "lane" in name.lower() else BY_WARP
        if name.endswith("thread_rank"):
            return BY_LANE
        if name.startswith("atomic"):
            return BY_LANE
        if name.split("<")[0].split("::")[-1] in _MATH:
            return max((self.level(a) for a in node.named_children[1:]), default=UNIFORM)
        return UNIFORM

    def _binary(self, node: Node) -> int:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None:
            return UNIFORM
        operator = text(node.child_by_field_name("operator")) if node.child_by_field_name("operator") is not None else node.children[1].type
        a, b = self.level(left), self.level(right)
        if a == BY_LANE and b == UNIFORM:
            if (operator == "/" and (_multiple(right, 32) or _WARP_WORDS.search(text(right)))) or (operator == ">>" and text(right).strip("() ") == "5"):
                return BY_WARP
            if operator in ("<", ">=") and self._is_linear(left) and (_multiple(right, 32) or _WARP_WORDS.search(text(right))):
                return BY_WARP
        return max(a, b)

    def _is_linear(self, node: Node) -> bool:
        return text(node) == "threadIdx.x" or text(node) in self.linear

    def _pass(self, body: Node) -> None:
        for node, inside in _with_conditions(body, ()):
            if node.type == "init_declarator":
                target, value = node.child_by_field_name("declarator"), node.child_by_field_name("value")
            elif node.type == "assignment_expression":
                target, value = node.child_by_field_name("left"), node.child_by_field_name("right")
            else:
                continue
            if target is None or value is None or target.type != "identifier":
                continue
            name = text(target)
            if text(value) == "threadIdx.x":
                self.linear.add(name)
            level = max((self.level(value), *(self.level(c) for c in inside))) if node.type == "assignment_expression" else self.level(value)
            self.levels[name] = max(self.levels.get(name, UNIFORM), level)

    def around(self, body: Node, target: Node) -> Iterator[tuple[Node, int]]:
        """(condition, level) of the branches and loops around a node."""
        for node, inside in _with_conditions(body, ()):
            if node == target:
                yield from ((c, self.level(c)) for c in inside)
                return


def _with_conditions(node: Node, inside: tuple[Node, ...]) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    yield node, inside
    condition = node.child_by_field_name("condition") if node.type in (
        "if_statement", "while_statement", "for_statement", "switch_statement", "conditional_expression", "do_statement") else None
    constexpr = node.type == "if_statement" and any(c.type == "constexpr" for c in node.children)
    for child in node.children:
        under = condition is not None and not constexpr and child != condition and child.is_named and child.type not in ("declaration",)
        yield from _with_conditions(child, (*inside, condition) if under and condition is not None else inside)


def _builtin(name: str, below: int) -> int:
    if name == "threadIdx.x":
        return BY_LANE
    if name in ("threadIdx.y", "threadIdx.z"):
        return BY_WARP
    return below


def _multiple(node: Node, of: int) -> bool:
    digits = text(node).strip("() ").rstrip("uUlL")
    return digits.isdigit() and int(digits) > 0 and int(digits) % of == 0


__all__ = ["BY_LANE", "BY_WARP", "UNIFORM", "Divergence", "walk"]
