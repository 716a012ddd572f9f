"""What users do with their models goes on as without probes: compiled models, FSDP2, several wrappers, hooks, pickles."""

from __future__ import annotations

from pathlib import Path

from tests.probes.judge import SETUP, diagnose, names
from tests.probes.ranks import facts, rows, run_ranks

SEVERAL = """
a, b = DDP(nn.Linear(8, 8)), DDP(nn.Linear(8, 4))
first = torch.optim.SGD(a.parameters(), lr=0.01)
second = torch.optim.AdamW(b.parameters(), lr=0.01)
for step in range(6):
    first.zero_grad(); second.zero_grad()
    b(a(torch.randn(4, 8))).square().mean().backward()
    first.step(); second.step()
"""


def test_several_models(tmp_path: Path) -> None:
    assert diagnose(tmp_path, SEVERAL) == []


HOOKS = """
import copy, io
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
def train(model, steps=4):
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        opt.zero_grad()
        model(torch.randn(4, 64)).square().mean().backward()
        opt.step()

half = DDP(nn.Linear(64, 32))
half.register_comm_hook(None, fp16_compress_hook)
train(half)
lossy = DDP(nn.Linear(64, 32))
lossy.register_comm_hook(power.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2), power.powerSGD_hook)
train(lossy)
late = DDP(nn.Linear(64, 32))
train(late, 2)
late.register_comm_hook(None, allreduce_hook)
train(late, 2)
try:
    late.register_comm_hook(None, allreduce_hook)
except RuntimeError as error:
    print("refused twice")
else:
    raise SystemExit("a second hook was taken")
view = DDP(nn.Linear(64, 32), gradient_as_bucket_view=True, static_graph=True)
train(view)

plain = nn.Sequential(nn.Linear(64, 32))
train(plain, 2)
torch.save(plain, io.BytesIO())
back = io.BytesIO(); torch.save(half, back)
copy.deepcopy(plain)(torch.randn(2, 64))
torch.jit.script(plain)
"""


def test_hooks_and_pickles(tmp_path: Path) -> None:
    records = run_ranks(tmp_path, SETUP + HOOKS, 2)
    assert not facts(records, "probe-failed")
    assert len(facts(records, "comm-hook")) >= 6
    from tests.probes.judge import judge

    assert names(judge(tmp_path / "run")) == []


COMPILED = """
inner = torch.compile(DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))), backend="eager")
outer = DDP(torch.compile(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), backend="eager"))
for model in (inner, outer):
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(5):
        opt.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        opt.step()
"""


def test_compiled_models(tmp_path: Path) -> None:
    assert diagnose(tmp_path, COMPILED) == []


SHARDED = """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
mesh = init_device_mesh("cpu", (world,))
fully_shard(net, mesh=mesh)
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
for step in range(4):
    opt.zero_grad()
    net(torch.randn(4, 8)).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
"""


def test_fsdp2_is_said_not_to_be_seen(tmp_path: Path) -> None:
    records = run_ranks(tmp_path, SETUP + SHARDED, 2)
    assert not facts(records, "probe-failed")
    assert {row["name"] for row in facts(records, "cannot-see")} >= {"fsdp"}
    assert len(rows(records, "step")) >= 8
    from tests.probes.judge import judge

    assert names(judge(tmp_path / "run")) == []


SAME_NUMBERS = """
import hashlib
torch.manual_seed(3)
model = DDP(nn.Sequential(nn.Linear(16, 33), nn.ReLU(), nn.Linear(33, 5)))
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(rank)
for step in range(8):
    opt.zero_grad()
    model(torch.randn(4, 16)).square().mean().backward()
    opt.step()
if rank == 0:
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "digest"), "a").write(digest + "\\n")
dist.destroy_process_group()
"""


def test_three_ranks_train_to_the_same_bits(tmp_path: Path) -> None:
    """Our hook reduces exactly as DDP's own default does, also where 1/world is no power of two."""
    import subprocess
    import sys

    run_ranks(tmp_path, SETUP + SAME_NUMBERS, 3)
    bare = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", str(tmp_path / "train.py")]
    ended = subprocess.run(bare, check=False, timeout=200, cwd=tmp_path, capture_output=True, text=True)
    digests = (tmp_path / "digest").read_text().split()
    assert len(digests) == 2, ended.stderr
    assert len(set(digests)) == 1
