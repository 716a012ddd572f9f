"""Whose code a frame is: the user's, or the interpreter's and its packages'."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import cache

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = tuple({p + os.sep for p in (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platstdlib"], os.path.join(sys.base_prefix, "lib", "python"))})


@cache
def is_users(path: str) -> bool:
    """True for a file that is neither installed, nor Python's, nor the doctor's."""
    if path.startswith("<") or "site-packages" in path or "dist-packages" in path:
        return False
    return not path.startswith((_OURS, *_STANDARD))
