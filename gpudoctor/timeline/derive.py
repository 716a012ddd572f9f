"""Compute derived tables once, from the canonical ones."""

from __future__ import annotations

from gpudoctor.timeline.store import Store


def derive(store: Store) -> None:
    """Fill every derived table from what the store holds; call it once, after the last `add`."""
