"""Derived tables: computed once from the canonical ones; rules and reports read them like any other."""

from gpudoctor.tables.column import RANK, SPAN, Column, Table, choice, flags, floats, ints, texts

NAME = Column("name_id", "int", "→ name")
STEP = ints("step: step it belongs to, null outside steps")
STEP_NUMBER = ints("step: optimizer step, from 0")
WARMUP = flags("warmup: in a step that is set apart from steady state")
DEVICE = ints("device: CUDA ordinal")

_TABLES = (
    Table(
        "kind_of_name", "What each kernel, call or range is, judged once by its name.",
        (NAME, *texts("text: the name; call_kind: device_sync, stream_sync, event_sync, query, stream_wait, event_record, alloc, free, launch, memcpy, memset, …; op: collective it names"),
         *flags("optimizer: named like an optimizer; data: named like data loading")),
    ),
    Table("launch_call", "The call behind each correlation id.", (RANK, *ints("corr: correlation id"), *SPAN, *ints("tid: thread"))),
    Table("traced_step", "Steps that the capture saw; of a rank without a capture all.", (RANK, *STEP_NUMBER, *SPAN, *WARMUP)),
    Table("step_span", "Steps as a function of host time; a row without a step closes a step that none follows at once.", (RANK, *ints("start: from when [ns]"), *STEP, *WARMUP)),
    Table("step_slot", "Steps of step_span by slots of equal time, as an index: a moment `t` lies in slot `t // width`.", (RANK, *STEP, *WARMUP, *SPAN, *ints("width: of a slot [ns]; slot: number of a slot that the step touches"))),
    Table(
        "op", "GPU work with its launching call and the step that launched it.",
        (RANK, *DEVICE, *ints("context: CUDA context; stream: stream"), *texts("kind: kernel, memcpy, memset, comm"), NAME, *SPAN,
         *ints("corr: correlation id; bytes: bytes [B]"), *texts("copy_kind: direction of a copy; src_mem: memory it reads; dst_mem: memory it writes"),
         *ints("graph: CUDA graph it ran in; tid: thread that launched it; launch: call began [ns]; launched: call ended [ns]"), *STEP, *WARMUP),
    ),
    Table(
        "host_call", "Calls that may make the host wait or order work.",
        (RANK, *ints("tid: thread"), *texts("kind: as in kind_of_name.call_kind"), NAME, *SPAN, *ints("corr: correlation id; status: CUDA error code"), *STEP, *WARMUP),
    ),
    Table(
        "call_site", "The user's line behind a call.",
        (RANK, *ints("corr: correlation id"), *texts("path: innermost file of the user"), Column("line", "int", "line there; Kineto gives the function's first"),
         *texts("func: function there; callee: innermost library function, file:function"), *flags("by_library: a library made the call on its own account")),
    ),
    Table(
        "host_wait", "Every time the host waits for a GPU.",
        (RANK, *ints("tid: thread"), choice("kind", "what it waits in", "stream_sync", "device_sync", "event_sync", "copy", "spin"), NAME, *SPAN,
         *ints("ns: waiting [ns]; corr: correlation id"), *STEP, *WARMUP, *ints("count: calls it stands for, 0 for a copy that belongs to the next call; bytes: bytes copied [B]; device: CUDA ordinal; stream: stream of the copy"),
         *texts("path: as in call_site"), Column("line", "int", "as in call_site"), *texts("func: as in call_site; callee: as in call_site; operator: framework operator around it"), *flags("by_library: not by the user's code")),
    ),
    Table("gpu_step", "When each step's work ran; a row without a step closes the last one.", (RANK, *DEVICE, *STEP, *WARMUP, *SPAN, *ints("ops: operations"))),
    Table(
        "step_time", "How each device spent each step, from its first work to the next step's.",
        (RANK, *DEVICE, *STEP, *WARMUP, *SPAN,
         *ints("span: whole [ns]; busy: with anything [ns]; idle: with nothing [ns]; gaps: times it was idle; compute: with a kernel [ns]; comm: with a comm kernel [ns]; "
               "hidden: comm under kernels [ns]; exposed: comm without kernels [ns]; copy_exposed: copies only [ns]; concurrent: with two or more operations [ns]")),
    ),
    Table("exposed_comm", "Communication that no kernel hides.", (RANK, *DEVICE, *STEP, *WARMUP, *SPAN)),
    Table("idle", "Times of 2 µs and more with nothing on a device.", (RANK, *DEVICE, *STEP, *WARMUP, *SPAN)),
    Table(
        "gap", "Idle times with what ended them and what the launching thread did.",
        (RANK, *DEVICE, *STEP, *WARMUP, *SPAN, *ints("ns: length [ns]; corr: work that ended it"), NAME, *texts("kind: kind of that work"), *ints("tid: thread that launched it"),
         *flags("graph: it came from a CUDA graph"), *ints("late_ns: before the host had launched it [ns]"), *flags("between_steps: it began the next step"),
         choice("cause", "host's part in it", "sync", "alloc", "data", "collective", "launch", "host", "device")),
    ),
    Table(
        "collective_wait", "The n-th collective of each rank beside the same one of the others.",
        (RANK, choice("side", "where it ran", "gpu", "host"), *STEP, *WARMUP, *ints("nth: position in the step"), *texts("op: collective"), *ints("bytes: message [B]"), *SPAN,
         *ints("ns: length [ns]; transfer_ns: shortest over the ranks [ns]; wait_ns: beyond that [ns]"), *flags("last_in: this rank came last")),
    ),
    Table("untraced_graph", "CUDA graph launches that left no GPU rows.", (RANK, *ints("launches: launches"), *SPAN)),
    Table(
        "stream_order", "Pairs of work on two streams, what orders them, and the verdict where one depends on the other.",
        (RANK, *DEVICE, choice("relation", "why the pair is looked at", "neighbour", "comm_after_producer", "optimizer_after_comm", "consumer_after_copy", "copy_after_producer", "side_after_main"),
         *STEP, *ints("producer_stream: stream of the first; stream: stream of the second; producer_corr: the first; corr: the second; producer_end: end of the first [ns]; start: start of the second [ns]; launch: launch of the second [ns]"),
         NAME, *ints("producer_name_id: → name"), choice("reason", "what orders them", "none", "same_stream", "event", "legacy_stream", "host_sync", "transitive"),
         choice("verdict", "judged only where one depends on the other", "ordered", "missing", "wrong_order", "unjudged"),
         choice("confidence", "of the verdict", "certain", "likely", "possible"), *ints("early_ns: the second started so long before the first had ended [ns]")),
    ),
    Table("order_gap", "Ranks whose stream order the capture cannot tell.", (RANK, *texts("reason: what is missing"))),
    Table("stream_time", "What each stream did in steady steps.", (RANK, *DEVICE, *ints("context: CUDA context; stream: stream; ops: operations; busy: any [ns]; compute: kernels [ns]; comm: comm kernels [ns]; copy: copies and sets [ns]"))),
    Table("collective_rate", "Bandwidth of collectives by size.", (RANK, *DEVICE, *texts("op: collective"), *ints("bytes: message [B]; count: collectives"), *floats("typical_ns: median length [ns]"), *ints("ranks: ranks of the job"), *floats("rate: bytes over time [B/s]; bus_rate: what a ring moves [B/s]"))),
    Table("copy_rate", "Use of the link by kind of copy and memory.", (RANK, *DEVICE, *texts("copy_kind: direction; src_mem: memory read; dst_mem: memory written"), *ints("count: copies; bytes: bytes [B]; ns: time [ns]; in_steps: copies in steps"), *floats("rate: mean [B/s]; best: 90th percentile of copies over 1 MiB [B/s]"))),
    Table(
        "race_cause", "Races by the work that came first and the stream that did not wait for it.",
        (RANK, *texts("kind: as in race"), *ints("stream: stream that did not wait"), *texts("path: where the wait belongs"), Column("line", "int", "line there"),
         *texts("other: the other place"), *ints("count: times seen; bytes: most bytes at once [B]; places: pairs of places it shows at"), *flags("sure: of all of them"),
         *texts("first_op: operator that came first; second_op: operator that did not wait; first_stack: stack of the first; second_stack: stack of the second; story: what happened, in words")),
    ),
    Table("memory_use", "Memory in use over time.", (RANK, *DEVICE, *texts("source: driver or allocator; kind: device, pinned, managed, …"), *ints("t: when [ns]; change: bytes taken, negative when freed [B]; in_use: bytes in use after it [B]"))),
)

DERIVED: dict[str, Table] = {t.name: t for t in _TABLES}
