"""Where the shared captures and cases lie, if this machine has them."""

from __future__ import annotations

from pathlib import Path

import pytest

_SHARED = Path(__file__).parents[2] / "shared"


def shared_dir(part: str) -> Path:
    """Return the folder `part` of the shared material beside the checkout, or skip the test."""
    folder = _SHARED / part
    if not folder.exists():
        pytest.skip(f"needs the shared folder {part} beside the checkout")
    return folder
