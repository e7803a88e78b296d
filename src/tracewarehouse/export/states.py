"""Why a device stood idle, and steps, on tracks of their own."""

from __future__ import annotations

from tracewarehouse.export.added import Added
from tracewarehouse.export.place import Window
from tracewarehouse.sqltext import quote_text

_IDLE = """
SELECT
  'X' AS ph,
  'overlay' AS category,
  'idle: ' || idle_intervals.cause AS name,
  process.pid,
  NULL AS tid,
  'idle device ' || idle_intervals.device AS track,
  idle_intervals.start_ns AS ts_ns,
  idle_intervals.idle_ns AS dur_ns,
  NULL AS depth,
  NULL AS id,
  NULL AS bp,
  json_object(
    'cause', idle_intervals.cause,
    'after', coalesce(idle_intervals.before_name, ''),
    'before', coalesce(idle_intervals.after_name, ''),
    'launched by', coalesce(idle_intervals.api, 'not known'),
    'in operator', coalesce(idle_intervals.op_name, 'not known')
  ) AS args
FROM idle_intervals
JOIN (SELECT device, min(pid) AS pid FROM gpu_tracks GROUP BY device) AS process USING (device)
"""

# Periods, since they tile the window: the host's own span of a step is in the trace.
_STEPS = """
SELECT
  'X' AS ph,
  'overlay' AS category,
  'step ' || steps.step || CASE WHEN steps.partial THEN ' (partial)' ELSE '' END AS name,
  events.pid,
  NULL AS tid,
  'steps' AS track,
  steps.period_start_ns AS ts_ns,
  steps.period_ns AS dur_ns,
  NULL AS depth,
  NULL AS id,
  NULL AS bp,
  json_object('step', steps.step, 'host ns', steps.host_ns, 'device ns', coalesce(steps.device_ns, 0)) AS args
FROM steps
JOIN events ON events.event_id = steps.event_id
"""

IDLE = Added(
    "idle", "why a device stood idle, and what launched the row that ended it", ("idle_intervals",), _IDLE
)
STEPS = Added("steps", "each step, from where the GPU had done the one before", ("steps", "events"), _STEPS)


def cut_mark(name: str, window: Window) -> Added:
    """A slice as long as what was cut out: slices that are kept whole reach beyond it."""
    from_ns, to_ns = window
    sql = f"""
SELECT
  'X' AS ph,
  'overlay' AS category,
  {quote_text(name)} AS name,
  coalesce(
    (SELECT any_value(pid) FROM ranks),
    (SELECT min(pid) FROM events WHERE ph <> 'M')
  ) AS pid,
  NULL AS tid,
  'cut out' AS track,
  {from_ns}::BIGINT AS ts_ns,
  {to_ns - from_ns}::BIGINT AS dur_ns,
  NULL AS depth,
  NULL AS id,
  NULL AS bp,
  json_object('slices that reach beyond it', 'kept whole') AS args
"""
    return Added("cut", "what was cut out", ("ranks", "events"), sql)
