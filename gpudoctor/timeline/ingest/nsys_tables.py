"""From the raw tables of an nsys export to canonical ones; the same for SQLite and Parquet exports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpudoctor.cpus import cpus
from gpudoctor.timeline.ingest import nsys_sql as sql
from gpudoctor.timeline.ingest import nsys_stacks
from gpudoctor.timeline.ingest.capture import contents, describe, drop_impossible
from gpudoctor.timeline.ingest.names import (
    OPERATOR_MARKS,
    is_comm,
    plain_api,
    plain_operator,
    records_event,
    sync_kind,
)
from gpudoctor.timeline.ingest.nesting import nested
from gpudoctor.timeline.ingest.nsys_raw import WANTED, RawTables, schema
from gpudoctor.timeline.ingest.strings import StringColumn
from gpudoctor.timeline.store import ROW_GROUP, Store, in_row_groups

_KERNEL, _MEMCPY, _MEMSET, _RUNTIME, _SYNC, _EVENT = (
    f"CUPTI_ACTIVITY_KIND_{k}" for k in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION", "CUDA_EVENT")
)
_NVTX, _MEMORY = "NVTX_EVENTS", "CUDA_GPU_MEMORY_USAGE_EVENTS"
_PID = (1 << 24) - 1
_ROWS_AT_ONCE = 3 * ROW_GROUP


class NsysTrace:
    """One nsys export; satisfies `Trace`."""

    def __init__(self, path: Path, source: RawTables) -> None:
        self.path, self._source = path, source
        self.notes: list[str] = []

    @property
    def stated_rank(self) -> int | None:
        said = self._source.metadata().get("rank")
        return None if said is None else int(said)

    @property
    def epoch_ns(self) -> int | None:
        return _first(self._source, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs")

    def fill(self, store: Store, rank: int, shift_ns: int = 0) -> range:
        """Fill the timeline's tables; processes without GPU work are left out if any has some."""
        reading = _Reading(self._source, store, shift_ns)
        reading.stage()
        ranks = reading.number_processes(rank)
        with ThreadPoolExecutor(cpus() + 1) as pool:
            api, work, ranges = ([pool.submit(p) for p in parts] for parts in (reading.api(), [*reading.kernels(), *reading.copies()], reading.ranges()))
            _done(api)
            rest = [pool.submit(reading.synchronisation)]
            _done(work)
            rest.append(pool.submit(reading.small_tables))
            _done(ranges)
            reading.nest_ranges()
            _done(rest)
        reading.what_was_captured()
        facts = reading.facts() | {"epoch_ns": None if self.epoch_ns is None else self.epoch_ns - shift_ns, "dropped": drop_impossible(store, ranks)}
        describe(store, self.path, "nsys", ranks, facts | contents(store, ranks))
        reading.run("DROP SCHEMA stage CASCADE")
        return ranks


class _Reading:
    """One export being read; staging tables live in the schema `stage`."""

    def __init__(self, source: RawTables, store: Store, shift_ns: int) -> None:
        self.source, self.store, self.shift_ns = source, store, shift_ns
        self.present = {t for t in WANTED if source.filled(t)}
        self.strings = self.rows("StringIds").combine_chunks()
        self.kernel_names = StringColumn(store, self._texts)
        self.api_names = StringColumn(store, self._texts, plain_api)
        self.range_names = StringColumn(store, self._texts, plain_operator)
        self.plain_ranges: list[pa.RecordBatch] = []

    def run(self, statement: str, raw: pa.Table | None = None, **tables: pa.Table) -> None:
        """Run one statement in a cursor of its own, with `raw` and `tables` as tables of those names."""
        cursor = self.store.connection.cursor()
        for name, data in {"raw": raw, **tables}.items():
            if data is not None:
                cursor.register(name, data)
        cursor.execute(statement)
        cursor.close()

    def rows(self, table: str) -> pa.Table:
        """All rows of a table that is never large; none if it is absent."""
        return pa.Table.from_batches([b for part in self._readers(table) for b in part], schema(table))

    def stream(self, statement: str, table: str, change: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch) -> list[Callable[[], None]]:
        """What sends the rows of `table`, changed batch by batch, through `statement`, in parts; nothing if it is absent."""
        def send(reader: pa.RecordBatchReader) -> None:
            for rows in _grouped(map(change, reader)):
                self.run(statement, rows)

        return [partial(send, reader) for reader in self._readers(table)]

    def _readers(self, table: str) -> list[pa.RecordBatchReader]:
        return self.source.readers(table) if table in self.present else []

    def stage(self) -> None:
        self.run("CREATE SCHEMA IF NOT EXISTS stage")
        self.run("CREATE OR REPLACE TABLE stage.stream AS SELECT * FROM raw", self.rows("TARGET_INFO_CUDA_STREAM"))
        self.run("CREATE OR REPLACE TABLE stage.context AS SELECT * FROM raw", self.rows("TARGET_INFO_CUDA_CONTEXT_INFO"))
        self.run("CREATE OR REPLACE TABLE stage.overhead AS SELECT * FROM raw WHERE \"end\" BETWEEN start AND start + 1000000000000", self.rows("PROFILER_OVERHEAD"))

    def _texts(self, ids: pa.Array) -> dict[int, str]:
        """Texts by string id. They are looked up here and not in the database: some hold the environment."""
        where = pc.index_in(ids, value_set=self.strings["id"])
        return dict(zip(ids.filter(pc.is_valid(where)).to_pylist(), self.strings["value"].take(where.drop_null()).to_pylist(), strict=True))

    def number_processes(self, first: int) -> range:
        """Choose the processes that count as ranks, and number them: as probes of the same run did, else by process id."""
        choices = (((_KERNEL,), "globalPid"), ((_MEMCPY, _MEMSET), "globalPid"), ((_RUNTIME,), "globalTid"), ((_NVTX,), "globalTid"))
        found: list[int] = []
        for tables, column in choices:
            found = sorted({p for t in tables if t in self.present for p in self.source.processes(t, column)})
            if found:
                break
        known = dict(self.store.connection.execute("SELECT pid, rank FROM rank_info WHERE pid IS NOT NULL").fetchall())
        pids = [p & _PID for p in found]
        ranks = [known[p] for p in pids] if all(p in known for p in pids) else list(range(first, first + len(found)))
        rows = {name: pa.array(values, pa.int64()) for name, values in (("gpid", found), ("rank", ranks), ("shift", [self.shift_ns] * len(found)))}
        self.run("CREATE OR REPLACE TABLE stage.process AS SELECT gpid, rank, shift FROM raw", pa.table(rows))
        return range(min(ranks, default=first), max(ranks, default=first - 1) + 1)

    def kernels(self) -> list[Callable[[], None]]:
        comm: dict[int, bool] = {}

        def named(batch: pa.RecordBatch) -> pa.RecordBatch:
            ids = self.kernel_names.map(pc.coalesce(batch["demangledName"], batch["shortName"]))
            comm.update((i, is_comm(t)) for i, t in [*self.kernel_names.texts.items()] if i not in comm)
            chosen = pa.array([i for i, yes in [*comm.items()] if yes], pa.int64())
            return batch.append_column("name_id", ids).append_column("comm", pc.is_in(ids, value_set=chosen))

        return self.stream(sql.KERNEL, _KERNEL, named)

    def copies(self) -> list[Callable[[], None]]:
        parts: list[Callable[[], None]] = []
        for table, statement, text in ((_MEMCPY, sql.MEMCPY, "Memcpy"), (_MEMSET, sql.MEMSET, "Memset")):
            name = self.store.intern(pa.array([text]))[0]
            parts += self.stream(statement, table, lambda batch, name=name: batch.append_column("name_id", pa.repeat(name, batch.num_rows)))  # type: ignore[misc]
        return parts

    def api(self) -> list[Callable[[], None]]:
        return self.stream(sql.API, _RUNTIME, lambda batch: batch.append_column("name_id", self.api_names.map(batch["nameId"])))

    def ranges(self) -> list[Callable[[], None]]:
        """Ranges of torch's emit_nvtx (`aten::add, op_id = 7`) are operators, all others are ranges; these wait for `nest_ranges`."""
        def operators(batch: pa.RecordBatch) -> pa.RecordBatch:
            named, operator = self._named_range(batch)
            self.plain_ranges.append(named.filter(pc.invert(operator)))
            return named.filter(operator)

        return self.stream(sql.RANGE.format(table="cpu_op"), _NVTX, operators)

    def nest_ranges(self) -> None:
        if sum(b.num_rows for b in self.plain_ranges):
            self.run(f"INSERT INTO nvtx BY NAME {nested(sql.RANGES)}", pa.Table.from_batches(self.plain_ranges))
        self.plain_ranges.clear()

    def _named_range(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        inline, listed = batch["text"].dictionary_encode(), self.range_names.map(batch["textId"])
        plain, cut = (found.take(inline.indices) for found in self._named_texts(inline.dictionary))
        has_text = pc.not_equal(inline.dictionary, "").take(inline.indices)
        names = pc.if_else(has_text, plain, listed)
        chosen = pa.array(self.range_names.changed, pa.int64())
        operator = pc.or_(cut, pc.and_(pc.invert(has_text), pc.is_in(listed, value_set=chosen)))
        return batch.select(["start", "end", "globalTid"]).append_column("name_id", names), pc.fill_null(operator, False)

    def _named_texts(self, texts: pa.Array) -> tuple[pa.Array, pa.Array]:
        plain, cut = _without_suffix(texts)
        return self.store.intern(plain), cut

    def synchronisation(self) -> None:
        """Calls that synchronise are told by name; a report without rows of its own for them gets them from the calls."""
        kinds = [(i, k) for i, t in self.api_names.texts.items() if (k := sync_kind(t))]
        records = [i for i, t in self.api_names.texts.items() if records_event(t)]
        sync_name = pa.table({"name_id": pa.array([i for i, _ in kinds], pa.int64()), "kind": pa.array([k for _, k in kinds], pa.string())})
        self.run(sql.SYNC_CALLS, sync_name=sync_name)
        self.run(sql.RECORD_CALLS, record_name=pa.table({"name_id": pa.array(records, pa.int64())}))
        if _SYNC not in self.present:
            self.run(sql.SYNC_FROM_CALLS)
        for part in (*self.stream(sql.SYNC, _SYNC), *self.stream(sql.EVENT, _EVENT)):
            part()

    def small_tables(self) -> None:
        self.run(sql.STREAM)
        self.run(sql.MISSING_STREAMS)
        self.run(sql.STREAM_DEVICES)
        if _MEMORY in self.present:
            self.run(sql.MEMORY, self.rows(_MEMORY))
        self.run(nsys_stacks.INSERT, **nsys_stacks.stacks_of(self.source.backtraces(), self._texts))
        self.run(sql.GPU, self.rows("TARGET_INFO_GPU"))
        self.run(sql.RANK_INFO)

    def what_was_captured(self) -> None:
        """nsys leaves empty tables out, so what it could have seen is told by what else is there."""
        captured, count = self.store.captured, self.store.count
        captured |= {"name", "rank_info"}
        if {_KERNEL, _MEMCPY} & self.present and count("gpu_op"):
            captured |= {"gpu_op", "stream"}
        if _RUNTIME in self.present:
            captured |= {"api", "sync"}
            if self.records_known():
                captured.add("event_record")
        captured |= {t for t in ("nvtx", "cpu_op", "gpu_mem", "gpu", "pystack") if count(t)}

    def records_known(self) -> bool:
        """False if events were recorded by calls, but the report does not say into which stream."""
        return _EVENT in self.present or not self.value("SELECT count(*) FROM stage.record_call")

    def value(self, query: str) -> Any:
        row = self.store.connection.execute(query).fetchone()
        return row[0] if row else None

    def facts(self) -> dict[str, Any]:
        """What the table `capture` says about this report."""
        said = self.source.metadata()
        return {
            "tool": f"nsys {said.get('EXPORT_PRODUCT_VERSION', '?')}", "version": said.get("EXPORT_SCHEMA_VERSION"),
            "graph_trace": said.get("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE"), "world_size": int(said["world_size"]) if "world_size" in said else None, "env_vars": int(said.get("env_vars", 0)), "secrets": int(said.get("secrets", 0)),
            "truncated": False, "overhead_ns": self.value("SELECT CAST(sum(\"end\" - start) AS BIGINT) FROM stage.overhead"),
        }


def _done(futures: Iterable[Future[None]]) -> None:
    for future in futures:
        future.result()


def _without_suffix(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Texts without what emit_nvtx puts behind an operator's name, and whether there was such a thing."""
    cut = pa.repeat(False, len(texts))
    for mark in OPERATOR_MARKS:
        found = pc.match_substring(texts, mark)
        if pc.any(found).as_py():
            texts, cut = pc.list_element(pc.split_pattern(texts, mark, max_splits=1), 0), pc.or_(cut, found)
    return texts, cut


def _first(source: RawTables, table: str, column: str) -> int | None:
    if source.filled(table):
        for batch in source.readers(table)[0]:
            value: int | None = batch[column][0].as_py() if batch.num_rows else None
            return value
    return None


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of many batches, some hundred thousand at a time: enough for the database to share among threads, little to hold."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(b.num_rows for b in group) >= _ROWS_AT_ONCE:
            rows = pa.Table.from_batches(group)
            yield in_row_groups(rows.slice(0, _ROWS_AT_ONCE))
            group = rows.slice(_ROWS_AT_ONCE).to_batches()
    if group:
        yield in_row_groups(pa.Table.from_batches(group))
