"""A callback for Lightning's Trainer: `Trainer(..., callbacks=[DoctorCallback()])`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from gpudoctor.launch.watch import watch
from gpudoctor.probes import heartbeat

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback


class DoctorCallback(Callback):  # type: ignore[misc]
    """Watches the ranks of a Trainer from where it is made; make it before the Trainer, in every rank.

    Takes what `gpudoctor.watch` takes. Ranks that the Trainer starts itself write into the same run folder.
    """

    def __init__(self, out: str | Path | None = None, **options: Any) -> None:
        self.run = watch(out, **options)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        heartbeat.phase("evaluate")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        heartbeat.phase("train")

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero:
            print(f"gpudoctor: `gpudoctor analyze {self.run}` reads what was recorded", file=sys.stderr)
