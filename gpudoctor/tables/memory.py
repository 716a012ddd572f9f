"""Tables of memory: samples per step, blocks and events of the caching allocator, processes on a card."""

from gpudoctor.tables.column import RANK, Column, Table, choice, ints, texts

TABLES = (
    Table(
        "mem_sample",
        "Memory of one device as one rank saw it at one moment.",
        (RANK, *ints("step: optimizer step; device: CUDA ordinal, -1 is host memory of the rank; t: when [ns]"),
         *texts("phase: step, forward, backward, optimizer, end, oom"),
         *ints("allocated: live tensors [B]; reserved: held by the caching allocator [B]; peak_allocated: since start [B]; peak_reserved: since start [B]; used_by_others: held by other processes on the card [B]; largest_free: largest free block inside reserved [B]; in_pieces: free bytes in segments that are partly in use [B]; total: card or host memory [B]; free: free by the driver [B]; retries: times the allocator had to empty its cache and try again, since start; inputs: elements given to forward so far in this step")),
    ),
    Table(
        "mem_block",
        "Blocks of an allocator snapshot.",
        (RANK, *ints("device: CUDA ordinal; segment: segment's address; segment_bytes: segment's size [B]; stream: stream of the pool; address: block's address; bytes: block's size [B]; requested: bytes asked for [B]"),
         choice("state", "pending waits for a stream", "active", "inactive", "pending"), choice("pool", "small ≤ 1 MiB", "small", "large"), Column("stack_id", "int", "→ mem_stack")),
    ),
    Table(
        "mem_event",
        "Trace of an allocator snapshot, in order.",
        (RANK, *ints("device: CUDA ordinal; seq: order; t: when [ns]"),
         *texts("action: alloc, free_requested, free_completed, segment_alloc, segment_free, oom, snapshot, …"),
         *ints("address: address; bytes: size [B]; stream: stream; device_free: free by the driver at an oom [B]; stack_id: → mem_stack; step: optimizer step; line: user's line"), Column("path", "text", "user's source path")),
    ),
    Table("mem_stack", "Python frames of an allocation, innermost at depth 0.", (RANK, *ints("stack_id: id; depth: 0 is innermost; line: line"), *texts("file: path; func: function"))),
    Table("device_process", "Processes that hold memory on a card (NVML).", (RANK, *ints("device: physical card; pid: process; bytes: memory it holds [B]; owner_rank: rank of that process, -1 if foreign; step: when sampled"),)),
)
