"""Streams: which one an operation runs on, and what orders two operations."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.source.events import Event, Region
from gpudoctor.source.model import Model
from gpudoctor.source.tensors import device_of, on_gpu
from gpudoctor.source.values import Value, alternatives, const_of, is_kind, of_kind, same

_DEFAULT = ("torch.cuda.current_stream", "torch.cuda.default_stream")
_METADATA = frozenset((
    "record_stream", "size", "dim", "numel", "data_ptr", "get_device", "element_size", "nelement", "is_contiguous", "stride", "view", "reshape", "detach",
    "is_pinned", "register_hook", "unsqueeze", "squeeze", "expand", "view_as", "requires_grad_", "transpose", "permute", "keys", "items", "values",
))
HOST_READS = frozenset(("item", "tolist", "cpu", "numpy"))
ORDERING = ("stream.wait_stream", "stream.wait_event", "stream.synchronize", "event.wait", "event.synchronize", "torch.cuda.synchronize", "event.query",
            "stream.query", "tensor.item", "tensor.tolist", "tensor.cpu", "work.wait", "?.wait", "?.synchronize", "?.wait_stream", "?.wait_event",
            "torch.accelerator.synchronize")


def stream_at(region: Region | None) -> Value | None:
    """The stream made current around `region`; None for the one that the caller runs on."""
    for r in region.around() if region is not None else ():
        if r.kind == "with" and r.value is not None:
            context = of_kind(r.value, "streamctx", "stream")
            if context is not None:
                stream = context if context.kind == "stream" else context.kwargs.get("stream", context.args[0] if context.args else None)
                if stream is None or const_of(stream, 0) is None or is_default(stream):
                    return None
                return stream
    return None


def is_default(stream: Value) -> bool:
    """True for `current_stream()` and `default_stream()`."""
    return any(a.op == "call" and a.name in _DEFAULT for a in alternatives(stream))


def apart(a: Value | None, b: Value | None) -> bool:
    """True if two streams are different for sure enough to speak of."""
    if a is None or b is None:
        return a is not b
    return not same(a, b) and all(x.op == "call" for s in (a, b) for x in alternatives(s))


def sources(value: Value, limit: int = 40) -> Iterator[tuple[Value, bool]]:
    """The operations that wrote a tensor's memory, through views, items, containers and joins; True with those of an earlier iteration."""
    seen: set[int] = set()
    stack = [(value, False)]
    while stack and len(seen) < limit:
        v, carried = stack.pop()
        if v.uid in seen:
            continue
        seen.add(v.uid)
        if v.op == "phi":
            stack += [(a, carried or at > 0) for at, a in enumerate(v.args)]
            continue
        if v.op in ("ite", "or"):
            parts: tuple[Value, ...] = v.args[1:] if v.op == "ite" else v.args
        elif v.op in ("item", "attr", "each", "tuple", "list", "comp") or (v.op == "call" and str(v.name).rpartition(".")[2] in _METADATA):
            parts = (*(v.args[:1] if v.op in ("item", "attr", "call") else v.args), *v.kwargs.values())
        elif v.op == "dict":
            parts = (*v.args, *v.kwargs.values())
        else:
            yield v, carried
            continue
        stack += [(p, carried) for p in parts]


def runs_async(value: Value) -> bool:
    """True for GPU work that goes on after the call returned."""
    if value.event is None or value.op not in ("call", "bin") or value.kind not in ("tensor", "grad"):
        return False
    method = str(value.name).rpartition(".")[2]
    if method in ("to", "cuda"):
        return const_of(value.kwargs.get("non_blocking"), None) is True and on_gpu(value)
    if method in ("cpu", "numpy", "pin_memory"):
        return False
    return on_gpu(value)


def uses(event: Event) -> bool:
    """True if the event reads tensors on the device."""
    head, _, method = event.fn.rpartition(".")
    if event.fn.startswith(("flow.", "builtins.", "stream.", "event.", "list.", "?.", "project.")) or event.fn in ("setattr", "setitem", "augassign"):
        return False
    if head in ("tensor", "batch"):
        return method not in _METADATA
    return method == "__call__" or head.startswith(("torch", "collective"))


def orders(wait: Event, producer: Value | None, consumer: Value | None) -> bool:
    """True if the event makes work on `consumer` (or the host) come after earlier work on `producer`."""
    if wait.fn in ("torch.cuda.synchronize", "torch.accelerator.synchronize"):
        return True
    if wait.fn == "stream.wait_stream":
        other = wait.arg(0, "stream")
        if other is None:
            return True
        if producer is None:
            return is_default(other) or not all(a.op == "call" for a in alternatives(other))
        return not (wait.recv is not None and same(wait.recv, producer)) and not apart(other, producer)
    if wait.fn == "stream.wait_event":
        return producer is None or not same(wait.recv, producer)
    if wait.fn == "stream.synchronize":
        return producer is None or wait.recv is None or (not apart(wait.recv, producer) and not is_default(wait.recv))
    if wait.fn in ("tensor.item", "tensor.tolist", "tensor.cpu"):
        here = stream_at(wait.region)
        return not apart(here, producer) and device_of(wait.recv) != "cpu"
    return True


def ordered(model: Model, made: Event, used: Event, producer: Value | None, consumer: Value | None, carried: bool = False) -> bool:
    """True if something between the two events orders them, as far as can be seen; `carried` if the use comes an iteration later."""
    for wait in model.calls(*ORDERING):
        if made.index < used.index and not carried:
            between = made.index < wait.index < used.index
        else:
            between = wait.index > made.index or wait.index < used.index
        if between and orders(wait, producer, consumer):
            return True
    return False


def created(model: Model) -> list[Event]:
    """Streams that the program makes."""
    return [e for e in model.calls("torch.cuda.Stream", "torch.Stream") if is_kind(e.result, "stream")]
