"""The plug-in form of everything that watches a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudoctor.probes.models import Model
    from gpudoctor.probes.session import Session


class Probe:
    """Override the hooks you need; a hook that is not overridden costs nothing.

    Hooks run on the training thread: they never synchronise a device, and what they cost is measured and counted.
    A probe whose hook raises is taken out, and the run goes on. `self.session` is set before `start`.

    Order within a step: data, zero_grad, forward, backward (each maybe several times), clip, optimizer, step_end.
    """

    session: Session

    def start(self) -> None:
        """The session is ready; torch is imported, the user's script has not begun."""

    def on_model(self, model: Model) -> None:
        """A model was wrapped by DDP, or found behind an optimizer."""

    def on_data_begin(self) -> None:
        """A DataLoader is asked for a batch."""

    def on_data_end(self) -> None:
        """It gave one, or had none left."""

    def on_data(self, loader: Any, batch: Any, waited_ns: int) -> None:
        """A DataLoader gave a batch after `waited_ns`."""

    def on_zero_grad(self, owner: Any) -> None:
        """`zero_grad` of an optimizer or a module is about to run."""

    def on_forward_begin(self, model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The outermost forward of a model begins; through its DDP wrapper if it has one."""

    def on_forward_end(self, model: Model, output: Any) -> None:
        """That forward is done; `output` is None if it raised."""

    def on_backward_begin(self, tensors: tuple[Any, ...]) -> None:
        """`backward` was called on `tensors`."""

    def on_backward_end(self) -> None:
        """`backward` returned, DDP's reductions included."""

    def on_clip(self, parameters: list[Any], max_norm: float, total_norm: Any) -> None:
        """`clip_grad_norm_` has run; `total_norm` is a tensor on the gradients' device."""

    def on_optimizer_begin(self, optimizer: Any) -> None:
        """An optimizer is about to step (the outermost one, if optimizers are nested)."""

    def on_optimizer_end(self, optimizer: Any) -> None:
        """That optimizer has stepped."""

    def on_scaler_begin(self) -> None:
        """`GradScaler.step` is about to read whether a gradient overflowed."""

    def on_scaler_step(self, scaler: Any, optimizer: Any, ran: bool) -> None:
        """`GradScaler.step` is done; `ran` is False if it skipped the optimizer."""

    def on_scheduler_step(self, scheduler: Any) -> None:
        """A learning-rate scheduler is about to advance."""

    def on_step_end(self, step: int) -> None:
        """Optimizer step `step` is complete; `session.step` still says `step`."""

    def finish(self) -> None:
        """The script has ended, well or badly; devices may be synchronised here."""
