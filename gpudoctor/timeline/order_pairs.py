"""Pairs of operations of which one must, or may have to, wait for the other; and what orders them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpudoctor.timeline.clocks import Column, Ints, Mask
from gpudoctor.timeline.order import COMM, D2D, D2H, H2D, KERNEL, MEMCPY, MEMSET, Process

REASONS = ("none", "same_stream", "event", "legacy_stream", "host_sync", "transitive")
NEVER = -(1 << 62)


@dataclass(slots=True)
class Pairs:
    """Consumers and producers by position in `process.ops`, with one verdict each.

    `relation`: neighbour, comm_after_producer, optimizer_after_comm, consumer_after_copy, copy_after_producer, side_after_main.
    `verdict`: ordered, missing, wrong_order. `confidence`: certain, likely, possible.
    """

    relation: str
    consumer: Ints
    producer: Ints
    verdict: Column
    confidence: Column


def reasons(process: Process, consumer: Ints, producer: Ints) -> Ints:
    """Why each consumer starts after its producer has ended; indices into `REASONS`."""
    ops, clocks = process.ops, process.clocks
    out = np.zeros(len(consumer), dtype=np.int64)
    pair = ops.stream[consumer] * len(process.streams) + ops.stream[producer]
    order = np.argsort(pair, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(pair[order])) + 1):
        if not len(at):
            continue
        waiting, other = divmod(int(pair[at[0]]), len(process.streams))
        if waiting == other:
            out[at] = REASONS.index("same_stream")
            continue
        times, need = ops.launch[consumer[at]], ops.seq[producer[at]] + 1
        out[at] = np.select(
            [clocks.waited(waiting, other, times)[0] >= need, clocks.by_legacy(waiting, other, times) >= need,
             clocks.known(clocks.host, other, times) >= need, clocks.known(waiting, other, times) >= need],
            [REASONS.index("event"), REASONS.index("legacy_stream"), REASONS.index("host_sync"), REASONS.index("transitive")], 0)
    return out


def known(process: Process, waiting: int, other: int, times: Ints) -> Ints:
    """How many operations of `other` are done before work that `waiting` is given at each time."""
    clocks = process.clocks
    done: Ints = np.maximum(clocks.known(waiting, other, times), clocks.known(clocks.host, other, times))
    return done


def neighbours(process: Process) -> Pairs:
    """Each operation whose predecessor in launch order ran on another stream of its device."""
    ops = process.ops
    device = ops.columns["device"]
    consumer = np.flatnonzero((ops.stream[1:] != ops.stream[:-1]) & (device[1:] == device[:-1]) & (ops.columns["corr"][1:] != ops.columns["corr"][:-1])) + 1
    return _pairs("neighbour", consumer, consumer - 1, np.full(len(consumer), "unjudged"), np.full(len(consumer), "possible"))


def dependences(process: Process, classes: Classes) -> Iterator[Pairs]:
    """All pairs of known or likely dependence, with their verdicts."""
    yield from _comm_after_producer(process, classes)
    yield from _optimizer_after_comm(process, classes)
    yield from _copies(process, classes)
    yield from _side_after_main(process, classes)


@dataclass(slots=True)
class Classes:
    """What each operation is, as masks over `process.ops`, and where its step began.

    `step` is -1 outside steps; `step_start` is the launch of the step's first operation, `NEVER` outside.
    """

    reduction: Mask
    comm: Mask
    optimizer: Mask
    work: Mask
    step: Ints
    step_start: Ints
    stepped: bool

    def considered(self) -> Mask:
        """Operations that a verdict may be given on: those in steps, where the rank has steps."""
        plain: Mask = (self.work | self.comm) & ((self.step >= 0) | (not self.stepped))
        return plain


def classify(process: Process, reductions: Ints, optimizers: Ints, in_optimizer: Mask, stepped: bool) -> Classes:
    """`reductions` and `optimizers` are name ids; `in_optimizer` marks operations launched inside an optimizer's range; `stepped`: the rank has steps."""
    ops = process.ops
    kind, graph, step = ops.columns["kind"], ops.columns["graph"], ops.columns["step"]
    comm = (kind == COMM) & ~graph
    work = ~graph & ((kind == KERNEL) | (kind == MEMSET) | ((kind == MEMCPY) & (ops.columns["copy_kind"] == D2D)))
    start = np.full(len(step), NEVER, dtype=np.int64)
    numbers, first = np.unique(step, return_index=True)
    begin = np.where(numbers >= 0, ops.launch[first], NEVER)
    start[:] = begin[np.searchsorted(numbers, step)]
    name = ops.columns["name_id"]
    optimizer = (kind == KERNEL) & ~graph & (np.isin(name, optimizers) | in_optimizer)
    return Classes(comm & np.isin(name, reductions), comm, optimizer, work & ~comm, step, start, stepped)


def _pairs(relation: str, consumer: Ints, producer: Ints, verdict: Column, confidence: Column) -> Pairs:
    return Pairs(relation, np.asarray(consumer, dtype=np.int64), np.asarray(producer, dtype=np.int64), verdict, confidence)


@dataclass(slots=True)
class _Window:
    """For each consumer: the work of one other stream launched between `since` and the consumer."""

    last: Ints
    exists: Mask
    full: Mask
    part: Mask


def _window(process: Process, waiting: int, times: Ints, since: Ints, work: Ints) -> _Window:
    """`work` are positions of one stream; `full`/`part`: all, or at least the first, of the window is known to be done."""
    ops = process.ops
    last = np.searchsorted(ops.launch[work], times, side="left") - 1
    first = np.searchsorted(ops.launch[work], since, side="left")
    exists = last >= first
    safe = len(work) - 1
    done = known(process, waiting, int(ops.stream[work[0]]), times)
    need = ops.seq[work] + 1
    return _Window(work[np.clip(last, 0, safe)], exists, exists & (done >= need[np.clip(last, 0, safe)]), exists & (done >= need[np.clip(first, 0, safe)]))


def _comm_after_producer(process: Process, classes: Classes) -> Iterator[Pairs]:
    """Reductions sum what backward kernels wrote: kernels that the same thread launched since the stream's last comm kernel."""
    ops, tid = process.ops, process.ops.columns["tid"]
    wanted = classes.reduction & classes.considered()
    for stream in np.unique(ops.stream[wanted]).tolist():
        mine = ops.of(stream)
        comm = mine[classes.comm[mine]]
        previous = np.r_[NEVER, ops.launch[comm[:-1]]]
        for thread in np.unique(tid[comm]).tolist():
            pick = wanted[comm] & (tid[comm] == thread)
            if pick.any():
                yield _judge_comm(process, classes, stream, thread, comm[pick], previous[pick])


def _judge_comm(process: Process, classes: Classes, stream: int, thread: int, consumer: Ints, previous: Ints) -> Pairs:
    ops = process.ops
    times, step_start = ops.launch[consumer], classes.step_start[consumer]
    since = np.maximum(previous, step_start)
    count = len(consumer)
    producer, seen, full, waited, in_step, unsettled = (np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=np.int64),
                                                        *(np.zeros(count, dtype=bool) for _ in range(4)))
    for other in range(len(process.streams)):
        theirs = ops.of(other)
        work = theirs[classes.work[theirs] & (ops.columns["tid"][theirs] == thread)] if process.beside(stream, other) else theirs[:0]
        if not len(work):
            continue
        window = _window(process, stream, times, since, work)
        weight = np.searchsorted(ops.launch[work], times) - np.searchsorted(ops.launch[work], since)
        better = window.exists & ((window.full & ~full) | ((window.full == full) & (weight > seen)))
        producer[better], seen[better] = window.last[better], weight[better]
        full |= window.full
        when = process.clocks.waited(stream, other, times)[1]
        waited |= window.exists & (when >= 0) & (when > previous)
        in_step |= _window(process, stream, times, step_start, work).part
        unsettled |= window.exists & (not process.settled(stream, other))
    found = producer >= 0
    verdict = np.where(full, "ordered", np.where(waited, "wrong_order", "missing"))
    sure = ~waited & ~in_step & ~unsettled & classes.stepped
    return _pairs("comm_after_producer", consumer[found], producer[found], verdict[found], np.where(sure, "certain", "likely")[found])


def _optimizer_after_comm(process: Process, classes: Classes) -> Iterator[Pairs]:
    """The optimizer reads what this step's reductions wrote; it must have waited for one of them at least."""
    ops = process.ops
    wanted = classes.optimizer & (classes.step >= 0)
    for stream in np.unique(ops.stream[wanted]).tolist():
        consumer = ops.of(stream)[wanted[ops.of(stream)]]
        times, since = ops.launch[consumer], classes.step_start[consumer]
        for other in np.unique(ops.stream[classes.reduction]).tolist():
            theirs = ops.of(other)
            work = theirs[classes.reduction[theirs]]
            if not process.beside(stream, other) or not len(work):
                continue
            window = _window(process, stream, times, since, work)
            waited = process.clocks.waited(stream, other, times)[1] > since
            verdict = np.where(window.full | window.part, "ordered", np.where(waited, "wrong_order", "missing"))
            sure = ~waited & process.settled(stream, other)
            e = window.exists
            yield _pairs("optimizer_after_comm", consumer[e], window.last[e], verdict[e], np.where(sure, "certain", "likely")[e])


LATEST = 4
"""Steps after which a prefetched batch must have been consumed."""


def _copies(process: Process, classes: Classes) -> Iterator[Pairs]:
    """Streams that only copy between host and device: someone else makes, or uses, what they move."""
    ops = process.ops
    kind, copy = ops.columns["kind"], ops.columns["copy_kind"]
    for stream in range(len(process.streams)):
        mine = ops.of(stream)
        mine = mine[classes.step[mine] >= 0]
        if not len(mine) or not np.all((kind[mine] == MEMCPY) & np.isin(copy[mine], (H2D, D2H))):
            continue
        main = _main(process, classes, int(ops.columns["device"][mine[0]]), stream)
        if main is None:
            continue
        yield from _unread_uploads(process, classes, mine[copy[mine] == H2D], main)
        yield from _early_downloads(process, classes, mine[copy[mine] == D2H])


def _main(process: Process, classes: Classes, device: int, excluding: int = -1) -> int | None:
    """The stream with most kernels of a device."""
    ops = process.ops
    here = ops.stream[(ops.columns["kind"] == KERNEL) & (ops.columns["device"] == device) & (ops.stream != excluding)]
    return int(np.bincount(here).argmax()) if len(here) else None


def _unread_uploads(process: Process, classes: Classes, copies: Ints, main: int) -> Iterator[Pairs]:
    """Uploads that no later kernel of the main stream is ordered after, even `LATEST` steps on."""
    ops = process.ops
    kernels = ops.of(main)[classes.work[ops.of(main)]]
    steps = np.unique(classes.step[kernels][classes.step[kernels] >= 0])
    if len(steps) < LATEST + 2:
        return
    copies = copies[classes.step[copies] <= steps[-1] - LATEST]
    after = np.searchsorted(classes.step[kernels], classes.step[copies] + LATEST, side="right") - 1
    consumer = np.searchsorted(ops.launch[kernels], ops.launch[copies])
    fits = (consumer < len(kernels)) & (after >= 0)
    copies, after, consumer = copies[fits], after[fits], consumer[fits]
    if len(np.unique(classes.step[copies])) < 3:
        return
    stream = int(ops.stream[copies[0]])
    covered = known(process, main, stream, ops.launch[kernels[after]]) > ops.seq[copies]
    if not covered.any():
        yield _pairs("consumer_after_copy", kernels[consumer], copies, np.full(len(copies), "missing"), np.full(len(copies), "likely"))


def _early_downloads(process: Process, classes: Classes, copies: Ints) -> Iterator[Pairs]:
    """Downloads whose stream knows of no kernel at all since the step before began."""
    ops = process.ops
    if len(np.unique(classes.step[copies])) < 3:
        return
    numbers, first = np.unique(classes.step, return_index=True)
    since = ops.launch[first][np.maximum(np.searchsorted(numbers, classes.step[copies] - 1), 0)]
    stream = int(ops.stream[copies[0]])
    producer, covered = np.full(len(copies), -1, dtype=np.int64), np.zeros(len(copies), dtype=bool)
    for other in range(len(process.streams)):
        work = ops.of(other)[classes.work[ops.of(other)]]
        if not process.beside(stream, other) or not len(work):
            continue
        window = _window(process, stream, ops.launch[copies], since, work)
        covered |= window.part
        producer = np.where(window.exists, np.maximum(producer, window.last), producer)
    found = producer >= 0
    if found.any() and not covered[found].any():
        yield _pairs("copy_after_producer", copies[found], producer[found], np.full(found.sum(), "missing"), np.full(found.sum(), "likely"))


def _side_after_main(process: Process, classes: Classes) -> Iterator[Pairs]:
    """Side streams that the main stream waits for in every step but that never wait for it: a join without its fork."""
    ops = process.ops
    kind, copy = ops.columns["kind"], ops.columns["copy_kind"]
    for stream in np.unique(ops.stream[classes.work & (classes.step >= 0)]).tolist():
        mine = ops.of(stream)
        main = _main(process, classes, int(ops.columns["device"][mine[0]]))
        uploads = (kind[mine] == MEMCPY) & (copy[mine] == H2D)
        if main is None or main == stream or classes.comm[mine].any() or uploads.any():
            continue
        mine = mine[classes.work[mine] & (classes.step[mine] >= 0)]
        _, first = np.unique(classes.step[mine], return_index=True)
        consumer = mine[first]
        theirs = ops.of(main)[classes.work[ops.of(main)]]
        window = _window(process, stream, ops.launch[consumer], classes.step_start[consumer], theirs)
        last = np.searchsorted(classes.step[theirs], classes.step[consumer], side="right") - 1
        joined = (last >= 0) & (known(process, main, stream, ops.launch[theirs[np.maximum(last, 0)]]) > ops.seq[consumer])
        e = window.exists
        if e.sum() >= 3 and joined[e].all() and not window.part[e].any():
            yield _pairs("side_after_main", consumer[e], window.last[e], np.full(e.sum(), "missing"), np.full(e.sum(), "possible"))
