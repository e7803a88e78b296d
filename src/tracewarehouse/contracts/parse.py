"""Parsing a `.sql` file into a contract, with all checks: front matter, shared bases, and SQL.

A contract with `like = "findings_base@1"` inherits the base's `grain`, `order`, parameters and columns; its
keys replace those of the base, also single ones (`share = { doc = "…" }`), and `count = {}` places the
columns that it adds before `count`. The SELECT of the base reads the contract's SELECT as `base_input`. A
base may be like another one in the same way. The result is a contract
like any other: hashes, style checks and documentation cover what is inherited.

The grammar: a `-- /// tw` line, TOML in comments, a `-- ///` line, then one SELECT. A table that the
program fills has no SELECT; if a builder or a format fills it for each rank, it has a `definition` instead:
a number that is raised when the same trace results in other rows.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from keyword import iskeyword
from pathlib import PurePath, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from tracewarehouse.contracts.contract import (
    COUNTED_NEEDS,
    DERIVATIONS,
    DERIVED_NEEDS,
    FILE_NAME,
    FOLDERS,
    NEEDS,
    RUN_TABLES,
    UNITS,
    Change,
    Column,
    Contract,
    Kind,
    Param,
    Per,
    RawTable,
    Ref,
    Scope,
    cast,
)
from tracewarehouse.contracts.sql_tokens import quote_text, token_texts, tokens
from tracewarehouse.errors import ContractError, ParamError
from tracewarehouse.late_regex import late_regex

NAME = late_regex(r"[a-z][a-z0-9_]*")
UnitName = Literal[
    "ns", "ts", "id", "count", "bytes", "ratio", "bytes_per_ns", "flop", "flop_per_ns", "depth"
]
_Text = Annotated[str, Meta(pattern=r"\S")]
_Shape = TypeVar("_Shape")
# Messages of msgspec for a wrong key, and for a wrong value with its path below `$`.
_KEY = late_regex(r"Object (missing required|contains unknown) field `(\w+)`")
_PATH = late_regex(r" - at `\$\.(\w+)[^`]*`$")


class ColumnEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of `[columns]`."""

    type: str
    doc: _Text
    unit: UnitName | None = None
    better: Literal["lower", "higher"] | None = None
    null: bool = False
    signed: bool = False
    aggregate: str | None = None


class ParamEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of `[params]`."""

    type: Literal["BIGINT", "INTEGER", "DOUBLE", "VARCHAR", "BOOLEAN"]
    default: str | int | float | bool | None = None
    doc: _Text
    unit: UnitName | None = None
    min: int | float | None = None
    max: int | float | None = None
    choices: tuple[str | int | float | bool, ...] = ()


class ChangeEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of `[changes]`; plain text is short for an incompatible change."""

    text: _Text
    compatible: bool = False


class Head(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The entire block; entries of sections are converted one by one, so that errors name them."""

    kind: Kind
    scope: Scope = "rank"
    name: str
    version: int
    summary: str
    requires: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    excluded_by: tuple[str, ...] = ()
    limited_by: tuple[str, ...] = ()
    confidence: Literal["low", "medium", "high"] | None = None
    grain: tuple[str, ...]
    per: Per | None = None
    order: tuple[str, ...] = ()
    in_order: bool = False
    empty: _Text | None = None
    deprecated: _Text | None = None
    transient: bool = False
    derived: _Text | None = None
    definition: Annotated[int, Meta(ge=1)] | None = None
    params: dict[str, Any] = {}
    columns: dict[str, Any]
    changes: dict[str, Any]


class FormatHead(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The entire block of a format."""

    kind: Kind
    name: str
    version: int
    summary: str
    params: dict[str, Any] = {}
    tables: dict[str, Any]
    changes: dict[str, Any]


class TableEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A section `[tables.NAME]`: columns as `name TYPE`, where BIGINT may be left out.

    `[tables."A, B"]` declares tables with the same columns.
    """

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


class Place(Struct, frozen=True):
    """The file and lines of the block, so that errors can name the line."""

    source: str
    lines: Sequence[str]

    def error(self, message: str, hint: str, key: str = "", section: str = "") -> ContractError:
        """An error about a key, optionally in a section."""
        return ContractError(f"{self.source}:{self._line(key, section)}: {message}", hint)

    def convert(self, value: object, shape: type[_Shape], name: str = "", section: str = "") -> _Shape:
        """The value as a Struct; `name` is its key in the section. Raises ContractError with the line."""
        try:
            return msgspec.convert(value, shape)
        except msgspec.ValidationError as error:
            raise self._invalid(str(error), shape, name, section) from None

    def _invalid(self, message: str, shape: type, name: str, section: str) -> ContractError:
        label = f"{section}.{name}." if section else ""
        if wrong := _KEY.match(message):
            is_missing, key = wrong[1].startswith("missing"), wrong[2]
            known = ", ".join(field.name for field in msgspec.structs.fields(shape))
            message = f"`{label}{key}` is missing" if is_missing else f"unknown key `{label}{key}`"
            line = name or ("" if is_missing else key)
            hint = f"add {key} = …" if is_missing else f"known are {known}"
            return self.error(message, hint, line, section)
        path = _PATH.search(message)
        if path is None:
            return self.error(
                f"`{label.rstrip('.')}` is not a table", "write { key = value, … }", name, section
            )
        key, reason = path[1], message[: path.start()]
        hint = _hint(key, get_type_hints(shape)[key])
        reason = reason.replace("`array`", "`list`").replace(r"`str` matching regex '\\S'", "a text")
        return self.error(f"`{label}{key}`: {reason}", hint, name or key, section)

    def _line(self, key: str, section: str) -> int:
        current = ""
        for number, line in enumerate(self.lines, start=2):
            if line.startswith("["):
                current = line.strip("[] \t\r")
                if current == (section or key) and not (section and key):
                    return number
            elif current == section and key and re.match(rf'"?{re.escape(key)}"?\s*=', line):
                return number
        return 1


def _hint(key: str, annotation: Any) -> str:
    """A hint what to write for a key of this type."""
    if choices := _choices(annotation):
        return f"write one of {', '.join(choices)}"
    type_name = str(annotation)
    for word, value in (("bool", "true or false"), ("tuple", '["…"]'), ("int", "1"), ("str", '"text"')):
        if word in type_name:
            return f"write {key} = {value}"
    return f"correct {key}"


def _choices(annotation: Any) -> tuple[str, ...]:
    """The values of a Literal, also if it is optional."""
    nested = [_choices(type_) for type_ in get_args(annotation) if not isinstance(type_, str)]
    return tuple(type_ for type_ in get_args(annotation) if isinstance(type_, str)) or sum(nested, ())


def entries(found: Mapping[str, Any], shape: type[_Shape], place: Place, section: str) -> dict[str, _Shape]:
    """The entries of a section, each as its Struct."""
    for name in found:
        if not NAME.fullmatch(name):
            raise place.error(f"{section}: `{name}` is not snake case", "rename it", name, section)
    return {name: place.convert(entry, shape, name, section) for name, entry in found.items()}


def distinct(names: tuple[str, ...], key: str, place: Place) -> tuple[str, ...]:
    """The names unchanged; raises ContractError if one occurs twice."""
    if len(set(names)) < len(names):
        raise place.error(f"{key} names something twice", "name each once", key)
    return names


def split(text: str, path: PurePath) -> tuple[dict[str, Any], Place, str, int]:
    """The parsed block, its place, the SELECT below it, and the line of the SELECT. Raises ContractError."""
    lines = text.split("\n")
    source = path.as_posix()
    if lines[0].rstrip() != "-- /// tw":
        raise ContractError(f"{source}:1: no contract", "begin the file with the line `-- /// tw`")
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() == "-- ///"), None)
    if end is None:
        raise ContractError(f"{source}:1: the block has no end", "close it with the line `-- ///`")
    for number, line in enumerate(lines[1:end], start=2):
        if not line.startswith("-- ") and line.rstrip() != "--":
            raise ContractError(
                f"{source}:{number}: not a comment", "begin each line of the block with `-- `"
            )
    place = Place(source, [line[3:] for line in lines[1:end]])
    body_lines = lines[end + 1 :]
    has_body = any(line.strip() and not line.lstrip().startswith("--") for line in body_lines)
    return _toml(place), place, "\n".join(body_lines).rstrip() if has_body else "", end + 2


def _toml(place: Place) -> dict[str, Any]:
    try:
        return tomllib.loads("\n".join(place.lines))
    except tomllib.TOMLDecodeError as error:
        position = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = min(int(position[1]) if position else len(place.lines), len(place.lines)) + 1
        reason = re.sub(r" \(at .*\)", "", str(error))
        raise ContractError(
            f"{place.source}:{line}: not TOML: {reason}",
            'write `key = "text"`, `key = 1` or `key = ["a", "b"]`',
        ) from None


FOLDER = "bases"
INPUT = "base_input"
KEYS = ("like", "summary", "requires", "excluded_by", "limited_by", "grain", "order", "params", "columns")
# Lists of a base that a contract replaces, and that the SELECT reads by `$` and their name.
_REASONS = ("excluded_by", "limited_by")
_MOST_BASES = 4
_REF = late_regex(r"([a-z][a-z0-9_]*)@([1-9]\d*)")

ReadBase = Callable[[PurePath], str]  # the text of a base by its path, `sql/bases/<name>.v<version>.sql`


def inherit(
    head: Mapping[str, Any], body: str, place: Place, read: ReadBase | None, above: int = 0
) -> tuple[dict[str, Any], str, int]:
    """The front matter and SELECT of a contract, merged with those of the base that `like` names.

    Also the number of lines above the contract's own SELECT. Raises ContractError.
    """
    base, sql = _base(head["like"], place, read)
    if above == _MOST_BASES:
        raise place.error("bases are like each other", f"at most {_MOST_BASES} in a row", "like")
    own_keys = {key: value for key, value in head.items() if key != "like"}
    merged: dict[str, Any] = {key: base[key] for key in ("grain", "order", *_REASONS) if key in base}
    merged.update(own_keys)
    merged["requires"] = [*own_keys.get("requires", ()), *base.get("requires", ())]
    for key in ("params", "columns"):
        if key in base or key in own_keys:
            merged[key] = _merge(base.get(key, {}), own_keys.get(key, {}))
    if not body:
        raise place.error("the SELECT is missing", f"write the SELECT that the base reads as {INPUT}")
    body, above = f"WITH {INPUT} AS (\n{body}\n)\n{sql}", above + 1
    if "like" in base:
        return inherit({**merged, "like": base["like"]}, body, place, read, above)
    return merged, body, above


def _base(ref: object, place: Place, read: ReadBase | None) -> tuple[dict[str, Any], str]:
    match = _REF.fullmatch(ref) if isinstance(ref, str) else None
    if match is None:
        raise place.error(f"like {ref!r} is not a reference to a base", 'write "name@version"', "like")
    path = PurePosixPath("sql", FOLDER, f"{match[1]}.v{match[2]}.sql")
    try:
        text = read(path) if read else None
    except FileNotFoundError:
        text = None
    if text is None:
        raise place.error(f"base {ref} does not exist", f"create {path}, or name another base", "like")
    head, base_place, body, _ = split(text, path)
    for key in head:
        if key not in KEYS:
            raise base_place.error(f"unknown key `{key}`", f"known are {', '.join(KEYS)}", key)
    if INPUT not in body:
        raise ContractError(f"{path}:1: the base does not read {INPUT}", f"SELECT … FROM {INPUT}")
    return head, body


def _merge(base: Any, own: Any) -> Any:
    """The entries of a section in the order of the base, then the contract's; the contract's keys win.

    An empty entry of the contract, `count = {}`, places those above it before that of the base.
    """
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own or base
    added = list(own)
    order: list[str] = []
    for name in base:
        if own.get(name) == {} and name in added:
            index = added.index(name)
            order, added = [*order, *added[:index]], added[index:]
        order.append(name)
    return {name: _entry(base.get(name), own.get(name)) for name in dict.fromkeys([*order, *added])}


def _entry(base: Any, own: Any) -> Any:
    if isinstance(base, dict) and isinstance(own, dict):
        return base | own
    return base if own is None else own


SHARED_OPTIONS = (
    "run", "rank", "top", "format", "output", "json", "debug", "warehouse", "help",
    "by_rank", "all_steps", "measure", "verify", "where", "sort", "limit", "columns",
)  # fmt: skip
RUN_ARGUMENTS = ("self", "name", "version", "params")
_NO_GOAL = (None, "id", "ts", "depth")
_AGGREGATES = ("sum", "min", "max")
_FOLDED_TYPES = ("BIGINT", "INTEGER", "DOUBLE")
_SCALAR = (
    r"(?:BIGINT|INTEGER|SMALLINT|TINYINT|UBIGINT|HUGEINT|DOUBLE|BOOLEAN|VARCHAR|JSON|BLOB|TIMESTAMP"
    r"|DECIMAL\(\d+,\d+\))"
)
RAW_TYPES = ("BIGINT", "DOUBLE", "VARCHAR", "BLOB")
_TYPE = late_regex(rf"(?:{_SCALAR}|MAP\({_SCALAR}, {_SCALAR}\))(?:\[\])*")


def parse(text: str, path: PurePath, read_base: ReadBase | None = None) -> Contract:
    """The contract of a `.sql` file; raises ContractError with file, line and remedy."""
    head, place, body, body_line = split(text, path)
    if head.get("kind") == "format":
        return _format(head, path, place, body, body_line)
    if "like" in head:
        head, body, above = inherit(head, body, place, read_base)
        body_line -= above
    block = place.convert(head, Head)
    group = _group(block, path, place)
    columns = _columns(block.columns, place)
    for key in _REASONS:
        listed = ", ".join(map(quote_text, distinct(getattr(block, key), key, place)))
        body = body.replace(f"${key}", f"[{listed}]::VARCHAR[]")
    body = body.replace("$confidence", quote_text(block.confidence or "medium"))
    body = body.replace("$rule", quote_text(block.name))
    checked: dict[str, Any] = {
        "group": group,
        "summary": _summary(block, place),
        "requires": _requires(block, place),
        "needs": _needs(block, place),
        "grain": _column_list(block.grain, "grain", columns, place),
        "order": _column_list(block.order, "order", columns, place),
        "params": _params(block, place),
        "columns": columns,
        "changes": _changes(block, place),
        "optional": distinct(block.optional, "optional", place),
    }
    fields = msgspec.structs.asdict(block) | checked
    contract = Contract(**fields, body=body, body_line=body_line, source=path.as_posix())
    _check_kind(contract, place)
    _check_shape(contract, place)
    _check_body(contract, place)
    return contract


def _format(head: Mapping[str, Any], path: PurePath, place: Place, body: str, body_line: int) -> Contract:
    block = place.convert(head, FormatHead)
    _group(block, path, place)
    contract = Contract(
        kind=block.kind,
        name=block.name,
        version=block.version,
        summary=_summary(block, place),
        params=_params(block, place),
        changes=_changes(block, place),
        body=body,
        body_line=body_line,
        source=path.as_posix(),
        raw_tables=tuple(_raw_tables(block.tables, place)),
    )
    _check_select(contract, place)
    return contract


def _raw_tables(tables: Mapping[str, object], place: Place) -> Iterator[RawTable]:
    for names, found in tables.items():
        entry = place.convert(found, TableEntry, names, "tables")
        pairs = [text.partition(" ")[::2] for text in (*entry.required, *entry.optional)]
        columns = tuple((column, type_ or "BIGINT") for column, type_ in pairs)
        for column, type_ in columns:
            if type_ not in RAW_TYPES:
                message = f"type {type_!r} of `{names}.{column}` is not known"
                raise place.error(message, f"write one of {', '.join(RAW_TYPES)}", "", f"tables.{names}")
        for name in names.split(", "):
            yield RawTable(name, columns, len(entry.required), entry.kept, entry.keys)


def _group(block: Head | FormatHead, path: PurePath, place: Place) -> str | None:
    """The group of an analysis; raises ContractError if block and path disagree."""
    match = FILE_NAME.fullmatch(path.name)
    folders = path.parts[:-1]
    group = folders[-1] if block.kind == "analysis" and folders else None
    folder = folders[-2:-1] if group else folders[-1:]
    if match is None or not folder or FOLDERS.get(folder[0]) != block.kind:
        message = f"path and kind `{block.kind}` disagree"
        raise place.error(message, f"the path is {_path_of(block.kind)}", "kind")
    if group is not None and not NAME.fullmatch(group):
        raise place.error(f"group `{group}` is not snake case", "rename the folder", "kind")
    for key, expected in (("name", match[1]), ("version", int(match[2]))):
        if (written := getattr(block, key)) != expected:
            message = f"{key} {written!r} and file name {path.name} disagree"
            raise place.error(message, f"write {expected!r} or rename", key)
    return group


def _path_of(kind: str) -> str:
    folder = {
        "table": "(tables|rules|derived)",
        "view": "views",
        "analysis": "analyses/<group>",
        "format": "formats",
    }[kind]
    return f"sql/{folder}/<name>.v<version>.sql, in snake case"


def _summary(block: Head | FormatHead, place: Place) -> str:
    if not block.summary.endswith(".") or "\n" in block.summary:
        raise place.error("the summary is not one sentence", "one line that ends with a full stop", "summary")
    return block.summary


def _requires(block: Head, place: Place) -> tuple[Ref, ...]:
    refs = []
    for name in distinct(block.requires, "requires", place):
        match = _REF.fullmatch(name)
        if match is None:
            raise place.error(f"requires {name!r} has no version", 'write "name@version"', "requires")
        refs.append(Ref(match[1], int(match[2])))
    if len({ref.name for ref in refs}) < len(refs):
        raise place.error("requires names two versions of one table", "keep one of them", "requires")
    return tuple(refs)


def _needs(block: Head, place: Place) -> tuple[str, ...]:
    for need in distinct(block.needs, "needs", place):
        if need not in (*NEEDS, *DERIVED_NEEDS) and not COUNTED_NEEDS.fullmatch(need):
            known_needs = f"{', '.join((*NEEDS, *DERIVED_NEEDS))}, steps>=N, ranks>=N"
            raise place.error(f"need {need!r} is not known", f"known are {known_needs}", "needs")
    return block.needs


def _column_list(
    names: tuple[str, ...], key: str, columns: Sequence[Column], place: Place
) -> tuple[str, ...]:
    column_names = [column.name for column in columns]
    for name in distinct(names, key, place):
        if name.removeprefix("-" if key == "order" else "") not in column_names:
            hint = f"known are {', '.join(column_names)}"
            raise place.error(f"{key} names `{name}`, which is not a column", hint, key)
    if key == "grain" and not names:
        raise place.error("the grain is empty", "name the columns that identify a row", key)
    return names


def _changes(block: Head | FormatHead, place: Place) -> tuple[Change, ...]:
    numbers = [str(number) for number in range(block.version, 0, -1)]
    if list(block.changes) != numbers:
        hint = f"one line each for {', '.join(numbers)}, in this order"
        raise place.error("[changes] is not one line per version, newest first", hint, "", "changes")
    return tuple(_change(number, entry, place) for number, entry in block.changes.items())


def _change(number: str, entry: object, place: Place) -> Change:
    fields = entry if isinstance(entry, dict) else {"text": entry}
    change = place.convert(fields, ChangeEntry, number, "changes")
    if change.compatible and number == "1":
        hint = "leave `compatible` out: there is no version before it"
        raise place.error("change 1 cannot be compatible", hint, number, "changes")
    return Change(int(number), change.text, change.compatible)


def _params(block: Head | FormatHead, place: Place) -> tuple[Param, ...]:
    parsed = entries(block.params, ParamEntry, place, "params")
    return tuple(_param(name, entry, place) for name, entry in parsed.items())


def _param(name: str, entry: ParamEntry, place: Place) -> Param:
    if name in (*SHARED_OPTIONS, *RUN_ARGUMENTS) or iskeyword(name):
        raise place.error(f"parameter `{name}` is a shared option or argument", "rename it", name, "params")
    _check_unit(name, entry, place, "params")
    if entry.type in ("VARCHAR", "BOOLEAN") and (entry.min, entry.max) != (None, None):
        raise place.error(f"`{name}` has limits", "only numbers have limits", name, "params")
    param = Param(name, **msgspec.structs.asdict(entry))
    try:
        for value in (param.default, *param.choices):
            if value is not None and cast(param, value) != value:
                raise ParamError(f"{name}: {value!r} is not of type {param.type}")
    except ParamError as error:
        raise place.error(error.message, "write a default that the contract allows", name, "params") from None
    return param


def _check_kind(contract: Contract, place: Place) -> None:
    """Checks keys that only some kinds may have."""
    kind, name = contract.kind, contract.name
    for key, entries_text in (("optional", "optional tables"), ("needs", "needs")):
        if getattr(contract, key) and kind != "analysis":
            raise place.error(
                f"a {kind} has no {entries_text}", "move them to the analyses that read it", key
            )
    if contract.params and kind == "view":
        raise place.error("a view has no parameters", "move them to the analyses that read it", "", "params")
    if contract.transient and kind != "table":
        raise place.error("an analysis or view is not transient", "only tables are", "transient")
    if contract.derived and kind != "table":
        raise place.error(f"a {kind} is not derived", "only tables are", "derived")
    if contract.derived and contract.derived not in DERIVATIONS:
        hint = f"known are {', '.join(DERIVATIONS)}"
        raise place.error(f"derivation {contract.derived!r} is not known", hint, "derived")
    if (contract.scope == "run") != (name in RUN_TABLES) and kind == "table":
        scope = "run" if name in RUN_TABLES else "rank"
        raise place.error(f"scope of {kind} {name} is {contract.scope}", f'write scope = "{scope}"', "scope")
    if contract.scope == "fleet" and kind != "analysis":
        raise place.error(f"a {kind} does not compare runs", "only an analysis does", "scope")
    if contract.ref.name in {ref.name for ref in contract.requires}:
        raise place.error(f"{name} requires itself", "read what it is made of", "requires")


def _check_shape(contract: Contract, place: Place) -> None:
    """Checks the key columns, which every relation has."""
    if contract.is_constant:
        return  # it is independent of runs
    keys: dict[str, str] = {}
    if contract.scope == "fleet":
        pass  # its rows are of several runs
    elif contract.kind != "table" and contract.scope == "run" or contract.name == "runs":
        keys = {"run_id": "VARCHAR"}
    else:
        keys = {"run_id": "VARCHAR", "rank": "INTEGER"}
    first_columns = contract.columns[: len(keys)]
    if [(column.name, column.type) for column in first_columns] != list(keys.items()):
        expected = ", ".join(f"{name} {type_}" for name, type_ in keys.items())
        raise place.error("the key columns do not come first", f"begin with {expected}", "", "columns")
    _check_in_order(contract, place)
    if contract.grain[: len(keys)] != tuple(keys):
        raise place.error("the grain lacks key columns", f"begin with {', '.join(keys)}", "grain")


def _check_in_order(contract: Contract, place: Place) -> None:
    """Rows that are only checked for their order have ascending keys without nulls."""
    if not contract.in_order:
        return
    keys = {*contract.order, *contract.grain}
    nullable = {column.name for column in contract.columns if column.null}
    if contract.kind != "analysis" or keys & nullable or any(key.startswith("-") for key in keys):
        hint = "only analyses whose order and grain are ascending and never null can be"
        raise place.error(f"{contract.ref} cannot be declared in_order", hint, "in_order")


def _check_body(contract: Contract, place: Place) -> None:
    if not contract.body:
        if contract.kind != "table":
            raise place.error("there is no SELECT", "write it under the block")
        if contract.requires and not (contract.derived or contract.transient):
            raise place.error("without a SELECT nothing is required", "remove it", "requires")
        # A stored table of a rank has a SELECT, or the number of a builder's or format's definition.
        elsewhere = contract.scope == "run" or contract.transient or contract.derived or contract.is_recorded
        if contract.definition is None and not elsewhere:
            raise place.error("the table has neither SELECT nor definition", "write definition = 1")
        return
    if contract.definition is not None:
        raise place.error("the SELECT is the definition", "remove the number", "definition")
    if contract.kind != "table" and not contract.requires:
        raise place.error("nothing is required", 'name what the SELECT reads: ["kernels@1"]')
    _check_select(contract, place)


def _check_select(contract: Contract, place: Place) -> None:
    texts = token_texts(contract.body)
    if not texts or texts[0].upper() not in ("WITH", "SELECT") or ";" in texts:
        raise ContractError(
            f"{place.source}:{contract.body_line}: the body is not one SELECT",
            "one statement that begins with WITH or SELECT, without a semicolon",
        )
    _check_param_use(contract, texts, place)


def _check_param_use(contract: Contract, texts: Sequence[str], place: Place) -> None:
    distinct = set(texts)
    declared = {param.name for param in contract.params}
    used = {text[1:] for text in distinct if len(text) > 1 and text[0] == "$"}
    for name in sorted(used - declared):
        raise _in_body(contract, f"${name}", f"${name} is not declared", "add it to [params]")
    for name in sorted(declared - used):
        raise place.error(
            f"parameter `{name}` is not used", f"write ${name} in the body, or drop it", name, "params"
        )
    for mark in ("$", "?"):
        if mark in distinct:
            hint = "write $name and declare it in [params]"
            raise _in_body(contract, mark, "a parameter has no name", hint)
    words = {text.strip('"').lower() for text in distinct} | {column.name for column in contract.columns}
    for name in sorted(declared & words if contract.kind != "format" else ()):
        hint = "rename the parameter: in a macro it would capture the column"
        raise place.error(f"parameter `{name}` is also a column or alias", hint, name, "params")


def _in_body(contract: Contract, text: str, message: str, hint: str) -> ContractError:
    line = next(token.line for token in tokens(contract.body, contract.body_line) if token.text == text)
    return ContractError(f"{contract.source}:{line}: {message}", hint)


def _columns(found: Mapping[str, Any], place: Place) -> tuple[Column, ...]:
    """The entries of `[columns]`, in order; raises ContractError."""
    if not found:
        raise place.error("there are no columns", "declare each column of the result", "", "columns")
    parsed = entries(found, ColumnEntry, place, "columns")
    columns = tuple(_column(name, entry, place) for name, entry in parsed.items())
    for column in columns:
        _check_fold(column, columns, place)
    return columns


def _column(name: str, entry: ColumnEntry, place: Place) -> Column:
    if not _TYPE.fullmatch(entry.type):
        hint = "write BIGINT, INTEGER, DOUBLE, BOOLEAN, VARCHAR, JSON, DECIMAL(28,9), VARCHAR[] or the like"
        raise place.error(f"type {entry.type!r} of `{name}` is not known", hint, name, "columns")
    _check_unit(name, entry, place, "columns")
    column = Column(name, **msgspec.structs.asdict(entry))
    if column.better and column.unit in _NO_GOAL:
        hint = "only a measure has a goal: leave `better` out, or give the column its unit"
        raise place.error(f"`{column.name}` cannot be better or worse", hint, column.name, "columns")
    if column.signed and column.unit is None:
        hint = "leave `signed` out, or give the column its unit"
        raise place.error(f"`{column.name}` is signed but no measure", hint, column.name, "columns")
    return column


def _check_unit(name: str, entry: ColumnEntry | ParamEntry, place: Place, section: str) -> None:
    """Raises ContractError if the name of a column or parameter does not name its unit."""
    if entry.unit is None:
        if name.endswith("_ns"):
            raise place.error(f"`{name}` has no unit", 'add unit = "ns" or "ts"', name, section)
        return
    suffix = UNITS[entry.unit].suffix
    if suffix and f"{suffix}_" not in f"_{name}_":
        message = f"`{name}` does not name its unit {entry.unit}"
        raise place.error(message, f"call it {name}{suffix}", name, section)


def _check_fold(column: Column, columns: Sequence[Column], place: Place) -> None:
    """Checks that an aggregate is of a number, and a ratio of two summed columns."""
    if column.aggregate is None:
        return
    summed = {other.name for other in columns if other.aggregate == "sum"}
    terms = column.aggregate.split("/")
    is_known = column.aggregate in _AGGREGATES or len(terms) == 2 and set(terms) <= summed
    if not is_known or column.type not in _FOLDED_TYPES:
        raise place.error(
            f"aggregate {column.aggregate!r} of `{column.name}` cannot be",
            f'of a number write {", ".join(_AGGREGATES)}, or "a/b" of two columns with aggregate = "sum"',
            column.name,
            "columns",
        )
