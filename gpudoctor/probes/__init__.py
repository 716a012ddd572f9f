"""What runs inside a rank: `install(settings)` before the user's script, `finish()` after it.

Nothing here imports torch until `install` is called. A probe is a subclass of `gpudoctor.probes.probe.Probe`;
`_probes` below lists them all.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gpudoctor.settle import settle_at_exit

if TYPE_CHECKING:
    from gpudoctor.probes.probe import Probe
    from gpudoctor.probes.session import Session
    from gpudoctor.probes.settings import ProbeSettings

_session: Session | None = None


def install(settings: ProbeSettings, measure: Any = None) -> Session:
    """Put the probes into this process; a second call returns the session that is there.

    `measure` replaces `gpudoctor.probes.measure.Measure`, the arithmetic over gradients, by a faster one.
    """
    global _session
    if _session is None:
        from gpudoctor.probes.recorder import Recorder
        from gpudoctor.probes.sensors import place_sensors
        from gpudoctor.probes.session import Session

        recorder = Recorder(settings.folder / "capture" / f"probe.rank{max(settings.rank, 0)}.jsonl", settings.attempt)
        _session = Session(settings, recorder, measure)
        _session.start(_probes(settings))
        place_sensors(_session)
        settle_at_exit()
    return _session


def finish() -> None:
    """Let every probe say its last words and close the recorder; safe to call twice and in forked children."""
    if _session is not None and _session.pid == os.getpid():
        _session.finish()


def _probes(settings: ProbeSettings) -> list[Probe]:
    from gpudoctor.probes.accumulation import Accumulation
    from gpudoctor.probes.amp import Amp
    from gpudoctor.probes.collectives import Collectives
    from gpudoctor.probes.gradients import Gradients
    from gpudoctor.probes.loaders import Loaders
    from gpudoctor.probes.modes import Modes
    from gpudoctor.probes.replicas import Replicas
    from gpudoctor.probes.steps import Steps
    from gpudoctor.probes.wrapping import Wrapping

    probes: list[Probe] = [Wrapping(), Loaders(), Accumulation(), Collectives(), Modes(), Replicas(), Gradients(), Amp()]
    if settings.memory:
        from gpudoctor.probes.memory import Memory

        probes.append(Memory())
    if settings.sanitize:
        from gpudoctor.probes.sanitize.probe import Sanitize

        probes.append(Sanitize())
    if settings.nvtx:
        from gpudoctor.probes.ranges import Ranges

        probes.append(Ranges())
    return [*probes, Steps()]
