"""From the texts of events to the relation `raw`: in bulk, in DuckDB, on the original text.

DuckDB's own number parsing goes through a double and prints it anew. Two doors are exact: a top-level
number that `json_transform` hands out, and a cut of the text; only these two are used here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tracewarehouse.reader import odd

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_COLUMNS: Final = (
    "run_id, rank, event_id, text, ph, cat, name, pid, tid, id, ts, dur, ts_ns, dur_ns, ts_text, dur_text,"
    " args, extra, repaired"
)
_NUMBER: Final = r"-?[0-9]+(\.[0-9]+)?"
_SCALARS: Final = ("ph", "cat", "name", "pid", "tid", "id", "ts", "dur", "bp", "s")
# With a DECIMAL among the types json_transform keeps every number as text, nested ones too; a test pins it.
_EXACT: Final = '"__exact__":"DECIMAL(28,9)"'
_SHAPE: Final = "{" + ",".join(f'"{key}":"JSON"' for key in (*_SCALARS, "args")) + f",{_EXACT}}}"


def _text(key: str) -> str:
    return f"v.{key}::VARCHAR"


def _is_string(key: str) -> str:
    """By the first sign of its JSON text: a quote sorts before all else."""
    return f"{_text(key)} < '#'"


def _is_scalar(key: str) -> str:
    """A string or a number: quote, minus and digits sort before `t`, `f`, `[` and `{`."""
    return f"{_text(key)} < ':'"


def _is_plain_number(key: str) -> str:
    """A number without exponent, or a string that is one: what a cast to DECIMAL reads exactly."""
    exponent = f"contains({_text(key)}, 'e') OR contains({_text(key)}, 'E')"
    quoted = f"regexp_full_match({_text(key)}, '\"{_NUMBER}\"')"
    return f"coalesce(CASE WHEN {_is_string(key)} THEN {quoted} ELSE NOT ({exponent}) END, true)"


def _string(key: str) -> str:
    """A JSON string's value; most hold no escape, and a cut is cheaper than a parse."""
    cut = f"substring({_text(key)}, 2, length({_text(key)}) - 2)"
    return f"CASE WHEN contains({_text(key)}, '\\') THEN v.{key} ->> '$' ELSE {cut} END"


def _time_text(key: str) -> str:
    return f"CASE WHEN {_is_string(key)} THEN {_string(key)} ELSE {_text(key)} END"


def _decimal(text: str) -> str:
    """Cut after nine decimals: rounding there and again to ns could round twice."""
    point = f"position('.' IN {text})"
    return (
        f"TRY_CAST(CASE WHEN length({text}) > {point} + 9 AND {point} > 0 THEN left({text}, {point} + 9)"
        f" ELSE {text} END AS DECIMAL(28,9))"
    )


def _digits_ns(text: str) -> str:
    """What the digits of most numbers say as they stand: three decimals or none, and not too many before."""
    return (
        f"CASE WHEN substring({text}, -4, 1) = '.' THEN TRY_CAST(replace({text}, '.', '') AS BIGINT)"
        f" WHEN strlen({text}) < 17 THEN TRY(TRY_CAST({text} AS BIGINT) * 1000) END"
    )


def _whole_ns(key: str) -> str:
    """The digits' nanoseconds where they are the number: ten times as quick as arithmetic with decimals."""
    return f"CASE WHEN {key}_digits_ns = {key} * 1000 THEN {key}_digits_ns END"


def _extra() -> str:
    tests = {
        "bp": "v.bp IS NOT NULL",
        "s": "v.s IS NOT NULL",
        **{key: _is_string(key) for key in odd.TIME_KEYS},
    }
    parts = [f"CASE WHEN {test} THEN '\"{key}\":' || {_text(key)} END" for key, test in tests.items()]
    some = " OR ".join(tests.values())
    return f"CASE WHEN {some} THEN '{{' || concat_ws(',', {', '.join(parts)}) || '}}' END"


def _each_key_known() -> str:
    """Whether the object holds the known keys only, each once and not null: then its parts fill its text.

    A string that is printed with shorter escapes than the file's also leaves a rest; that asks for the keys.
    """
    keys = (*_SCALARS, "args")
    parts = [f"coalesce(strlen({_text(key)}) + {len(key) + 4}, 0)" for key in keys]
    known = " + ".join(f"(v.{key} IS NOT NULL)::INTEGER" for key in keys)
    rest = f"strlen(text) - 1 - ({' + '.join(parts)})"
    return f"CASE WHEN {rest} = 0 THEN true ELSE length(json_keys(text)) = {known} END"


def _usual() -> str:
    """The shapes that are handled in bulk: known keys, each once, of their usual types."""
    tests = ["text >= '{'", _each_key_known()]
    tests += [f"coalesce({_is_string(key)}, true)" for key in odd.STRING_KEYS]
    tests += [f"coalesce({_is_scalar(key)}, true)" for key in (*odd.JSON_KEYS, *odd.TIME_KEYS)]
    tests += map(_is_plain_number, odd.TIME_KEYS)
    return " AND ".join(tests)


_BULK: Final = f"""
INSERT INTO raw ({_COLUMNS})
WITH parsed AS (
  SELECT event_id, text, repaired, json_transform(text, '{_SHAPE}') AS v
  FROM tw_texts
), usual AS (
  SELECT event_id, text, repaired, CASE WHEN {_usual()} THEN v END AS v FROM parsed
), timed AS (
  SELECT *, {_time_text("ts")} AS ts_text, {_time_text("dur")} AS dur_text FROM usual
), numbered AS (
  SELECT *, {_decimal("ts_text")} AS ts, {_decimal("dur_text")} AS dur,
    {_digits_ns("ts_text")} AS ts_digits_ns, {_digits_ns("dur_text")} AS dur_digits_ns
  FROM timed
)
SELECT $run_id, $rank, event_id, CASE WHEN v IS NULL OR $texts THEN text END,
  {", ".join(map(_string, odd.STRING_KEYS))}, v.pid, v.tid, v.id,
  ts, dur, {_whole_ns("ts")}, {_whole_ns("dur")}, ts_text, dur_text, v.args, {_extra()}, repaired
FROM numbered
"""

# An object of which no column holds anything: it had an unusual shape, or is empty.
_HELD: Final = ("ph", "cat", "name", "pid", "tid", "id", "ts_text", "dur_text", "args", "extra")
_UNUSUAL: Final = " AND ".join(("text >= '{'", *(f"{column} IS NULL" for column in _HELD)))

_ODD: Final = f"""
INSERT INTO raw ({_COLUMNS})
SELECT $run_id, $rank, event_id, text, ph, cat, name, pid, tid, id, ts::DECIMAL(28,9), dur::DECIMAL(28,9),
  NULL, NULL, ts_text, dur_text, args, extra, repaired
FROM tw_odd
"""
_ODD_AT_ONCE: Final = 10_000


def write(
    con: DuckDBPyConnection, texts: pa.RecordBatchReader, run_id: str, rank: int, *, keep_texts: bool
) -> None:
    """Fills the table `raw` from `event_id, text, repaired` of events in file order, as they come.

    `keep_texts` false leaves out the text of what the other columns hold in full.
    """
    key = {"run_id": run_id, "rank": rank}
    con.register("tw_texts", texts)
    con.execute(_BULK, {**key, "texts": keep_texts})
    con.unregister("tw_texts")
    con.execute(f"CREATE TABLE tw_unusual AS SELECT event_id, text, repaired FROM raw WHERE {_UNUSUAL}")
    con.execute("DELETE FROM raw WHERE event_id IN (SELECT event_id FROM tw_unusual)")
    with con.cursor() as cursor:
        cursor.execute("FROM tw_unusual")
        while left := cursor.fetchmany(_ODD_AT_ONCE):
            _write_odd(con, left, key)
    con.execute("DROP TABLE tw_unusual")


def _write_odd(
    con: DuckDBPyConnection, left: Sequence[tuple[int, str, bool]], key: Mapping[str, object]
) -> None:
    rows = [
        {"event_id": event_id, "text": text, "repaired": repaired, **odd.row(text)}
        for event_id, text, repaired in left
    ]
    text_columns = [name for name in rows[0] if name not in ("event_id", "repaired")]
    types = {"event_id": pa.int64(), "repaired": pa.bool_(), **dict.fromkeys(text_columns, pa.string())}
    con.register("tw_odd", pa.Table.from_pylist(rows, schema=pa.schema(types)))
    con.execute(_ODD, key)
    con.unregister("tw_odd")
