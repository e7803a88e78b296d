"""Parsing a `.sql` file into a contract, with all checks.

The grammar: a `-- /// tw` line, TOML in comments, a `-- ///` line, then one SELECT. A table that the
program fills has no SELECT; if a builder or a format fills it for each rank, it has a `definition` instead:
a number that is raised when the same trace results in other rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from pathlib import PurePath
from typing import Any

import msgspec

from tracewarehouse.contracts.base import ReadBase, inherit
from tracewarehouse.contracts.columns import UNITS, Column
from tracewarehouse.contracts.contract import (
    COUNTED_NEEDS,
    DERIVATIONS,
    DERIVED_NEEDS,
    FILE_NAME,
    FOLDERS,
    NEEDS,
    RUN_TABLES,
    Change,
    Contract,
    Ref,
)
from tracewarehouse.contracts.front_matter import (
    NAME,
    ChangeEntry,
    ColumnEntry,
    Head,
    ParamEntry,
    Place,
    distinct,
    entries,
    split,
)
from tracewarehouse.contracts.params import Param, cast
from tracewarehouse.contracts.sql_tokens import token_texts, tokens
from tracewarehouse.errors import ContractError, ParamError

SHARED_OPTIONS = (
    "run", "rank", "top", "format", "output", "json", "debug", "warehouse", "help",
    "by_rank", "all_steps", "measure", "verify", "where", "sort", "limit", "columns",
)  # fmt: skip
RUN_ARGUMENTS = ("self", "name", "version", "params")
_NO_GOAL = (None, "id", "ts", "depth")
_FOLDS = ("sum", "min", "max")
_FOLDED_TYPES = ("BIGINT", "INTEGER", "DOUBLE")
_REF = re.compile(r"([a-z][a-z0-9_]*)@([1-9]\d*)")
_SCALAR = (
    r"(?:BIGINT|INTEGER|SMALLINT|TINYINT|UBIGINT|HUGEINT|DOUBLE|BOOLEAN|VARCHAR|JSON|BLOB|TIMESTAMP"
    r"|DECIMAL\(\d+,\d+\))"
)
_TYPE = re.compile(rf"(?:{_SCALAR}|MAP\({_SCALAR}, {_SCALAR}\))(?:\[\])*")


def parse(text: str, path: PurePath, read_base: ReadBase | None = None) -> Contract:
    """The contract of a `.sql` file; raises ContractError with file, line and remedy."""
    head, place, body, body_line = split(text, path)
    if "like" in head:
        head, body, above = inherit(head, body, place, read_base)
        body_line -= above
    block = place.convert(head, Head)
    group = _group(block, path, place)
    columns = _columns(block.columns, place)
    contract = Contract(
        kind=block.kind,
        scope=block.scope,
        name=block.name,
        version=block.version,
        group=group,
        summary=_summary(block, place),
        requires=_requires(block, place),
        needs=_needs(block, place),
        grain=_column_list(block.grain, "grain", columns, place),
        order=_column_list(block.order, "order", columns, place),
        params=_params(block, place),
        columns=columns,
        changes=_changes(block, place),
        deprecated=block.deprecated,
        transient=block.transient,
        derived=block.derived,
        definition=block.definition,
        body=body,
        body_line=body_line,
        source=path.as_posix(),
        in_order=block.in_order,
        optional=distinct(block.optional, "optional", place),
        empty=block.empty,
    )
    _check_kind(contract, place)
    _check_shape(contract, place)
    _check_body(contract, place)
    return contract


def _group(block: Head, path: PurePath, place: Place) -> str | None:
    """The group of an analysis; raises ContractError if block and path disagree."""
    match = FILE_NAME.fullmatch(path.name)
    parts = path.parts[:-1]
    group = parts[-1] if block.kind == "analysis" and parts else None
    folder = parts[-2:-1] if group else parts[-1:]
    if match is None or not folder or FOLDERS.get(folder[0]) != block.kind:
        message = f"path and kind `{block.kind}` disagree"
        raise place.error(message, f"the path is {_path_of(block.kind)}", "kind")
    if group is not None and not NAME.fullmatch(group):
        raise place.error(f"group `{group}` is not snake case", "rename the folder", "kind")
    for key, wanted in (("name", match[1]), ("version", int(match[2]))):
        if (found := getattr(block, key)) != wanted:
            message = f"{key} {found!r} and file name {path.name} disagree"
            raise place.error(message, f"write {wanted!r} or rename", key)
    return group


def _path_of(kind: str) -> str:
    folder = {"table": "(tables|rules|derived)", "view": "views", "analysis": "analyses/<group>"}[kind]
    return f"sql/{folder}/<name>.v<version>.sql, in snake case"


def _summary(block: Head, place: Place) -> str:
    if not block.summary.endswith(".") or "\n" in block.summary:
        raise place.error("the summary is not one sentence", "one line that ends with a full stop", "summary")
    return block.summary


def _requires(block: Head, place: Place) -> tuple[Ref, ...]:
    refs = []
    for text in distinct(block.requires, "requires", place):
        match = _REF.fullmatch(text)
        if match is None:
            raise place.error(f"requires {text!r} has no version", 'write "name@version"', "requires")
        refs.append(Ref(match[1], int(match[2])))
    if len({ref.name for ref in refs}) < len(refs):
        raise place.error("requires names two versions of one table", "keep one of them", "requires")
    return tuple(refs)


def _needs(block: Head, place: Place) -> tuple[str, ...]:
    for need in distinct(block.needs, "needs", place):
        if need not in (*NEEDS, *DERIVED_NEEDS) and not COUNTED_NEEDS.fullmatch(need):
            known = f"{', '.join((*NEEDS, *DERIVED_NEEDS))}, steps>=N, ranks>=N"
            raise place.error(f"need {need!r} is not known", f"known are {known}", "needs")
    return block.needs


def _column_list(
    names: tuple[str, ...], key: str, columns: Sequence[Column], place: Place
) -> tuple[str, ...]:
    known = [column.name for column in columns]
    for name in distinct(names, key, place):
        if name.removeprefix("-" if key == "order" else "") not in known:
            raise place.error(
                f"{key} names `{name}`, which is not a column", f"known are {', '.join(known)}", key
            )
    if key == "grain" and not names:
        raise place.error("the grain is empty", "name the columns that identify a row", key)
    return names


def _changes(block: Head, place: Place) -> tuple[Change, ...]:
    wanted = [str(number) for number in range(block.version, 0, -1)]
    if list(block.changes) != wanted:
        hint = f"one line each for {', '.join(wanted)}, in this order"
        raise place.error("[changes] is not one line per version, newest first", hint, "", "changes")
    return tuple(_change(number, entry, place) for number, entry in block.changes.items())


def _change(number: str, entry: object, place: Place) -> Change:
    given = entry if isinstance(entry, dict) else {"text": entry}
    change = place.convert(given, ChangeEntry, number, "changes")
    if change.compatible and number == "1":
        hint = "leave `compatible` out: there is no version before it"
        raise place.error("change 1 cannot be compatible", hint, number, "changes")
    return Change(int(number), change.text, change.compatible)


def _params(block: Head, place: Place) -> tuple[Param, ...]:
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
    if contract.optional and kind != "analysis":
        raise place.error(
            f"a {kind} has no optional tables", "move them to the analyses that read it", "optional"
        )
    if contract.needs and kind != "analysis":
        raise place.error(f"a {kind} has no needs", "move them to the analyses that read it", "needs")
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
        wanted = "run" if name in RUN_TABLES else "rank"
        raise place.error(f"scope of {kind} {name} is {contract.scope}", f'write scope = "{wanted}"', "scope")
    if contract.ref.name in {ref.name for ref in contract.requires}:
        raise place.error(f"{name} requires itself", "read what it is made of", "requires")


def _check_shape(contract: Contract, place: Place) -> None:
    """Checks the key columns, which every relation has."""
    if contract.is_constant:
        return  # it is independent of runs
    if contract.kind != "table" and contract.scope == "run" or contract.name == "runs":
        keys = {"run_id": "VARCHAR"}
    else:
        keys = {"run_id": "VARCHAR", "rank": "INTEGER"}
    first = contract.columns[: len(keys)]
    if [(column.name, column.type) for column in first] != list(keys.items()):
        wanted = ", ".join(f"{name} {type_}" for name, type_ in keys.items())
        raise place.error("the key columns do not come first", f"begin with {wanted}", "", "columns")
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
        _check_definition(contract, place)
        return
    if contract.definition is not None:
        raise place.error("the SELECT is the definition", "remove the number", "definition")
    found = token_texts(contract.body)
    if not found or found[0].upper() not in ("WITH", "SELECT") or ";" in found:
        raise ContractError(
            f"{place.source}:{contract.body_line}: the body is not one SELECT",
            "one statement that begins with WITH or SELECT, without a semicolon",
        )
    if contract.kind != "table" and not contract.requires:
        raise place.error("nothing is required", 'name what the SELECT reads: ["kernels@1"]')
    _check_param_use(contract, found, place)


def _check_definition(contract: Contract, place: Place) -> None:
    """A stored table of a rank has a SELECT, or the number of a builder's or format's definition."""
    elsewhere = contract.scope == "run" or contract.transient or contract.derived
    if contract.definition is None and not elsewhere:
        raise place.error("the table has neither SELECT nor definition", "write definition = 1")


def _check_param_use(contract: Contract, texts: Sequence[str], place: Place) -> None:
    found = set(texts)
    declared = {param.name for param in contract.params}
    used = {text[1:] for text in found if len(text) > 1 and text[0] == "$"}
    for name in sorted(used - declared):
        raise _in_body(contract, f"${name}", f"${name} is not declared", "add it to [params]")
    for name in sorted(declared - used):
        raise place.error(
            f"parameter `{name}` is not used", f"write ${name} in the body, or drop it", name, "params"
        )
    for mark in ("$", "?"):
        if mark in found:
            hint = "write $name and declare it in [params]"
            raise _in_body(contract, mark, "a parameter has no name", hint)
    words = {text.strip('"').lower() for text in found} | {column.name for column in contract.columns}
    for name in sorted(declared & words):
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
    _check_goal(column, place)
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


def _check_goal(column: Column, place: Place) -> None:
    if column.better and column.unit in _NO_GOAL:
        hint = "only a measure has a goal: leave `better` out, or give the column its unit"
        raise place.error(f"`{column.name}` cannot be better or worse", hint, column.name, "columns")
    if column.signed and column.unit is None:
        hint = "leave `signed` out, or give the column its unit"
        raise place.error(f"`{column.name}` is signed but no measure", hint, column.name, "columns")


def _check_fold(column: Column, columns: Sequence[Column], place: Place) -> None:
    """Checks that a fold is of a number, and a ratio of two summed columns."""
    if column.fold is None:
        return
    summed = {each.name for each in columns if each.fold == "sum"}
    parts = column.fold.split("/")
    known = column.fold in _FOLDS or len(parts) == 2 and set(parts) <= summed
    if not known or column.type not in _FOLDED_TYPES:
        raise place.error(
            f"fold {column.fold!r} of `{column.name}` cannot be",
            f'of a number write {", ".join(_FOLDS)}, or "a/b" of two columns with fold = "sum"',
            column.name,
            "columns",
        )
