"""Tables that probes inside the ranks write: steps, gradients, replicas, precision, data, collectives."""

from gpudoctor.tables.column import RANK, SPAN, Column, Table, choice, flags, floats, ints, texts

STEP = Column("step", "int", "optimizer step, from 0")
STAGE = choice("stage", "local before the all-reduce, reduced after it", "local", "reduced")

TABLES = (
    Table(
        "step",
        "Training steps, delimited by the optimizer's step.",
        (RANK, STEP, *SPAN,
         *ints("data_ns: waiting for the next batch [ns]; forward_ns: forward [ns]; backward_ns: backward [ns]; optimizer_ns: optimizer [ns]; comm_ns: waiting in collectives on the host [ns]"),
         *ints("micro_batches: backward passes in this step; samples: leading dimension of the inputs, summed"),
         *flags("warmup: set apart from steady state"),
         Column("lr", "float", "learning rate of the first parameter group"), Column("scheduler_steps", "int", "calls of a scheduler's step in this step"),
         choice("source", "how the step was found", "probe", "profiler", "nvtx", "inferred")),
    ),
    Table(
        "param",
        "Parameters as each rank sees them.",
        (RANK, *ints("param_id: position in model.named_parameters(), models in order of wrapping; numel: elements; model_id: which wrapped model; bucket: DDP bucket, -1 if none"),
         *texts("name: qualified name; dtype: torch dtype without prefix"), *flags("in_optimizer: some optimizer holds it; requires_grad: it asks for gradients; ddp: a DDP wrapper reduces it")),
    ),
    Table(
        "grad_stat",
        "Statistics of one gradient just before the optimizer step, local and reduced.",
        (RANK, STEP, Column("param_id", "int", "→ param"), STAGE,
         *ints("numel: elements; zeros: exact zeros; nonfinite: NaN and infinities"),
         *floats("norm: L2 norm; mean: mean; absmax: largest magnitude; checksum: sum as double; sketch: ±1 random projection")),
    ),
    Table(
        "grad_hist",
        "log2 histogram of one gradient's magnitudes.",
        (RANK, STEP, Column("param_id", "int", "→ param"), STAGE, *ints("bin: floor(log2|g|), clamped to 64 bins; count: elements")),
    ),
    Table(
        "bucket",
        "One all-reduce of gradients and its proof: sums and ±1 sketches before and after.",
        (RANK, STEP, *ints("bucket: bucket index; micro_batch: backward pass within the step; numel: elements; world: ranks that reduced; model_id: → model, -1 for a plain all_reduce"),
         *texts("dtype: torch dtype; op: mean or sum; path: ddp, hook or manual"),
         *floats("local_sum: sum before; local_sketch: sketch before; local_norm2: squared norm before; reduced_sum: sum after; reduced_sketch: sketch after; reduced_norm2: squared norm after")),
    ),
    Table(
        "replica",
        "Checksums of everything that should, or should not, be equal across ranks.",
        (RANK, STEP, Column("model_id", "int", "which model; -1 for data and RNG"),
         *texts("param_checksum: parameters; buffer_checksum: buffers; rng_fingerprint: RNG streams; batch_fingerprint: input samples"),
         *floats("param_norm: L2 norm of all parameters; update_norm: L2 norm of the step's change")),
    ),
    Table(
        "model",
        "Models as each rank sees them, one row for each wrapping.",
        (RANK, STEP, *ints("model_id: order of wrapping or finding; params: parameters; numel: elements; first_param: its first param_id; wraps: how often it was wrapped; batchnorms: BatchNorm modules that keep statistics of their own"),
         choice("kind", "ddp is wrapped by DistributedDataParallel", "ddp", "plain", "fsdp", "dp"),
         *texts("name: class; ranks: global ranks that replicate it, comma between; path: user's source path of the wrapping"), Column("line", "int", "user's line"),
         *flags("broadcast_buffers: DDP broadcasts buffers; find_unused: DDP looks for unused parameters; static_graph: DDP takes the graph as static; compiled: torch.compile wraps it")),
    ),
    Table(
        "loss",
        "What stands between the loss function and backward in each step, read from the autograd graph.",
        (RANK, STEP, Column("factor", "float", "product of constant factors, loss scale left out"), choice("base", "reduction under the factors", "mean", "sum", "none", "unknown"),
         Column("micro_batches", "int", "backward passes that were kept"), *flags("uniform: all backward passes had that factor; one_line: all were called on one line"),
         *texts("path: user's source path of backward"), Column("line", "int", "user's line")),
    ),
    Table(
        "clip",
        "Calls of clip_grad_norm_.",
        (RANK, STEP, *floats("total_norm: norm before clipping; max_norm: the limit"), Column("params", "int", "parameters clipped together"),
         Column("scaled", "bool", "a GradScaler is in use"), *texts("path: user's source path"), Column("line", "int", "user's line")),
    ),
    Table(
        "data_rng",
        "Random streams that a dataset drew from while it fetched a batch, as they were before the fetch.",
        (RANK, STEP, *ints("worker: worker id, -1 is the rank's own process; fetch: number of the fetch in that process"),
         *texts("source: torch, python, numpy; fingerprint: hash of the stream's state; dataset: class of the dataset")),
    ),
    Table(
        "amp",
        "Loss scaling at each step.",
        (RANK, STEP, Column("scale", "float", "loss scale used"), Column("skipped", "bool", "the optimizer step was skipped"),
         Column("growth_tracker", "int", "steps since the scale last changed")),
    ),
    Table(
        "collective",
        "Collectives in the order a rank issued them.",
        (RANK, *texts("group: process group; op: operation; dtype: torch dtype; state: scheduled, started, completed, failed"),
         *ints("seq: position in the group, from 0; numel: elements; step: optimizer step"), *SPAN, *texts("path: user's source path; func: user's function"),
         Column("line", "int", "user's line"), Column("p2p", "bool", "a send or receive, counted apart"),
         Column("shape", "text", "shapes of the inputs"), Column("order", "int", "order in which the rank issued it, over all groups")),
    ),
    Table(
        "group_state",
        "How far each rank came in each process group.",
        (RANK, *texts("group: process group; members: global ranks, comma-separated"),
         *ints("size: number of members; enqueued: seq of the last collective issued; completed: seq of the last one known complete")),
    ),
    Table(
        "race",
        "Pairs of accesses to the same bytes that nothing orders, found by the sanitizer; the first was issued first.",
        (RANK, STEP, choice("kind", "slug of the rule", "stream-missing-wait", "stream-wrong-order", "missing-record-stream", "d2h-nonblocking-no-sync", "pinned-buffer-reused"),
         *ints("device: CUDA ordinal; first_stream: raw stream, below 0 the default one, null for the host; second_stream: likewise; bytes: bytes that both touch [B]; count: how often"),
         *texts("first_op: operator; second_op: operator; first_access: reads or writes; second_access: reads or writes; first_stack: frames, innermost first; second_stack: frames, innermost first"),
         *texts("path: user's source path to mend; other: the other access's path:line"), Column("line", "int", "user's line"),
         *flags("sure: false where strides or streams leave a doubt")),
    ),
    Table(
        "loader",
        "DataLoaders and how they are sharded.",
        (RANK, *ints("loader_id: order of first use; epoch: times iterated before; batches: batches served; samples: indices served; length: len(dataset), -1 if unknown; batch_size: per rank; num_workers: worker processes"),
         *texts("sampler: class of the sampler; dataset: class of the dataset; index_fingerprint: order of indices of this epoch; index_set: indices of this epoch, regardless of order; path: source path of the loop; made_path: source path where it was made"),
         *ints("line: line of the loop; made_line: line where it was made; seed: sampler's seed, -1 if it has none; sampler_epoch: sampler.epoch, -1 if it has none"), *flags("pin_memory: batches are pinned; sharded: sampler or dataset splits by rank; shuffle: the sampler shuffles; training: backward passes ran during it; complete: iterated to its end; drop_last: a short last batch is dropped"),
         STEP),
    ),
    Table(
        "fact",
        "A single thing that a probe saw, told by name.",
        (RANK, STEP, *texts("kind: what was seen, a slug; name: whom it concerns; detail: text for the reader; path: user's source path"),
         Column("line", "int", "user's line"), Column("value", "float", "a number that goes with it"), Column("count", "int", "how often")),
    ),
    Table(
        "rank_info",
        "One row a rank: process, device and how it ended.",
        (RANK, *ints("world_size: ranks in the job; local_rank: rank on its host; pid: process id; device: CUDA ordinal, -1 on CPU; exit_code: exit status; signal: signal that ended it, 0 if none; last_step: last step seen; t_end: when it ended, wall clock [ns]; clock_offset: add to its times for the report's clock [ns]"),
         *texts("host: host; backend: gloo, nccl, …; state: running, done, failed, killed, stuck; last_line: last line of its traceback; source: file or launcher it came from; error: class of the exception that ended it; path: user's source path where that arose; func: user's function"),
         Column("line", "int", "user's line"), *ints("attempt: restarts before it; issued: collectives issued; timeout_ns: limit of the collective whose wait ended it [ns]; quiet_ns: since its last sign of progress [ns]"),
         *texts("op: collective in progress; phase: forward, backward, optimizer, data, …"), *flags("victim: ended because another rank had")),
    ),
    Table(
        "last_collective",
        "The latest collectives of each rank as its heart told the watchdog, where a run ended badly.",
        (RANK, *texts("group: process group; op: operation; dtype: torch dtype; state: started, completed, failed"),
         *ints("seq: position in its group, from 0; ticket: order of issue over all groups, from 0; numel: elements; step: optimizer step"), *SPAN, *texts("path: user's source path; func: user's function"),
         Column("line", "int", "user's line")),
    ),
    Table(
        "stack_frame",
        "Python stacks of ranks that stopped progressing, innermost at depth 0.",
        (RANK, *ints("thread: thread number, 0 is the main thread; depth: 0 is innermost; line: line; loop_line: first line of the innermost loop around it; loop_end: last line of that loop"),
         *texts("file: path; func: function"), *flags("user: neither installed nor Python's own")),
    ),
    Table(
        "overhead",
        "What the recorder itself cost.",
        (RANK, STEP, *ints("probe_ns: host time in probes [ns]; step_ns: whole step [ns]; interval: sampling interval in steps")),
    ),
)
