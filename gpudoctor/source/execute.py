"""Statements: branches, loops with carried values, with blocks, generators that run their consumer."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from gpudoctor.source.calls import Calls
from gpudoctor.source.evaluate import TENSORS
from gpudoctor.source.events import Region
from gpudoctor.source.scopes import Stored, is_generator
from gpudoctor.source.state import Frame, truth_of
from gpudoctor.source.values import NONE, Value, alternatives, const, const_of, is_kind

PENDING = Value("unknown", name="pending")
Body = Callable[[], str]


class Interpreter(Calls):
    """Executes statements."""

    def execute(self, body: Sequence[ast.stmt]) -> str:
        """Run statements until one ends the block; return how it ended: empty, return, continue, break or raise."""
        for statement in body:
            self.budget -= 1
            runner = _RUNNERS.get(type(statement))
            end = runner(self, statement) if runner else ""
            if end:
                return str(end)
        return ""

    # assignments

    def assign(self, target: ast.expr, value: Value, node: ast.AST) -> None:
        if isinstance(target, ast.Name):
            self.write(self._name_key(target.id), value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value, node)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, Value("list", (Value("star", (value,)),), node=node), node)
        elif isinstance(target, ast.Attribute):
            obj = self.evaluate(target.value)
            self.emit("setattr", node, obj, (const(target.attr), value))
            found = [a for a in alternatives(obj) if not a.is_const][:3]
            for a in found:
                old = self.store.get((a.uid, target.attr))
                self.write((a.uid, target.attr), value if len(found) == 1 or old is None else Value("or", (old, value)))
        elif isinstance(target, ast.Subscript):
            obj = self.evaluate(target.value)
            index = self.evaluate(target.slice)
            self.emit("setitem", node, obj, (index, value))
            at = const_of(index)
            for a in alternatives(obj)[:2]:
                name = f"[{at!r}]" if isinstance(at, (str, int)) else "[*]"
                old = self.store.get((a.uid, name)) if name == "[*]" else None
                self.write((a.uid, name), value if old is None else Value("or", (old, value)))

    def _name_key(self, name: str) -> tuple[int, str]:
        frame: Frame | None = self.frame
        assert frame is not None
        if name in frame.globals:
            while frame.parent is not None:
                frame = frame.parent
                if (frame.id, name) in self.store:
                    break
            return (frame.id, name)
        return (frame.id, name)

    def _unpack(self, target: ast.Tuple | ast.List, value: Value, node: ast.AST) -> None:
        if value.op in ("tuple", "list") and len(value.args) == len(target.elts) and not any(isinstance(e, ast.Starred) for e in target.elts) and not any(
                a.op == "star" for a in value.args):
            for element, part in zip(target.elts, value.args, strict=True):
                self.assign(element, part, node)
            return
        for at, element in enumerate(target.elts):
            if isinstance(element, ast.Starred):
                self.assign(element.value, Value("list", (Value("star", (value,)),), node=node), node)
            else:
                self.assign(element, self.item(value, const(at), node), node)

    def _assign(self, node: ast.Assign) -> str:
        value = self.evaluate(node.value)
        for target in node.targets:
            self.assign(target, value, node)
        return ""

    def _annotated_assign(self, node: ast.AnnAssign) -> str:
        if node.value is not None:
            self.assign(node.target, self.evaluate(node.value), node)
        return ""

    def _augmented(self, node: ast.AugAssign) -> str:
        load = ast.copy_location(_as_load(node.target), node.target)
        old = self.evaluate(load)
        right = self.evaluate(node.value)
        value = self.binary(node.op, old, right, node)
        if is_kind(old, "grad", "param"):
            value.kind = "grad"
        self.emit("augassign", node, old, (right,), None, value)
        if isinstance(node.target, ast.Name):
            self.write(self._name_key(node.target.id), value)
        elif isinstance(node.target, ast.Attribute):
            for a in alternatives(self.evaluate(node.target.value))[:3]:
                self.write((a.uid, node.target.attr), value)
        return ""

    # control

    def _if(self, node: ast.If) -> str:
        cond = self.evaluate(node.test)
        self.test_event(cond, node.test)
        if _is_main(node.test):
            return self.execute(node.body) if self.frame.module is self.module else ""
        return self.branch(node, cond, (lambda: self.execute(node.body), lambda: self.execute(node.orelse)))

    def _match(self, node: ast.Match) -> str:
        subject = self.evaluate(node.subject)
        end = ""
        for case in node.cases:
            cond = Value("expr", (subject,), name="match", node=case.pattern)
            end = self.branch(node, cond, (lambda case=case: self.execute(case.body), lambda: ""))  # type: ignore[misc]
        return end if end == "raise" else ""

    def loop(self, node: ast.AST, body: Sequence[ast.AST], run: Callable[[Region], str]) -> Region:
        """Run a loop's body once, with carried values as phis."""
        region = self.enter("loop", node)
        stored = self._stored(node, body)
        keys: list[tuple[int, str]] = [(self._name_key(n)) for n in stored.names]
        attributes = stored.attributes | self.stored_by(stored.called)
        for frame_id, consumer in self.frame.waiting:
            keys += [(frame_id, n) for n in consumer.names]
            attributes |= consumer.attributes | self.stored_by(consumer.called)
        for attribute in attributes & self.heap.keys():
            keys += self.heap[attribute]
        phis: list[tuple[tuple[int, str], Value]] = []
        for key in dict.fromkeys(keys):
            before = self.store.get(key)
            if before is not None and before.op not in ("function", "class", "import", "lib", "pymodule"):
                phi = Value("phi", (before, PENDING), name=key[1])
                phi.region = region
                self.write(key, phi)
                phis.append((key, phi))
        record: tuple[int, list[Any]] = (len(self.conds), [])
        self.frame.loops.append(record)
        self.carried.append([key for key, _ in phis])
        end = run(region)
        self.carried.pop()
        self.frame.loops.pop()
        for key, phi in phis:
            after = self.store.get(key, phi)
            if end in ("break", "return", "raise") and not record[1]:
                after = phi.args[0]
            for conds, values in reversed(record[1]):
                early = values.get(key, phi)
                for cond, truth in reversed(conds):
                    if early is not after:
                        after = Value("ite", (cond, early, after) if truth else (cond, after, early))
            if after is phi:
                phi.args = (phi.args[0],)
                self.write(key, phi.args[0])
            else:
                phi.args = (phi.args[0], after)
                self.write(key, phi)
                region.phis.append(phi)
        self.leave(region)
        return region

    def _stored(self, node: ast.AST, body: Sequence[ast.AST]) -> Stored:
        memo: dict[int, Stored] = self.frame.module.__dict__.setdefault("_stored", {})
        if id(node) not in memo:
            memo[id(node)] = Stored(body)
        return memo[id(node)]

    def _while(self, node: ast.While) -> str:
        def run(region: Region) -> str:
            cond = self.evaluate(node.test)
            self.test_event(cond, node.test)
            region.cond = cond
            return self.execute(node.body)

        self.loop(node, [node.test, *node.body], run)
        return self.execute(node.orelse)

    def _for(self, node: ast.For | ast.AsyncFor) -> str:
        source = self.evaluate(node.iter)
        base, wrap = self._producer(source)
        if base is not None:
            return self._for_generator(node, base, wrap)

        def run(region: Region) -> str:
            region.value = source
            region.item, region.index_value = self.element(source, node)
            self.assign(node.target, region.item, node)
            return self.execute(node.body)

        self.loop(node, [node.target, *node.body], run)
        return self.execute(node.orelse)

    def _producer(self, source: Value) -> tuple[Value | None, Callable[[Value], Value]]:
        """The project's generator behind an iterable, through enumerate, tqdm and `__iter__`."""
        if source.op == "generator":
            return source, lambda v: v
        if source.op == "wrap" and source.args:
            return self._producer(source.args[0])
        if source.op == "call" and source.name == "builtins.enumerate" and source.args:
            base, wrap = self._producer(source.args[0])
            start = source.args[1] if len(source.args) > 1 else source.kwargs.get("start", const(0))
            index = Value("index", (start,), name="enumerate", node=source.node)
            return base, lambda v: Value("tuple", (index, wrap(v)))
        for a in alternatives(source):
            if a.op == "generator":
                return a, lambda v: v
            if a.op == "new" and a.target is not None and (found := a.target.method("__iter__")) is not None:
                self.reached.add(id(found.node))
                if is_generator(found.node):
                    return Value("generator", (a,), target=found, node=source.node), lambda v: v
                if a.target.method("__next__") is not None:
                    return Value("iterator", (a,), target=a.target, node=source.node), lambda v: v
        return None, lambda v: v

    def _for_generator(self, node: ast.For | ast.AsyncFor, base: Value, wrap: Callable[[Value], Value]) -> str:
        if base.op == "iterator":
            start, follow = base.target.method("__iter__"), base.target.method("__next__")
            if self._may_follow(start):
                self.inline(start, (), {}, node, base.args[0])

            def run(region: Region) -> str:
                region.value = base.args[0]
                item = self.inline(follow, (), {}, node, base.args[0])
                region.item = item
                self.assign(node.target, wrap(item), node)
                return self.execute(node.body)

            self.loop(node, [node.target, *node.body], run)
            return self.execute(node.orelse)
        consumer, fn = self.frame, base.target
        if not self._may_follow(fn):
            def plain(region: Region) -> str:
                region.value = base
                self.assign(node.target, wrap(Value("each", (base,), kind="batch", node=node)), node)
                return self.execute(node.body)

            self.loop(node, [node.target, *node.body], plain)
            return ""
        names = self._stored(node, [node.target, *node.body])
        ends: list[str] = []

        def consume(value: Value) -> str:
            producer, region = self.frame, self.region
            if len(ends) >= 3:
                return ""
            self.frame = consumer
            body = self.enter("body", node)
            body.value = base
            self.assign(node.target, wrap(value), node)
            record: tuple[int, list[Any]] = (len(self.conds), [])
            consumer.loops.append(record)
            end = self.execute(node.body)
            consumer.loops.pop()
            body.last = self.events
            self.frame, self.region = producer, region
            ends.append(end)
            return "" if end == "continue" else end

        self_value, args = (base.args[0], base.args[1:]) if fn.owner is not None and base.args and "staticmethod" not in fn.decorators() else (None, base.args)
        waiting = [(consumer.id, names), *consumer.waiting]
        self.reached.add(id(fn.node))
        self.run_function(fn, args, base.kwargs, node, self_value, consume, waiting)
        return self.execute(node.orelse)

    def _may_follow(self, fn: Any) -> bool:
        stack = self._frame_stack
        return fn is not None and self.budget > 0 and len(stack) < 14 and not any(f.function is not None and f.function.node is fn.node for f in stack)

    def element(self, iterable: Value, node: ast.AST) -> tuple[Value, Value | None]:
        """One item of an iterable, and the loop's counter if it has one."""
        for a in alternatives(iterable):
            if a.op == "call" and a.name == "builtins.enumerate" and a.args:
                start = a.args[1] if len(a.args) > 1 else a.kwargs.get("start", const(0))
                index = Value("index", (start,), name="enumerate", node=node)
                item, _ = self.element(a.args[0], node)
                return Value("tuple", (index, item)), index
            if a.op == "call" and a.name == "builtins.range":
                index = Value("index", (a.args[0] if len(a.args) > 1 else const(0),), name="range", node=node)
                return index, index
            if a.op == "wrap" and a.name == "tqdm.trange":
                index = Value("index", (a.args[0] if len(a.args) > 1 else const(0),), name="range", node=node)
                return index, index
            if a.op == "wrap" and a.args:
                return self.element(a.args[0], node)
            if a.op == "call" and a.name == "builtins.zip":
                parts = [self.element(x, node) for x in a.args]
                return Value("tuple", tuple(p[0] for p in parts)), next((p[1] for p in parts if p[1] is not None), None)
            if a.op == "call" and a.name in ("builtins.filter", "builtins.map") and len(a.args) > 1:
                if a.name == "builtins.map":
                    item, index_value = self.element(a.args[1], node)
                    return Value("expr", (item,), name="map", kind=item.kind, node=node), index_value
                return self.element(a.args[1], node)
        return self._plain_element(iterable, node), None

    def _plain_element(self, iterable: Value, node: ast.AST) -> Value:
        kind = ""
        for a in alternatives(iterable):
            stored = self.store.get((a.uid, "[*]"))
            if stored is not None:
                return stored
            if a.op in ("tuple", "list") and a.args and not any(x.op == "star" for x in a.args):
                return a.args[0] if len(a.args) == 1 else Value("or", a.args, node=node)
            if a.op == "comp":
                return a.args[-1]
            if a.kind in ("params", "paramlist"):
                kind = "param"
            elif a.kind in ("namedparams", "namedmodules"):
                inner = Value("each", (iterable,), kind="param" if a.kind == "namedparams" else "module", node=node)
                return Value("tuple", (Value("unknown", node=node), inner), node=node)
            elif a.kind == "modules":
                kind = "module"
            elif a.kind in ("loader", "batch", "dataset"):
                kind = "batch"
            elif a.kind in (*TENSORS, "tensorlist"):
                kind = "tensor"
            elif a.op == "attr" and a.name == "param_groups":
                kind = "paramgroup"
            elif a.op == "call" and not kind and any(is_kind(x, "loader") for x in a.args):
                kind = "batch"
        value = Value("each", (iterable,), kind=kind, node=node)
        value.region = self.region
        return value

    def _with(self, node: ast.With | ast.AsyncWith) -> str:
        return self._with_items(node, 0)

    def _with_items(self, node: ast.With | ast.AsyncWith, at: int) -> str:
        if at == len(node.items):
            return self.execute(node.body)
        item = node.items[at]
        context = self.evaluate(item.context_expr)
        managed = next((a for a in alternatives(context) if a.op == "generator" and a.kind == "context"), None)
        if managed is not None and self._may_follow(managed.target):
            return self._with_generator(node, at, managed)
        instance = next((a for a in alternatives(context) if a.op == "new" and a.target is not None and a.target.method("__enter__")), None)
        region = self.enter("with", node)
        region.value = context
        entered = context
        if instance is not None:
            entered = self.inline(instance.target.method("__enter__"), (), {}, item.context_expr, instance)
        if item.optional_vars is not None:
            self.assign(item.optional_vars, entered, node)
        end = self._with_items(node, at + 1)
        if instance is not None and (leave := instance.target.method("__exit__")) is not None:
            self.inline(leave, (NONE, NONE, NONE), {}, item.context_expr, instance)
        self.leave(region)
        return end

    def _with_generator(self, node: ast.With | ast.AsyncWith, at: int, managed: Value) -> str:
        consumer, fn, ends = self.frame, managed.target, [""]
        item = node.items[at]

        def consume(value: Value) -> str:
            producer, region = self.frame, self.region
            self.frame = consumer
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, node)
            ends[0] = self._with_items(node, at + 1)
            self.frame, self.region = producer, region
            return ""

        self_value, args = (managed.args[0], managed.args[1:]) if fn.owner is not None and managed.args else (None, managed.args)
        self.run_function(fn, args, managed.kwargs, node, self_value, consume)
        return ends[0]

    def _try(self, node: ast.Try) -> str:
        region = self.enter("try", node)
        end = self.execute(node.body)
        if not end:
            end = self.execute(node.orelse)
        falls = False
        for handler in node.handlers:
            outer = self.enter("handler", handler)
            mark = len(self.journal)
            if handler.name:
                self.write((self.frame.id, handler.name), Value("unknown", node=handler))
            how = self.execute(handler.body)
            changed = self.changes(mark)
            self.undo(mark)
            if not how:
                falls = True
                for key, value in changed.items():
                    before = self.store.get(key)
                    self.write(key, value if before is None else Value("or", (before, value)))
            self.leave(outer)
        self.leave(region)
        last = self.execute(node.finalbody)
        return last or ("" if falls else end)

    # jumps and definitions

    def _return(self, node: ast.Return) -> str:
        value = self.evaluate(node.value)
        self.frame.returns.append((value, self.conds[self.frame.conds:]))
        self.emit("flow.return", node)
        return "return"

    def _continue(self, node: ast.Continue) -> str:
        if self.frame.loops:
            start, record = self.frame.loops[-1]
            record.append((self.conds[start:], {k: self.store[k] for k in self.carried[-1] if k in self.store} if self.carried else {}))
        self.emit("flow.continue", node)
        return "continue"

    def _break(self, node: ast.Break) -> str:
        self.emit("flow.break", node)
        return "break"

    def _raise(self, node: ast.Raise) -> str:
        if node.exc is not None:
            self.evaluate(node.exc)
        self.emit("flow.raise", node)
        return "raise"

    def _expression(self, node: ast.Expr) -> str:
        if not isinstance(node.value, ast.Constant):
            self.evaluate(node.value)
        return ""

    def _assert(self, node: ast.Assert) -> str:
        value = self.evaluate(node.test)
        self.test_event(value, node.test)
        return ""

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        self.write((self.frame.id, node.name), self.function_value(node))
        return ""

    def _class(self, node: ast.ClassDef) -> str:
        self.write((self.frame.id, node.name), self.class_value(node))
        return ""

    def _import(self, node: ast.Import | ast.ImportFrom) -> str:
        self.bind_import(node)
        return ""

    def _global(self, node: ast.Global | ast.Nonlocal) -> str:
        self.frame.globals |= set(node.names)
        return ""


def _as_load(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    if isinstance(target, ast.Attribute):
        return ast.Attribute(target.value, target.attr, ast.Load())
    assert isinstance(target, ast.Subscript)
    return ast.Subscript(target.value, target.slice, ast.Load())


def _is_main(test: ast.expr) -> bool:
    return (isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"
            and isinstance(test.ops[0], ast.Eq))


_RUNNERS: dict[type, Callable[..., str]] = {
    ast.Assign: Interpreter._assign, ast.AnnAssign: Interpreter._annotated_assign, ast.AugAssign: Interpreter._augmented, ast.If: Interpreter._if,
    ast.For: Interpreter._for, ast.AsyncFor: Interpreter._for, ast.While: Interpreter._while, ast.With: Interpreter._with, ast.AsyncWith: Interpreter._with,
    ast.Try: Interpreter._try, ast.TryStar: Interpreter._try, ast.Return: Interpreter._return, ast.Continue: Interpreter._continue,
    ast.Break: Interpreter._break, ast.Raise: Interpreter._raise, ast.Expr: Interpreter._expression, ast.Assert: Interpreter._assert,
    ast.FunctionDef: Interpreter._function, ast.AsyncFunctionDef: Interpreter._function, ast.ClassDef: Interpreter._class,
    ast.Import: Interpreter._import, ast.ImportFrom: Interpreter._import, ast.Global: Interpreter._global, ast.Nonlocal: Interpreter._global,
    ast.Match: Interpreter._match,
}
__all__ = ["Interpreter", "truth_of"]
