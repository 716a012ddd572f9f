"""How each raw table of an nsys export becomes a canonical one.

`raw` is the raw table as it streams in, with `name_id` (and `comm`, `operator`) already resolved;
`stage.process` maps `globalPid >> 24` to a rank.
"""

_NONE32 = 4294967295
_MEM = "CASE {} WHEN 0 THEN 'pageable' WHEN 1 THEN 'pinned' WHEN 2 THEN 'device' WHEN 3 THEN 'array' WHEN 4 THEN 'managed' WHEN 5 THEN 'device' WHEN 6 THEN 'managed' ELSE 'unknown' END"
_OP = """INSERT INTO gpu_op (rank, device, context, stream, kind, name_id, start, "end", corr, bytes, copy_kind, src_mem, dst_mem, graph_node, graph)
SELECT p.rank, deviceId, contextId, streamId, {kind}, name_id, start + p.shift, "end" + p.shift, correlationId, {bytes}, {copy}, {src}, {dst}, graphNodeId, graphId
FROM raw JOIN stage.process p ON p.gpid = globalPid >> 24"""
_COPY = """CASE
    WHEN copyKind IN (1, 3, 11) OR (copyKind = 0 AND srcKind IN (0, 1) AND dstKind IN (2, 3)) THEN 'h2d'
    WHEN copyKind IN (2, 4, 12) OR (copyKind = 0 AND srcKind IN (2, 3) AND dstKind IN (0, 1)) THEN 'd2h'
    WHEN copyKind = 10 OR srcDeviceId <> dstDeviceId THEN 'p2p'
    WHEN copyKind IN (5, 6, 7, 8, 13) OR (copyKind = 0 AND srcKind IN (2, 3) AND dstKind IN (2, 3)) THEN 'd2d'
    WHEN copyKind = 9 THEN 'h2h' END"""

KERNEL = _OP.format(kind="CASE WHEN comm THEN 'comm' ELSE 'kernel' END", bytes="NULL", copy="NULL", src="NULL", dst="NULL")
MEMCPY = _OP.format(kind="'memcpy'", bytes="bytes", copy=_COPY, src=_MEM.format("srcKind"), dst=_MEM.format("dstKind"))
MEMSET = _OP.format(kind="'memset'", bytes="bytes", copy="NULL", src="NULL", dst=_MEM.format("memKind"))

API = """INSERT INTO api (rank, tid, name_id, start, "end", corr, status)
SELECT p.rank, globalTid & 16777215, name_id, start + p.shift, "end" + p.shift, correlationId, returnValue
FROM raw JOIN stage.process p ON p.gpid = globalTid >> 24"""

RANGES = """SELECT p.rank, globalTid & 16777215 AS tid, start + p.shift AS start, "end" + p.shift AS "end", name_id
FROM raw JOIN stage.process p ON p.gpid = globalTid >> 24 WHERE "end" >= start"""
RANGE = f'INSERT INTO {{table}} (rank, tid, start, "end", name_id) {RANGES}'

_KIND = """CASE
    WHEN k.kind IS NOT NULL THEN k.kind
    WHEN y.event IS NOT NULL AND y.stream IS NOT NULL THEN 'stream_wait_event'
    WHEN y.event IS NOT NULL THEN 'event'
    WHEN y.stream IS NOT NULL THEN 'stream'
    ELSE 'device' END"""
SYNC = f"""INSERT INTO sync (rank, kind, context, stream, event, event_sync, start, "end", corr)
SELECT y.rank, {_KIND}, y.context, y.stream, y.event, y.event_sync, y.start, y."end", y.corr
FROM (
    SELECT p.rank, contextId AS context, nullif(nullif(streamId, {_NONE32}), -1) AS stream, nullif(nullif(eventId, {_NONE32}), -1) AS event,
        CASE WHEN eventSyncId > 0 AND eventSyncId < {_NONE32} THEN eventSyncId END AS event_sync, start + p.shift AS start, "end" + p.shift AS "end", correlationId AS corr
    FROM raw JOIN stage.process p ON p.gpid = globalPid >> 24
) y LEFT JOIN stage.sync_call k ON k.rank = y.rank AND k.corr = y.corr"""
SYNC_CALLS = """CREATE OR REPLACE TABLE stage.sync_call AS
SELECT a.rank, a.corr, a.start, a."end", s.kind FROM api a JOIN sync_name s USING (name_id)"""
SYNC_FROM_CALLS = 'INSERT INTO sync (rank, kind, start, "end", corr) SELECT rank, kind, start, "end", corr FROM stage.sync_call'

RECORD_CALLS = "CREATE OR REPLACE TABLE stage.record_call AS SELECT rank, corr, start FROM api WHERE name_id IN (SELECT name_id FROM record_name)"
EVENT = f"""INSERT INTO event_record (rank, context, event, event_sync, stream, corr, start)
SELECT p.rank, contextId, eventId, CASE WHEN eventSyncId > 0 AND eventSyncId < {_NONE32} THEN eventSyncId END, streamId, correlationId, c.start
FROM raw JOIN stage.process p ON p.gpid = globalPid >> 24
LEFT JOIN stage.record_call c ON c.rank = p.rank AND c.corr = correlationId"""

MEMORY = """INSERT INTO gpu_mem (rank, device, t, bytes, total, address, corr, source, kind)
SELECT rank, deviceId, start, change, CAST(sum(change) OVER (PARTITION BY rank, deviceId, kind ORDER BY start, address, change ROWS UNBOUNDED PRECEDING) AS BIGINT),
    address, corr, 'driver', kind
FROM (
    SELECT p.rank, deviceId, start + p.shift AS start, CASE memoryOperationType WHEN 1 THEN -bytes ELSE bytes END AS change, address, nullif(correlationId, 0) AS corr,
        CASE memKind WHEN 0 THEN 'pageable' WHEN 1 THEN 'pinned' WHEN 2 THEN 'device' WHEN 3 THEN 'array' WHEN 4 THEN 'managed' WHEN 5 THEN 'static' WHEN 6 THEN 'managed static' ELSE 'unknown' END AS kind
    FROM raw JOIN stage.process p ON p.gpid = globalPid >> 24
    WHERE bytes BETWEEN 0 AND 1125899906842624
)"""

STREAM = f"""INSERT INTO stream (rank, device, context, stream, flags, priority)
SELECT p.rank, c.deviceId, s.contextId, s.streamId,
    CASE WHEN s.streamId = c.nullStreamId OR s.flag = 3 THEN 'default' WHEN s.flag = 1 THEN 'blocking' WHEN s.flag = 2 THEN 'nonblocking' ELSE 'unknown' END,
    CASE WHEN s.priority > 2147483647 THEN s.priority - {_NONE32 + 1} ELSE s.priority END
FROM stage.stream s JOIN stage.process p ON p.gpid & 16777215 = s.processId
LEFT JOIN stage.context c ON c.processId = s.processId AND c.contextId = s.contextId
GROUP BY ALL"""
MISSING_STREAMS = """INSERT INTO stream (rank, device, context, stream, flags)
SELECT DISTINCT o.rank, o.device, o.context, o.stream, CASE WHEN c.nullStreamId IS NOT NULL THEN 'default' ELSE 'unknown' END
FROM gpu_op o JOIN stage.process p ON p.rank = o.rank
LEFT JOIN stage.context c ON c.processId = p.gpid & 16777215 AND c.contextId = o.context AND c.nullStreamId = o.stream
WHERE NOT EXISTS (SELECT 1 FROM stream s WHERE s.rank = o.rank AND s.context = o.context AND s.stream = o.stream)"""
STREAM_DEVICES = """UPDATE stream SET device = d.device FROM (SELECT rank, context, min(device) AS device FROM gpu_op GROUP BY rank, context) d
WHERE stream.device IS NULL AND stream.rank = d.rank AND stream.context = d.context"""

GPU = """INSERT INTO gpu (device, name, uuid, bus_id, arch, memory, sm_count)
SELECT cuDevice, name, nullif(uuid, ''), nullif(busLocation, ''), computeMajor || '.' || computeMinor, totalMemory, smCount FROM raw
WHERE cuDevice IN (SELECT device FROM gpu_op)"""
RANK_INFO = """INSERT INTO rank_info (rank, pid, device, clock_offset)
SELECT p.rank, p.gpid & 16777215, d.device, nullif(p.shift, 0) FROM stage.process p
LEFT JOIN (SELECT rank, mode(device) AS device FROM gpu_op GROUP BY rank) d ON d.rank = p.rank"""
