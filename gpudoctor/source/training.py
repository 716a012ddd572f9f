"""Which loops train, what happens in each step, and which guards make it rare."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.source.events import Event, Region
from gpudoctor.source.model import Model
from gpudoctor.source.values import Value, ancestors, is_kind

STEPS = ("optimizer.step", "scaler.step", "engine.step")
BACKWARDS = ("tensor.backward", "accelerator.backward", "fabric.backward", "engine.backward", "torch.autograd.backward", "lightning.manual_backward",
             "?.manual_backward", "?.backward", "apexddp.backward")
_PER_ITERATION = ("index", "phi", "each")


class Training:
    """The training loops below one root."""

    def __init__(self, root: Region, model: Model) -> None:
        self.root = root
        inside = list(root.events()) if root.parent is not None else [e for e in model.calls(*STEPS, *BACKWARDS) if root.first <= e.index < root.last]
        self.steps = [e for e in inside if e.fn in STEPS]
        self.backwards = [e for e in inside if e.fn in BACKWARDS]
        self.loops: list[Region] = []
        for b in self.backwards:
            found = self._step_loop(b)
            if found is not None and found not in self.loops:
                self.loops.append(found)
        for region in root.regions():
            if region.kind == "loop" and region.value is not None and region.value.kind == "framework" and region not in self.loops:
                self.loops.append(region)

    def _step_loop(self, backward: Event) -> Region | None:
        loops = backward.loops()
        for loop in loops:
            if any(loop.holds(s) for s in self.steps):
                return loop
        return loops[0] if loops and not self.steps else None

    def loop_of(self, event: Event) -> Region | None:
        """The training loop whose step the event is part of."""
        return next((r for r in event.region.around() if r in self.loops), None)

    def epoch_loops(self) -> Iterator[tuple[Region, Region]]:
        """(loop around, training loop)."""
        for loop in self.loops:
            for outer in loop.parent.around() if loop.parent else ():
                if outer.kind == "loop":
                    yield outer, loop

    def rare(self, event: Event, loop: Region) -> bool:
        """True unless the event happens in every step: under a guard that depends on the step, or one that cannot be judged."""
        for cond, truth, arm in guards(event, loop):
            if arm is None:
                if any(v.op == "bin" and v.name == "%" for v in ancestors(cond, 60)):
                    return True
                continue
            if any(arm.holds(s) for s in self.steps if loop.holds(s)):
                continue
            if not always(cond, truth):
                return True
        return any(r.kind == "handler" for r in _between(event, loop))


def always(cond: Value, truth: bool) -> bool:
    """True for guards that do not change from step to step: who I am, whether there is a GPU, whether something exists."""
    if cond.op == "cmp" and cond.name in ("is", "is not"):
        return bool(truth == (cond.name == "is not"))
    found = list(ancestors(cond, 60))
    if any(v.op in _PER_ITERATION for v in found) or any(v.op == "bin" and v.name == "%" for v in found):
        return False
    return any(v.kind in ("rank", "flag", "device", "world") for v in found)


def guards(event: Event, loop: Region) -> Iterator[tuple[Value, bool, Region | None]]:
    """Conditions under which the event happens in an iteration: arms around it, and early exits before it."""
    inner: Region | Event = event
    for region in _between(event, loop):
        if region.kind == "arm" and region.cond is not None:
            yield region.cond, region.truth, region
        if region.kind in ("loop", "call", "with", "arm", "body", "try"):
            for child in region.children:
                if child is inner:
                    break
                if isinstance(child, Region) and child.kind == "branch":
                    for arm in child.children:
                        if isinstance(arm, Region) and arm.cond is not None and _leaves(arm):
                            yield arm.cond, not arm.truth, None
        inner = region


def _between(event: Event, loop: Region) -> Iterator[Region]:
    for region in event.region.around():
        yield region
        if region is loop:
            return


def _leaves(arm: Region) -> bool:
    last = arm.children[-1] if arm.children else None
    return isinstance(last, Event) and last.fn in ("flow.continue", "flow.return")


def training(model: Model, root: Region) -> Training:
    """The training loops of a root, computed once."""
    memo: dict[int, Training] = model.__dict__.setdefault("_training", {})
    if id(root) not in memo:
        memo[id(root)] = Training(root, model)
    return memo[id(root)]


def hot(model: Model, event: Event) -> Region | None:
    """The training loop in every step of which the event happens; None if there is none or the event is rare."""
    found = training(model, model.root_of(event))
    loop = found.loop_of(event)
    return None if loop is None or found.rare(event, loop) or in_eval(event) else loop


def in_eval(event: Event) -> bool:
    """True inside no_grad, inference_mode or set_grad_enabled(False)."""
    return any(no_grad(r.value) for r in event.within("with"))


def no_grad(context: Value | None) -> bool:
    if context is None:
        return False
    if is_kind(context, "nograd"):
        return True
    return is_kind(context, "gradmode") and context.name == "torch.set_grad_enabled" and bool(context.args) and context.args[0].op == "const" and not context.args[0].name


_LOGIC = ("bin", "cmp", "not", "and", "or", "ite", "phi", "neg")


def by_rank(cond: Value | None) -> bool:
    """True if a condition differs between ranks: it is made of a rank by logic and arithmetic alone."""
    seen: set[int] = set()
    stack = [cond] if cond is not None else []
    while stack and len(seen) < 60:
        v = stack.pop()
        if v.uid in seen or (v.op == "cmp" and v.name in ("is", "is not")):
            continue
        seen.add(v.uid)
        if v.kind == "rank":
            return True
        if v.op in _LOGIC:
            stack += v.args
    return False


def rank_arms(event: Event) -> Iterator[Region]:
    """Arms around an event that only some ranks enter."""
    return (r for r in event.within("arm") if by_rank(r.cond))


def loss_of(backward: Event) -> Value | None:
    """What a backward call differentiates."""
    if backward.fn == "tensor.backward":
        return backward.recv
    return backward.args[0] if backward.args else backward.recv


def distributed(model: Model) -> bool:
    """True if the module trains with more than one process."""
    return bool(model.calls("torch.nn.parallel.DistributedDataParallel", "torch.distributed.init_process_group", "torch.distributed.fsdp.FullyShardedDataParallel",
                            "apex.parallel.DistributedDataParallel"))
