"""One rank of a training that survives: `torchrun … -m gpudoctor.harness.recoverable SPEC.json`.

Every `every` steps rank 0 writes weights, optimizer, step and each rank's generator state beside the old checkpoint and moves
the file into place. A restarted run goes on from there. The loss of each finished step goes to `curve.jsonl`, as hexadecimal.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

from gpudoctor.harness.context import Context, close_context, open_context
from gpudoctor.harness.data import VOCABULARY, Corpus
from gpudoctor.harness.model import loss_of, make_model
from gpudoctor.harness.strategies import make_optimizer


def main(spec_path: str) -> None:
    spec = json.loads(Path(spec_path).read_text("utf-8"))
    faulthandler.dump_traceback_later(spec["patience_s"])  # where it hangs, if it does, stands in the log
    torch.use_deterministic_algorithms(True, warn_only=True)
    context = open_context(spec["steps"], spec["seed"], spec["options"])
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    folder = Path(spec["folder"])
    model = make_model(context.size, context.seed).to(context.device)
    ddp = nn.parallel.DistributedDataParallel(model, [context.device.index] if context.cuda else None) if context.world > 1 else model
    optimizer = make_optimizer(model.parameters())
    torch.manual_seed(context.seed + context.rank)
    first = _restore(folder / "checkpoint.pt", context, model, optimizer)
    corpus, share = Corpus(context.size.context, context.seed), max(1, context.size.batch // context.world)
    for step in range(first, context.steps):
        tokens, targets = (part[context.rank * share : (context.rank + 1) * share] for part in corpus.batch(step, share * context.world))
        blurred = torch.where(torch.rand(tokens.shape) < 0.1, torch.randint(VOCABULARY, tokens.shape), tokens)  # draws on the generator that must come back
        optimizer.zero_grad()
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            loss = loss_of(ddp(blurred.to(context.device)), targets.to(context.device))
            loss.backward()
        if step == spec["kill_step"] and attempt == 0 and context.rank == context.world - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        mean = loss.detach().double()
        if context.world > 1:
            distributed.all_reduce(mean)
        if context.rank == 0:
            with (folder / "curve.jsonl").open("a") as curve:
                curve.write(json.dumps({"attempt": attempt, "step": step, "loss": float(mean / context.world).hex()}) + "\n")
        if (step + 1) % spec["every"] == 0:
            _save(folder / "checkpoint.pt", context, model, optimizer, step + 1)
    if context.rank == 0:
        weights = torch.cat([p.detach().double().cpu().reshape(-1) for p in model.parameters()])
        (folder / "end.json").write_text(json.dumps({"setting": context.setting(), "limits": context.limits(), "weights": [float(weights.sum()).hex(), float(weights.norm()).hex()]}))
    if context.world > 1:
        distributed.barrier()
    close_context(context)


def _save(path: Path, context: Context, model: nn.Module, optimizer: Any, step: int) -> None:
    generators = context.gather(torch.get_rng_state())
    if context.rank == 0:
        temporary = path.with_suffix(".new")
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "generators": generators}, temporary)
        temporary.replace(path)
    if context.world > 1:
        distributed.barrier()  # no rank goes on before the file is in place


def _restore(path: Path, context: Context, model: nn.Module, optimizer: Any) -> int:
    """The step to go on from; 0 where there is no checkpoint."""
    if not path.exists():
        return 0
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["generators"][context.rank])
    return int(state["step"])


if __name__ == "__main__":
    main(sys.argv[1])
