"""Nesting of host ranges: how deep each lies inside the others of its thread."""

from __future__ import annotations


def nested(rows: str) -> str:
    """A SELECT of `rows` (rank, tid, start, end, name_id and more) with their `depth`.

    A range's depth is how many ranges of its thread began before it and have not ended: starts before it
    minus ends up to its start. Ranges without length are leaves and open nothing.
    """
    return f"""WITH r AS (
    SELECT *, row_number() OVER (PARTITION BY rank, tid ORDER BY start, "end" DESC, name_id) - 1 AS nth FROM ({rows})
), empty AS (
    SELECT rank, tid, start, row_number() OVER (PARTITION BY rank, tid ORDER BY start, name_id) AS n FROM r WHERE start = "end"
), ended AS (
    SELECT rank, tid, "end" AS t, row_number() OVER (PARTITION BY rank, tid ORDER BY "end") AS n FROM r WHERE "end" > start
), gone AS (
    SELECT r.*, coalesce(e.n, 0) AS n FROM r ASOF LEFT JOIN ended e ON r.rank = e.rank AND r.tid = e.tid AND r.start >= e.t
)
SELECT g.* EXCLUDE (nth, n), greatest(g.nth - g.n - coalesce(z.n, 0), 0) AS depth
FROM gone g ASOF LEFT JOIN empty z ON g.rank = z.rank AND g.tid = z.tid AND g.start > z.start"""
