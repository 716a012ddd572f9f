"""Which line of the user's code we were called from."""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from types import FrameType


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's source; the path is relative to the working directory where it lies below it."""

    path: str = ""
    line: int = -1
    func: str = ""

    def columns(self) -> dict[str, object]:
        """The columns path and line, empty where no user's line is known."""
        return {"path": self.path, "line": self.line} if self.path else {}


NOWHERE = Place()
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = tuple(os.path.abspath(p) + os.sep for p in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")} if p)
_START = os.getcwd()


def caller() -> Place:
    """The innermost frame of the user's own code that led here."""
    frame = user_frame()
    return NOWHERE if frame is None else Place(shown(frame.f_code.co_filename), frame.f_lineno or frame.f_code.co_firstlineno, frame.f_code.co_name)


def user_frame() -> FrameType | None:
    """The innermost frame that belongs to neither Python, nor an installed package, nor gpudoctor."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not _is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


@cache
def _is_users(path: str) -> bool:
    if path.startswith("<") or f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path:
        return False
    full = os.path.abspath(path)
    return not full.startswith((_OURS, *_LIBRARY))


@cache
def shown(path: str) -> str:
    """The path as reports name it."""
    full = os.path.abspath(path)
    return os.path.relpath(full, _START) if full.startswith(_START + os.sep) else full
