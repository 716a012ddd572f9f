"""Expressions to values: names, attributes, operators, comprehensions."""

from __future__ import annotations

import ast
import builtins
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from gpudoctor.source.library import canonical, is_library
from gpudoctor.source.project import Module
from gpudoctor.source.scopes import is_generator, walk
from gpudoctor.source.state import Class, Frame, Function, State
from gpudoctor.source.values import NONE, Value, alternatives, const, const_of, is_kind, of_kind

_BIN: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", operator.mul), ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv), ast.Mod: ("%", operator.mod), ast.Pow: ("**", operator.pow), ast.MatMult: ("@", operator.matmul),
    ast.BitAnd: ("&", operator.and_), ast.BitOr: ("|", operator.or_), ast.BitXor: ("^", operator.xor),
    ast.LShift: ("<<", operator.lshift), ast.RShift: (">>", operator.rshift),
}
_CMP: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne), ast.Lt: ("<", operator.lt), ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge), ast.Is: ("is", operator.is_), ast.IsNot: ("is not", operator.is_not),
    ast.In: ("in", lambda a, b: a in b), ast.NotIn: ("not in", lambda a, b: a not in b),
}
TENSORS = ("tensor", "grad", "param")
_NAMESPACES = ("new", "lib", "pymodule", "class", "super")
RANK_NAMES = frozenset(("rank", "local_rank", "global_rank", "process_index", "local_process_index", "is_main_process", "is_local_main_process",
                        "is_global_zero", "is_master", "is_main", "node_rank", "is_world_process_zero", "is_local_process_zero"))
WORLD_NAMES = frozenset(("world_size", "num_processes", "n_gpus", "num_gpus"))


class Expressions(State, ABC):
    """Evaluates expressions; calls are dispatched by `Calls`."""

    def evaluate(self, node: ast.expr | None) -> Value:
        if node is None:
            return NONE
        self.budget -= 1
        method = _EVALUATORS.get(type(node))
        return method(self, node) if method else self._generic(node)

    @abstractmethod
    def call_value(self, fn: Value, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value: ...

    @abstractmethod
    def method_call(self, obj: Value, method: str, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value: ...

    @abstractmethod
    def inline(self, fn: Function, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST, self_value: Value | None = None) -> Value: ...

    @abstractmethod
    def assign(self, target: ast.expr, value: Value, node: ast.AST) -> None: ...

    @abstractmethod
    def element(self, iterable: Value, node: ast.AST) -> tuple[Value, Value | None]: ...

    # names

    def lookup(self, name: str) -> Value:
        frame: Frame | None = self.frame
        module = self.frame.module
        if name not in self.frame.globals:
            while frame is not None:
                value = self.store.get((frame.id, name))
                if value is not None:
                    return self._settled(value, (frame.id, name))
                if frame.parent is None:
                    break
                frame = frame.parent
        return self.global_name(module, name)

    def global_name(self, module: Module, name: str) -> Value:
        """A name at the top level of a module, evaluated from its statement when first asked for."""
        top = self.top_frame(module)
        key = (top.id, name)
        value = self.store.get(key)
        if value is not None:
            return self._settled(value, key)
        statements = module.bindings.get(name)
        if statements is None:
            return Value("lib", name=f"builtins.{name}")
        self.store[key] = Value("unknown", name=name)
        value = self._bind_late(statements[-1], name, top)
        self.store[key] = value
        return value

    def _bind_late(self, statement: ast.stmt, name: str, top: Frame) -> Value:
        frame, region, conds = self.frame, self.region, self.conds
        self.frame, self.conds = top, []
        self.enter("aside", statement)
        value = Value("unknown", name=name)
        try:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                value = self.function_value(statement)
            elif isinstance(statement, ast.ClassDef):
                value = self.class_value(statement)
            elif isinstance(statement, (ast.Import, ast.ImportFrom)):
                self.bind_import(statement)
                value = self._settled(self.store.get((top.id, name), value), (top.id, name))
            elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
                if isinstance(target, ast.Name):
                    value = self.evaluate(statement.value)
        finally:
            self.frame, self.region, self.conds = frame, region, conds
            region.children.pop()
        return value

    def top_frame(self, module: Module) -> Frame:
        frames: dict[int, Frame] = self.__dict__.setdefault("_tops", {id(self.module): self.__dict__.get("_first", self.frame)})
        if id(module) not in frames:
            frames[id(module)] = Frame(module)
        return frames[id(module)]

    def _settled(self, value: Value, key: tuple[int, str]) -> Value:
        if value.op != "import":
            return value
        module: Module = value.target
        self.store[key] = Value("unknown", name=value.name)
        found = self.global_name(module, str(value.name)) if value.name in module.bindings else self._from_star(module, str(value.name))
        self.store[key] = found
        return found

    def _from_star(self, module: Module, name: str) -> Value:
        child = module.project.relative(1, name, module)
        return Value("pymodule", target=child) if child is not None else Value("unknown", name=name)

    def bind_import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Bind imported names; the project's own are settled when they are used."""
        module = self.frame.module
        if isinstance(node, ast.Import):
            for alias in node.names:
                dotted = alias.name if alias.asname else alias.name.split(".")[0]
                self.write((self.frame.id, alias.asname or dotted), self._module_value(dotted, module))
            return
        source = module.project.relative(node.level, node.module or "", module) if node.level else module.project.find(node.module or "", module)
        for alias in node.names:
            if alias.name == "*":
                self._bind_star(node, source)
                continue
            key = (self.frame.id, alias.asname or alias.name)
            if source is not None:
                self.write(key, Value("import", name=alias.name, target=source))
            else:
                dotted = f"{'.' * node.level}{node.module or ''}.{alias.name}"
                child = module.project.relative(node.level, f"{node.module}.{alias.name}" if node.module else alias.name, module) if node.level else (
                    module.project.find(f"{node.module}.{alias.name}", module))
                self.write(key, Value("pymodule", target=child) if child is not None else Value("lib", name=canonical(dotted)))

    def _bind_star(self, node: ast.ImportFrom, source: Module | None) -> None:
        if source is not None:
            for name in source.bindings:
                if not name.startswith("_"):
                    self.write((self.frame.id, name), Value("import", name=name, target=source))
        elif node.module and is_library(node.module):
            used = {n.id for n in walk(self.frame.module.tree) if isinstance(n, ast.Name)} if self.frame.module.tree else set()
            for name in used - self.frame.module.bindings.keys():
                if (self.frame.id, name) not in self.store and not hasattr(builtins, name) and name[:1] != "_" and _exported(node.module, name):
                    self.write((self.frame.id, name), Value("lib", name=canonical(f"{node.module}.{name}")))

    def _module_value(self, dotted: str, importer: Module) -> Value:
        found = importer.project.find(dotted, importer)
        if found is not None and found is not importer:
            return Value("pymodule", target=found)
        return Value("lib", name=canonical(dotted))

    def function_value(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, owner: Class | None = None) -> Value:
        top = self.frame.function is None
        captured: tuple[Value, ...] = ()
        if isinstance(node, ast.Lambda):
            names = dict.fromkeys(n.id for n in walk(node.body) if isinstance(n, ast.Name))
            captured = tuple(v for n in names if (v := self.store.get((self.frame.id, n))) is not None)
            held = [(n.value.id, n.attr) for n in walk(node.body) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
            captured += tuple(v for n, attr in held if (o := self.store.get((self.frame.id, n))) is not None and (v := self.store.get((o.uid, attr))) is not None)
        return Value("function", captured, node=node, target=Function(node, self.frame.module, None if top else self.frame, owner))

    def class_value(self, node: ast.ClassDef) -> Value:
        bases = [self.evaluate(b) for b in node.bases]
        return Value("class", node=node, name=node.name, target=Class(node, self.frame.module, bases, None if self.frame.function is None else self.frame))

    # attributes

    def load_attribute(self, obj: Value, name: str, node: ast.AST) -> Value:
        found = [a for a in alternatives(obj) if not (a.op == "const" and a.name is None)] or [obj]
        if len(found) == 1:
            return self._attribute(found[0], name, node)
        known = [a for a in found if a.kind or a.op in ("new", "lib", "pymodule", "class")] or found
        values = [self._attribute(a, name, node) for a in known[:4]]
        return values[0] if len({id(v) for v in values}) == 1 else Value("or", tuple(values), kind="", node=node)

    def _attribute(self, obj: Value, name: str, node: ast.AST) -> Value:
        if obj.op == "lib":
            return Value("lib", name=canonical(f"{obj.name}.{name}"))
        if obj.op == "pymodule":
            module: Module = obj.target
            return self.global_name(module, name) if name in module.bindings else self._from_star(module, name)
        stored = self.store.get((obj.uid, name))
        if stored is not None:
            return stored
        if obj.op in ("new", "class", "super"):
            found = self._class_attribute(obj, name, node)
            if found is not None:
                return found
        value = self._known_attribute(obj, name, node)
        self.store[(obj.uid, name)] = value
        self.heap.setdefault(name, set()).add((obj.uid, name))
        return value

    def _class_attribute(self, obj: Value, name: str, node: ast.AST) -> Value | None:
        cls: Class = obj.target
        method = cls.method(name, obj.name if obj.op == "super" else None)
        bound = obj.args[0] if obj.op == "super" else obj
        if method is not None:
            marks = method.decorators()
            if marks & {"property", "cached_property"}:
                return self.inline(method, (), {}, node, bound)
            if (obj.op == "class" and "classmethod" not in marks) or "staticmethod" in marks:
                return Value("function", target=method, node=method.node)
            return Value("bound", (bound,), target=method, node=method.node)
        if obj.op == "super":
            return Value("method", (bound,), name=name, node=node)
        for c in cls.ancestry():
            if name in c.attributes:
                return self.evaluate_in(c.attributes[name], c.module)
        return None

    def evaluate_in(self, node: ast.expr, module: Module) -> Value:
        frame, self.frame = self.frame, self.top_frame(module)
        try:
            return self.evaluate(node)
        finally:
            self.frame = frame

    def _known_attribute(self, obj: Value, name: str, node: ast.AST) -> Value:
        kind = obj.kind
        if kind in ("ddp", "fsdp", "dp", "apexddp") and name in ("module", "_orig_mod"):
            return obj.args[0] if obj.args and name == "module" else obj
        if kind == "module" and name == "_orig_mod":
            return obj
        made = ""
        if name == "grad" and kind in ("", "param", "tensor"):
            made = "grad"
        elif name == "param_groups" and kind == "optimizer":
            made = "paramgroups"
        elif kind in TENSORS and name in ("data", "T", "mT", "real", "imag", "H"):
            made = kind
        elif kind == "batch":
            made = "batch"
        elif name in RANK_NAMES:
            made = "rank"
        elif name in WORLD_NAMES and kind != "tensor":
            made = "world"
        elif name == "device":
            made = "device"
        elif name == "sync_gradients" and kind in ("accelerator", ""):
            made = "syncflag"
        elif kind == "loader" and name == "sampler" and obj.kwargs.get("sampler") is not None:
            return obj.kwargs["sampler"]
        elif kind == "loader" and name == "batch_sampler" and obj.kwargs.get("batch_sampler") is not None:
            return obj.kwargs["batch_sampler"]
        elif (kind == "loader" and name in ("dataset",) and obj.args) or (kind == "batchsampler" and name == "sampler" and obj.args):
            return obj.args[0]
        elif kind in ("module", "ddp") and name in ("weight", "bias"):
            made = "param"
        return Value("attr", (obj,), name=name, kind=made, node=node)

    # expressions

    def _generic(self, node: ast.AST) -> Value:
        parts = tuple(self.evaluate(c) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr))
        return Value("expr", parts, name=type(node).__name__, node=node)

    def _constant(self, node: ast.Constant) -> Value:
        return const(node.value, node)

    def _name(self, node: ast.Name) -> Value:
        return self.lookup(node.id) if node.id != "__name__" else Value("unknown", name="__name__")

    def _attribute_node(self, node: ast.Attribute) -> Value:
        return self.load_attribute(self.evaluate(node.value), node.attr, node)

    def _call(self, node: ast.Call) -> Value:
        obj: Value | None = None
        if isinstance(node.func, ast.Attribute):
            obj = self.evaluate(node.func.value)
            fn = obj
            if node.func.attr in ("module", "_orig_mod") or any(a.op in _NAMESPACES or (a.uid, node.func.attr) in self.store for a in alternatives(obj)):
                fn, obj = self.load_attribute(obj, node.func.attr, node.func), None
        else:
            fn = self.evaluate(node.func)
        args: list[Value] = []
        for a in node.args:
            if isinstance(a, ast.Starred):
                inner = self.evaluate(a.value)
                args += inner.args if inner.op in ("tuple", "list") else (Value("star", (inner,)),)
            else:
                args.append(self.evaluate(a))
        kwargs: dict[str, Value] = {}
        for k in node.keywords:
            value = self.evaluate(k.value)
            if k.arg is not None:
                kwargs[k.arg] = value
            elif value.op == "dict":
                kwargs |= value.kwargs
            else:
                kwargs["**"] = value
        if obj is not None and isinstance(node.func, ast.Attribute):
            return self.method_call(obj, node.func.attr, tuple(args), kwargs, node)
        return self.call_value(fn, tuple(args), kwargs, node)

    def _binary(self, node: ast.BinOp) -> Value:
        return self.binary(node.op, self.evaluate(node.left), self.evaluate(node.right), node)

    def binary(self, op: ast.operator, left: Value, right: Value, node: ast.AST) -> Value:
        symbol, apply = _BIN[type(op)]
        a, b = const_of(left, _NO), const_of(right, _NO)
        if a is not _NO and b is not _NO and isinstance(a, (int, float, str)) and isinstance(b, (int, float, str)) and not (
                symbol in ("**", "<<", "*") and not (_small(a) and _small(b))):
            try:
                return const(apply(a, b), node)
            except (TypeError, ValueError, ArithmeticError, OverflowError):
                pass
        kind = ""
        tensor = of_kind(left, *TENSORS, "batch") or of_kind(right, *TENSORS, "batch")
        if (tensor is not None and const_of(left) is None) or is_kind(right, *TENSORS):
            kind = "tensor" if tensor is not None else ""
        value = Value("bin", (left, right), name=symbol, kind=kind, node=node)
        value.region = self.region
        if kind:
            value.event = self.emit("tensor.op", node, None, (left, right), None, value)
        return value

    def _compare(self, node: ast.Compare) -> Value:
        left = self.evaluate(node.left)
        parts: list[Value] = []
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(right_node)
            symbol, apply = _CMP[type(op)]
            parts.append(self._compared(symbol, apply, left, right, node))
            left = right
        return parts[0] if len(parts) == 1 else Value("and", tuple(parts), node=node)

    def _compared(self, symbol: str, apply: Callable[[Any, Any], Any], left: Value, right: Value, node: ast.AST) -> Value:
        a, b = const_of(left, _NO), const_of(right, _NO)
        if a is not _NO and b is not _NO:
            try:
                return const(bool(apply(a, b)), node)
            except TypeError:
                pass
        if symbol in ("is", "is not") and const_of(right, _NO) is None:
            found = alternatives(left)
            if all((v.op in ("new", "call", "function", "class", "bound", "tuple", "list", "dict") and v.kind not in ("", "batch", "tensor")) or v.op == "new" for v in found):
                return const(symbol == "is not", node)
        kind = "tensor" if symbol not in ("is", "is not", "in", "not in") and (is_kind(left, *TENSORS) or is_kind(right, *TENSORS)) else ""
        return Value("cmp", (left, right), name=symbol, kind=kind, node=node)

    def _boolean(self, node: ast.BoolOp) -> Value:
        values = [self.evaluate(v) for v in node.values]
        for value in values[:-1]:
            self.test_event(value, node)
        return Value("and" if isinstance(node.op, ast.And) else "or", tuple(values), node=node)

    def test_event(self, value: Value, node: ast.AST) -> None:
        """A tensor used as a truth value is read by the host."""
        if value.kind == "tensor" and value.op in ("cmp", "call", "bin", "expr"):
            self.emit("tensor.bool", node, value)

    def _unary(self, node: ast.UnaryOp) -> Value:
        value = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            self.test_event(value, node)
            return Value("not", (value,), node=node) if not value.is_const else const(not value.name, node)
        number = const_of(value)
        if isinstance(node.op, ast.USub) and isinstance(number, (int, float)):
            return const(-number, node)
        return Value("neg", (value,), name=type(node.op).__name__, kind=value.kind if value.kind in TENSORS else "", node=node)

    def branch_value(self, node: ast.AST, cond: Value, then: Callable[[], Value], other: Callable[[], Value]) -> Value:
        """A value that depends on a condition; what its parts do stays in arms."""
        out: dict[bool, Value] = {}

        def run(truth: bool, part: Callable[[], Value]) -> str:
            out[truth] = part()
            return ""

        self.branch(node, cond, (lambda: run(True, then), lambda: run(False, other)))
        if len(out) == 1:
            return next(iter(out.values()))
        return Value("ite", (cond, out[True], out[False]), node=node)

    def _if_expression(self, node: ast.IfExp) -> Value:
        cond = self.evaluate(node.test)
        self.test_event(cond, node)
        return self.branch_value(node, cond, lambda: self.evaluate(node.body), lambda: self.evaluate(node.orelse))

    def _tuple(self, node: ast.Tuple | ast.List | ast.Set) -> Value:
        parts: list[Value] = []
        for e in node.elts:
            if isinstance(e, ast.Starred):
                inner = self.evaluate(e.value)
                parts += inner.args if inner.op in ("tuple", "list") else (Value("star", (inner,)),)
            else:
                parts.append(self.evaluate(e))
        return Value("tuple" if isinstance(node, ast.Tuple) else "list", tuple(parts), node=node)

    def _dict(self, node: ast.Dict) -> Value:
        entries: dict[str, Value] = {}
        rest: list[Value] = []
        for k, v in zip(node.keys, node.values, strict=True):
            value = self.evaluate(v)
            name = const_of(self.evaluate(k)) if k is not None else None
            if isinstance(name, str):
                entries[name] = value
            elif k is None and value.op == "dict":
                entries |= value.kwargs
            else:
                rest.append(value)
        return Value("dict", tuple(rest), kwargs=entries, node=node)

    def _subscript(self, node: ast.Subscript) -> Value:
        obj = self.evaluate(node.value)
        index = self.evaluate(node.slice) if not isinstance(node.slice, ast.Slice) else self._generic(node.slice)
        return self.item(obj, index, node)

    def item(self, obj: Value, index: Value, node: ast.AST) -> Value:
        at = const_of(index)
        if len(found := alternatives(obj)) > 1 and any(a.op in ("tuple", "list", "dict") for a in found):
            values = [self.item(a, index, node) for a in found[:4] if not (a.op == "const" and a.name is None)]
            return values[0] if len(values) == 1 else Value("or", tuple(values), node=node)
        if obj.op in ("tuple", "list") and isinstance(at, int) and -len(obj.args) <= at < len(obj.args) and not any(a.op == "star" for a in obj.args):
            return obj.args[at]
        if isinstance(at, (str, int)):
            stored = self.store.get((obj.uid, f"[{at!r}]"))
            if stored is not None:
                return stored
        if obj.op == "dict" and isinstance(at, str) and at in obj.kwargs:
            return obj.kwargs[at]
        if obj.op == "lib" and obj.name == "os.environ" and isinstance(at, str):
            return env_value(at, node)
        kind = "tensor" if is_kind(obj, *TENSORS) else "batch" if is_kind(obj, "batch") else ""
        if at == "params" and is_kind(obj, "paramgroup"):
            kind = "params"
        if is_kind(obj, "module") or is_kind(obj, "ddp"):
            kind = "module"
        value = Value("item", (obj, index), name=at if isinstance(at, (str, int)) else None, kind=kind, node=node)
        value.region = self.region
        if isinstance(at, (str, int)):
            self.store[(obj.uid, f"[{at!r}]")] = value
        return value

    def _lambda(self, node: ast.Lambda) -> Value:
        return self.function_value(node)

    def _joined(self, node: ast.JoinedStr) -> Value:
        parts = []
        for v in node.values:
            if isinstance(v, ast.FormattedValue):
                value = self.evaluate(v.value)
                if is_kind(value, *TENSORS):
                    self.emit("tensor.format", v.value, value)
                parts.append(value)
        return Value("expr", tuple(parts), name="format", kind="str", node=node)

    def _named(self, node: ast.NamedExpr) -> Value:
        value = self.evaluate(node.value)
        self.assign(node.target, value, node)
        return value

    def _await(self, node: ast.Await | ast.Starred) -> Value:
        return self.evaluate(node.value)

    def _yield(self, node: ast.Yield) -> Value:
        value = self.evaluate(node.value)
        handler = self.frame.on_yield
        if handler is not None:
            end = handler(value)
            if end in ("break", "return", "raise"):
                self.emit("flow.return", node)
        return Value("unknown", node=node)

    def _yield_from(self, node: ast.YieldFrom) -> Value:
        value = self.evaluate(node.value)
        if self.frame.on_yield is not None:
            region = self.enter("loop", node)
            region.value = value
            item, region.index_value = self.element(value, node)
            self.frame.on_yield(item)
            self.leave(region)
        return Value("unknown", node=node)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        opened = []
        for g in node.generators:
            source = self.evaluate(g.iter)
            region = self.enter("loop", node)
            region.value = source
            opened.append(region)
            region.item, region.index_value = self.element(source, node)
            self.assign(g.target, region.item, node)
            for test in g.ifs:
                self.test_event(self.evaluate(test), node)
        if isinstance(node, ast.DictComp):
            made: tuple[Value, ...] = (self.evaluate(node.key), self.evaluate(node.value))
        else:
            made = (self.evaluate(node.elt),)
        for region in reversed(opened):
            self.leave(region)
            if not region.children:
                self.region.children.pop()
        out = Value("comp", made, node=node)
        out.kind = "tensorlist" if is_kind(made[-1], *TENSORS) else "paramlist" if is_kind(made[-1], "param") else ""
        return out


def env_value(name: str, node: ast.AST, default: Value | None = None) -> Value:
    """What an environment variable holds."""
    kind = "rank" if name in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "GROUP_RANK") else (
        "world" if name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE") else "")
    return Value("env", (default,) if default is not None else (), name=name, kind=kind, node=node)


def _exported(module: str, name: str) -> bool:
    if module in ("torch.nn", "torch.optim", "torch.utils.data"):
        return name[:1].isupper() or name in ("functional", "init", "parallel", "utils")
    return module.startswith(("torch", "accelerate", "lightning", "pytorch_lightning"))


def _small(value: Any) -> bool:
    return not isinstance(value, (int, float)) or abs(value) < 4096


_NO = object()
_EVALUATORS: dict[type, Callable[..., Value]] = {
    ast.Constant: Expressions._constant, ast.Name: Expressions._name, ast.Attribute: Expressions._attribute_node, ast.Call: Expressions._call,
    ast.BinOp: Expressions._binary, ast.Compare: Expressions._compare, ast.BoolOp: Expressions._boolean, ast.UnaryOp: Expressions._unary,
    ast.IfExp: Expressions._if_expression, ast.Tuple: Expressions._tuple, ast.List: Expressions._tuple, ast.Set: Expressions._tuple,
    ast.Dict: Expressions._dict, ast.Subscript: Expressions._subscript, ast.Lambda: Expressions._lambda, ast.JoinedStr: Expressions._joined,
    ast.NamedExpr: Expressions._named, ast.Await: Expressions._await, ast.Starred: Expressions._await, ast.Yield: Expressions._yield,
    ast.YieldFrom: Expressions._yield_from, ast.ListComp: Expressions._comprehension, ast.SetComp: Expressions._comprehension,
    ast.GeneratorExp: Expressions._comprehension, ast.DictComp: Expressions._comprehension,
}
__all__ = ["Expressions", "env_value", "is_generator"]
