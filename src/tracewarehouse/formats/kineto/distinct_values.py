"""The meaning of distinct values of a file, evaluated once per value: ids, categories and roles.

The category of an event follows from its spelling in the file, else from process and name: slices without a
category are kernels, memcpys or memsets by the rules for uncategorized names if their process is a device,
and runtime calls if they are named like one. Other vendors name runtime categories after the device
(musa_runtime, gcu_driver).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.duck import engine

_local = threading.local()


def evaluate(sql: str, columns: Mapping[str, pa.Array]) -> pa.Table:
    """The result of a SELECT over the table `given` with these columns; one connection per thread."""
    con = getattr(_local, "connection", None)
    if con is None:
        con = _local.connection = engine.connect(threads=1)
    con.register("given", pa.table(dict(columns)))
    try:
        return con.sql(sql).to_arrow_table()
    finally:
        con.unregister("given")


_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
_WORD: Final = re.compile(r'"([^"\\0-9]*)"')
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


@dataclass
class Tokens:
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
        _read_unusual(tokens, unusual, found)
    return found


def _read_unusual(tokens: Sequence[str], places: Sequence[int], found: Tokens) -> None:
    given = {"place": pa.array(places), "token": pa.array([tokens[at] for at in places], pa.string())}
    for at, row in zip(places, evaluate(_SELECT, given).to_pylist(), strict=True):
        found.texts[at], found.numbers[at] = row["text"], row["number"]
        found.last_numbers[at] = row["last_number"]
        found.keeps_type[at] = row["keeps_type"]


def numbers_array(numbers: Sequence[int | None]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The numbers, 0 for None, and the validity mask."""
    return (
        np.array([number or 0 for number in numbers], np.int64),
        np.array([number is not None for number in numbers], np.bool_),
    )


_DEVICE_PROCESS: Final = "^(Ascend Hardware|GPU ?[0-9]+)$"
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
    rows = [(pid, args) for pid, args in named if pid is not None and args is not None]
    if not rows:
        return frozenset()
    given = {"pid": pa.array([pid for pid, _ in rows]), "args": pa.array([args for _, args in rows])}
    found = evaluate(
        f"SELECT pid FROM given WHERE regexp_matches(args ->> 'name', '{_DEVICE_PROCESS}')", given
    )
    return frozenset(found.column("pid").to_pylist())


def infer_on_device(names: pa.Array) -> list[Category]:
    """The categories of uncategorized slices of a device process, by their names."""
    rules = _device_rules()
    table = evaluate(_FIRST_RULE.format(rules=rules), {"place": pa.array(range(len(names))), "name": names})
    activities: Mapping[int, str] = dict(zip(*(table.column(at).to_pylist() for at in range(2)), strict=True))
    return [
        Category(f"gpu_{activities[at]}", "device") if at in activities else KERNEL
        for at in range(len(names))
    ]


def infer_on_host(names: pa.Array) -> list[Category]:
    """The categories of uncategorized slices of other processes, by their names."""
    table = evaluate(f"SELECT regexp_matches(name, '{_RUNTIME_CALL}') FROM given", {"name": names})
    return [
        NOTHING if not is_call else Category(_runtime(name), "runtime")
        for name, is_call in zip(names.to_pylist(), table.column(0).to_pylist(), strict=True)
    ]


def _runtime(name: str) -> str:
    return "privateuse1_runtime" if name.startswith("AscendCL@") else "cuda_runtime"


_FIRST_RULE: Final = """
SELECT place, arg_min(rule.activity, rule.rule_id)
FROM given
JOIN ({rules}) AS rule ON regexp_matches(given.name, rule.pattern)
WHERE rule.category = 'uncategorized'
GROUP BY place
"""


@cache
def _known() -> Mapping[str, Category]:
    table = evaluate(_select("categories"), {"unused": pa.array([0])})
    rows = zip(
        *(table.column(name).to_pylist() for name in ("raw_category", "category", "role")), strict=True
    )
    return {raw: Category(name, role) for raw, name, role in rows}


@cache
def _device_rules() -> str:
    return _select("kernel_rules")


def _select(name: str) -> str:
    contract = Catalog.load().get(name, kind="table")
    return engine.sql_with_params(contract, {})
