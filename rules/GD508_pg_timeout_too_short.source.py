"""Work that only one rank does between init_process_group and a collective, against the group's timeout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import Event, Region, text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.training import by_rank
from gpudoctor.source.values import Value, alternatives, const_of

_UNITS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1, "milliseconds": 1e-3, "microseconds": 1e-6, "weeks": 604800}
_HEAVY = ("map", "tokenize", "load_dataset", "snapshot_download", "from_pretrained", "extractall", "urlretrieve", "download", "download_url", "run", "check_call", "system", "hf_hub_download")
_MESSAGE = "the other ranks wait in `{call}` while one rank runs `{work}` ({how}); the group gives up after {limit:n} s"
_FIX = "Do the work before `init_process_group`, or raise its `timeout` (line {init_line}), so that {place} can wait long enough."


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Sleeps of a known length, and work known to be slow under a timeout of under a minute."""
    model = module.model
    for start in model.calls("torch.distributed.init_process_group"):
        limit = _seconds(start.arg(2, "timeout"))
        if limit is None:
            continue
        root = model.root_of(start)
        for branch in root.regions():
            if branch.kind != "branch" or branch.first < start.index or not by_rank(branch.cond):
                continue
            for arm in branch.children:
                found = _work(arm, limit, params) if isinstance(arm, Region) else None
                waits = next((e for e in model.events if e.index >= branch.last and e.index < root.last and e.fn.startswith("collective.")), None)
                if found is not None and waits is not None and not any(e.fn.startswith("collective.") for e in arm.events()):
                    work, how = found
                    yield at(waits, call=text_of(waits.node), work=text_of(work.node), how=how, limit=limit, init_line=start.line, message=_MESSAGE, fix=_FIX)
                    break


def _seconds(timeout: Value | None) -> float | None:
    if timeout is None:
        return None
    for a in alternatives(timeout):
        if a.op == "call" and a.name == "datetime.timedelta":
            named = dict(zip(("days", "seconds", "microseconds", "milliseconds", "minutes", "hours", "weeks"), a.args, strict=False)) | a.kwargs
            numbers = {k: const_of(v) for k, v in named.items()}
            if numbers and all(isinstance(n, (int, float)) and k in _UNITS for k, n in numbers.items()):
                return float(sum(n * _UNITS[k] for k, n in numbers.items()))
    return None


def _work(arm: Region, limit: float, params: Mapping[str, Any]) -> tuple[Event, str] | None:
    slept = 0.0
    for event in arm.events():
        seconds = const_of(event.args[0]) if event.fn == "time.sleep" and event.args else None
        if isinstance(seconds, (int, float)):
            slept += seconds
            if slept > limit:
                return event, f"at least {slept:g} s"
    if limit < params.get("short_s", 60):
        slow = next((e for e in arm.events() if e.fn.rpartition(".")[2] in _HEAVY and e.fn not in ("tensor.map",)), None)
        if slow is not None:
            return slow, "which may take longer"
    return None
