"""A part of a rank's trace: which of its events are kept, and how they stand beside those of other ranks."""

from __future__ import annotations

from tracewarehouse.duck import engine
from tracewarehouse.export.overlay_events import Place, micros

READS = ("events", "ranks", "flows")
NAMES, EVENTS = "part_names", "part_events"

# Slices that overlap the cut, whole; a begin with its end; async events by id, where all that begin end;
# arrows from a kept slice to a kept one; what happens at a moment of the cut; names of processes and threads.
_KEPT = """
CREATE TABLE kept AS
WITH
  slice AS (
    SELECT event_id, end_id, pid, tid, ts_ns, ts_ns + dur_ns AS end_ns
    FROM events
    WHERE (ph = 'X' OR ph = 'B' AND end_id IS NOT NULL) AND dur_ns IS NOT NULL
      AND ts_ns < $to_ns AND (ts_ns >= $from_ns OR ts_ns + dur_ns > $from_ns)
  ),
  covered AS (
    -- Until when the slices of a thread last that have begun.
    SELECT DISTINCT pid, tid, ts_ns, max(end_ns) OVER (PARTITION BY pid, tid ORDER BY ts_ns) AS until_ns
    FROM slice
  ),
  tip AS (
    -- An end outside the cut is that of a kept slice where it begins one: else a slice around it was meant.
    SELECT flows.event_id, flows.start_id, flows.role
    FROM flows
    ASOF JOIN covered
      ON covered.pid = flows.pid AND covered.tid = flows.tid AND covered.ts_ns <= flows.ts_ns
    WHERE covered.ts_ns = flows.ts_ns
      OR flows.ts_ns >= $from_ns AND flows.ts_ns < $to_ns AND flows.ts_ns <= covered.until_ns
  ),
  arrow AS (
    SELECT DISTINCT start_id
    FROM tip
    WHERE role = 'end' AND start_id IN (SELECT event_id FROM tip WHERE role = 'start')
  ),
  async_event AS (
    SELECT event_id, pid, raw_category, flow_id, ph IN ('b', 'S') AS begins, ph IN ('e', 'F') AS ends, ts_ns
    FROM events
    WHERE ph IN ('b', 'n', 'e', 'S', 'T', 'p', 'F')
  ),
  async_span AS (
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
SELECT event_id FROM tip WHERE start_id IN (SELECT start_id FROM arrow)
UNION ALL
SELECT event_id FROM async_span
UNION ALL
SELECT event_id
FROM events
WHERE ph = 'M'
  OR ts_ns >= $from_ns AND ts_ns < $to_ns
    AND ph NOT IN ('X', 'B', 'E', 's', 't', 'f', 'b', 'n', 'e', 'S', 'T', 'p', 'F')
"""
_ALL_KEPT = "CREATE TABLE kept AS SELECT event_id FROM events WHERE ph IS NOT NULL"

_NO_PIDS = "CREATE TABLE pids (pid VARCHAR, name VARCHAR, as_pid BIGINT)"

# Beside others a process gets a number of its own, in the order in which the rank's trace sorts them.
_PIDS = """
CREATE TABLE pids AS
WITH
  used AS (
    -- Tracks may be added to any process that has a number.
    SELECT DISTINCT pid
    FROM events
    WHERE ph <> 'M' AND pid IS NOT NULL
      AND (TRY_CAST(pid AS BIGINT) IS NOT NULL OR event_id IN (SELECT event_id FROM kept))
  ),
  named AS (
    SELECT
      pid,
      any_value(args ->> '$.name') FILTER (name = 'process_name') AS name,
      any_value(TRY_CAST(args ->> '$.sort_index' AS BIGINT)) FILTER (name = 'process_sort_index') AS place
    FROM events
    WHERE ph = 'M'
    GROUP BY pid
  )
SELECT
  used.pid,
  named.name,
  $first_pid + row_number() OVER (ORDER BY named.place, TRY_CAST(used.pid AS BIGINT), used.pid) AS as_pid
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
CREATE VIEW part_names AS SELECT * FROM part WHERE ph = 'M';
CREATE VIEW part_events AS SELECT * FROM part WHERE ph <> 'M'
"""

_ALONE = "CREATE VIEW part AS SELECT events.* FROM events JOIN kept USING (event_id)"

# Ids that join events within a rank are made to differ between ranks; what is no such number stays.
_BESIDE = """
CREATE VIEW part AS
SELECT events.* REPLACE (
  pids.as_pid::VARCHAR AS pid,
  CASE
    WHEN TRY_CAST(events.flow_id AS BIGINT) BETWEEN 0 AND {most}
      THEN (events.flow_id::BIGINT * {of} + {number})::VARCHAR
    ELSE events.flow_id || ' of rank ' || events.rank
  END AS flow_id,
  CASE
    WHEN events.correlation BETWEEN 1 AND {most} THEN regexp_replace(
      events.args::VARCHAR,
      '("correlation"\\s*:\\s*)"?\\d+"?',
      '\\1' || (events.correlation * {of} + {number})
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
JOIN kept USING (event_id)
JOIN ranks ON ranks.run_id = events.run_id AND ranks.rank = events.rank
LEFT JOIN pids ON pids.pid = events.pid
WHERE events.ph <> 'M' OR pids.as_pid IS NOT NULL
  AND events.name NOT IN ('process_name', 'process_sort_index')
"""
_MOST = 2**40  # an id above this is an address or a hash, and times the number of ranks no number of JSON's


def no_part(con: engine.Connection) -> None:
    """What an export of the whole needs: nothing stands elsewhere."""
    con.execute(_NO_PIDS)


def prepare(con: engine.Connection, place: Place) -> None:
    """Makes `part_names` and `part_events`, the kept events as they are written, and `pids`.

    `pids` says what number a process gets. The connection has what `READS` names, of one rank.
    """
    if place.window is None:
        con.execute(_ALL_KEPT)
    else:
        from_ns, to_ns = place.window
        con.execute(_KEPT, {"from_ns": from_ns, "to_ns": to_ns})
    if place.is_beside:
        con.execute(_PIDS, {"first_pid": place.first_pid})
        con.execute(_beside(place))
    else:
        con.execute(_NO_PIDS)
        con.execute(_ALONE)
    con.execute(_SPLIT)


def _beside(place: Place) -> str:
    lost = '{"pid": null, "id": null' + (', "ts": null}' if place.shift_ns else "}")
    return _BESIDE.format(
        most=_MOST,
        of=place.of,
        number=place.number,
        shift_ns=place.shift_ns,
        ts=micros(f"(events.ts_ns + {place.shift_ns} - ranks.base_time_ns)"),
        patch=f"'{lost}'",
    )


def process_count(con: engine.Connection) -> int:
    """How many numbers of processes were given."""
    (count,) = con.execute("SELECT count(*) FROM pids").fetchone() or (0,)
    return int(count)


def process_names(con: engine.Connection, rank: int) -> list[str]:
    """The JSON text of events that name and sort a rank's processes beside those of other ranks."""
    rows = con.execute(_PROCESS_NAMES, {"rank": rank}).fetchall()
    return [text for texts in rows for text in texts]
