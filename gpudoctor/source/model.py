"""The resolved model of one module: its program, followed from every place where it can start."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial

from gpudoctor.source.calls import class_kind
from gpudoctor.source.events import Event, Region
from gpudoctor.source.execute import Interpreter
from gpudoctor.source.project import Module
from gpudoctor.source.state import Class, Frame, Function
from gpudoctor.source.values import Value

MODULE_BUDGET, ROOT_BUDGET = 60_000, 20_000
_STEP_METHODS = ("training_step", "compute_loss")
_TRIGGERS = frozenset(["backward", "no_sync", "unscale_", "clip_grad_norm_", "clip_grad_value_", "zero_grad", "DataLoader", "DistributedDataParallel", "DataParallel", "GradScaler", "Stream", "Event", "current_stream", "wait_stream", "wait_event", "record_stream", "non_blocking", "pin_memory", "synchronize", "empty_cache", "load", "init_process_group", "barrier", "all_reduce", "broadcast", "all_gather", "all_gather_object", "gather", "reduce", "broadcast_object_list", "DistributedSampler", "set_epoch", "memory_reserved", "autocast", "prepare", "training_step", "compute_loss", "require_backward_grad_sync", "is_main_process", "get_rank", "LOCAL_RANK", "NCCL_SOCKET_IFNAME", "monitored_barrier", "reduce_scatter", "all_to_all", "new_group", "manual_backward", "set_device", "setup"])


class Model:
    """Roots (places where the program starts), and all events by name."""

    def __init__(self, module: Module, roots: list[Region], store: dict[tuple[int, str], Value] | None = None) -> None:
        self.module, self.roots = module, roots
        self._attributes: dict[int, dict[str, Value]] = defaultdict(dict)
        for (owner, name), value in (store or {}).items():
            if owner > 0:
                self._attributes[owner][name] = value
        self._by_fn: dict[str, list[Event]] = defaultdict(list)
        self.events: list[Event] = []
        for root in roots:
            for event in root.events():
                self.events.append(event)
                self._by_fn[event.fn].append(event)

    def calls(self, *names: str) -> list[Event]:
        """Events of these names, in program order."""
        if len(names) == 1:
            return self._by_fn.get(names[0], [])
        return sorted((e for n in names for e in self._by_fn.get(n, ())), key=lambda e: e.index)

    def attributes(self, value: Value) -> dict[str, Value]:
        """What was stored on an object, by attribute (and by `[key]`), at the end of the program."""
        return self._attributes.get(value.uid, {})

    def methods(self, *names: str) -> list[Event]:
        """Events of a method of that name on whatever receiver."""
        wanted = set(names)
        return sorted((e for fn, found in self._by_fn.items() if fn.rpartition(".")[2] in wanted and "." in fn for e in found), key=lambda e: e.index)

    def root_of(self, event: Event) -> Region:
        return next(r for r in event.region.around() if r.parent is None)


def build_model(module: Module) -> Model:
    """Follow the module's top level, then every function and class that it did not reach."""
    if module.tree is None or not module.relevant:
        return Model(module, [])
    machine = Interpreter(module, MODULE_BUDGET)
    machine.__dict__["_first"] = machine.frame
    machine.touch(module)
    top, roots = machine.frame, []
    first = Region("root", module.tree, module, None)
    _run(machine, first, top, lambda: machine.execute(module.tree.body if module.tree else []))
    roots.append(first)
    triggers = _triggers(module)
    for cls in _classes(module):
        roots += _class_roots(machine, top, cls, triggers)
    for node in _functions(module):
        if id(node) not in machine.reached and machine.budget > 0 and _relevant(module, node, triggers):
            root = Region("root", node, module, None)
            value = machine.store.get((top.id, node.name))
            fn = value.target if value is not None and value.op == "function" and value.node is node else Function(node, module)
            _run(machine, root, top, partial(machine.inline, fn, (), {"**": Value("unknown")}, node))
            roots.append(root)
    return Model(module, [r for r in roots if r.children], machine.store)


def _run(machine: Interpreter, root: Region, top: Frame, start: Callable[[], object]) -> None:
    machine.region, machine.frame, machine.conds = root, top, []
    machine.__dict__["_stack"] = []
    saved = machine.budget
    machine.budget = min(saved, ROOT_BUDGET)
    given = machine.budget
    root.first = machine.events
    with suppress(RecursionError):
        start()
    root.last = machine.events
    machine.region, machine.frame = root, top
    machine.budget = saved - (given - machine.budget)


def _class_roots(machine: Interpreter, top: Frame, node: ast.ClassDef, triggers: re.Pattern[str]) -> Iterator[Region]:
    methods = [m for m in node.body if isinstance(m, (ast.FunctionDef, ast.AsyncFunctionDef))]
    wanted = [m for m in methods if id(m) not in machine.reached and m.name != "__init__" and _relevant(machine.module, m, triggers)]
    init = next((m for m in methods if m.name == "__init__"), None)
    start = init is not None and id(init) not in machine.reached and _relevant(machine.module, init, triggers)
    if (not wanted and not start) or machine.budget <= 0:
        return
    value = machine.store.get((top.id, node.name))
    if value is None or value.op != "class" or value.node is not node:
        machine.frame = top
        value = machine.class_value(node)
    cls: Class = value.target
    root = Region("root", node, machine.module, None)
    made: list[Value] = []
    _run(machine, root, top, lambda: made.append(machine.construct(value, (), {"**": Value("unknown")}, node)))
    yield root
    if not made:
        return
    mutable = machine.mutable
    for key, old in [(k, v) for k, v in machine.store.items() if k[0] == made[0].uid and k[1] in mutable]:
        machine.store[key] = Value("or", (old, Value("unknown", name=key[1])))
    for method in wanted:
        if id(method) in machine.reached and method.name not in _STEP_METHODS:
            continue
        root = Region("root", method, machine.module, None)
        fn = cls.method(method.name) or Function(method, machine.module, None, cls)
        _run(machine, root, top, partial(_method, machine, cls, fn, method, made[0]))
        yield root


def _method(machine: Interpreter, cls: Class, fn: Function, node: ast.FunctionDef | ast.AsyncFunctionDef, value: Value) -> None:
    repeated = node.name in _STEP_METHODS and (class_kind(cls) == "lightning" or any(b.endswith("Trainer") for b in cls.library_bases()))
    region = machine.enter("loop", node) if repeated else None
    if region is not None:
        region.value = Value("unknown", name="lightning", kind="framework")
    marks = fn.decorators()
    result = machine.inline(fn, (), {"**": Value("unknown")}, node, None if "staticmethod" in marks else value)
    if result.op == "generator":
        bound = result.args[1:] if fn.owner is not None and result.args else result.args
        machine.run_function(fn, bound, result.kwargs, node, value, lambda _: "")
    if region is not None:
        machine.leave(region)


def _functions(module: Module) -> list[ast.FunctionDef]:
    return [s for found in module.bindings.values() for s in found if isinstance(s, ast.FunctionDef)]


def _classes(module: Module) -> list[ast.ClassDef]:
    return [s for found in module.bindings.values() for s in found if isinstance(s, ast.ClassDef)]


def _triggers(module: Module) -> re.Pattern[str]:
    """Names that make a function worth following, those imported under another name included."""
    renamed = (new for old, new in re.findall(r"(\w+)\s+as\s+(\w+)", module.text) if old in _TRIGGERS)
    return re.compile(rf"\b(?:{'|'.join(sorted({*_TRIGGERS, *renamed}))})\b")


def _relevant(module: Module, node: ast.stmt, triggers: re.Pattern[str]) -> bool:
    lines = module.__dict__.get("_lines") or module.__dict__.setdefault("_lines", module.text.split("\n"))
    return triggers.search("\n".join(lines[node.lineno - 1: node.end_lineno])) is not None


def unique(events: Iterable[Event]) -> list[Event]:
    """One event a place."""
    seen: dict[tuple[str, int, int], Event] = {}
    for e in events:
        seen.setdefault((e.module.path, e.line, getattr(e.node, "col_offset", 0)), e)
    return list(seen.values())
