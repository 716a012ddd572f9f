"""Calls: the project's functions are followed, the libraries' are named and typed."""

from __future__ import annotations

import ast
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from gpudoctor.source.evaluate import TENSORS, Expressions
from gpudoctor.source.known_functions import SPECIAL
from gpudoctor.source.library import (
    COLLECTIVES,
    MODULE_SELF,
    PASS_THROUGH,
    canonical,
    is_module_base,
    kind_of_call,
)
from gpudoctor.source.scopes import Stored, is_generator, walk
from gpudoctor.source.state import Class, Frame, Function, folded
from gpudoctor.source.values import NONE, Value, alternatives, const_of, is_kind, of_kind

MAX_DEPTH = 10
_PRIORITY = ("ddp", "fsdp", "apexddp", "dp", "engine", "scaler", "optimizer", "accelerator", "fabric", "loader", "distsampler", "scheduler", "stream", "event",
             "module", "tensor", "grad", "param", "batch", "params")
_DUCK = {
    "backward": "tensor", "unscale_": "scaler", "get_scale": "scaler", "no_sync": "ddp", "record_stream": "tensor", "set_epoch": "distsampler",
    "wait_stream": "stream", "wait_event": "stream", "record_event": "stream", "clip_grad_norm_": "engine", "zero_grad": "optimizer",
}
_NOT_TENSOR_METHODS = frozenset(("size", "dim", "numel", "data_ptr", "get_device", "element_size", "nelement", "is_contiguous", "stride", "ndimension",
                                 "item", "tolist", "backward", "storage", "untyped_storage", "type", "record_stream", "is_pinned", "register_hook"))


class Calls(Expressions):
    """Dispatches calls and follows the project's own functions."""

    @abstractmethod
    def execute(self, body: Sequence[ast.stmt]) -> str: ...

    def call_value(self, fn: Value, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value:
        if fn.op == "ite":
            a, b = fn.args[1], fn.args[2]
            return self.branch_value(node, fn.args[0], lambda: self.call_value(a, args, kwargs, node), lambda: self.call_value(b, args, kwargs, node))
        found = [a for a in alternatives(fn) if not a.is_const]
        if len(found) > 1:
            best = next((a for a in found if a.op in ("bound", "function", "class")), None) or next((a for a in found if a.kind or a.op in ("lib", "method")), found[0])
            fn = fn if fn.kind and best.op not in ("bound", "function", "class", "lib", "method", "new") else best
        elif found:
            fn = found[0]
        if fn.op == "function":
            return self.inline(fn.target, args, kwargs, node)
        if fn.op == "bound":
            return self.inline(fn.target, args, kwargs, node, fn.args[0])
        if fn.op == "class":
            return self.construct(fn, args, kwargs, node)
        if fn.op == "lib":
            return self.library_call(str(fn.name), args, kwargs, node)
        if fn.op in ("method", "attr") and fn.args:
            return self.method_call(fn.args[0], str(fn.name), args, kwargs, node)
        if fn.op == "partial":
            return self.call_value(fn.args[0], fn.args[1:] + args, fn.kwargs | kwargs, node)
        if is_kind(fn, "module", "ddp", "fsdp", "dp", "apexddp", "engine") or fn.op == "new":
            return self.call_object(fn, args, kwargs, node)
        value = Value("call", (fn, *args), name="?", kwargs=kwargs, node=node)
        value.region = self.region
        self.emit("?.__call__", node, fn, args, kwargs, value)
        return value

    # the project's own

    def construct(self, cls_value: Value, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value:
        cls: Class = cls_value.target
        value = Value("new", args, name=cls.node.name, kind=class_kind(cls), kwargs=kwargs, node=node, target=cls)
        value.region = self.region
        value.event = self.emit("project.new", node, cls_value, args, kwargs, value)
        init = cls.method("__init__")
        if init is not None:
            self.inline(init, args, kwargs, node, value)
        elif any(getattr(d, "id", getattr(d, "attr", "")) == "dataclass" or (isinstance(d, ast.Call) and getattr(d.func, "id", "") == "dataclass")
                 for d in cls.node.decorator_list):
            names = [s.target.id for s in cls.node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
            for name, given in [*zip(names, args, strict=False), *kwargs.items()]:
                self.write((value.uid, name), given)
        return value

    def call_object(self, obj: Value, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value:
        """Call an instance: `__call__` or a module's forward, whose body is followed too."""
        kind = next((k for k in _PRIORITY if is_kind(obj, k)), "module" if is_kind(obj, "module") else "")
        inner = next((a for a in alternatives(obj) if a.op == "new"), None)
        if inner is not None and inner.kind not in ("module", "lightning") and kind in ("", "dataset", "sampler"):
            method = inner.target.method("__call__")
            if method is not None:
                return self.inline(method, args, kwargs, node, inner)
        value = Value("call", (obj, *args), name=f"{kind or '?'}.__call__", kind="tensor" if kind in ("module", "ddp", "fsdp", "dp", "apexddp", "engine") else "",
                      kwargs=kwargs, node=node)
        value.region = self.region
        self.emit(f"{kind or '?'}.__call__", node, obj, args, kwargs, value)
        target = inner or self._wrapped_instance(obj)
        if target is not None and target.target is not None:
            forward = target.target.method("forward")
            if forward is not None:
                out = self.inline(forward, args, kwargs, node, target)
                if out.op in ("tuple", "list", "dict"):
                    parts = tuple(self._part(value, v, node) for v in out.args)
                    value = Value(out.op, parts, kwargs={k: self._part(value, v, node) for k, v in out.kwargs.items()}, node=node)
                elif out is not NONE:
                    value.args = (*value.args, out)
        return value

    def _part(self, call: Value, inner: Value, node: ast.AST) -> Value:
        part = Value("item", (call, inner), kind="tensor", node=node)
        part.region = self.region
        return part

    def _wrapped_instance(self, obj: Value) -> Value | None:
        for a in alternatives(obj):
            here: Value | None = a
            for _ in range(4):
                if here is None or here.op == "new":
                    break
                here = next((b for b in alternatives(here.args[0])), None) if here.args and here.kind in ("ddp", "fsdp", "dp", "apexddp", "module") else None
            if here is not None and here.op == "new":
                return here
        return None

    def inline(self, fn: Function, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST, self_value: Value | None = None) -> Value:
        """Follow a call into the project's function and return what it returns."""
        self.reached.add(id(fn.node))
        if isinstance(fn.node, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_generator(fn.node):
            bound = (self_value, *args) if self_value is not None and "staticmethod" not in fn.decorators() else args
            return Value("generator", bound, name=fn.name, kwargs=kwargs, node=node, target=fn,
                         kind="context" if fn.decorators() & {"contextmanager", "asynccontextmanager"} else "")
        stack = self._frame_stack
        if self.budget <= 0 or len(stack) > MAX_DEPTH or any(f.function is not None and f.function.node is fn.node for f in stack):
            value = Value("call", args, name=f"project.{fn.name}", kwargs=kwargs, node=node)
            value.region = self.region
            self.emit(f"project.{fn.name}", node, self_value, args, kwargs, value)
            return value
        return self.run_function(fn, args, kwargs, node, self_value, None)

    @property
    def _frame_stack(self) -> list[Frame]:
        stack: list[Frame] = self.__dict__.setdefault("_stack", [])
        return stack

    def run_function(self, fn: Function, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST, self_value: Value | None,
                     on_yield: Callable[[Value], str] | None, waiting: list[tuple[int, Stored]] | None = None) -> Value:
        """Run a function's body in a call region; `on_yield` runs the consumer of a generator."""
        self.touch(fn.module)
        outer, outer_region = self.frame, self.region
        region = self.enter("call", node)
        region.value = Value("function", target=fn, node=fn.node)
        frame = Frame(fn.module, fn, fn.closure or self.top_frame(fn.module))
        frame.on_yield, frame.conds = on_yield, len(self.conds)
        frame.waiting = waiting or []
        frame.self_value = self_value
        self.frame = frame
        self._frame_stack.append(frame)
        try:
            self._bind_parameters(fn, args, kwargs, self_value)
            if isinstance(fn.node, ast.Lambda):
                return self.evaluate(fn.node.body)
            for d in fn.node.decorator_list:
                self._decorated(d, region)
            end = self.execute(fn.node.body)
            result = NONE
            returns = frame.returns
            if end and returns:
                result, returns = returns[-1][0], returns[:-1]
            for value, conds in reversed(returns):
                result = folded(value, conds, result)
            return result
        finally:
            self._frame_stack.pop()
            self.frame = outer
            region.last = self.events
            self.region = outer_region

    def _decorated(self, node: ast.expr, region: Any) -> None:
        dotted = self.evaluate_in(node, self.frame.module)
        for a in alternatives(dotted):
            name = str(a.name)
            if a.op in ("lib", "call") and kind_of_call(name) in ("nograd", "gradmode"):
                wrapped = self.enter("with", node)
                wrapped.value = a if a.op == "call" else Value("call", name=name, kind=kind_of_call(name), node=node)

    def _bind_parameters(self, fn: Function, args: tuple[Value, ...], kwargs: dict[str, Value], self_value: Value | None) -> None:
        spec: ast.arguments = fn.node.args
        frame = self.frame
        given = list(args)
        if self_value is not None and "staticmethod" not in fn.decorators():
            given.insert(0, self_value)
        elif fn.owner is not None and "classmethod" in fn.decorators():
            given.insert(0, Value("class", name=fn.owner.node.name, target=fn.owner, node=fn.owner.node))
        names = [*spec.posonlyargs, *spec.args]
        rest = dict(kwargs)
        starred = any(g.op == "star" for g in given)
        for at, parameter in enumerate(names):
            if at < len(given) and not (starred and any(g.op == "star" for g in given[: at + 1])):
                self.write((frame.id, parameter.arg), given[at])
            elif parameter.arg in rest:
                self.write((frame.id, parameter.arg), rest.pop(parameter.arg))
            else:
                self._bind_default(fn, spec, at, parameter, "**" in kwargs or starred)
        if spec.vararg is not None:
            self.write((frame.id, spec.vararg.arg), Value("tuple", tuple(given[len(names):])))
        for parameter, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            value = rest.pop(parameter.arg, None)
            if value is None:
                value = self.evaluate_in(default, fn.module) if default is not None and "**" not in kwargs else self.parameter(parameter, fn)
            self.write((frame.id, parameter.arg), value)
        if spec.kwarg is not None:
            self.write((frame.id, spec.kwarg.arg), Value("dict", kwargs=rest))

    def _bind_default(self, fn: Function, spec: ast.arguments, at: int, parameter: ast.arg, loose: bool) -> None:
        total = len(spec.posonlyargs) + len(spec.args)
        first = total - len(spec.defaults)
        if at >= first and not loose:
            value = self.evaluate_in(spec.defaults[at - first], fn.module)
        else:
            value = self.parameter(parameter, fn)
        self.write((self.frame.id, parameter.arg), value)

    def parameter(self, parameter: ast.arg, fn: Function) -> Value:
        """A value about which only the annotation and its uses are known."""
        kind = ""
        if parameter.annotation is not None:
            kind = self._annotated(parameter.annotation, fn.module)
        if not kind:
            kind = self.used_as(fn.module, parameter.arg)
        if not kind and parameter.arg in ("rank", "local_rank", "global_rank"):
            kind = "rank"
        elif not kind and parameter.arg == "world_size":
            kind = "world"
        return Value("param", name=parameter.arg, kind=kind, node=parameter)

    def _annotated(self, annotation: ast.expr, module: Any) -> str:
        node = annotation
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.]+", node.value):
            node = ast.parse(node.value, mode="eval").body
        if isinstance(node, ast.BinOp):
            return self._annotated(node.left, module) or self._annotated(node.right, module)
        if isinstance(node, ast.Subscript) and isinstance(node.value, (ast.Name, ast.Attribute)):
            return self._annotated(node.slice, module) if getattr(node.value, "id", getattr(node.value, "attr", "")) == "Optional" else ""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return ""
        value = self.evaluate_in(node, module)
        if value.op == "class":
            return class_kind(value.target)
        name = str(value.name) if value.op == "lib" else ""
        if name in ("torch.Tensor", "torch.FloatTensor"):
            return "tensor"
        if name in ("torch.optim.Optimizer", "torch.optim.optimizer.Optimizer"):
            return "optimizer"
        if name == "torch.nn.Module":
            return "module"
        return kind_of_call(name) if name.startswith(("torch.", "accelerate.", "lightning.")) and kind_of_call(name) not in ("tensor", "rank", "world") else ""

    def used_as(self, module: Any, name: str) -> str:
        """The kind of a thing by the methods that the module calls on names like it."""
        uses = called_on(module).get(name)
        if not uses:
            return ""
        if "unscale_" in uses or "get_scale" in uses or {"scale", "update"} <= uses:
            return "scaler"
        if {"zero_grad", "step"} <= uses:
            return "engine" if "backward" in uses else "optimizer"
        if "no_sync" in uses:
            return "ddp" if "backward" not in uses and "prepare" not in uses else "fabric" if "setup" in uses or "backward" in uses else ""
        if "set_epoch" in uses:
            return "distsampler"
        if "wait_stream" in uses or "wait_event" in uses:
            return "stream"
        if {"named_parameters", "state_dict", "train"} & uses and "parameters" in uses:
            return "module"
        return ""

    # libraries

    def library_call(self, name: str, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value:
        short = name.removeprefix("builtins.")
        special = SPECIAL.get(short if name.startswith("builtins.") else name)
        if special is not None:
            made = special(self, args, kwargs, node)
            if made is not None:
                return made
        if name in PASS_THROUGH and args:
            first = args[0]
            if short in ("list", "tuple", "sorted", "set") and first.op in ("tuple", "list"):
                return first
            value = Value("wrap", args, name=name, kind=next((a.kind for a in alternatives(first) if a.kind), ""), kwargs=kwargs, node=node)
            self.emit(name, node, None, args, kwargs, value)
            return value
        if name in ("torch.compile", "torch.jit.script", "torch._dynamo.optimize") and args:
            self.emit(name, node, None, args, kwargs, args[0])
            return args[0]
        kind = kind_of_call(name)
        if not kind and args and name.rpartition(".")[2][:1].isupper() and is_kind(args[0], "params"):
            kind = "optimizer"
        if name == "torch.nn.SyncBatchNorm.convert_sync_batchnorm" or name.endswith("convert_syncbn_model"):
            kind = "module"
        if short in ("int", "float", "abs", "round", "min", "max") and args and not kind:
            kind = next((k for a in args for k in ("rank", "world") if is_kind(a, k)), "")
        head, _, last = name.rpartition(".")
        if head == "torch.distributed" and last in COLLECTIVES:
            name = f"collective.{last}"
            kind = "work" if const_of(kwargs.get("async_op")) is True else ""
        value = Value("call", args, name=name, kind=kind, kwargs=kwargs, node=node)
        value.region = self.region
        self.emit(name, node, None, args, kwargs, value)
        return value

    def method_call(self, obj: Value, method: str, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value:
        for a in alternatives(obj):
            if a.op == "new" and (found := a.target.method(method)) is not None:
                return self.inline(found, args, kwargs, node, a)
        kind = next((k for k in _PRIORITY if is_kind(obj, k)), "") or next((a.kind for a in alternatives(obj) if a.kind), "")
        if not kind and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver = node.func.value
            kind = self.used_as(self.frame.module, getattr(receiver, "id", getattr(receiver, "attr", "")))
            if kind and obj.op in ("param", "attr", "unknown"):
                obj.kind = kind
        if not kind:
            kind = _DUCK.get(method, "")
            if method == "step" and args and is_kind(args[0], "optimizer") and obj.op in ("param", "attr", "unknown"):
                kind = "scaler"
        if kind in ("grad", "param"):
            kind = "tensor" if method not in ("zero_",) else kind
        value = self._method_result(kind, obj, method, args, kwargs, node)
        fn = f"{kind or ('list' if obj.op in ('list', 'comp') else '?')}.{method}"
        self.emit(fn, node, obj, args, kwargs, value)
        self._remember(obj, method, args)
        return value

    def _remember(self, obj: Value, method: str, args: tuple[Value, ...]) -> None:
        if method in ("append", "add", "put", "put_nowait") and args and not is_kind(obj, *TENSORS):
            for a in alternatives(obj)[:2]:
                key = (a.uid, "[*]")
                old = self.store.get(key)
                self.write(key, args[0] if old is None else Value("or", (old, args[0])))

    def _method_result(self, kind: str, obj: Value, method: str, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value:
        made = ""
        if kind in ("module", "ddp", "fsdp", "dp", "apexddp", "lightning"):
            if method in MODULE_SELF:
                return obj
            made = {"parameters": "params", "named_parameters": "namedparams", "no_sync": "nosync", "join": "joinctx", "buffers": "buffers",
                    "modules": "modules", "children": "modules", "named_modules": "namedmodules", "summon_full_params": "nullctx"}.get(method, "")
            if kind == "module" and not made and method not in ("state_dict", "load_state_dict", "train", "eval", "named_buffers", "register_buffer", "zero_grad",
                                                                "register_forward_hook", "add_module", "get_submodule", "named_children"):
                made = "tensor"
            if method == "get_submodule":
                made = "module"
        elif kind in ("tensor", "batch"):
            if (method in ("to", "cuda", "cpu", "pin_memory") and kind == "batch") or method in ("copy_", "requires_grad_", "add_", "mul_", "div_", "zero_", "fill_", "detach_", "sub_", "normal_", "uniform_", "contiguous"):
                made = "tensor"
            elif method in ("keys", "items", "values", "get", "pop"):
                made = "batch" if method in ("get", "pop") else ""
            elif method == "numpy":
                made = "array"
            else:
                made = "" if method in _NOT_TENSOR_METHODS else "tensor"
        elif kind == "optimizer":
            return Value("call", (obj, *args), name=f"optimizer.{method}", node=node, kwargs=kwargs)
        elif kind == "scaler":
            made = "tensor" if method == "scale" else ""
        elif kind == "stream":
            made = "event" if method == "record_event" else ""
        elif kind == "accelerator":
            return self._accelerator(obj, method, args, kwargs, node)
        elif kind == "fabric":
            return self._fabric(obj, method, args, kwargs, node)
        elif kind == "params" or kind == "namedparams":
            made = kind
        elif method == "get" and obj.op == "lib" and obj.name == "os.environ":
            return NONE
        elif kind == "dataset":
            made = "dataset" if method in ("map", "select", "shuffle", "filter") else ""
        elif method == "backward" or (method in ("to", "cuda", "detach", "clone", "float", "half") and kind == ""):
            made = ""
        value = Value("call", (obj, *args), name=f"{kind or '?'}.{method}", kind=made, kwargs=kwargs, node=node)
        value.region = self.region
        return value

    def _prepared(self, by: str, owner: Value, value: Value, node: ast.AST) -> Value:
        for kind, becomes in (("module", "ddp"), ("lightning", "ddp"), ("ddp", "ddp"), ("optimizer", "optimizer"), ("loader", "loader"), ("scheduler", "scheduler")):
            if is_kind(value, kind):
                inner = of_kind(value, kind) if kind == "ddp" else value
                return Value("call", (inner or value, owner), name=by, kind=becomes, node=node)
        return Value("call", (value, owner), name=by, node=node)

    def _accelerator(self, obj: Value, method: str, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value:
        by = f"accelerator.{method}"
        if method in ("prepare", "prepare_model", "prepare_optimizer", "prepare_data_loader", "prepare_scheduler"):
            made = [self._prepared("accelerator.prepare", obj, a, node) for a in args]
            return made[0] if len(made) == 1 else Value("tuple", tuple(made), node=node)
        if method == "unwrap_model" and args:
            inner = of_kind(args[0], "ddp", "fsdp")
            return inner.args[0] if inner is not None and inner.args else args[0]
        made_kind = {"no_sync": "nosync", "accumulate": "accumulate", "autocast": "autocast", "clip_grad_norm_": "tensor", "gather": "tensor",
                     "gather_for_metrics": "tensor", "reduce": "tensor", "join_uneven_inputs": "joinctx", "pad_across_processes": "tensor"}.get(method, "")
        return Value("call", (obj, *args), name=by, kind=made_kind, kwargs=kwargs, node=node)

    def _fabric(self, obj: Value, method: str, args: tuple[Value, ...], kwargs: dict[str, Value], node: ast.AST) -> Value:
        if method in ("setup", "setup_module", "setup_optimizers", "setup_dataloaders"):
            made = [self._prepared(f"fabric.{method}", obj, a, node) for a in args]
            return made[0] if len(made) == 1 else Value("tuple", tuple(made), node=node)
        kind = {"no_backward_sync": "nosync", "autocast": "autocast", "all_gather": "tensor", "all_reduce": "tensor", "to_device": "tensor"}.get(method, "")
        return Value("call", (obj, *args), name=f"fabric.{method}", kind=kind, kwargs=kwargs, node=node)


def class_kind(cls: Class) -> str:
    """The kind of a class's instances, by its bases."""
    if not cls.kind:
        cls.kind = "-"
        for base in cls.library_bases():
            last = base.rpartition(".")[2]
            if last == "LightningModule":
                cls.kind = "lightning"
                break
            if is_module_base(base):
                cls.kind = "module"
            elif base in ("torch.utils.data.IterableDataset", "torch.utils.data.Dataset"):
                cls.kind = "dataset"
            elif base.startswith("torch.utils.data.") and "Sampler" in last:
                cls.kind = "distsampler" if last == "DistributedSampler" else "sampler"
            elif base.startswith("torch.optim."):
                cls.kind = "optimizer" if ".lr_scheduler." not in base else "scheduler"
            elif kind_of_call(base) in ("ddp", "loader", "scaler", "fsdp", "dp"):
                cls.kind = kind_of_call(base)
    return "" if cls.kind == "-" else cls.kind


def called_on(module: Any) -> dict[str, set[str]]:
    """Methods that a module calls, by the last name of their receiver."""
    found: dict[str, set[str]] | None = module.__dict__.get("_called_on")
    if found is None:
        found = {}
        if module.tree is not None:
            for node in walk(module.tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    receiver = node.func.value
                    name = receiver.id if isinstance(receiver, ast.Name) else receiver.attr if isinstance(receiver, ast.Attribute) else ""
                    if name:
                        found.setdefault(name, set()).add(node.func.attr)
        module.__dict__["_called_on"] = found
    return found


__all__ = ["Calls", "canonical", "class_kind"]
