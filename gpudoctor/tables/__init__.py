"""The canonical tables: what every recorder writes, every ingester fills and every rule reads.

Times are int64 ns on one clock per capture. Every table exists; it is empty where the source has none.
Correlation ids belong to a process, so joins are on `(rank, corr)`.
"""

from gpudoctor.tables.capture import TABLES as _CAPTURE
from gpudoctor.tables.column import Column, Table
from gpudoctor.tables.gpu import TABLES as _GPU
from gpudoctor.tables.machine import TABLES as _MACHINE
from gpudoctor.tables.memory import TABLES as _MEMORY
from gpudoctor.tables.run import TABLES as _RUN

TABLES: dict[str, Table] = {t.name: t for t in (*_GPU, *_RUN, *_MEMORY, *_MACHINE, *_CAPTURE)}

__all__ = ["TABLES", "Column", "Table"]
