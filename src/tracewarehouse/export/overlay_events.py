"""Events that an export adds to a trace: counters and overlays, each a SELECT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tracewarehouse.duck import engine

ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class Added:
    """Events to add. `sql` reads the contracts named in `reads`, and `gpu_tracks`; it gives these columns:

    ph, category, name VARCHAR; pid, tid VARCHAR (as in `events`); track VARCHAR: the name of a track of its
    own in that process, in place of a tid; ts_ns, dur_ns BIGINT; depth BIGINT: which of two slices of one
    moment and length lies within the other; id BIGINT, bp VARCHAR (of flows); args JSON. What is null is
    left out of the event. The trace must carry what the analyses among `reads` need.
    """

    name: str
    doc: str
    reads: tuple[str, ...]
    sql: str


# Where the GPU rows of a stream stand in the trace: the process and thread it draws them in.
_GPU_TRACKS = """
CREATE VIEW gpu_tracks AS
SELECT kernels.device, kernels.stream, min(events.pid) AS pid, min(events.tid) AS tid
FROM kernels
JOIN events
  ON events.run_id = kernels.run_id AND events.rank = kernels.rank AND events.event_id = kernels.event_id
GROUP BY kernels.device, kernels.stream
"""

# Of a cut: slices that overlap it, whole; series from the value that holds where it begins; arrows with both
# ends. Tracks of our own get numbers above those that their process has in the trace.
_TEXTS = """
WITH
  drawn AS (
    SELECT
      *,
      CASE ph
        WHEN 'X' THEN ts_ns + dur_ns
        WHEN 'C' THEN lead(ts_ns) OVER (PARTITION BY ph, pid, name ORDER BY ts_ns)
        ELSE ts_ns
      END AS until_ns
    FROM ({added})
  ),
  inside AS (
    SELECT
      * EXCLUDE (until_ns) REPLACE (CASE WHEN ph = 'C' THEN greatest(ts_ns, $from_ns) ELSE ts_ns END AS ts_ns)
    FROM drawn
    WHERE $from_ns IS NULL OR ts_ns < $to_ns AND (ts_ns >= $from_ns OR coalesce(until_ns > $from_ns, TRUE))
  ),
  added AS (
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
    FROM (SELECT DISTINCT pid, track FROM added WHERE track IS NOT NULL) AS named
    LEFT JOIN highest ON highest.pid IS NOT DISTINCT FROM named.pid
  ),
  event AS (
    SELECT 0 AS place, 'M' AS ph, NULL AS category, 'thread_name' AS name, pid, tid, NULL AS ts_ns,
      NULL AS dur_ns, NULL AS depth, NULL AS id, NULL AS bp, json_object('name', track) AS args
    FROM track
    UNION ALL
    SELECT 1, 'M', NULL, 'thread_sort_index', pid, tid, NULL, NULL, NULL, NULL, NULL,
      json_object('sort_index', tid::BIGINT)
    FROM track
    UNION ALL
    SELECT 2, added.ph, added.category, added.name, added.pid, coalesce(track.tid, added.tid),
      added.ts_ns, added.dur_ns, added.depth, added.id, added.bp, added.args
    FROM added
    LEFT JOIN track ON track.pid IS NOT DISTINCT FROM added.pid AND track.track = added.track
  ),
  timed AS (
    SELECT
      event.* REPLACE (coalesce(pids.as_pid::VARCHAR, event.pid) AS pid, id * $of + $number AS id),
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
ORDER BY place, pid, tid, ts_ns, dur_ns DESC, depth, name, id, text
"""


def micros(ns: str) -> str:
    """SQL of a number of ns as the µs that a trace prints: whole, or with three decimals."""
    sign = f"CASE WHEN {ns} < 0 THEN '-' ELSE '' END"
    decimals = f"CASE WHEN {ns} % 1000 = 0 THEN '' ELSE '.' || lpad((abs({ns}) % 1000)::VARCHAR, 3, '0') END"
    return f"({sign} || (abs({ns}) // 1000) || {decimals})"


def added_texts(
    con: engine.Connection, run: str, rank: int, added: Sequence[Added], place: Place
) -> tuple[list[str], Iterator[str]]:
    """The JSON text of each event that is added: the names of its tracks, then the rest.

    The connection has the table `pids` of `part.prepare`.
    """
    if not added:
        return [], iter(())
    rows = _rows(con, run, rank, added, place)
    names: list[str] = []
    for is_name, text in rows:
        if not is_name:
            return names, chain([text], (text for _, text in rows))
        names.append(text)
    return names, iter(())


def _rows(
    con: engine.Connection, run: str, rank: int, added: Sequence[Added], place: Place
) -> Iterator[tuple[bool, str]]:
    union = "\nUNION ALL BY NAME\n".join(f"SELECT * FROM ({each.sql})" for each in added)
    sql = _TEXTS.format(added=union, ts=micros("from_base_ns"), dur=micros("dur_ns"))
    con.execute(_GPU_TRACKS)
    with con.cursor() as cursor:
        cursor.execute(sql, {"run": run, "rank": rank, **place.values})
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            yield from rows


Window = tuple[int, int]


@dataclass(frozen=True)
class Place:
    """Where a rank's events stand in the file: by default where they stood in the rank's own.

    `window` is the part that is wanted, by the rank's own clock; `shift_ns` is added to its times. Of
    several ranks side by side this is the one with this number, from 0, `of` so many, and its processes are
    numbered onwards from `first_pid`.
    """

    window: Window | None = None
    shift_ns: int = 0
    number: int = 0
    of: int = 1
    first_pid: int = 0

    @property
    def is_beside(self) -> bool:
        """Whether other ranks stand beside it, so that what ranks share must be told apart."""
        return self.of > 1

    @property
    def values(self) -> dict[str, object]:
        """Values for SQL."""
        from_ns, to_ns = self.window or (None, None)
        return {
            "from_ns": from_ns,
            "to_ns": to_ns,
            "shift_ns": self.shift_ns,
            "number": self.number,
            "of": self.of,
        }
