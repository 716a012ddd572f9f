"""Tables of a GPU timeline: work, API calls, synchronisation, streams, ranges."""

from gpudoctor.tables.column import RANK, SPAN, Column, Table, choice, ints, texts

MEMORY_KINDS = ("pageable", "pinned", "device", "array", "managed", "unknown")

TABLES = (
    Table(
        "gpu_op",
        "Work that ran on a GPU.",
        (
            RANK,
            *ints("device: CUDA ordinal as the process saw it; context: CUDA context id; stream: stream id"),
            choice("kind", "comm is a collective or point-to-point kernel", "kernel", "memcpy", "memset", "comm"),
            Column("name_id", "int", "→ name"),
            *SPAN,
            *ints("corr: correlation id of the launching call; bytes: bytes copied, set or sent [B]"),
            choice("copy_kind", "direction of a copy", "h2d", "d2h", "d2d", "p2p", "h2h"),
            choice("src_mem", "memory a copy reads", *MEMORY_KINDS),
            choice("dst_mem", "memory a copy writes", *MEMORY_KINDS),
            *ints("graph_node: CUDA graph node id; graph: CUDA graph (exec) id"),
        ),
    ),
    Table(
        "api",
        "CUDA runtime and driver calls on the host.",
        (RANK, Column("tid", "int", "thread"), Column("name_id", "int", "→ name, without version suffix"), *SPAN,
         *ints("corr: correlation id; status: CUDA error code, 0 is success")),
    ),
    Table(
        "sync",
        "Synchronisation by host or stream; the kind comes from the call's name, never from CUPTI's own code.",
        (
            RANK,
            choice("kind", "event_query does not block", "stream", "event", "device", "stream_wait_event", "event_query"),
            *ints("context: CUDA context id; stream: stream that waits or is waited for; event: event id, may be reused"),
            *ints("event_sync: unique id of one record of an event; src_corr: correlation id of the awaited record"),
            *SPAN,
            *ints("corr: correlation id of the call"),
        ),
    ),
    Table(
        "event_record",
        "An event recorded into a stream.",
        (RANK, *ints("context: CUDA context id; event: event id; event_sync: unique id of this record; stream: stream id"),
         *ints("corr: correlation id of the call; start: when the host called [ns]")),
    ),
    Table(
        "stream",
        "Streams and how they treat the legacy default stream.",
        (RANK, *ints("device: CUDA ordinal; context: CUDA context id; stream: stream id"),
         choice("flags", "nonblocking ones are not ordered by the legacy default stream", "default", "blocking", "nonblocking", "unknown"),
         Column("priority", "int", "CUDA stream priority, lower runs first")),
    ),
    Table(
        "nvtx",
        "NVTX ranges and profiler annotations of the host.",
        (RANK, Column("tid", "int", "thread"), *SPAN, Column("name_id", "int", "→ name"), Column("depth", "int", "nesting depth in its thread, from 0")),
    ),
    Table(
        "cpu_op",
        "Framework operators on the host (aten::…, autograd, DataLoader).",
        (RANK, Column("tid", "int", "thread"), *SPAN, Column("name_id", "int", "→ name"),
         *ints("depth: nesting depth in its thread, null where the recorder does not tell it; external: correlation id that ties GPU work to this operator")),
    ),
    Table(
        "pystack",
        "Python frames at a call, innermost at depth 0.",
        (RANK, *ints("corr: correlation id of the call; depth: 0 is innermost"), *texts("file: source path as recorded; func: function"),
         Column("line", "int", "line, from 1")),
    ),
    Table(
        "gpu_mem",
        "Device and pinned memory taken from and given to the driver, or by the framework's allocator.",
        (RANK, *ints("device: CUDA ordinal; t: when [ns]; bytes: change, negative when freed [B]; total: in use after it [B]; address: address; corr: correlation id"),
         choice("source", "who reports", "driver", "allocator"), *texts("kind: device, pinned, managed, …")),
    ),
    Table("name", "Texts of kernels, calls, operators and ranges.", (Column("name_id", "int", "id"), Column("text", "text", "the text"))),
)
