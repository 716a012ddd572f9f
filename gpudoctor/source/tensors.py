"""Where a tensor lives, as far as the source tells."""

from __future__ import annotations

from gpudoctor.source.values import Value, alternatives, const_of, is_kind

_FACTORY_DEVICE = ("device",)
_HOST = ("array",)


def device_of(value: Value | None, depth: int = 0) -> str:
    """`cuda`, `maybe` (a device chosen at run time), `cpu`, or empty where nothing is known."""
    if value is None or depth > 25:
        return ""
    found = {_one(a, depth) for a in alternatives(value)}
    for answer in ("cuda", "maybe", "cpu"):
        if answer in found:
            return "maybe" if answer == "cuda" and "cpu" in found else answer
    return ""


def _one(v: Value, depth: int) -> str:
    if v.op == "const" or v.kind == "array":
        return "cpu" if v.kind == "array" else ""
    if v.op in ("item", "attr", "each") and v.args:
        return _each(v, depth)
    if v.op == "bin" or v.op in ("neg", "expr"):
        return _strongest(v.args, depth)
    if v.op != "call":
        return ""
    name = str(v.name)
    method = name.rpartition(".")[2]
    if name in ("tensor.to", "batch.to", "?.to"):
        target = v.kwargs.get("device", v.args[1] if len(v.args) > 1 else None)
        return device_named(target) or device_of(v.args[0], depth + 1)
    if name in ("tensor.cuda", "batch.cuda"):
        return "cuda"
    if name in ("tensor.cpu", "batch.cpu", "tensor.pin_memory", "batch.pin_memory"):
        return "cpu"
    if name.endswith("__call__"):
        return "maybe" if v.kind == "tensor" else ""
    if name.startswith("torch.") and "device" in v.kwargs:
        return device_named(v.kwargs["device"]) or "maybe"
    if name.startswith("torch.") and v.kind == "tensor":
        if method in ("from_numpy", "tensor", "randn", "rand", "zeros", "ones", "empty", "arange", "full", "randint", "randperm", "linspace", "eye", "as_tensor"):
            return "cpu"
        return _strongest(v.args, depth)
    if name.startswith("tensor.") or name.startswith("batch."):
        return device_of(v.args[0], depth + 1) if v.args else ""
    if name.startswith(("accelerator.", "fabric.")):
        return "maybe"
    return ""


def _each(v: Value, depth: int) -> str:
    base = v.args[0]
    if is_kind(base, "loader"):
        return "maybe" if any(str(a.name).startswith(("accelerator.", "fabric.")) for a in alternatives(base)) else "cpu"
    if v.op == "attr" and v.name == "grad":
        return "maybe"
    if v.op == "attr" and v.kind not in ("tensor", "grad", "param", "batch"):
        return ""
    if is_kind(base, "params", "namedparams", "paramlist", "module", "ddp"):
        return "maybe"
    return device_of(base, depth + 1)


def _strongest(values: tuple[Value, ...], depth: int) -> str:
    found = {device_of(a, depth + 1) for v in values for a in (v.args if v.op in ("tuple", "list") else (v,))}
    return next((answer for answer in ("cuda", "maybe", "cpu") if answer in found), "")


def device_named(value: Value | None) -> str:
    """What a device argument means: `cuda`, `cpu`, `maybe`, or empty if it is no device."""
    if value is None:
        return ""
    answers = set()
    for a in alternatives(value):
        if a.op == "const" and isinstance(a.name, str):
            answers.add("cuda" if a.name.startswith("cuda") else "cpu" if a.name in ("cpu", "meta") else "maybe")
        elif (a.op == "const" and isinstance(a.name, int) and not isinstance(a.name, bool)) or a.kind == "rank":
            answers.add("cuda")
        elif a.op == "call" and a.name == "torch.device":
            answers.add(device_named(a.args[0]) if a.args else "maybe")
        elif a.kind == "device" or a.kind == "tensor":
            answers.add("maybe")
        elif a.op == "lib" and str(a.name).startswith("torch."):
            answers.add("")
        elif a.op in ("param", "attr", "unknown", "item", "call", "expr", "env"):
            answers.add("maybe")
    answers.discard("")
    if not answers:
        return ""
    return answers.pop() if len(answers) == 1 else "maybe"


def on_gpu(value: Value | None) -> bool:
    """True if the tensor is, or with a GPU would be, on the GPU."""
    return device_of(value) in ("cuda", "maybe")


def pinned(value: Value | None) -> bool:
    """True if the tensor is host memory that was pinned for sure."""
    return value is not None and any(
        a.op == "call" and (str(a.name).rpartition(".")[2] == "pin_memory" or const_of(a.kwargs.get("pin_memory")) is True) for a in alternatives(value))
