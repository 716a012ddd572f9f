"""The summary of a report: what was measured, whether or not it is a fault."""

from __future__ import annotations

from typing import Any

from gpudoctor.timeline.store import Store


def summarise(store: Store) -> dict[str, Any]:
    """Steps, ranks and memory of the subject, from its tables."""
    return {}
