"""Names from captures are strangers' text: make them harmless before anyone prints them."""

from __future__ import annotations

import re

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def plain(text: object, limit: int = 2000) -> str:
    """Return `text` without control, zero-width and direction characters, cut to `limit` characters."""
    cleaned = _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", str(text).replace("\r\n", "\n").replace("\r", "\n"))
    cleaned = cleaned.encode("utf-8", "replace").decode("utf-8")
    return cleaned if len(cleaned) <= limit else cleaned[: limit - 1] + "…"


def one_line(text: object, limit: int = 300) -> str:
    """`plain`, with white space folded."""
    return " ".join(plain(text, limit * 4).split())[:limit]
