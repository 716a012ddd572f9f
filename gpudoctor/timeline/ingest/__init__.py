"""Files of any kind → one store of canonical tables.

What a reader marks as captured is what it could have seen. In particular `event_record` is captured only if the
recorder told of synchronisation; without it the order of streams is unknown. Single records may still lack their stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from gpudoctor.timeline.ingest.ahead import Ahead
from gpudoctor.timeline.ingest.options import Ingested, IngestOptions

__all__ = ["IngestOptions", "Ingested", "ingest"]


def ingest(paths: Iterable[Path], options: IngestOptions | None = None) -> Ingested:
    """Read files and folders into one store, derived tables included.

    InputError if nothing could be read; files of several that could not are told in `problems`.
    """
    paths, options = list(paths), options or IngestOptions()
    with closing(Ahead(options)) as ahead:
        ahead.guess(paths)
        from gpudoctor.timeline.ingest.several import read_all

        return read_all(paths, options, ahead)
