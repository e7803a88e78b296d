"""Contracts: tables, views and analyses as `.sql` files declare them, with columns and parameters.

A small module, because most packages need columns without the rest of a contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from tracewarehouse.errors import ParamError, similar_names
from tracewarehouse.exact_text import trace_time_ns
from tracewarehouse.late_regex import late_regex


class Column(Struct, frozen=True):
    """A column of the result; with a unit it is a measure.

    `aggregate` aggregates several rows: `sum`, `min`, `max`, or `a/b`, the ratio of two sums. Without it the
    column cannot be aggregated.
    """

    name: str
    type: str
    doc: str
    unit: str | None = None
    better: str | None = None
    null: bool = False
    signed: bool = False
    aggregate: str | None = None

    @property
    def adds_up(self) -> bool:
        """Whether its sums grow with what their rows cover; shares of a rank sum to 1."""
        return self.aggregate == "sum" and self.unit != "ratio"


Printer = Literal[
    "duration", "timestamp", "plain", "count", "bytes", "ratio", "bandwidth", "flop", "flop_rate"
]


class Unit(NamedTuple):
    """A unit; scaling all times by f scales its columns by f to the power of `time_power`."""

    name: str
    time_power: int
    suffix: str
    printer: Printer


UNITS: dict[str, Unit] = {
    unit.name: unit
    for unit in (
        Unit("ns", 1, "_ns", "duration"),
        Unit("ts", 1, "_ns", "timestamp"),
        Unit("id", 0, "", "plain"),
        Unit("count", 0, "", "count"),
        Unit("bytes", 0, "_bytes", "bytes"),
        Unit("ratio", 0, "", "ratio"),
        Unit("bytes_per_ns", -1, "_bytes_per_ns", "bandwidth"),
        Unit("flop", 0, "_flop", "flop"),
        Unit("flop_per_ns", -1, "_flop_per_ns", "flop_rate"),
        Unit("depth", 0, "", "plain"),
    )
}


_PYTHON_TYPES = {"BIGINT": int, "INTEGER": int, "DOUBLE": float, "VARCHAR": str, "BOOLEAN": bool}
_BITS = {"BIGINT": 63, "INTEGER": 31}
_MOST_DIGITS = 40
_WHOLE_NUMBER = late_regex(r"[+-]?[0-9][0-9_]*(?:\.0+)?")


class Param(Struct, frozen=True):
    """A parameter of a table or analysis; the default None means NULL."""

    name: str
    type: str
    default: object
    doc: str
    unit: str | None = None
    min: int | float | None = None
    max: int | float | None = None
    choices: tuple[object, ...] = ()


def python_type(param: Param) -> Any:
    """The type of the parameter in Python code; a duration may be text like `30us`."""
    type_: Any = _PYTHON_TYPES[param.type]
    if param.unit == "ns":
        type_ = type_ | str
    return type_ if param.default is not None else type_ | None


def bind(params: Iterable[Param], values: Mapping[str, object], owner: str) -> dict[str, object]:
    """Every parameter with its value in the declared type; raises ParamError."""
    by_name = {param.name: param for param in params}
    for name in (name for name in values if name not in by_name):
        if close := similar_names(name, by_name):
            hint = f"did you mean {', '.join(close)}?"
        else:
            hint = f"it takes {', '.join(by_name)}" if by_name else "it takes no parameters"
        raise ParamError(f"{owner} has no parameter {name}", hint)
    return {name: cast(param, values.get(name, param.default)) for name, param in by_name.items()}


def cast(param: Param, value: object) -> object:
    """The value in the parameter's type; if the unit is ns, also text like `30us`. Raises ParamError."""
    if value is None:
        if param.default is not None:
            raise ParamError(f"{param.name}: missing value", f"the default is {param.default}")
        return None
    typed = _typed(param, value)
    _check_range(param, typed)
    return typed


def _typed(param: Param, value: object) -> object:
    typed: object
    if param.type == "BOOLEAN":
        typed = _boolean(value)
    elif param.type == "VARCHAR":
        typed = value if isinstance(value, str) and "\0" not in value else None
    elif param.type == "DOUBLE":
        typed = _double(value)
    else:
        typed = _integer(value, _BITS[param.type], param.unit == "ns")
    if typed is None:
        raise ParamError(f"{param.name}: {value!r} is not {_wanted(param)}", param.doc)
    return typed


def _boolean(value: object) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _double(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if number - number == 0 else None


def _integer(value: object, bits: int, is_ns: bool) -> int | None:
    if isinstance(value, str):
        value = trace_time_ns(value) if is_ns else _whole_number(value.strip())
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(1 << bits) <= value < 1 << bits else None


def _whole_number(text: str) -> int | None:
    if not _WHOLE_NUMBER.fullmatch(text) or len(text) > _MOST_DIGITS:
        return None
    return int(text.partition(".")[0].replace("_", ""))


def _wanted(param: Param) -> str:
    if param.unit == "ns":
        return "a whole number of ns; 30000, 30us, 1ms and 2s are understood"
    return {
        "BIGINT": "a 64-bit integer",
        "INTEGER": "a 32-bit integer",
        "DOUBLE": "a finite number",
        "VARCHAR": "a string",
        "BOOLEAN": "true or false",
    }[param.type]


def _check_range(param: Param, value: object) -> None:
    if param.choices and value not in param.choices:
        choices = ", ".join(map(str, param.choices))
        raise ParamError(f"{param.name}: {value!r} is not one of its choices", f"choose one of {choices}")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if param.min is not None and value < param.min:
            raise ParamError(f"{param.name}: {value} is too small", f"the minimum is {param.min}")
        if param.max is not None and value > param.max:
            raise ParamError(f"{param.name}: {value} is too large", f"the maximum is {param.max}")


Kind = Literal["table", "view", "analysis", "format"]
Scope = Literal["rank", "run", "fleet"]
Per = Literal["step", "window", "rank"]

FOLDERS: dict[str, Kind] = {
    "tables": "table",
    "rules": "table",
    "derived": "table",
    "views": "view",
    "analyses": "analysis",
    "formats": "format",
}
NEEDS = (
    "gpu", "launches", "shapes", "stacks", "modules", "memory_events", "memory_timeline", "collective_args",
    "collectives", "message_sizes", "counters", "kernel_counters", "gpu_metrics", "device_properties", "host",
    "snapshot", "flight_records", "kernel_metrics", "execution_nodes", "cpu_only",
)  # fmt: skip
# Needs that `tw derive` meets: each names a derivation and its last table.
DERIVED_NEEDS = ("critical_path", "wait_attribution")
# Derivations, each with its last table.
DERIVATIONS = {**{name: name for name in DERIVED_NEEDS}, "graphs": "graph_nodes"}
COUNTED_NEEDS = late_regex(r"(steps|ranks)>=[1-9]\d*")
# Tables that are built from published versions on read.
RUN_TABLES = ("runs", "ranks", "rank_sources", "recording_reasons")

# Begins the name of a table of recorded results, before that of the analysis.
RECORDED_TABLE = "recorded_"
# Of the findings of all rules: no analysis has them.
FINDINGS = "recorded_findings"
BY_STEP = "by_step"  # the parameter of analyses with optional steps

FILE_NAME = late_regex(r"([a-z][a-z0-9_]*)\.v([1-9]\d*)\.sql")


class Ref(NamedTuple):
    """A name and a version, `kernels@1`."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class Change(Struct, frozen=True):
    """The change of a version. A compatible one only adds nullable columns to the previous version."""

    version: int
    text: str
    compatible: bool = False


class RawTable(Struct, frozen=True):
    """A table in the files of a format: its columns with their types, of which the required ones come first.

    A column `a|b` is called `a` in the SELECT, and `a` or else `b` in the file.
    A file that lacks a required column lacks the table, which then has no rows; other columns are null.
    Columns that are not named become arguments by the name in the file, and those that are `kept`, too.
    For each of its `keys`, `NAME_by_KEY` has the first row of each value.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    required: int
    kept: tuple[str, ...]
    keys: tuple[str, ...]


class Contract(Struct, frozen=True, kw_only=True):
    """A table, view or analysis: its inputs, its columns, and its SELECT.

    An analysis of scope `fleet` compares runs: it reads tables of recorded results.

    That of a format reads `raw_tables` of a file, and returns columns of `activities`.
    """

    kind: Kind
    scope: Scope = "rank"
    name: str
    version: int
    group: str | None = None
    summary: str
    requires: tuple[Ref, ...] = ()
    needs: tuple[str, ...] = ()
    grain: tuple[str, ...] = ()
    # What sums of an analysis without `step` in its grain cover: the complete steps of a rank (`step`), all
    # that it recorded (`window`), or facts that do not grow with the length of the recording (`rank`).
    per: Per | None = None
    order: tuple[str, ...] = ()
    params: tuple[Param, ...] = ()
    columns: tuple[Column, ...] = ()
    changes: tuple[Change, ...]
    deprecated: str | None = None
    transient: bool = False
    derived: str | None = None
    definition: int | None = None
    body: str = ""
    body_line: int = 0
    source: str
    # The SELECT returns rows in `order` by itself: they are checked, and sorted only if they are not.
    in_order: bool = False
    # Tables of later releases without which the analysis still has rows.
    optional: tuple[str, ...] = ()
    # Reasons of `recording` for which a rank is not checked, and those that lower the confidence.
    excluded_by: tuple[str, ...] = ()
    limited_by: tuple[str, ...] = ()
    # Of a finding rule with complete steps and without limits; None: medium.
    confidence: str | None = None
    # Why there may be no rows although the trace has what the analysis needs.
    empty: str | None = None
    raw_tables: tuple[RawTable, ...] = ()

    @property
    def is_summary(self) -> bool:
        """Whether no row is about a single event, time, or point of a curve.

        Such rows are different in each run: they have no history. Nor have those that compare runs.
        """
        if self.scope == "fleet":
            return False
        units = {column.name: column.unit for column in self.columns}
        keys = [name for name in self.grain if name != "run_id"]
        return not any(key == "position" or key.endswith("_id") or units.get(key) == "ts" for key in keys)

    @property
    def covers(self) -> Per:
        """What sums over its rows cover: over rows of all steps, all that a rank recorded."""
        return self.per or ("window" if "step" in self.grain else "rank")

    @property
    def ref(self) -> Ref:
        """Its name and version."""
        return Ref(self.name, self.version)

    @property
    def folder(self) -> str:
        """The folder under `sql/` that holds it: tables, rules, derived, views, analyses or formats."""
        return PurePath(self.source).parts[1]

    @property
    def compatible_since(self) -> int:
        """The oldest version whose consumers can read this one: later ones only add nullable columns."""
        since = self.version
        for change in self.changes:
            if not change.compatible:
                break
            since = change.version - 1
        return since

    @property
    def filled_by_program(self) -> bool:
        """True for a table without a SELECT."""
        return not self.body

    @property
    def is_constant(self) -> bool:
        """True for a table of rules: it reads no table, so it is the same for every run."""
        return self.kind == "table" and bool(self.body) and not self.requires

    @property
    def is_built(self) -> bool:
        """True for a table that is built from published versions on read."""
        return self.kind == "table" and self.name in RUN_TABLES

    @property
    def is_stored(self) -> bool:
        """True for a table whose rows are in Parquet files of the warehouse."""
        is_elsewhere = self.transient or self.is_built or self.is_constant or self.is_recorded
        return self.kind == "table" and not is_elsewhere

    @property
    def is_recorded(self) -> bool:
        """True for a table of recorded results."""
        return self.kind == "table" and self.name.startswith(RECORDED_TABLE)

    @property
    def steps_optional(self) -> bool:
        """Whether an analysis has rows per step only if a parameter requests it."""
        return any(param.name == BY_STEP for param in self.params)


def computed_contract(name: str, **given: Any) -> Contract:
    """The contract of rows that a comparison computes from results: they have no file in `sql/`."""
    changes = (Change(1, "First version."),)
    return Contract(kind="analysis", scope="run", name=name, version=1, changes=changes, source=name, **given)


# The columns of a stored table in its files, which hold `args` of `events` as templates and numbers.
# A template is a format of printf: `%3$d` prints the third of `PRINTED`, and `%%` a percent sign.
# Numbers that equal another column are not stored twice; those that never change are part of the template.
ARGS: Final = "args"
TEMPLATE: Final = "args_template"
# Columns that arguments often repeat, and columns for other numbers.
REPEATED: Final = (
    "correlation", "external_id", "stream", "device", "bytes", "sequence_number", "forward_thread",
    "python_id", "python_parent_id", "module_id",
)  # fmt: skip
NUMBERS: Final = tuple(f"args_{number}" for number in range(1, 13))
PRINTED: Final = (*REPEATED, *NUMBERS)
ARGS_SQL: Final = f"printf({TEMPLATE}, {', '.join(f'coalesce({name}, 0)' for name in PRINTED)})"


def has_template(contract: Contract) -> bool:
    """Whether files of the table have templates in the place of `args`."""
    return contract.name == "events" and any(column.name == ARGS for column in contract.columns)


def file_columns(contract: Contract) -> tuple[Column, ...]:
    """The columns in the files of a table."""
    if not has_template(contract):
        return contract.columns
    numbers = [Column(name, "BIGINT", unit="id", null=True, doc="Number in arguments.") for name in NUMBERS]
    columns = (Column(TEMPLATE, "VARCHAR", null=True, doc="Template of the arguments."), *numbers)
    index = next(index for index, column in enumerate(contract.columns) if column.name == ARGS)
    return (*contract.columns[:index], *columns, *contract.columns[index + 1 :])
