"""Several files → one store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.errors import InputError
from gpudoctor.timeline.ingest.detect import Source
from gpudoctor.timeline.store import Store

if TYPE_CHECKING:
    from gpudoctor.timeline.ingest.several import IngestOptions


def merge(found: list[tuple[Path, Source]], store: Store, options: IngestOptions, problems: list[str]) -> list[str]:
    """Read each file into `store`; return notes for the reader."""
    for path, source in found:
        try:
            source.reader().read(path, None, store)
        except InputError as error:
            problems.append(str(error))
    return []
