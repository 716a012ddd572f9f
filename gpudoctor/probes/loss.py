"""What stands between the loss function and `backward`: its constant factors, read from the autograd graph."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from gpudoctor.probes.frames import Place, shown, user_frame

_THROUGH = ("ToCopyBackward", "ViewBackward", "SqueezeBackward", "CloneBackward", "UnsqueezeBackward", "ReshapeAliasBackward", "AliasBackward")
_WORLD = re.compile(r"world|num_?(proc|rank|replica|gpu|device|node)|n_?(gpu|rank|proc)s?$|device_count|^ws$", re.IGNORECASE)
_MAX_DEPTH = 12


@dataclass(frozen=True, slots=True)
class Loss:
    """The product of constant factors, each of them, and how the loss under them was reduced: mean, sum or unknown."""

    factor: float
    factors: tuple[float, ...]
    base: str


def describe(tensor: Any, loss_scales: set[int]) -> Loss | None:
    """Walk down from `tensor`; GradScaler's scale (by data pointer in `loss_scales`) is no factor. None without a graph."""
    node = getattr(tensor, "grad_fn", None)
    if node is None:
        return None
    factors: list[float] = []
    base = _walk(node, factors, loss_scales, 0)
    product = 1.0
    for factor in factors:
        product *= factor
    return Loss(product, tuple(factors), base)


def _walk(node: Any, factors: list[float], scales: set[int], depth: int) -> str:
    name = node.name()
    inputs = [fn for fn, _ in node.next_functions]
    if depth > _MAX_DEPTH:
        return "unknown"
    if name.startswith(_THROUGH) and inputs and inputs[0] is not None:
        return _walk(inputs[0], factors, scales, depth + 1)
    if name.startswith(("MulBackward", "DivBackward")) and len(inputs) == 2:
        if (inputs[0] is None) == (inputs[1] is None) or (inputs[0] is None and name[0] == "D"):
            return "unknown"
        value = _constant(node, "_saved_other" if inputs[1] is None else "_saved_self", scales)
        if value is None:
            return "unknown"
        if value:
            factors.append(value if name[0] == "M" else 1.0 / value)
        return _walk(inputs[0] or inputs[1], factors, scales, depth + 1)
    if name.startswith("AddBackward") and len(inputs) == 2:
        parts = [_walk(fn, [], scales, depth + 1) for fn in inputs if fn is not None]
        return parts[0] if parts and len(set(parts)) == 1 else "unknown"
    if "LossBackward" in name or "CrossEntropy" in name or "KlDiv" in name:
        return {0: "none", 1: "mean", 2: "sum"}.get(getattr(node, "_saved_reduction", -1), "unknown")
    return "mean" if name.startswith("MeanBackward") else "sum" if name.startswith("SumBackward") else "unknown"


def _constant(node: Any, attribute: str, scales: set[int]) -> float | None:
    """The number, 0.0 for a loss scale (no factor), None if it is not a constant on the host."""
    try:
        value = getattr(node, attribute)
    except (RuntimeError, AttributeError):
        return None
    if isinstance(value, torch.Tensor):
        if value.data_ptr() in scales:
            return 0.0
        if value.device.type != "cpu" or value.numel() != 1 or value.is_complex():
            return None
        return float(value.item())
    return float(value) if isinstance(value, (int, float)) else None


def place_of_world_factor() -> Place | None:
    """The line of the user's file that multiplies a loss by something named like the world size; None if there is none."""
    frame = user_frame()
    for _ in range(3):
        if frame is None:
            return None
        path = frame.f_code.co_filename
        if (line := _multiplication(path)) is not None:
            return Place(shown(path), line, frame.f_code.co_name)
        frame = frame.f_back
    return None


@cache
def _multiplication(path: str) -> int | None:
    try:
        tree = ast.parse(Path(path).read_text("utf-8"))
    except (OSError, ValueError, SyntaxError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            sides = node.left, node.right
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult):
            sides = node.target, node.value
        else:
            continue
        if any(_is_world(s) for s in sides) and any("loss" in ast.unparse(s).lower() or isinstance(s, ast.Call) for s in sides if not _is_world(s)):
            return node.lineno
    return None


def _is_world(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return not node.args and _is_world(node.func)
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return bool(_WORLD.search(name))
