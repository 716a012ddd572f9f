"""Raw string ids of a capture → name ids of the store, only for the strings that are used."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import pyarrow as pa

from gpudoctor.timeline.store import Store


class StringColumn:
    """Maps int64 string ids to name ids; the unknown ids of a batch are looked up together, each text edited by `change`.

    `texts` are the edited texts by name id, `changed` the name ids of those that the edit changed.
    """

    def __init__(self, store: Store, lookup: Callable[[pa.Array], dict[int, str]], change: Callable[[str], str] | None = None) -> None:
        self._store, self._lookup, self._change = store, lookup, change
        self._known: dict[int | None, int | None] = {None: None}
        self.texts: dict[int, str] = {}
        self.changed: list[int] = []
        self._lock = Lock()

    def map(self, ids: pa.Array) -> pa.Array:
        """Name ids (int64) of the texts that `ids` stand for; null where the id is null or unknown."""
        encoded = ids.dictionary_encode()
        raw = encoded.dictionary.to_pylist()
        with self._lock:
            self._learn([i for i in raw if i not in self._known])
        return pa.array([self._known[i] for i in raw], pa.int64()).take(encoded.indices)

    def _learn(self, fresh: list[int]) -> None:
        if fresh:
            found = self._lookup(pa.array(fresh, pa.int64()))
            changed = {i: self._change(t) if self._change else t for i, t in found.items()}
            names = self._store.intern(pa.array(list(changed.values()), pa.string())).to_pylist()
            self._known.update(dict.fromkeys(fresh))
            self._known.update(zip(changed, names, strict=True))
            self.texts.update(zip(names, changed.values(), strict=True))
            self.changed += [n for n, (i, t) in zip(names, changed.items(), strict=True) if t != found[i]]
