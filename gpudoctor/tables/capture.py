"""The evidence itself: one row a file that was read."""

from gpudoctor.tables.column import Column, Table, choice, flags, ints, texts

TABLES = (
    Table(
        "capture",
        "Files that were read, what they hold and what they lack.",
        (
            *texts("path: file or folder as given"),
            choice("kind", "what it is", "nsys", "kineto", "run", "memory", "flight", "nccl_log"),
            *texts("tool: recorder and its version; version: schema of the file; graph_trace: how CUDA graphs were traced, as the recorder says; problem: what is wrong with the file"),
            *ints("rank: first rank in it; ranks: ranks in it; world_size: ranks of the job, if it says so; gpu_ops: kernels, copies and sets; api_calls: CUDA calls; ranges: NVTX ranges; operators: framework operators; dropped: rows with impossible times; env_vars: environment variables stored in it; secrets: those whose names look like tokens, keys or passwords"),
            *flags("truncated: the end is missing"),
            Column("epoch_ns", "int", "wall clock at its time zero", "ns"),
            *ints("start: first event [ns]; end: last event [ns]; overhead_ns: time the recorder took on the host [ns]"),
        ),
    ),
)
