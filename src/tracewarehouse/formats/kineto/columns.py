"""The columns of a batch and their dictionaries; the meaning of distinct values, evaluated once per value.

Text columns are dictionary-encoded. A code of 0 or more is a value from the scanner, -1 is null, and -2 - n
is the n-th value from the row reader. From the batch in which a dictionary overflows, the column holds texts
instead of codes.

The category of an event follows from its spelling in the file, else from process and name: slices without a
category are kernels, memcpys or memsets by the rules for uncategorized names if their process is a device,
and runtime calls if they are named like one. Other vendors name runtime categories after the device
(musa_runtime, gcu_driver).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import values_list
from tracewarehouse.formats.base import array_of, valid_of, values_of
from tracewarehouse.formats.kineto.library import DICTIONARY_MAX_BYTES, DICTIONARY_MAX_VALUES, DOUBLES
from tracewarehouse.formats.kineto.scanner import COLLECTIVE, Batch
from tracewarehouse.late_regex import late_regex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]


class Fractions(Struct):
    """Sub-nanosecond parts of `ts` and `dur`, in millionths of a nanosecond, of the rows that have them.

    `rows` are positions in the batch. `ts_text` and `dur_text` of these rows hold the digits of the file.
    """

    rows: Rows
    ts: NDArray[np.int32]
    dur: NDArray[np.int32]


class BatchColumns(Struct):
    """The columns of a Batch, modifiable; codes below -1 are values from the row reader."""

    rows: int
    codes: dict[str, NDArray[np.int32]]
    ints: dict[str, tuple[NDArray[np.int64], NDArray[np.bool_]]]
    doubles: dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]]
    texts: dict[str, pa.Array]
    collective: NDArray[np.bool_]
    fractions: Fractions | None = None
    # Starts in ns that exceed 64 bits, by row: they are null as times but determine the order of events.
    out_of_range_ns: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: Batch) -> BatchColumns:
        """The columns of a scanner's batch."""
        return cls(
            batch.rows,
            dict(batch.codes),
            {name: (values, valid) for name, (values, valid) in batch.ints.items()},
            {name: (values, valid) for name, (values, valid) in batch.doubles.items()},
            {name: texts for name, texts in batch.texts.items() if name != "text"},
            (batch.flags & COLLECTIVE) > 0,
        )

    def set_codes(self, name: str, rows: Rows, codes: NDArray[np.int32]) -> None:
        """Replaces the codes of these rows."""
        if name not in self.codes:
            if (codes == -1).all():
                return
            self.codes[name] = np.full(self.rows, -1, np.int32)
        self.codes[name][rows] = codes

    def set_numbers(
        self, name: str, rows: Rows, values: NDArray[np.generic], valid: NDArray[np.bool_]
    ) -> None:
        """Replaces the values of these rows."""
        columns: dict[str, Any] = self.doubles if name in DOUBLES else self.ints
        if name not in columns:
            if not valid.any():
                return
            columns[name] = np.zeros(self.rows, values.dtype), np.zeros(self.rows, np.bool_)
        columns[name][0][rows] = values
        columns[name][1][rows] = valid

    def times(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Times in ns and which of them are valid, as in `ints`."""
        return self.ints.get(name) or (np.zeros(self.rows, np.int64), np.zeros(self.rows, np.bool_))

    def set_texts(self, name: str, rows: Rows, texts: pa.Array) -> None:
        """Replaces the texts of these rows."""
        if len(rows) == self.rows:
            self.texts[name] = texts
            return
        before = self.texts.get(name)
        if before is None:
            if texts.null_count == len(texts):
                return
            before = pa.nulls(self.rows, pa.string())
        mask = np.zeros(self.rows, np.bool_)
        mask[rows] = True
        self.texts[name] = pc.replace_with_mask(before, pa.array(mask), texts)

    def add_fractions(self, found: Fractions) -> None:
        """Adds rows whose times have a sub-nanosecond part."""
        before = self.fractions
        if before is not None:
            found = Fractions(
                np.concatenate([before.rows, found.rows]),
                np.concatenate([before.ts, found.ts]),
                np.concatenate([before.dur, found.dur]),
            )
        self.fractions = found


HAS_COLLECTIVE: Final = "has_collective"
TS_FRACTION: Final = "ts_fraction"
DUR_FRACTION: Final = "dur_fraction"


def to_record_batch(columns: BatchColumns, dictionaries: Dictionaries) -> pa.RecordBatch:
    """The columns as Arrow: codes as integers, or as texts if the dictionary overflowed."""
    found: dict[str, pa.Array] = {}
    for name, codes in columns.codes.items():
        found[name] = dictionaries.of(name).texts(codes) if name in dictionaries.plain else pa.array(codes)
    for name, (values, valid) in (*columns.ints.items(), *columns.doubles.items()):
        found[name] = array_of(values, valid)
    found |= columns.texts
    found[HAS_COLLECTIVE] = pa.array(columns.collective)
    if (fractions := columns.fractions) is not None:
        found[TS_FRACTION] = _scattered(columns.rows, fractions.rows, fractions.ts)
        found[DUR_FRACTION] = _scattered(columns.rows, fractions.rows, fractions.dur)
    return pa.RecordBatch.from_pydict(found)


def _scattered(count: int, rows: NDArray[np.int64], values: NDArray[np.int32]) -> pa.Array:
    all_ = np.zeros(count, np.int32)
    there = np.zeros(count, np.bool_)
    all_[rows], there[rows] = values, True
    return array_of(all_, there)


class BufferedBatch:
    """A buffered batch, with its columns as NumPy or Arrow arrays."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.rows: int = batch.num_rows
        self._nulls: dict[pa.DataType, pa.Array] = {}

    def arrow(self, name: str) -> pa.Array | None:
        """The column; None if it is null in every row."""
        place = self.batch.schema.get_field_index(name)
        return None if place < 0 else self.batch.column(place)

    def column(self, name: str, type_: pa.DataType) -> pa.Array:
        """The column; if it is missing, nulls that all missing columns of the type share."""
        found = self.arrow(name)
        if found is not None:
            return found
        if type_ not in self._nulls:
            self._nulls[type_] = pa.nulls(self.rows, type_)
        return self._nulls[type_]

    def ints(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The values, 0 where null, and the validity mask."""
        column = self.arrow(name)
        if column is None:
            return np.zeros(self.rows, np.int64), np.zeros(self.rows, np.bool_)
        return values_of(column, 0), valid_of(column)

    def coded(self, name: str, dictionaries: Dictionaries) -> Coded:
        """The distinct texts of a column, and the code of each row."""
        column = self.arrow(name)
        if column is None:
            return Coded(np.full(self.rows, -1, np.int32), pa.array([], pa.string()))
        if pa.types.is_string(column.type):
            encoded = column.dictionary_encode()
            return Coded(values_of(encoded.indices, -1), encoded.dictionary)
        texts, places = dictionaries.final(name)
        return Coded(places.take(column.to_numpy()), texts)


class Coded(NamedTuple):
    """Positions in `values`, -1 where null."""

    codes: NDArray[np.int32]
    values: pa.Array


NULL: Final = -1
_FIRST_OF_ROWS: Final = -2


class ColumnDictionary(Struct):
    """The distinct texts of one column, from the scanner and from the row reader."""

    of_scanner: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    of_rows: dict[str, int] = field(default_factory=dict)
    # Redacted form of the values that contain a secret, by code.
    clean: dict[int, str] = field(default_factory=dict)
    is_full: bool = False
    _bytes: int = 0

    def codes_of(self, texts: pa.Array) -> NDArray[np.int32]:
        """The code of each text; adds new texts."""
        encoded = texts.dictionary_encode()
        to_code = [self._code(value) for value in encoded.dictionary.to_pylist()]
        codes = values_of(encoded.indices, -1)
        found: NDArray[np.int32] = np.array([*to_code, NULL], np.int32)[codes]
        return found

    def _code(self, value: str) -> int:
        known = self.of_rows.get(value)
        if known is None:
            known = self.of_rows[value] = len(self.of_rows)
            self._bytes += len(value)
            self.is_full = (
                self.is_full or known >= DICTIONARY_MAX_VALUES or self._bytes >= DICTIONARY_MAX_BYTES
            )
        return _FIRST_OF_ROWS - known

    def texts(self, codes: NDArray[np.int32]) -> pa.Array:
        """The text of each code, without secrets."""
        values, places = self.dictionary()
        found = places[codes]
        return values.take(array_of(found, found >= 0))

    def dictionary(self) -> tuple[pa.Array, NDArray[np.int32]]:
        """Distinct redacted values, and an array that maps each code (negative ones, too) to its position."""
        scanner = self.of_scanner.to_pylist() if self.clean else self.of_scanner
        rows = list(self.of_rows)
        for code, text in self.clean.items():
            if code >= 0:
                scanner[code] = text
            else:
                rows[_FIRST_OF_ROWS - code] = text
        all_ = pa.concat_arrays([pa.array(scanner, pa.string()), pa.array(rows, pa.string())])
        count = len(self.of_scanner)
        encoded = all_.dictionary_encode()
        places = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
        # Negative codes index from the end: -1 is null, -2 the first value from the row reader, and so on.
        return encoded.dictionary, np.concatenate([places[:count], places[count:][::-1], [np.int32(NULL)]])

    def codes_with(self, text: str) -> list[int]:
        """The codes of a text in the dictionaries of the scanner and the row reader."""
        known = self.of_rows.get(text)
        found = [] if known is None else [_FIRST_OF_ROWS - known]
        place = pc.index(self.of_scanner, text).as_py()
        return found if place < 0 else [place, *found]

    def clear(self) -> None:
        """Empties the dictionary after an overflow."""
        self.of_scanner = pa.array([], pa.string())
        self.of_rows, self.clean, self._bytes = {}, {}, 0


class Dictionaries:
    """The dictionaries of all text columns of a file."""

    def __init__(self) -> None:
        self.columns: dict[str, ColumnDictionary] = {}
        # Columns whose dictionary overflowed: they hold texts from that batch on.
        self.plain: set[str] = set()
        self._later: dict[str, ColumnDictionary] = {}
        self._final: dict[str, tuple[pa.Array, NDArray[np.int32]]] = {}

    def begin(self, values: Mapping[str, pa.Array], restarted: frozenset[str]) -> None:
        """Sets the scanner's dictionaries for the next batch."""
        for name in (*restarted, *[name for name, found in self.columns.items() if found.is_full]):
            self.plain.add(name)
        for name in self.plain:
            later = self._later.setdefault(name, ColumnDictionary())
            if name in restarted or later.is_full:
                later.clear()
        for name, found in values.items():
            self.of(name).of_scanner = found

    def of(self, name: str) -> ColumnDictionary:
        """The dictionary of a column in the current batch."""
        if name in self.plain:
            return self._later[name]
        return self.columns.setdefault(name, ColumnDictionary())

    def final(self, name: str) -> tuple[pa.Array, NDArray[np.int32]]:
        """Distinct values for the codes of buffered batches, and the position of each code among them."""
        if name not in self._final:
            self._final[name] = self.columns.setdefault(name, ColumnDictionary()).dictionary()
        return self._final[name]


def run_sql_over(sql: str, columns: Mapping[str, pa.Array]) -> pa.Table:
    """The result of a SELECT over the table `given` with these columns."""
    from tracewarehouse.duck.engine import shared

    with shared(1) as con:
        con.register("given", pa.table(dict(columns)))
        return con.sql(sql).to_arrow_table()


_INTEGER: Final = late_regex(r"0|-?[1-9][0-9]{0,17}")
_WORD: Final = late_regex(r'"([^"\\0-9]*)"')
# The text of a number is its token, that of a string its value.
_SELECT: Final = """
SELECT
  text,
  number,
  TRY_CAST(regexp_extract(text, '-?[0-9]+$') AS BIGINT) AS last_number,
  NOT (starts_with(token, '"') = (number::VARCHAR IS NOT DISTINCT FROM text)) AS keeps_type
FROM (
  SELECT place, token, text, TRY_CAST(text AS BIGINT) AS number
  FROM (SELECT place, token, token::JSON ->> '$' AS text FROM given)
)
ORDER BY place
"""


class Tokens(Struct):
    """For each token: its text, the text as a number, the number at its end, and whether the type is kept.

    Numbers are None if there is none. The type is kept if the text is numeric exactly when the JSON value is
    a number.
    """

    texts: list[str | None]
    numbers: list[int | None]
    last_numbers: list[int | None]
    keeps_type: list[bool]


def read_tokens(tokens: Sequence[str]) -> Tokens:
    """Parses JSON tokens as ids."""
    count = len(tokens)
    found = Tokens([None] * count, [None] * count, [None] * count, [True] * count)
    unusual: list[int] = []
    for at, token in enumerate(tokens):
        if _INTEGER.fullmatch(token):
            found.texts[at] = token
            found.numbers[at] = found.last_numbers[at] = int(token)
        elif (word := _WORD.fullmatch(token)) is not None:
            found.texts[at] = word[1]
        else:
            unusual.append(at)
    if unusual:
        given = {"place": pa.array(unusual), "token": pa.array([tokens[at] for at in unusual], pa.string())}
        for at, row in zip(unusual, run_sql_over(_SELECT, given).to_pylist(), strict=True):
            found.texts[at], found.numbers[at] = row["text"], row["number"]
            found.last_numbers[at] = row["last_number"]
            found.keeps_type[at] = row["keeps_type"]
    return found


def numbers_array(numbers: Sequence[int | None]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The numbers, 0 for None, and the validity mask."""
    return (
        np.array([number or 0 for number in numbers], np.int64),
        np.array([number is not None for number in numbers], np.bool_),
    )


_DEVICE_NAME: Final = "Ascend Hardware|GPU ?[0-9]+"
_DEVICE_PROCESS: Final = late_regex(_DEVICE_NAME)
_ONLY_A_NAME: Final = late_regex(r'\{"name":"([^"\\]*)"\}')
_RUNTIME_CALL: Final = "^(hip|cuda|cu)[A-Z]|^AscendCL@"


class Category(NamedTuple):
    """A category in Kineto's spelling, and the role of its events; None if unknown."""

    name: str | None
    role: str | None


NOTHING: Final = Category(None, None)
KERNEL: Final = Category("kernel", "device")


def category(raw: str, *, is_slice: bool) -> Category:
    """The category for a spelling in the file; `is_slice`: of X and B events."""
    known = _known().get(raw)
    if known is not None:
        return known
    if is_slice and raw.endswith(("_runtime", "_driver")):
        return Category(f"privateuse1_{raw.rpartition('_')[2]}", "runtime")
    return Category(raw, None)


def device_processes(named: Iterable[tuple[str | None, str | None]]) -> frozenset[str]:
    """The pid texts that process_name metadata, as (pid text, args), identifies as devices."""
    found, unusual = set(), []
    for pid, args in named:
        if pid is not None and args is not None:
            if (plain := _ONLY_A_NAME.fullmatch(args)) is None:
                unusual.append({"pid": pid, "args": args})
            elif _DEVICE_PROCESS.fullmatch(plain[1]):
                found.add(pid)
    if unusual:
        is_device = f"regexp_full_match(args ->> 'name', '{_DEVICE_NAME}')"
        given = {name: pa.array([row[name] for row in unusual]) for name in ("pid", "args")}
        found.update(run_sql_over(f"SELECT pid FROM given WHERE {is_device}", given).column(0).to_pylist())
    return frozenset(found)


def infer_on_device(names: pa.Array) -> list[Category]:
    """The categories of uncategorized slices of a device process, by their names."""
    sql = _FIRST_RULE.format(rules=_rules("kernel_rules").body)
    table = run_sql_over(sql, {"place": pa.array(range(len(names))), "name": names})
    activities: Mapping[int, str] = dict(zip(*(table.column(at).to_pylist() for at in range(2)), strict=True))
    return [
        Category(f"gpu_{activities[at]}", "device") if at in activities else KERNEL
        for at in range(len(names))
    ]


def infer_on_host(names: pa.Array) -> list[Category]:
    """The categories of uncategorized slices of other processes, by their names."""
    table = run_sql_over(f"SELECT regexp_matches(name, '{_RUNTIME_CALL}') FROM given", {"name": names})
    return [
        NOTHING
        if not is_call
        else Category("privateuse1_runtime" if name.startswith("AscendCL@") else "cuda_runtime", "runtime")
        for name, is_call in zip(names.to_pylist(), table.column(0).to_pylist(), strict=True)
    ]


_FIRST_RULE: Final = """
SELECT place, arg_min(rule.activity, rule.rule_id)
FROM given
JOIN ({rules}) AS rule ON regexp_matches(given.name, rule.pattern)
WHERE rule.category = 'uncategorized'
GROUP BY place
"""


@cache
def _known() -> Mapping[str, Category]:
    rows: Any = values_list(_rules("categories").body)
    return {row["raw_category"]: Category(row["category"], row["role"]) for row in rows}


def _rules(name: str) -> Contract:
    return Catalog.load().get(name, kind="table")
