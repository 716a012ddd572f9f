"""A callback for transformers' Trainer: `Trainer(..., callbacks=[DoctorCallback()])`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from gpudoctor.launch.watch import watch
from gpudoctor.probes import heartbeat


class DoctorCallback(TrainerCallback):  # type: ignore[misc]
    """Watches the ranks of a Trainer from where it is made; make it before `train()`, in every rank.

    Takes what `gpudoctor.watch` takes. Inside `gpudoctor run` it adds the trainer's phases to what is recorded there.
    """

    def __init__(self, out: str | Path | None = None, **options: Any) -> None:
        self.run = watch(out, **options)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        heartbeat.phase("train")

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        heartbeat.phase("evaluate")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        heartbeat.phase("train")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            print(f"gpudoctor: `gpudoctor analyze {self.run}` reads what was recorded", file=sys.stderr)
