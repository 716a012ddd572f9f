"""What a rank's probes are told, and how it travels: one environment variable of JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

VARIABLE = "GPUDOCTOR_PROBES"


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """Settings of one rank. The rank's own numbers are filled in by the bootstrap; -1 until they are known.

    `out` is the run folder; `beats` a private folder in memory for heartbeats and last words. `overhead_budget` is
    the share of a step that probes may cost, None for the device's default. `sample_every` is the least interval
    between sampled steps. `first_step` and `last_step` bound what is recorded (last_step -1: to the end) and
    `kineto` is how many steps torch.profiler records, 0 for none.
    """

    out: str
    beats: str = ""
    rank: int = -1
    world_size: int = -1
    local_rank: int = -1
    attempt: int = 0
    nvtx: bool = True
    tensorboard: bool = True
    gradients: bool = True
    sanitize: bool = False
    memory: bool = True
    overhead_budget: float | None = None
    sample_every: int = 1
    first_step: int = 0
    last_step: int = -1
    kineto: int = 0
    kineto_after: int = 5

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.out)

    def to_environment(self) -> dict[str, str]:
        """The variable to set in a rank's environment."""
        return {VARIABLE: json.dumps(asdict(self))}


def from_environment(environment: Mapping[str, str] | None = None) -> ProbeSettings | None:
    """Settings from the environment, with the rank's numbers from torchrun's variables; None outside a run.

    Keys that this version does not know are left out; a text that is no JSON object is taken as absent.
    """
    environment = os.environ if environment is None else environment
    try:
        raw = json.loads(environment.get(VARIABLE, ""))
    except ValueError:
        return None
    if not isinstance(raw, dict) or "out" not in raw:
        return None
    known = {f.name for f in fields(ProbeSettings)}
    settings = {k: v for k, v in raw.items() if k in known}
    for name, variable in (("rank", "RANK"), ("world_size", "WORLD_SIZE"), ("local_rank", "LOCAL_RANK"), ("attempt", "TORCHELASTIC_RESTART_COUNT")):
        text = environment.get(variable, "")
        if text.isdigit():
            settings[name] = int(text)
    return ProbeSettings(**settings)
