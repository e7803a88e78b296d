"""Events that an export adds to a trace (counters and overlays, each a SELECT), as JSON text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tracewarehouse.duck import engine

BATCH_ROWS = 10_000


@dataclass(frozen=True)
class Addition:
    """Events to add. `sql` reads the contracts named in `reads`, and `gpu_tracks`; its columns are:

    ph, category, name VARCHAR; pid, tid VARCHAR (as in `events`); track VARCHAR: the name of a new track in
    that process, instead of a tid; ts_ns, dur_ns BIGINT; depth BIGINT: orders nested slices with equal times;
    id BIGINT, bp VARCHAR (of flows); args JSON. Null members are left out of the event. The trace must have
    the data that the analyses among `reads` need.
    """

    name: str
    doc: str
    reads: tuple[str, ...]
    sql: str


# The process and thread of each stream in the trace.
_GPU_TRACKS = """
CREATE VIEW gpu_tracks AS
SELECT kernels.device, kernels.stream, min(events.pid) AS pid, min(events.tid) AS tid
FROM kernels
JOIN events
  ON events.run_id = kernels.run_id AND events.rank = kernels.rank AND events.event_id = kernels.event_id
GROUP BY kernels.device, kernels.stream
"""

# In a time range: complete slices that overlap it; counters from the value at its start; flows with both
# ends. New tracks get numbers above those of their process in the trace.
_TEXTS = """
WITH
  addition AS (
    SELECT
      *,
      CASE ph
        WHEN 'X' THEN ts_ns + dur_ns
        WHEN 'C' THEN lead(ts_ns) OVER (PARTITION BY ph, pid, name ORDER BY ts_ns)
        ELSE ts_ns
      END AS until_ns
    FROM ({additions})
  ),
  inside AS (
    SELECT
      * EXCLUDE (until_ns) REPLACE (CASE WHEN ph = 'C' THEN greatest(ts_ns, $from_ns) ELSE ts_ns END AS ts_ns)
    FROM addition
    WHERE $from_ns IS NULL OR ts_ns < $to_ns AND (ts_ns >= $from_ns OR coalesce(until_ns > $from_ns, TRUE))
  ),
  shown AS (
    SELECT *
    FROM inside
    WHERE ph NOT IN ('s', 'f') OR id IN (
      SELECT id FROM inside WHERE ph IN ('s', 'f') GROUP BY id HAVING count(*) = 2
    )
  ),
  highest AS (
    SELECT pid, max(TRY_CAST(tid AS INTEGER))::BIGINT AS tid
    FROM events
    WHERE run_id = $run AND rank = $rank
    GROUP BY pid
  ),
  track AS (
    SELECT
      named.pid,
      named.track,
      (coalesce(highest.tid, 0) + row_number() OVER (ORDER BY named.pid, named.track))::VARCHAR AS tid
    FROM (SELECT DISTINCT pid, track FROM shown WHERE track IS NOT NULL) AS named
    LEFT JOIN highest ON highest.pid IS NOT DISTINCT FROM named.pid
  ),
  event AS (
    SELECT 0 AS section, 'M' AS ph, NULL AS category, 'thread_name' AS name, pid, tid, NULL AS ts_ns,
      NULL AS dur_ns, NULL AS depth, NULL AS id, NULL AS bp, json_object('name', track) AS args
    FROM track
    UNION ALL
    SELECT 1, 'M', NULL, 'thread_sort_index', pid, tid, NULL, NULL, NULL, NULL, NULL,
      json_object('sort_index', tid::BIGINT)
    FROM track
    UNION ALL
    SELECT 2, shown.ph, shown.category, shown.name, shown.pid, coalesce(track.tid, shown.tid),
      shown.ts_ns, shown.dur_ns, shown.depth, shown.id, shown.bp, shown.args
    FROM shown
    LEFT JOIN track ON track.pid IS NOT DISTINCT FROM shown.pid AND track.track = shown.track
  ),
  timed AS (
    SELECT
      event.* REPLACE (coalesce(pids.as_pid::VARCHAR, event.pid) AS pid, id * $ranks + $index AS id),
      ts_ns + $shift_ns - coalesce((
        SELECT base_time_ns FROM ranks WHERE run_id = $run AND rank = $rank
      ), 0) AS from_base_ns
    FROM event
    LEFT JOIN pids ON pids.pid = event.pid
  )
SELECT
  ph = 'M' AS is_name,
  '{{' || concat_ws(
    ', ',
    '"ph": ' || to_json(ph),
    '"cat": ' || to_json(category),
    '"name": ' || to_json(name),
    '"pid": ' || CASE WHEN TRY_CAST(pid AS BIGINT)::VARCHAR = pid THEN pid ELSE to_json(pid) END,
    '"tid": ' || CASE WHEN TRY_CAST(tid AS BIGINT)::VARCHAR = tid THEN tid ELSE to_json(tid) END,
    '"id": ' || id,
    '"bp": ' || to_json(bp),
    '"ts": ' || {ts},
    '"dur": ' || {dur},
    '"args": ' || args
  ) || '}}' AS text
FROM timed
ORDER BY section, pid, tid, ts_ns, dur_ns DESC, depth, name, id, text
"""


def micros(ns: str) -> str:
    """SQL that prints ns as µs: an integer, or with three decimals."""
    sign = f"CASE WHEN {ns} < 0 THEN '-' ELSE '' END"
    decimals = f"CASE WHEN {ns} % 1000 = 0 THEN '' ELSE '.' || lpad((abs({ns}) % 1000)::VARCHAR, 3, '0') END"
    return f"({sign} || (abs({ns}) // 1000) || {decimals})"


def addition_texts(
    con: engine.Connection, run: str, rank: int, additions: Sequence[Addition], layout: RankLayout
) -> tuple[list[str], Iterator[str]]:
    """The JSON text of each added event: the names of tracks, then the rest.

    The connection has the table `pids` of `clip.prepare`.
    """
    if not additions:
        return [], iter(())
    rows = _rows(con, run, rank, additions, layout)
    names: list[str] = []
    for is_name, text in rows:
        if not is_name:
            return names, chain([text], (text for _, text in rows))
        names.append(text)
    return names, iter(())


def _rows(
    con: engine.Connection, run: str, rank: int, additions: Sequence[Addition], layout: RankLayout
) -> Iterator[tuple[bool, str]]:
    union = "\nUNION ALL BY NAME\n".join(f"SELECT * FROM ({each.sql})" for each in additions)
    sql = _TEXTS.format(additions=union, ts=micros("from_base_ns"), dur=micros("dur_ns"))
    con.execute(_GPU_TRACKS)
    with con.cursor() as cursor:
        cursor.execute(sql, {"run": run, "rank": rank, **layout.values})
        while rows := cursor.fetchmany(BATCH_ROWS):
            yield from rows


TimeRange = tuple[int, int]  # start and end, end excluded


@dataclass(frozen=True)
class RankLayout:
    """How a rank's events are written: by default as in its own file.

    `time_range` selects events by the rank's own clock; `shift_ns` is added to their times. With several
    `ranks` in the file this is number `index`, from 0, and its processes are numbered after `first_pid`.
    """

    time_range: TimeRange | None = None
    shift_ns: int = 0
    index: int = 0
    ranks: int = 1
    first_pid: int = 0

    @property
    def is_merged(self) -> bool:
        """Whether the file has other ranks, so that shared ids must be made distinct."""
        return self.ranks > 1

    @property
    def values(self) -> dict[str, object]:
        """The values of SQL parameters."""
        from_ns, to_ns = self.time_range or (None, None)
        return {
            "from_ns": from_ns,
            "to_ns": to_ns,
            "shift_ns": self.shift_ns,
            "index": self.index,
            "ranks": self.ranks,
        }
