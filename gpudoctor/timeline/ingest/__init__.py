"""Files of any kind → one store of canonical tables.

What a reader marks as captured is what it could have seen. In particular `event_record` is captured only if the
capture says which event was recorded into which stream; without it the order of streams is unknown.
"""

from __future__ import annotations

from gpudoctor.timeline.ingest.several import Ingested, IngestOptions, ingest

__all__ = ["IngestOptions", "Ingested", "ingest"]
