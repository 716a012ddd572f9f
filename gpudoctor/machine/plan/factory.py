"""Costs of a user's own model: played through on the meta device by a subprocess that imports torch."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from gpudoctor.errors import InputError, MissingExtraError
from gpudoctor.machine.plan.costs import Block, Costs

_SECONDS = 600
_ROOM_FOR_FP32 = 1.15  # in mixed precision norms, losses and softmax keep 32 bits


def costs_of_factory(factory: str, inputs: list[str], optimizers: list[str], precision: str) -> Costs:
    """Count `package.module:name`. InputError carries the last line of what went wrong in the user's code."""
    answer = _ask({"factory": factory, "inputs": inputs, "optimizers": optimizers, "precision": precision})
    if precision != "mixed":
        return _costs(factory, precision, answer)
    half = _ask({"factory": factory, "inputs": inputs, "optimizers": [], "precision": "bf16"})
    casts = 2 * answer["parameters"]
    for key in ("activations", "activations_checkpointed"):
        if key in half:
            answer[key] = round(half[key] * _ROOM_FOR_FP32) + casts
    answer["block_activations"] = [round(b * _ROOM_FOR_FP32) for b in half.get("block_activations", [])]
    answer.pop("peak", None)
    answer.pop("peak_checkpointed", None)
    return _costs(factory, precision, answer)


def _costs(factory: str, precision: str, a: dict[str, Any]) -> Costs:
    kept = a.get("block_activations") or [0] * len(a["blocks"])
    blocks = tuple(Block(b["name"], b["parameters"], k) for b, k in zip(a["blocks"], kept, strict=True))
    notes = [] if "activations" in a else ["no inputs were given, so activations are not counted: return (model, inputs) or give --input"]
    if precision == "mixed":
        notes.append("activations in mixed precision are estimated from a 16-bit run")
    return Costs(
        name=factory, precision=precision, batch=int(a["batch"]), parameters=a["parameters"], trainable=a["trainable"], buffers=a["buffer_bytes"],
        activations=a.get("activations", 0), activations_checkpointed=a.get("activations_checkpointed"), blocks=blocks,
        boundary=int(a.get("boundary", 0)), flops=float(a.get("flops", 0)), states=a["states"],
        peaks={k: v for k, v in a.get("peak", {}).items() if v}, peaks_checkpointed={k: v for k, v in a.get("peak_checkpointed", {}).items() if v},
        exact=precision != "mixed", notes=tuple(notes),
    )


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "gpudoctor.probes.model_cost", json.dumps(request)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(f"{request['factory']}: building the model took more than {_SECONDS} s") from None
    if done.returncode == 0:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer
    errors = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    last = next((line for line in reversed(errors) if "Error" in line or "Exception" in line), errors[-1] if errors else "no output")
    if "No module named 'torch'" in last:
        raise MissingExtraError("planning a module:factory needs PyTorch; install gpudoctor[run], or give a config.json or plain numbers")
    raise InputError(f"{request['factory']}: {last[:300]}")
