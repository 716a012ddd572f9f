"""Environment variables that the program sets."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.source.events import Event
from gpudoctor.source.model import Model
from gpudoctor.source.values import Value, alternatives, const_of


def variables_set(model: Model) -> Iterator[tuple[Event, str, str | None]]:
    """(event, name, value or None where it is no constant) of each store into `os.environ`, in program order."""
    for event in model.calls("setitem", "os.environ.setdefault", "os.putenv", "os.environ.update"):
        if event.fn == "setitem" and not (event.recv is not None and any(a.op == "lib" and a.name == "os.environ" for a in alternatives(event.recv))):
            continue
        if event.fn == "os.environ.update":
            given = {**event.kwargs, **(event.args[0].kwargs if event.args and event.args[0].op == "dict" else {})}
            for name, value in given.items():
                yield event, name, _text(value)
        elif len(event.args) > 1 and isinstance(name := const_of(event.args[0]), str):
            yield event, name, _text(event.args[1])


def _text(value: Value) -> str | None:
    found = const_of(value)
    return found if isinstance(found, str) else None
