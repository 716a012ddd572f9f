"""The resolved model: kinds through attributes, tuples, files and wrappers; paths; simulated loops."""

from __future__ import annotations

from gpudoctor.source import parse_sources
from gpudoctor.source.model import Model
from gpudoctor.source.paths import paths
from gpudoctor.source.simulate import runs
from gpudoctor.source.tensors import device_of
from gpudoctor.source.training import hot, training
from gpudoctor.source.values import is_kind


def _model(text: str, **others: str) -> Model:
    files = {f"{name}.py": other for name, other in others.items()} | {"train.py": text}
    return parse_sources(files)[-1].model


def _names(model: Model) -> list[str]:
    return [e.fn for e in model.events]


def test_kinds_follow_values() -> None:
    model = _model('''
import torch
from accelerate import Accelerator
from torch import cuda as c
from wraps import pack
class Holder:
    def __init__(self, net):
        self.net, self.amp = pack(net), c.amp.GradScaler()
    @property
    def inner(self):
        return self.net.module
h = Holder(torch.nn.Linear(2, 2))
h.net(1)
h.inner(1)
h.amp.update()
torch.compile(h.net)(1)
acc = Accelerator()
m, (o, l) = acc.prepare(torch.nn.Linear(2, 2)), acc.prepare(torch.optim.SGD([], 0.1), torch.utils.data.DataLoader([]))
m(1)
o.step()
for x in l:
    x.cuda()
''', wraps='''
import torch.nn.parallel as p
def pack(net):
    return p.DistributedDataParallel(net)
''')
    found = _names(model)
    assert found.count("ddp.__call__") == 3
    assert {"module.__call__", "scaler.update", "optimizer.step", "batch.cuda"} <= set(found)


def test_generators_context_managers_and_iterators_run_their_consumers() -> None:
    model = _model('''
from contextlib import contextmanager
import torch
side = torch.cuda.Stream()
@contextmanager
def on_side():
    with torch.cuda.stream(side):
        yield 1
def batches(n):
    for i in range(n):
        yield torch.randn(2)
class Steps:
    def __iter__(self):
        return self
    def __next__(self):
        return torch.zeros(3)
for b in batches(4):
    with on_side():
        b.square()
for s in Steps():
    s.exp()
''')
    square = model.calls("tensor.square")[0]
    assert [r.kind for r in square.region.around()][:3] == ["with", "call", "body"]
    assert len(square.loops()) == 1
    assert len(model.calls("tensor.exp")[0].loops()) == 1


def test_carried_values_are_phis_and_early_returns_fold() -> None:
    model = _model('''
import torch
def pick(flag):
    if flag:
        return torch.nn.Linear(1, 1)
    return None
net = pick(unknown)
total = 0
while True:
    total = total + net(1)
    torch.save(total, "x")
''')
    saved = model.calls("torch.save")[0].args[0]
    assert saved.op == "bin"
    assert saved.args[0].op == "phi"
    assert saved.args[0].args[1] is saved
    assert is_kind(model.calls("module.__call__")[0].recv, "module")


def test_paths_keep_conditions_together() -> None:
    model = _model('''
import torch
def f(amp, scaler, opt, loss):
    if amp:
        scaler.scale(loss).backward()
    else:
        loss.backward()
    if not amp:
        opt.step()
    if amp:
        scaler.step(opt)
        scaler.update()
''')
    root = model.roots[-1]
    found = {tuple(e.line for e in p.events) for p in paths(root, lambda e: e.fn.endswith((".backward", ".step", ".update")))}
    assert found == {(5, 11, 12), (7, 9)}


def test_simulated_counters_decide_conditions() -> None:
    model = _model('''
import torch
net = torch.nn.Linear(1, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
def train(loader, every):
    seen = 0
    for x in loader:
        net(x).mean().backward()
        seen += 1
        if seen % every == 0:
            opt.step()
            seen = 0
train(object(), 4)
''')
    loop = training(model, model.roots[0]).loops[0]
    turns = [e.turn for run in runs(loop) for e in run.entries if e.event.fn == "optimizer.step"]
    assert turns == [3, 7, 11]


def test_hot_and_rare() -> None:
    model = _model('''
import torch
net = torch.nn.Linear(1, 1).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for epoch in range(3):
    for i in range(100):
        loss = net(torch.ones(1).cuda()).mean()
        loss.backward()
        opt.step()
        loss.item()
        if i % 10 == 0:
            loss.item()
    loss.item()
''')
    assert [hot(model, e) is not None for e in model.calls("tensor.item")] == [True, False, False]


def test_devices() -> None:
    model = _model('''
import torch
d = torch.device("cuda" if torch.cuda.is_available() else "cpu")
a = torch.zeros(1)
b = torch.zeros(1, device="cuda:1")
for v in (a, b, a.to(d), b.cpu(), (a + b), a.pin_memory().cuda(non_blocking=True)):
    pass
torch.save([a, b, a.to(d), b.cpu(), a + b], "x")
''')
    assert [device_of(v) for v in model.calls("torch.save")[0].args[0].args] == ["cpu", "cuda", "maybe", "cpu", "cuda"]


def test_imports_in_circles_and_recursion_end() -> None:
    model = _model('''
import torch
from other import ping
def again(n):
    return again(n - 1) if n else ping(n)
again(torch.load("x"))
''', other='''
from train import again
def ping(n):
    return again(n)
''')
    assert "torch.load" in _names(model)
