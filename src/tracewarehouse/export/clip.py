"""Selects the events of a rank's trace in a time range, and makes them distinct from those of other ranks."""

from __future__ import annotations

from tracewarehouse.duck import engine
from tracewarehouse.export.overlay_events import RankLayout, micros

READS = ("events", "ranks", "flows")
NAMES, EVENTS = "clip_names", "clip_events"

# Slices that overlap the time range, complete; a begin with its end; async events by id if all that begin
# also end; flows between two selected slices; instant events in the range; names of processes and threads.
_SELECT = """
CREATE TABLE selected AS
WITH
  slice AS (
    SELECT event_id, end_id, pid, tid, ts_ns, ts_ns + dur_ns AS end_ns
    FROM events
    WHERE (ph = 'X' OR ph = 'B' AND end_id IS NOT NULL) AND dur_ns IS NOT NULL
      AND ts_ns < $to_ns AND (ts_ns >= $from_ns OR ts_ns + dur_ns > $from_ns)
  ),
  covered AS (
    -- The latest end of the slices of a thread that have begun.
    SELECT DISTINCT pid, tid, ts_ns, max(end_ns) OVER (PARTITION BY pid, tid ORDER BY ts_ns) AS until_ns
    FROM slice
  ),
  tip AS (
    -- An end outside the range counts if a selected slice begins there: else it is of an enclosing slice.
    SELECT flows.event_id, flows.start_id, flows.role
    FROM flows
    ASOF JOIN covered
      ON covered.pid = flows.pid AND covered.tid = flows.tid AND covered.ts_ns <= flows.ts_ns
    WHERE covered.ts_ns = flows.ts_ns
      OR flows.ts_ns >= $from_ns AND flows.ts_ns < $to_ns AND flows.ts_ns <= covered.until_ns
  ),
  flow AS (
    SELECT DISTINCT start_id
    FROM tip
    WHERE role = 'end' AND start_id IN (SELECT event_id FROM tip WHERE role = 'start')
  ),
  async_event AS (
    SELECT event_id, pid, raw_category, flow_id, ph IN ('b', 'S') AS begins, ph IN ('e', 'F') AS ends, ts_ns
    FROM events
    WHERE ph IN ('b', 'n', 'e', 'S', 'T', 'p', 'F')
  ),
  async_pair AS (
    SELECT unnest(list(event_id)) AS event_id
    FROM async_event
    GROUP BY pid, raw_category, flow_id
    HAVING min(ts_ns) < $to_ns AND max(ts_ns) >= $from_ns
      AND count(*) FILTER (begins) = count(*) FILTER (ends)
  )
SELECT event_id FROM slice
UNION ALL
SELECT end_id FROM slice WHERE end_id IS NOT NULL
UNION ALL
SELECT event_id FROM tip WHERE start_id IN (SELECT start_id FROM flow)
UNION ALL
SELECT event_id FROM async_pair
UNION ALL
SELECT event_id
FROM events
WHERE ph = 'M'
  OR ts_ns >= $from_ns AND ts_ns < $to_ns
    AND ph NOT IN ('X', 'B', 'E', 's', 't', 'f', 'b', 'n', 'e', 'S', 'T', 'p', 'F')
"""
_SELECT_ALL = "CREATE TABLE selected AS SELECT event_id FROM events WHERE ph IS NOT NULL"

_NO_PIDS = "CREATE TABLE pids (pid VARCHAR, name VARCHAR, as_pid BIGINT)"

# With several ranks each process gets a new number, in the order of the rank's trace.
_PIDS = """
CREATE TABLE pids AS
WITH
  used AS (
    -- Tracks may be added to any process with a number.
    SELECT DISTINCT pid
    FROM events
    WHERE ph <> 'M' AND pid IS NOT NULL
      AND (TRY_CAST(pid AS BIGINT) IS NOT NULL OR event_id IN (SELECT event_id FROM selected))
  ),
  named AS (
    SELECT
      pid,
      any_value(args ->> '$.name') FILTER (name = 'process_name') AS name,
      any_value(TRY_CAST(args ->> '$.sort_index' AS BIGINT))
        FILTER (name = 'process_sort_index') AS sort_index
    FROM events
    WHERE ph = 'M'
    GROUP BY pid
  )
SELECT
  used.pid,
  named.name,
  $first_pid + row_number() OVER (ORDER BY named.sort_index, TRY_CAST(used.pid AS BIGINT), used.pid) AS as_pid
FROM used
LEFT JOIN named ON named.pid = used.pid
"""

_PROCESS_NAMES = """
WITH
  process AS (
    SELECT
      as_pid,
      'rank ' || $rank || ': '
      || coalesce(name || ' (' || pid || ')', nullif(pid, ''), 'no process') AS name
    FROM pids
  )
SELECT
  '{"ph": "M", "name": "process_name", "pid": ' || as_pid || ', "args": ' || json_object('name', name) || '}',
  '{"ph": "M", "name": "process_sort_index", "pid": ' || as_pid || ', "args": '
  || json_object('sort_index', as_pid) || '}'
FROM process
ORDER BY as_pid
"""

_SPLIT = """
CREATE VIEW clip_names AS SELECT * FROM clip WHERE ph = 'M';
CREATE VIEW clip_events AS SELECT * FROM clip WHERE ph <> 'M'
"""

_ONE_RANK = "CREATE VIEW clip AS SELECT events.* FROM events JOIN selected USING (event_id)"

# Ids that link events of a rank are made distinct between ranks; ids that are not such numbers are unchanged.
_MERGED = """
CREATE VIEW clip AS
SELECT events.* REPLACE (
  pids.as_pid::VARCHAR AS pid,
  CASE
    WHEN TRY_CAST(events.flow_id AS BIGINT) BETWEEN 0 AND {max_id}
      THEN (events.flow_id::BIGINT * {ranks} + {index})::VARCHAR
    ELSE events.flow_id || ' of rank ' || events.rank
  END AS flow_id,
  CASE
    WHEN events.correlation BETWEEN 1 AND {max_id} THEN regexp_replace(
      events.args::VARCHAR,
      '("correlation"\\s*:\\s*)"?\\d+"?',
      '\\1' || (events.correlation * {ranks} + {index})
    )::JSON
    ELSE events.args
  END AS args,
  CASE
    WHEN {shift_ns} <> 0 AND events.ts_ns IS NOT NULL THEN {ts}
    ELSE events.ts_text
  END AS ts_text,
  CASE
    WHEN json_exists(events.extra, '$.pid') OR json_exists(events.extra, '$.id')
      OR {shift_ns} <> 0 AND json_exists(events.extra, '$.ts')
      THEN nullif(json_merge_patch(events.extra, {patch})::VARCHAR, '{{}}')::JSON
    ELSE events.extra
  END AS extra
)
FROM events
JOIN selected USING (event_id)
JOIN ranks ON ranks.run_id = events.run_id AND ranks.rank = events.rank
LEFT JOIN pids ON pids.pid = events.pid
WHERE events.ph <> 'M' OR pids.as_pid IS NOT NULL
  AND events.name NOT IN ('process_name', 'process_sort_index')
"""
_MAX_ID = 2**40  # larger ids are addresses or hashes; times the number of ranks they exceed JSON numbers


def prepare_entire_trace(con: engine.Connection) -> None:
    """Creates an empty `pids`: in an export of an entire trace no process is renumbered."""
    con.execute(_NO_PIDS)


def prepare(con: engine.Connection, layout: RankLayout) -> None:
    """Creates `clip_names` and `clip_events`, the selected events as written, and `pids`, process numbers.

    The connection has the tables `READS`, of one rank.
    """
    if layout.time_range is None:
        con.execute(_SELECT_ALL)
    else:
        from_ns, to_ns = layout.time_range
        con.execute(_SELECT, {"from_ns": from_ns, "to_ns": to_ns})
    if layout.is_merged:
        con.execute(_PIDS, {"first_pid": layout.first_pid})
        con.execute(_merged_sql(layout))
    else:
        con.execute(_NO_PIDS)
        con.execute(_ONE_RANK)
    con.execute(_SPLIT)


def _merged_sql(layout: RankLayout) -> str:
    removed = '{"pid": null, "id": null' + (', "ts": null}' if layout.shift_ns else "}")
    return _MERGED.format(
        max_id=_MAX_ID,
        ranks=layout.ranks,
        index=layout.index,
        shift_ns=layout.shift_ns,
        ts=micros(f"(events.ts_ns + {layout.shift_ns} - ranks.base_time_ns)"),
        patch=f"'{removed}'",
    )


def process_count(con: engine.Connection) -> int:
    """The number of renumbered processes."""
    (count,) = con.execute("SELECT count(*) FROM pids").fetchone() or (0,)
    return int(count)


def process_names(con: engine.Connection, rank: int) -> list[str]:
    """The JSON text of events that name and sort a rank's processes among those of other ranks."""
    rows = con.execute(_PROCESS_NAMES, {"rank": rank}).fetchall()
    return [text for texts in rows for text in texts]
