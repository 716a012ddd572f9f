"""A tiny CUDA program: it writes the rows a recorder would, and keeps a graph of what comes before what.

The graph is the independent answer: plain reachability over single items, no clocks.
"""

from __future__ import annotations

from collections import defaultdict

from gpudoctor.timeline.derive import derive
from gpudoctor.timeline.store import Store

LEGACY = 7


class Program:
    """Host calls of one thread, 10 ns each; GPU work runs `duration` ns, as early as its order allows."""

    def __init__(self, flags: dict[int, str] | None = None, rank: int = 0) -> None:
        self.flags = flags or {}
        self.rows: dict[str, list[dict[str, object]]] = defaultdict(list)
        self.names: dict[str, int] = {}
        self.time = 1000
        self.corr = 0
        self.rank = rank
        self.before: list[set[int]] = []
        self.end: list[int] = []
        self.item_of_op: list[int] = []
        self.ops: list[tuple[int, int, int]] = []
        self.last: dict[int, int] = {}
        self.host: set[int] = set()
        self.records: dict[int, int] = {}
        self.steps = 0

    def name(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names))

    def call(self, text: str, length: int = 10) -> tuple[int, int]:
        self.corr += 1
        start = self.time
        self.time += length
        self.rows["api"].append({"rank": self.rank, "tid": 1, "name_id": self.name(text), "start": start, "end": start + length, "corr": self.corr})
        return start, self.corr

    def item(self, stream: int, extra: set[int] | None = None) -> int:
        """Append an item to a stream; its predecessors by CUDA's rules are kept."""
        before = set(self.host) | (extra or set())
        if stream in self.last:
            before.add(self.last[stream])
        flag = self.flags.get(stream, "nonblocking")
        if flag == "default":
            before |= {self.last[s] for s, f in self.flags.items() if f == "blocking" and s in self.last}
        elif flag == "blocking":
            before |= {self.last[s] for s, f in self.flags.items() if f == "default" and s in self.last}
        self.before.append(before)
        self.end.append(max((self.end[b] for b in before), default=0))
        self.last[stream] = len(self.before) - 1
        return self.last[stream]

    def launch(self, stream: int, text: str = "bwd_gemm", kind: str = "kernel", duration: int = 100, **columns: object) -> int:
        start, corr = self.call("cudaMemcpyAsync" if kind == "memcpy" else "cudaLaunchKernel")
        item = self.item(stream)
        begin = max(self.end[item], start + 10)
        self.end[item] = begin + duration
        self.rows["gpu_op"].append({"rank": self.rank, "device": 0, "context": 1, "stream": stream, "kind": kind, "name_id": self.name(text), "start": begin,
                                    "end": begin + duration, "corr": corr, **columns})
        self.ops.append((stream, corr, start))
        self.item_of_op.append(item)
        return len(self.ops) - 1

    def record(self, stream: int, event: int) -> None:
        start, corr = self.call("cudaEventRecord")
        self.records[event] = self.item(stream)
        self.rows["event_record"].append({"rank": self.rank, "context": 1, "event": event, "stream": stream, "corr": corr, "start": start})

    def wait(self, stream: int, event: int) -> None:
        start, corr = self.call("cudaStreamWaitEvent")
        self.item(stream, {self.records[event]} if event in self.records else None)
        self.rows["sync"].append({"rank": self.rank, "kind": "stream_wait_event", "context": 1, "stream": stream, "event": event, "start": start, "end": start + 10, "corr": corr})

    def _sync(self, text: str, kind: str, until: set[int], **columns: object) -> None:
        start, corr = self.call(text, max(10, max((self.end[i] for i in until), default=0) - self.time))
        self.host |= until
        self.rows["sync"].append({"rank": self.rank, "kind": kind, "context": 1, "start": start, "end": self.time, "corr": corr, **columns})

    def sync_event(self, event: int) -> None:
        self._sync("cudaEventSynchronize", "event", {self.records[event]} if event in self.records else set(), event=event)

    def sync_stream(self, stream: int) -> None:
        self._sync("cudaStreamSynchronize", "stream", {self.last[stream]} if stream in self.last else set(), stream=stream)

    def sync_device(self) -> None:
        self._sync("cudaDeviceSynchronize", "device", set(self.last.values()))

    def step(self) -> None:
        """Begin a step; the one before ends here."""
        if self.rows["step"]:
            self.rows["step"][-1]["end"] = self.time
        self.rows["step"].append({"rank": self.rank, "step": self.steps, "start": self.time, "end": self.time, "warmup": False, "source": "nvtx"})
        self.steps += 1

    def store(self) -> Store:
        """Tables as a recorder would fill them, with everything derived."""
        return store_of([self])

    def ordered(self, first: int, second: int) -> bool:
        """Whether operation `first` ends before `second` starts, whatever the GPU does."""
        goal, seen, todo = self.item_of_op[first], set(), [self.item_of_op[second]]
        while todo:
            for item in self.before[todo.pop()]:
                if item == goal:
                    return True
                if item not in seen:
                    seen.add(item)
                    todo.append(item)
        return False


def store_of(programs: list[Program]) -> Store:
    """One store of several programs, each a rank."""
    store, names = Store(), {}
    for table in ("event_record", "sync"):
        store.captured.add(table)
    for program in programs:
        if program.rows["step"]:
            program.rows["step"][-1]["end"] = program.time + 1
        renamed = {i: names.setdefault(t, len(names)) for t, i in program.names.items()}
        for table, rows in program.rows.items():
            if rows:
                store.add_rows(table, [{**r, "name_id": renamed[r["name_id"]]} if "name_id" in r else r for r in rows])
        store.add_rows("stream", [{"rank": program.rank, "device": 0, "context": 1, "stream": s, "flags": f} for s, f in program.flags.items()])
    store.add_rows("rank_info", [{"rank": p.rank, "world_size": len(programs)} for p in programs])
    store.add_rows("name", [{"name_id": i, "text": t} for t, i in names.items()])
    derive(store)
    return store
