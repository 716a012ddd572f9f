"""Functions of Python and its libraries that the interpreter knows by heart."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpudoctor.source.evaluate import TENSORS, env_value
from gpudoctor.source.scopes import is_generator
from gpudoctor.source.values import NONE, Value, alternatives, const, const_of, is_kind

if TYPE_CHECKING:
    from gpudoctor.source.calls import Calls

Special = Callable[["Calls", tuple[Value, ...], dict[str, Value], ast.AST], Value | None]


def _len(self: Calls, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value | None:
    if args and args[0].op in ("tuple", "list") and not any(a.op == "star" for a in args[0].args) and (args[0].uid, "[*]") not in self.store:
        return const(len(args[0].args), node)
    return Value("len", args[:1], node=node)


def _getattr(self: Calls, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value | None:
    name = const_of(args[1]) if len(args) > 1 else None
    if not isinstance(name, str):
        return None
    obj = args[0]
    if (is_kind(obj, "ddp", "fsdp", "dp") and name == "module") or len(args) < 3:
        return self.load_attribute(obj, name, node)
    found = self.load_attribute(obj, name, node)
    return found if found.op in ("bound", "new", "function") else Value("or", (found, args[2]), node=node)


def _super(self: Calls, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value | None:
    frame = self.frame
    while frame is not None and frame.self_value is None and frame.parent is not None:
        frame = frame.parent
    if frame is None or frame.self_value is None or frame.self_value.op != "new":
        return Value("unknown", node=node)
    return Value("super", (frame.self_value,), name=frame.cls, target=frame.self_value.target, node=node)


def _partial(self: Calls, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value | None:
    return Value("partial", args, kwargs=kwargs, node=node) if args else None


def _getenv(self: Calls, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value | None:
    name = const_of(args[0]) if args else None
    return env_value(name, node, args[1] if len(args) > 1 else None) if isinstance(name, str) else None


def _spawn(self: Calls, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value | None:
    fn = args[0] if args else kwargs.get("fn")
    given = kwargs.get("args", args[1] if len(args) > 1 else NONE)
    self.emit("torch.multiprocessing.spawn", node, None, args, kwargs)
    if fn is not None:
        self.call_value(fn, (Value("param", name="rank", kind="rank", node=node), *(given.args if given.op == "tuple" else ())), {}, node)
    return Value("unknown", node=node)


def _launch(self: Calls, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value | None:
    given = args[1] if len(args) > 1 else kwargs.get("args", NONE)
    if args and args[0].op in ("function", "bound"):
        self.call_value(args[0], given.args if given.op == "tuple" else (), {}, node)
    return Value("unknown", node=node)


def _int(self: Calls, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value | None:
    if not args:
        return None
    v = args[0]
    if is_kind(v, *TENSORS):
        return None
    if v.op in ("env",) or is_kind(v, "rank", "world"):
        return v
    number = const_of(v)
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        return const(int(number), node)
    return v if v.op in ("bin", "attr", "param", "len", "cmp", "index") and not is_kind(v, "batch") else None


def _isinstance(self: Calls, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value | None:
    return Value("isinstance", args, node=node)


def _next(self: Calls, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value | None:
    if not args:
        return None
    for a in alternatives(args[0]):
        if a.op == "new" and (found := a.target.method("__next__")) is not None:
            return self.inline(found, (), {}, node, a)
    self.emit("builtins.next", node, None, args, kwargs)
    item, _ = self.element(args[0], node)
    return item


def _iter(self: Calls, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value | None:
    for a in alternatives(args[0]) if args else ():
        if a.op == "new" and (found := a.target.method("__iter__")) is not None and not is_generator(found.node):
            return self.inline(found, (), {}, node, a)
    return None


def _hasattr(self: Calls, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value | None:
    return Value("hasattr", args, node=node)


SPECIAL: dict[str, Special] = {
    "len": _len, "getattr": _getattr, "super": _super, "functools.partial": _partial, "os.environ.get": _getenv, "os.getenv": _getenv,
    "torch.multiprocessing.spawn": _spawn, "accelerate.notebook_launcher": _launch, "accelerate.launchers.notebook_launcher": _launch, "fire.Fire": _launch,
    "int": _int, "isinstance": _isinstance, "hasattr": _hasattr, "next": _next, "iter": _iter, "bool": _int,
}
