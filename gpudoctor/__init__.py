"""A doctor for PyTorch data-parallel training."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudoctor.launch.watch import watch as watch

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "watch":
        from gpudoctor.launch.watch import watch

        return watch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
