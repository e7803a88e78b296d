"""Events of a trace as JSON text: the same keys and values as in the file, number for number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tracewarehouse.duck import engine
from tracewarehouse.formats.memory_timeline import ACTIONS, CATEGORIES

BATCH_ROWS = 10_000
DUPLICATES = "__duplicates__"


class Digits(str):
    """A number with the digits of the file."""


# A key is in `extra` if its column cannot hold its JSON type.
_TEXTS = """
WITH
  event AS (
    SELECT
      *,
      CASE WHEN extra IS NULL THEN [] ELSE json_keys(extra) END AS extra_keys,
      ts_ns - base_time_ns AS from_base_ns
    FROM {source}
    JOIN ranks USING (run_id, rank)
    WHERE run_id = $run AND rank = $rank
  ),
  member AS (
    SELECT
      event_id,
      ph IS NULL AND extra IS NOT NULL AND json_type(extra) <> 'OBJECT' AS is_not_object,
      concat_ws(
        ', ',
        '"ph": ' || to_json(ph),
        '"cat": ' || to_json(raw_category),
        '"name": ' || to_json(name),
        CASE
          WHEN pid IS NULL OR list_contains(extra_keys, 'pid') THEN NULL
          WHEN TRY_CAST(pid AS BIGINT)::VARCHAR = pid THEN '"pid": ' || pid
          ELSE '"pid": ' || to_json(pid)
        END,
        CASE
          WHEN tid IS NULL OR list_contains(extra_keys, 'tid') THEN NULL
          WHEN TRY_CAST(tid AS BIGINT)::VARCHAR = tid THEN '"tid": ' || tid
          ELSE '"tid": ' || to_json(tid)
        END,
        CASE
          WHEN flow_id IS NULL OR list_contains(extra_keys, 'id') THEN NULL
          WHEN TRY_CAST(flow_id AS BIGINT)::VARCHAR = flow_id THEN '"id": ' || flow_id
          ELSE '"id": ' || to_json(flow_id)
        END,
        CASE
          WHEN list_contains(extra_keys, 'ts') THEN NULL
          WHEN ts_text IS NOT NULL THEN '"ts": ' || ts_text
          WHEN from_base_ns % 1000 = 0 THEN '"ts": ' || (from_base_ns // 1000)
          ELSE '"ts": ' || (from_base_ns // 1000) || '.' || lpad((from_base_ns % 1000)::VARCHAR, 3, '0')
        END,
        CASE
          WHEN list_contains(extra_keys, 'dur') THEN NULL
          WHEN dur_text IS NOT NULL THEN '"dur": ' || dur_text
          WHEN ph = 'B' THEN NULL
          WHEN dur_ns % 1000 = 0 THEN '"dur": ' || (dur_ns // 1000)
          ELSE '"dur": ' || (dur_ns // 1000) || '.' || lpad((dur_ns % 1000)::VARCHAR, 3, '0')
        END,
        '"args": ' || args
      ) AS members,
      extra::VARCHAR AS extra,
      list_contains(extra_keys, '__duplicates__') AS has_duplicates
    FROM event
  )
SELECT
  CASE
    WHEN is_not_object THEN extra
    WHEN extra IS NULL THEN '{{' || members || '}}'
    ELSE '{{' || concat_ws(', ', nullif(members, ''), substr(extra, 2, length(extra) - 2)) || '}}'
  END AS text,
  CASE WHEN has_duplicates THEN members END AS members,
  CASE WHEN has_duplicates THEN extra END AS extra
FROM member
ORDER BY event_id
"""


# The elements of a memory timeline, for a rank without events. `file_...` columns hold what no other one can.
_TIMELINE_TEXTS = """
SELECT
  coalesce(
    element,
    '[' || concat_ws(
      ',',
      coalesce(ts_ns, file_time_ns),
      coalesce(list_position($actions, action), file_action),
      bytes,
      coalesce(list_position($categories, category) - 1, file_category)
    ) || ']'
  ) AS text
FROM memory_timeline
WHERE run_id = $run AND rank = $rank
  AND NOT EXISTS (SELECT 1 FROM events WHERE events.run_id = $run AND events.rank = $rank)
ORDER BY event_id
"""


def timeline_texts(con: engine.Connection, run: str, rank: int) -> Iterator[str]:
    """The elements of a rank's memory timeline as in the file; none if the rank has events."""
    values = {"run": run, "rank": rank, "actions": list(ACTIONS[1:]), "categories": list(CATEGORIES)}
    with con.cursor() as cursor:
        cursor.execute(_TIMELINE_TEXTS, values)
        while rows := cursor.fetchmany(BATCH_ROWS):
            yield from (text for (text,) in rows)


def event_texts(con: engine.Connection, run: str, rank: int, source: str = "events") -> Iterator[str]:
    """The JSON text of each element of a rank's event array, in order.

    The connection has the tables `source`, with the columns of `events`, and `ranks`. The text equals that of
    the file except for the order of keys and whitespace between tokens.
    """
    with con.cursor() as cursor:
        cursor.execute(_TEXTS.format(source=source), {"run": run, "rank": rank})
        while rows := cursor.fetchmany(BATCH_ROWS):
            for text, members, extra in rows:
                yield text if extra is None else _with_duplicates(members, extra)


def header_members(header: str, without: str | None = None) -> str:
    """The members of a header as text: verbatim, or printed again number for number if one is left out."""
    pairs = json.loads(header, parse_int=Digits, parse_float=Digits, object_pairs_hook=_Pairs)
    if not any(key == without for key, _ in pairs):
        return header.strip()[1:-1].strip()
    return ", ".join(_member(*pair) for pair in pairs if pair[0] != without)


def _with_duplicates(members: str, extra: str) -> str:
    """The text of an event with duplicate keys: earlier values first, so that the last one wins."""
    pairs = json.loads(extra, parse_int=Digits, parse_float=Digits, object_pairs_hook=_Pairs)
    earlier = next(value for key, value in pairs if key == DUPLICATES)
    later = [pair for pair in pairs if pair[0] != DUPLICATES]
    parts = [*(_member(*pair) for pair in earlier), members, *(_member(*pair) for pair in later)]
    return "{" + ", ".join(part for part in parts if part) + "}"


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object in order, including duplicates."""


def _member(key: str, value: Any) -> str:
    return f"{json.dumps(key, ensure_ascii=False)}: {_dump(value)}"


def _dump(value: Any) -> str:
    """The JSON text of a value, with the digits of the file."""
    if isinstance(value, Digits):
        return value
    if isinstance(value, _Pairs):
        return "{" + ", ".join(_member(*pair) for pair in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
