"""Random streams that fetch the data: whether a dataset draws from them, and whether two workers share one."""

from __future__ import annotations

import hashlib
import os
import random
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils import fetch

if TYPE_CHECKING:
    from gpudoctor.probes.session import Session

LOOKED_AT = 3


def watch_workers(session: Session) -> None:
    """Watch the first fetches of every fetcher, in this process and in forked workers, which append to the rank's file."""
    path, rank, home = str(session.recorder.path), session.rank, os.getpid()

    def make(original: Any) -> Any:
        def fetch_watched(self: Any, indices: Any) -> Any:
            seen = getattr(self, "_gpudoctor_fetches", 0)
            if seen >= LOOKED_AT:
                return original(self, indices)
            self._gpudoctor_fetches = seen + 1
            before = _streams()
            result = original(self, indices)
            after = _streams()
            used = [k for k in before if before[k] != after.get(k)]
            if used:
                info = get_worker_info()
                rows = {
                    "worker": -1 if info is None else info.id, "fetch": seen, "dataset": type(self.dataset).__name__, "source": used,
                    "fingerprint": [before[k] for k in used], "step": session.step,
                }
                if os.getpid() == home:
                    session.emit("data_rng", **rows)
                else:
                    _append(path, ["data_rng", {"rank": rank, **rows}])
            return result

        return fetch_watched

    from gpudoctor.probes.sensors import wrap

    for owner in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        wrap(owner, "fetch", make)


def _streams() -> dict[str, str]:
    states = {"torch": torch.get_rng_state().numpy().tobytes(), "python": repr(random.getstate()).encode()}
    if (numpy := sys.modules.get("numpy")) is not None:
        state = numpy.random.get_state()
        states["numpy"] = state[1].tobytes() + str(state[2]).encode()
    return {k: hashlib.blake2b(v, digest_size=8).hexdigest() for k, v in states.items()}


def _append(path: str, record: list[Any]) -> None:
    import msgspec

    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    except OSError:
        return
    try:
        os.write(fd, msgspec.json.encode(record) + b"\n")
    except OSError:
        pass
    finally:
        os.close(fd)
