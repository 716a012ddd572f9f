"""What a probe does inside the user's own call: counted as ours, and never in the way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gpudoctor.probes.probe import Probe


@contextlib.contextmanager
def guarded(probe: Probe, where: str) -> Iterator[None]:
    """Count the block's time as the doctor's; an exception in it takes the probe out and goes no further."""
    session = probe.session
    with session.counted():
        try:
            yield
        except Exception as error:
            session._lost(probe, where, error)
