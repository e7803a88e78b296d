"""Overlays: tracks with annotations, kernel sequences, critical path, findings, idle intervals and steps.

Their SELECTs are not contracts: they read analyses, which a contract cannot, and relations of one export (the
tracks of its trace and the findings to mark), and their columns are trace events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.contracts.sql_tokens import quote_text
from tracewarehouse.duck import engine
from tracewarehouse.errors import ParamError

_BATCH_ROWS = 10_000


class Addition(Struct, frozen=True):
    """Events to add. `sql` reads the contracts named in `reads`, and `gpu_tracks`; it has some of the columns

    ph, name VARCHAR; pid, tid VARCHAR (as in `events`); track VARCHAR: the name of a new track in that
    process, instead of a tid; ts_ns, dur_ns BIGINT; depth BIGINT: orders nested slices with equal times; id
    BIGINT, bp VARCHAR (of flows); args JSON. Columns that it lacks, and null members, are left out of the
    event. The trace must have the data that the analyses among `reads` need.
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

_NO_ADDITION = """
SELECT NULL::VARCHAR AS ph, NULL::VARCHAR AS name, NULL::VARCHAR AS pid, NULL::VARCHAR AS tid,
  NULL::VARCHAR AS track, NULL::BIGINT AS ts_ns, NULL::BIGINT AS dur_ns, NULL::BIGINT AS depth,
  NULL::BIGINT AS id, NULL::VARCHAR AS bp, NULL::JSON AS args
LIMIT 0
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
    SELECT 2, shown.ph, 'overlay', shown.name, shown.pid, coalesce(track.tid, shown.tid),
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


def fetched(con: engine.Connection, sql: str, values: Mapping[str, object]) -> Iterator[tuple[Any, ...]]:
    """The rows of a SELECT, some at a time; other statements may run between them."""
    with con.cursor() as cursor:
        cursor.execute(sql, values)
        while rows := cursor.fetchmany(_BATCH_ROWS):
            yield from rows


def addition_texts(
    con: engine.Connection, run: str, rank: int, additions: Sequence[Addition], layout: RankLayout
) -> tuple[list[str], Iterator[str]]:
    """The JSON text of each added event: the names of tracks, then the rest.

    The connection has the table `pids`.
    """
    if not additions:
        return [], iter(())
    selects = (_NO_ADDITION, *(addition.sql for addition in additions))
    union = "\nUNION ALL BY NAME\n".join(f"SELECT * FROM ({sql})" for sql in selects)
    sql = _TEXTS.format(additions=union, ts=micros("from_base_ns"), dur=micros("dur_ns"))
    con.execute(_GPU_TRACKS)
    rows = fetched(con, sql, {"run": run, "rank": rank, **layout.values})
    names: list[str] = []
    for is_name, text in rows:
        if not is_name:
            return names, chain([text], (text for _, text in rows))
        names.append(text)
    return names, iter(())


TimeRange = tuple[int, int]  # start and end, end excluded


class RankLayout(Struct, frozen=True):
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


FindingRows = Sequence[Mapping[str, Any]]

_COLUMNS = {
    "rank": "INTEGER",
    "rule": "VARCHAR",
    "subject": "VARCHAR",
    "severity": "VARCHAR",
    "observation": "VARCHAR",
    "advice": "VARCHAR",
    "from_ns": "BIGINT",
    "to_ns": "BIGINT",
}
_FINDINGS = """
SELECT
  'X' AS ph,
  finding.rule || ': ' || finding.subject AS name,
  coalesce(
    (SELECT any_value(pid) FROM ranks),
    (SELECT min(pid) FROM events WHERE ph <> 'M')
  ) AS pid,
  'finding ' || finding.rule || ' ' || finding.subject AS track,
  finding.from_ns AS ts_ns,
  finding.to_ns - finding.from_ns AS dur_ns,
  json_object(
    'severity', finding.severity, 'observation', finding.observation, 'advice', finding.advice,
    'shown', 'worst occurrence'
  ) AS args
FROM finding
WHERE finding.rank = (SELECT any_value(rank) FROM ranks) AND finding.to_ns >= finding.from_ns
"""

FINDINGS = Addition("findings", "the worst occurrence of each finding", ("ranks", "events"), _FINDINGS)


def create_findings_table(con: engine.Connection, rows: FindingRows) -> None:
    """Creates the table `finding` that `FINDINGS` reads, from rows of `Warehouse.check`."""
    engine.create_from_rows(con, "finding", _COLUMNS, [{key: row[key] for key in _COLUMNS} for row in rows])


def worst_occurrence(rule: str, findings: FindingRows, run: str) -> tuple[int, TimeRange]:
    """Rank and time range of the worst occurrence of a rule's most severe finding; raises ParamError."""
    rows = [row for row in findings if row["rule"] == rule]
    if not rows:
        raise ParamError(
            f"{run} has no finding {rule}", hints.fill("{} lists the findings", hints.call("check"))
        )
    timed = [row for row in rows if row["from_ns"] is not None and row["to_ns"] is not None]
    if not timed:
        raise ParamError(
            f"the finding {rule} has no time range",
            hints.Hint("use start and end, or step", "use --from and --to, or --step"),
        )
    return timed[0]["rank"], (timed[0]["from_ns"], max(timed[0]["to_ns"], timed[0]["from_ns"] + 1))


# A counter keeps its value until the next event.
_QUEUE_LENGTH = """
SELECT
  'C' AS ph,
  'queue_length stream ' || queue_length.stream AS name,
  gpu_tracks.pid,
  queue_length.ts_ns,
  json_object('activities', queue_length.queue_length) AS args
FROM queue_length
JOIN gpu_tracks USING (device, stream)
"""

_MEMORY_BANDWIDTH = """
SELECT
  'C' AS ph,
  'memory_bandwidth ' || memory_bandwidth.direction AS name,
  process.pid,
  memory_bandwidth.ts_ns,
  json_object('GB/s', memory_bandwidth.bandwidth_bytes_per_ns) AS args
FROM memory_bandwidth
JOIN (SELECT device, min(pid) AS pid FROM gpu_tracks GROUP BY device) AS process USING (device)
"""

COUNTERS = {
    addition.name: addition
    for addition in (
        Addition(
            "queue_length",
            "GPU activities launched and not started, by stream",
            ("queue_length",),
            _QUEUE_LENGTH,
        ),
        Addition(
            "memory_bandwidth",
            "memcpy and memset bandwidth in GB/s, by direction",
            ("memory_bandwidth",),
            _MEMORY_BANDWIDTH,
        ),
    )
}


# The activities of each stream in order, each ending at the latest where the next begins; adjacent ones with
# the same annotations are one slice, at each depth. So the slices nest, whichever threads launched the
# activities. The annotations are those of kernels_by_annotation.
_ANNOTATIONS = """
WITH RECURSIVE
  above AS (
    SELECT DISTINCT kernels.runtime_id, kernels.annotation_id, runtime.ts_ns AS call_ns
    FROM kernels
    JOIN runtime
      ON runtime.run_id = kernels.run_id
      AND runtime.rank = kernels.rank
      AND runtime.event_id = kernels.runtime_id
    WHERE kernels.annotation_id IS NOT NULL
    UNION ALL
    SELECT above.runtime_id, annotations.parent_id AS annotation_id, above.call_ns
    FROM above
    JOIN annotations ON annotations.event_id = above.annotation_id
    WHERE annotations.parent_id IS NOT NULL
  ),
  stack AS (
    SELECT
      above.runtime_id,
      list(annotations.event_id ORDER BY annotations.pre) AS ids,
      list(coalesce(annotations.name, '') ORDER BY annotations.pre) AS names
    FROM above
    JOIN annotations ON annotations.event_id = above.annotation_id
    WHERE annotations.ts_ns + annotations.dur_ns > above.call_ns
    GROUP BY above.runtime_id
  ),
  turn AS (
    SELECT
      device,
      stream,
      runtime_id,
      ts_ns,
      least(ts_ns + dur_ns, coalesce(lead(ts_ns) OVER onwards, ts_ns + dur_ns)) AS end_ns,
      row_number() OVER onwards AS turn
    FROM kernels
    WINDOW onwards AS (PARTITION BY device, stream ORDER BY ts_ns, dur_ns, event_id)
  ),
  level AS (
    SELECT
      turn.device,
      turn.stream,
      turn.ts_ns,
      turn.end_ns,
      depth,
      stack.ids[:depth] AS ids,
      stack.names[depth] AS name,
      turn.turn - row_number() OVER (
        PARTITION BY turn.device, turn.stream, depth, stack.ids[:depth] ORDER BY turn.turn
      ) AS island
    FROM turn
    JOIN stack ON stack.runtime_id = turn.runtime_id
    CROSS JOIN LATERAL (SELECT unnest(generate_series(1, len(stack.ids))) AS depth) AS depths
  ),
  slice AS (
    SELECT
      device,
      stream,
      depth,
      ids[depth] AS annotation_id,
      any_value(name) AS name,
      min(ts_ns) AS ts_ns,
      max(end_ns) AS end_ns,
      count(*) AS gpu_activities
    FROM level
    GROUP BY device, stream, depth, ids, island
  )
SELECT
  'X' AS ph,
  slice.name,
  gpu_tracks.pid,
  'stream ' || slice.stream || ' annotations' AS track,
  slice.ts_ns,
  slice.end_ns - slice.ts_ns AS dur_ns,
  slice.depth,
  json_object(
    'annotation', slice.annotation_id, 'depth', slice.depth, 'GPU activities', slice.gpu_activities
  ) AS args
FROM slice
JOIN gpu_tracks USING (device, stream)
"""

# The outermost operators with their sequences, as counted by kernel_sequences; a sequence's number is its
# position in that analysis. On a stream, consecutive activities of one operator are a slice.
_KERNEL_SEQUENCES = """
WITH
  sequence AS (
    SELECT
      name,
      kernels,
      count,
      row_number() OVER (ORDER BY count DESC, kernel_sum_ns DESC, name, kernels) AS number
    FROM kernel_sequences
  ),
  outermost AS (
    SELECT kernel_id, arg_min(op_id, level) AS op_id
    FROM kernel_operators
    GROUP BY kernel_id
  ),
  occurrence AS (
    SELECT
      outermost.op_id,
      string_agg(
        coalesce(kernels.name, ''), ' | ' ORDER BY runtime.ts_ns, kernels.ts_ns, kernels.event_id
      ) AS kernels,
      count(*) AS gpu_activities
    FROM kernels
    JOIN outermost ON outermost.kernel_id = kernels.event_id
    JOIN runtime ON runtime.event_id = kernels.runtime_id
    GROUP BY outermost.op_id
  ),
  turn AS (
    SELECT
      kernels.device,
      kernels.stream,
      outermost.op_id,
      kernels.ts_ns,
      least(ts_ns + dur_ns, coalesce(lead(ts_ns) OVER onwards, ts_ns + dur_ns)) AS end_ns,
      row_number() OVER onwards - row_number() OVER (
        PARTITION BY kernels.device, kernels.stream, outermost.op_id ORDER BY ts_ns, dur_ns, event_id
      ) AS island
    FROM kernels
    LEFT JOIN outermost ON outermost.kernel_id = kernels.event_id
    WINDOW onwards AS (PARTITION BY kernels.device, kernels.stream ORDER BY ts_ns, dur_ns, event_id)
  ),
  slice AS (
    SELECT device, stream, op_id, min(ts_ns) AS ts_ns, max(end_ns) AS end_ns, count(*) AS gpu_activities
    FROM turn
    WHERE op_id IS NOT NULL
    GROUP BY device, stream, op_id, island
  )
SELECT
  'X' AS ph,
  sequence.name || ' #' || sequence.number AS name,
  gpu_tracks.pid,
  'stream ' || slice.stream || ' kernel sequences' AS track,
  slice.ts_ns,
  slice.end_ns - slice.ts_ns AS dur_ns,
  json_object(
    'operator', slice.op_id,
    'sequence', sequence.number,
    'occurrences', sequence.count,
    'GPU activities here', slice.gpu_activities,
    'GPU activities of the sequence', occurrence.gpu_activities
  ) AS args
FROM slice
JOIN gpu_tracks USING (device, stream)
JOIN occurrence USING (op_id)
JOIN events AS op ON op.event_id = slice.op_id
JOIN sequence ON sequence.name = coalesce(op.name, '') AND sequence.kernels = occurrence.kernels
"""


# A flow leaves 1 ns before the end of a slice: at the end it would attach to the next one.
_CRITICAL_PATH = """
WITH
  scope AS (
    SELECT scope, coalesce(any_value(pid), (SELECT min(pid) FROM gpu_tracks)) AS pid
    FROM critical_nodes
    WHERE kind = 'scope' AND side = 'start'
    GROUP BY scope
  ),
  instant AS (
    SELECT
      node.scope,
      node.node,
      node.event_id,
      events.pid,
      events.tid,
      node.ts_ns - CASE WHEN node.side = 'end' AND events.dur_ns > 0 THEN 1 ELSE 0 END AS ts_ns
    FROM critical_nodes AS node
    JOIN events ON events.event_id = node.event_id
  ),
  flow AS (
    SELECT
      row_number() OVER (ORDER BY part.scope, part.position) AS id,
      part.type,
      source.pid AS from_pid,
      source.tid AS from_tid,
      source.ts_ns AS from_ns,
      target.pid AS to_pid,
      target.tid AS to_tid,
      target.ts_ns AS to_ns
    FROM critical_path AS part
    JOIN instant AS source ON source.scope = part.scope AND source.node = part.from_node
    JOIN instant AS target ON target.scope = part.scope AND target.node = part.to_node
    WHERE source.event_id <> target.event_id AND part.type NOT IN ('host', 'host_gap')
  )
SELECT
  'X' AS ph,
  part.category || coalesce(': ' || events.name, '') AS name,
  scope.pid,
  'critical path of ' || part.scope AS track,
  part.start_ns AS ts_ns,
  part.segment_ns AS dur_ns,
  1 AS depth,
  json_object(
    'scope', part.scope,
    'category', part.category,
    'evidence', part.evidence,
    'event', part.event_id
  ) AS args
FROM critical_path AS part
JOIN scope ON scope.scope = part.scope
LEFT JOIN events ON events.event_id = part.event_id
WHERE part.segment_ns > 0
UNION ALL BY NAME
SELECT
  's' AS ph, 'critical path' AS name, from_pid AS pid, from_tid AS tid, from_ns AS ts_ns, id,
  json_object('type', type) AS args
FROM flow
UNION ALL BY NAME
SELECT
  'f' AS ph, 'critical path' AS name, to_pid AS pid, to_tid AS tid, to_ns AS ts_ns, id, 'e' AS bp,
  json_object('type', type) AS args
FROM flow
"""

CRITICAL_PATH = Addition(
    "critical_path",
    "the critical path of each derived scope, with flows between threads and streams",
    ("critical_path_breakdown", "critical_path", "critical_nodes", "events"),
    _CRITICAL_PATH,
)


_IDLE = """
SELECT
  'X' AS ph,
  'idle: ' || idle_intervals.cause AS name,
  process.pid,
  'idle device ' || idle_intervals.device AS track,
  idle_intervals.start_ns AS ts_ns,
  idle_intervals.idle_ns AS dur_ns,
  json_object(
    'cause', idle_intervals.cause,
    'after', coalesce(idle_intervals.before_name, ''),
    'before', coalesce(idle_intervals.after_name, ''),
    'launched by', coalesce(idle_intervals.api, 'unknown'),
    'in operator', coalesce(idle_intervals.op_name, 'unknown')
  ) AS args
FROM idle_intervals
JOIN (SELECT device, min(pid) AS pid FROM gpu_tracks GROUP BY device) AS process USING (device)
"""

# Periods, since they tile the window: the annotation of a step is already in the trace.
_STEPS = """
SELECT
  'X' AS ph,
  'step ' || steps.step || CASE WHEN steps.partial THEN ' (partial)' ELSE '' END AS name,
  events.pid,
  'steps' AS track,
  steps.period_start_ns AS ts_ns,
  steps.period_ns AS dur_ns,
  json_object('step', steps.step, 'host ns', steps.host_ns, 'device ns', coalesce(steps.device_ns, 0)) AS args
FROM steps
JOIN events ON events.event_id = steps.event_id
"""

IDLE = Addition(
    "idle",
    "idle intervals of each device with their cause and the launch that ended them",
    ("idle_intervals",),
    _IDLE,
)
STEPS = Addition(
    "steps", "each step, from the end of the previous one on the GPU", ("steps", "events"), _STEPS
)


OVERLAYS = {
    addition.name: addition
    for addition in (
        Addition(
            "annotations",
            "the annotations enclosing the launch of each GPU activity, by stream",
            ("kernels_by_annotation", "annotations", "kernels", "runtime"),
            _ANNOTATIONS,
        ),
        Addition(
            "kernel_sequences",
            "the kernel sequence of each operator, numbered by frequency",
            ("kernel_sequences", "kernel_operators", "kernels", "runtime", "events"),
            _KERNEL_SEQUENCES,
        ),
        CRITICAL_PATH,
        FINDINGS,
        IDLE,
        STEPS,
    )
}


def range_marker(name: str, time_range: TimeRange) -> Addition:
    """A slice of the exported time range: complete slices may extend beyond it."""
    from_ns, to_ns = time_range
    sql = f"""
SELECT
  'X' AS ph,
  {quote_text(name)} AS name,
  coalesce(
    (SELECT any_value(pid) FROM ranks),
    (SELECT min(pid) FROM events WHERE ph <> 'M')
  ) AS pid,
  'exported range' AS track,
  {from_ns}::BIGINT AS ts_ns,
  {to_ns - from_ns}::BIGINT AS dur_ns,
  json_object('overlapping slices', 'complete') AS args
"""
    return Addition("range", "the exported time range", ("ranks", "events"), sql)
