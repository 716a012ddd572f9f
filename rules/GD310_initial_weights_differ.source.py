"""Hand-written data parallelism from rank-dependent seeds, with no broadcast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.evidence import at
from gpudoctor.source.training import hot
from gpudoctor.source.values import alternatives, ancestors, depends_on, is_kind

_SEEDS = ("torch.manual_seed", "torch.cuda.manual_seed_all", "torch.cuda.manual_seed", "accelerate.utils.set_seed", "lightning.pytorch.seed_everything", "transformers.set_seed",
          "lightning.fabric.seed_everything")
_MESSAGE = "gradients are all-reduced by hand on line {reduce_line}, but the ranks' starting weights come from different seeds (line {seed_line}) and nothing broadcasts them"
_FIX = "Before {place}, broadcast the parameters from rank 0: `for p in net.parameters(): dist.broadcast(p.data, src=0)`, or seed with one number until the model is built."


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Points at the optimizer of the module whose gradients are reduced."""
    model = module.model
    reduces = [e for e in model.calls("collective.all_reduce", "collective.reduce_scatter_tensor") if hot(model, e) is not None and any(
        v.kind == "grad" for g in e.given() for v in ancestors(g, 8))]
    if not reduces or model.calls("torch.nn.parallel.DistributedDataParallel", "torch.distributed.fsdp.FullyShardedDataParallel", "apex.parallel.DistributedDataParallel"):
        return
    reduce = reduces[0]
    root = model.root_of(reduce)
    used = [v for g in reduce.given() for v in ancestors(g, 30)]
    owners = {a.uid: a for v in used if v.kind in ("module", "lightning") for a in alternatives(v) if a.event is not None}
    for owner in owners.values():
        made = owner.event
        if made is None or made.index > reduce.index or model.root_of(made) is not root:
            continue
        before = [e for e in model.calls(*_SEEDS) if e.index < made.index]
        if not before or not any(depends_on(a, lambda v: v.kind == "rank") for a in before[-1].given()):
            continue
        if any(made.index < e.index for e in model.calls("collective.broadcast", "collective.broadcast_object_list")) or _loaded(model, made.index):
            continue
        optimizer = next((e for e in model.events if is_kind(e.result, "optimizer") and e.result is not None and e.result.event is e and e.index > made.index), None)
        yield at(optimizer or reduce, reduce_line=reduce.line, seed_line=before[-1].line, message=_MESSAGE, fix=_FIX)
        return


def _loaded(model: Any, index: int) -> bool:
    """True if a checkpoint gives all ranks the same weights, or parameters are copied by other means."""
    return any(e.index > index for e in model.methods("load_state_dict", "_broadcast_coalesced", "_sync_params_and_buffers", "_sync_module_states"))
