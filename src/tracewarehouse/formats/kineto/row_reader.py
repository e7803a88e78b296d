"""Row-by-row reading: fills the columns of flagged rows from the text of their elements.

In typed arguments, a number may be written as a string, a value that does not fit the type of its column is
null, and the first value of a repeated key wins. Shapes and types of inputs are verbatim.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_FLOOR, Context, Decimal
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.json_text import members, quote, unquote
from tracewarehouse.formats.kineto.columns import BatchColumns, Fractions
from tracewarehouse.formats.kineto.distinct_values import evaluate, read_tokens
from tracewarehouse.formats.kineto.scanner import DOUBLES, KEYS, TYPED_INTS, TYPED_TEXTS
from tracewarehouse.formats.kineto.times import printed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tracewarehouse.formats.kineto.columns import Dictionaries, Rows


STRING_KEYS: Final = ("ph", "cat", "name")
JSON_KEYS: Final = ("pid", "tid", "id")
TIME_KEYS: Final = ("ts", "dur")
DUPLICATES: Final = "__duplicates__"

_FIRST_EXTRA: Final = ("bp", "s", *TIME_KEYS)
_PLAIN_TIME = re.compile(r"(-?)([0-9]+)(?:\.([0-9]{1,3}))?")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_SCALARS: Final = '"-0123456789'
_PICO: Final = 1_000_000
_STEP = Decimal("1e-9")
_EXACT = Context(prec=60)
_MOST_DIGITS: Final = 19
_LEAST: Final = -40

Row = dict[str, str | None]


class Time(NamedTuple):
    """A time in the file: nanoseconds, rounded down, and millionths of a nanosecond."""

    ns: int
    fraction: int


def row(text: str) -> Row:
    """The columns of an element from its minified text; times as text, the others as in a batch.

    The last value of a repeated key fills the column, as in most parsers; the earlier ones are in `extra`
    under `__duplicates__` as [key, value] pairs. An element that is not an object is stored in `extra` as a
    whole.
    """
    found: Row = dict.fromkeys((*STRING_KEYS, *JSON_KEYS, "ts_text", "dur_text", "args", "extra"))
    if not text.startswith("{"):
        found["extra"] = text
        return found
    earlier: list[str] = []
    last: dict[str, str] = {}
    for key, value in members(text):
        if key in last:
            earlier.append(f"[{quote(key)},{last[key]}]")
        last[key] = value
    extra = {key: value for key, value in last.items() if not _place(found, key, value)}
    if earlier:
        extra[DUPLICATES] = "[" + ",".join(earlier) + "]"
    elif len(extra) > 1 and extra.keys() <= frozenset(_FIRST_EXTRA) and _is_usual(last):
        extra = {key: extra[key] for key in _FIRST_EXTRA if key in extra}
    if extra:
        found["extra"] = "{" + ",".join(f"{quote(key)}:{value}" for key, value in extra.items()) + "}"
    return found


def _is_usual(values: Mapping[str, str]) -> bool:
    """Whether ids are strings or numbers, and times are numbers or strings without an exponent."""
    ids = all(values[key][0] in _SCALARS for key in JSON_KEYS if key in values)
    times = (values[key].strip('"') for key in TIME_KEYS if key in values)
    return ids and "null" not in values.values() and all(map(_DECIMAL.fullmatch, times))


def _place(found: Row, key: str, value: str) -> bool:
    """Stores a member in its column; False if `extra` must contain it (too)."""
    if value == "null":
        return False
    if key in STRING_KEYS and value[0] == '"':
        found[key] = unquote(value)
    elif key in JSON_KEYS or key == "args":
        found[key] = value
    elif key in TIME_KEYS and (value[0] == '"' or value[0] in "-0123456789"):
        found[f"{key}_text"] = unquote(value) if value[0] == '"' else value
        return value[0] != '"'
    else:
        return False
    return True


def time_of(text: str | None) -> Time | None:
    """A number of microseconds, truncated to nine decimals; None if it exceeds 64 bits of ns."""
    if text is None:
        return None
    if (plain := _PLAIN_TIME.fullmatch(text)) is not None:
        ns = int(plain[2]) * 1000 + int((plain[3] or "").ljust(3, "0"))
        return _fitting(Time(-ns if plain[1] else ns, 0))
    if not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    if number and not _LEAST < number.adjusted() < _MOST_DIGITS:
        return None if number.adjusted() > 0 else Time(0, 0)
    cut = number.quantize(_STEP, rounding="ROUND_DOWN", context=_EXACT)
    ns = int((cut * 1000).to_integral_value(ROUND_FLOOR))
    return _fitting(Time(ns, int((cut * 1000 - ns) * _PICO)))


def out_of_range_ns(text: str | None) -> int | None:
    """A number of microseconds that exceeds 64 bits, in ns; None for any other text."""
    if text is None or time_of(text) is not None or not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    return int(number * 1000) if number.adjusted() < _MOST_DIGITS else None


def time_in_ns(text: str | None) -> Time | None:
    """A number of nanoseconds; None if it is not a number or exceeds 64 bits."""
    if text is None or not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    if number and not _LEAST < number.adjusted() < _MOST_DIGITS:
        return None if number.adjusted() > 0 else Time(0, 0)
    ns = int(number.to_integral_value(ROUND_FLOOR))
    return _fitting(Time(ns, int((number - ns) * _PICO)))


def _fitting(time: Time) -> Time | None:
    return time if -(2**63) <= time.ns < 2**63 else None


def _printed_us(ns: int) -> str:
    """A time as microseconds, as an integer or with three decimals; "" if it is negative."""
    us, rest = divmod(ns, 1000)
    return "" if ns < 0 else f"{us}.{rest:03d}" if rest else f"{us}"


COLLECTIVE_KEY: Final = "Collective name"
_VERBATIM: Final = ("shapes", "dtypes")
_LISTS: Final = ("grid", "block")
_DIMENSIONS: Final = ("x", "y", "z")
_KNOWN: Final = frozenset(key for keys in KEYS.values() for key in keys)
# Text with fewer brackets is not nested too deeply for a parser.
_DEEP: Final = 500


def typed_arguments(args: pa.Array) -> pa.Table:
    """The typed columns of each argument text, and `has_collective`."""
    flat = pa.array([_flat(text) for text in args.to_pylist()], pa.string())
    table = evaluate(_select(), {"args": flat})
    verbatim: dict[str, list[str | None]] = {name: [] for name in _VERBATIM}
    for text in args.to_pylist():
        found = _verbatim(text)
        for name, values in verbatim.items():
            values.append(next((found[key] for key in KEYS[name] if key in found), None))
    for name, values in verbatim.items():
        table = table.append_column(name, pa.array(values, pa.string()))
    return table


@cache
def _select() -> str:
    newer, older = _shape(0), _shape(1)
    columns = ", ".join(
        _column(name) for name in (*TYPED_INTS, *DOUBLES, *TYPED_TEXTS) if name not in _VERBATIM
    )
    return (
        f"SELECT {columns}, coalesce(json_exists(args, '$.\"{COLLECTIVE_KEY}\"'), false) AS has_collective"
        f" FROM (SELECT args, json_transform(args, '{newer}') AS arg0, json_transform(args, '{older}')"
        " AS arg1 FROM given)"
    )


def _shape(place: int) -> str:
    """The types of the first or second keys of all columns; DuckDB keys must not differ in case only."""
    types = {}
    for name, keys in KEYS.items():
        if name not in _VERBATIM and place < len(keys):
            types[keys[place]] = _type(name)
    return "{" + ", ".join(f'"{key}": "{type_}"' for key, type_ in types.items()) + "}"


def _type(name: str) -> str:
    if name in _LISTS:
        return "BIGINT[]"
    return "DOUBLE" if name in DOUBLES else "BIGINT" if name in TYPED_INTS else "VARCHAR"


def _column(name: str) -> str:
    if name[:-2] in _LISTS:
        return f"arg0.{name[:-2]}[{_DIMENSIONS.index(name[-1]) + 1}] AS {name}"
    keys = ", ".join(f'arg{place}."{key}"' for place, key in enumerate(KEYS[name]))
    return f"coalesce({keys}) AS {name}"


def _flat(text: str | None) -> str | None:
    """The text without values that are nested too deeply to be a known argument."""
    if text is None or text.count("[") + text.count("{") < _DEEP or not text.startswith("{"):
        return text
    kept = [(key, value) for key, value in members(text) if key in _KNOWN and value.count("[") < _DEEP]
    return "{" + ",".join(f'"{key}":{value}' for key, value in kept) + "}"


def _verbatim(text: str | None) -> dict[str, str]:
    """Shapes and types of inputs that are present and not null."""
    if text is None or not text.startswith("{") or ('"Input ' not in text and "\\" not in text):
        return {}
    return {key: value for key, value in dict(_first(text)).items() if value != "null" and key in _KNOWN}


def _first(text: str) -> Iterator[tuple[str, str]]:
    """The members in reverse order, so that the first value of a repeated key wins in a dict."""
    return reversed(members(text))


_CODES = ("ph", "cat", "name", "pid", "tid", "extra")


def fill_odd(
    columns: BatchColumns,
    rows: Rows,
    texts: Sequence[str],
    dictionaries: Dictionaries,
    *,
    in_ns: bool = False,
) -> None:
    """Fills all columns of these rows except typed arguments; `in_ns`: times in the file are nanoseconds."""
    found = [row(text) for text in texts]
    _place_ids(found)
    for name in _CODES:
        values = pa.array([row[name] for row in found], pa.string())
        columns.set_codes(name, rows, dictionaries.of(name).codes_of(values))
    for name in ("args", "id"):
        values = pa.array([row[name] for row in found], pa.string())
        columns.set_texts("flow_id" if name == "id" else name, rows, values)
    _fill_times(columns, rows, found, in_ns)


def fill_times(columns: BatchColumns, rows: Rows, texts: Sequence[str], *, in_ns: bool = False) -> None:
    """Fills start and duration of these rows."""
    _fill_times(columns, rows, [row(text) for text in texts], in_ns)


def to_ns(columns: BatchColumns, rows: Rows) -> None:
    """Converts times of these rows that the scanner read as microseconds to the nanoseconds that they are.

    The digits of the file are stored in every row because formatting the time does not reproduce them.
    """
    fractions = {}
    for name in ("ts", "dur"):
        values, valid = columns.ints.get(name, _nothing(columns.rows))
        _keep_digits(columns, name, rows[valid[rows] & ~_has_text(columns, name)[rows]])
        values[rows], rest = np.divmod(values[rows], 1000)
        fractions[name] = (rest * 1000).astype(np.int32)
    columns.add_fractions(Fractions(rows, **fractions))


def _nothing(rows: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    return np.zeros(rows, np.int64), np.zeros(rows, np.bool_)


def _has_text(columns: BatchColumns, name: str) -> NDArray[np.bool_]:
    texts = columns.texts.get(f"{name}_text")
    if texts is None:
        return np.zeros(columns.rows, np.bool_)
    found: NDArray[np.bool_] = texts.is_valid().to_numpy(zero_copy_only=False)
    return found


def _keep_digits(columns: BatchColumns, name: str, rows: Rows) -> None:
    if rows.size:
        columns.set_texts(f"{name}_text", rows, printed(columns.ints[name][0][rows]))


def fill_arguments(columns: BatchColumns, rows: Rows, dictionaries: Dictionaries) -> None:
    """Fills the typed arguments of these rows from the column `args`."""
    args = columns.texts.get("args")
    if args is None:
        return
    table = typed_arguments(args if len(rows) == columns.rows else args.take(pa.array(rows)))
    for name in TYPED_INTS:
        columns.set_ints(name, rows, *_numbers(table.column(name), np.int64))
    for name in DOUBLES:
        columns.set_doubles(name, rows, *_numbers(table.column(name), np.float64))
    for name in TYPED_TEXTS:
        texts = table.column(name).cast(pa.string()).combine_chunks()
        if texts.null_count < len(texts) or name in columns.codes:
            columns.set_codes(name, rows, dictionaries.of(name).codes_of(texts))
    columns.collective[rows] = table.column("has_collective").to_numpy()


def _numbers(column: pa.ChunkedArray, dtype: type[np.generic]) -> tuple[NDArray, NDArray[np.bool_]]:  # type: ignore[type-arg]
    valid = column.is_valid().to_numpy().astype(np.bool_, copy=False)
    return pc.fill_null(column, 0).to_numpy().astype(dtype, copy=False), valid


def _place_ids(found: Sequence[Row]) -> None:
    """Stores the ids as text; `extra` also contains those whose type the text does not show."""
    with_id = [row for row in found if row["id"] is not None]
    if not with_id:
        return
    tokens = [row["id"] or "" for row in with_id]
    known = read_tokens(tokens)
    for row, token, text, keeps_type in zip(with_id, tokens, known.texts, known.keeps_type, strict=True):
        row["id"] = text
        if not keeps_type:
            rest = row["extra"]
            row["extra"] = f'{{"id": {token}, {rest[1:-1]}}}' if rest else f'{{"id": {token}}}'


def _fill_times(columns: BatchColumns, rows: Rows, found: Sequence[Row], in_ns: bool) -> None:
    read_time = time_in_ns if in_ns else time_of
    texts = {name: [row[f"{name}_text"] for row in found] for name in ("ts", "dur")}
    times = {name: [read_time(text) for text in values] for name, values in texts.items()}
    for at, text in enumerate(texts["ts"]):
        if times["ts"][at] is None and (start_ns := out_of_range_ns(text)) is not None and not in_ns:
            columns.out_of_range_ns[int(rows[at])] = start_ns
    fractions = {}
    for name, values in times.items():
        ns = np.fromiter((time.ns if time else 0 for time in values), np.int64, len(values))
        valid = np.fromiter((time is not None for time in values), np.bool_, len(values))
        columns.set_ints(name, rows, ns, valid)
        fractions[name] = np.fromiter(
            (time.fraction if time else 0 for time in values), np.int32, len(values)
        )
    has_fraction = (fractions["ts"] > 0) | (fractions["dur"] > 0) | in_ns
    for name, values in times.items():
        kept = [
            text if keep or not time or text != _printed_us(time.ns) else None
            for text, time, keep in zip(texts[name], values, has_fraction.tolist(), strict=True)
        ]
        columns.set_texts(f"{name}_text", rows, pa.array(kept, pa.string()))
    if has_fraction.any():
        selected = Fractions(
            rows[has_fraction], fractions["ts"][has_fraction], fractions["dur"][has_fraction]
        )
        columns.add_fractions(selected)
