"""What a `.sql` file promises: the TOML block on its top as frozen values, every rule checked.

The grammar: a `-- /// tw` line, TOML in comments, a `-- ///` line, then one SELECT. A table that the
program fills has no SELECT. What a builder or a format fills for each rank has a `definition` in its place:
a number that is raised when the same trace gives other rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import PurePath
from typing import Any, Literal

from tracewarehouse.contracts.base import ReadBase, inherit
from tracewarehouse.contracts.columns import Column, parse_columns, unit_of
from tracewarehouse.contracts.front_matter import (
    NAME,
    Place,
    check_keys,
    flag,
    one_of,
    section,
    split,
    text_or_none,
    texts,
)
from tracewarehouse.contracts.params import PARAM_TYPES, Param, cast
from tracewarehouse.contracts.sql_tokens import token_texts, tokens
from tracewarehouse.errors import ContractError, ParamError

Kind = Literal["table", "view", "analysis"]
Scope = Literal["rank", "run"]

# Built from published versions when they are read.
_BUILT = ("runs", "ranks", "rank_sources")
FOLDERS: dict[str, Kind] = {
    "tables": "table",
    "rules": "table",
    "derived": "table",
    "views": "view",
    "analyses": "analysis",
}
NEEDS = (
    "gpu", "launches", "shapes", "stacks", "modules", "memory_events", "memory_timeline", "collective_args",
    "collectives", "counters", "kernel_counters", "device_properties",
)  # fmt: skip
# Needs that `tw derive` meets: each is the name of a derivation, and of the table that it ends in.
DERIVED_NEEDS = ("critical_path",)
COUNTED_NEEDS = re.compile(r"(steps|ranks)>=[1-9]\d*")
RUN_TABLES = ("runs", "ranks", "rank_sources")
SHARED_OPTIONS = (
    "run", "rank", "head", "top", "format", "output", "json", "debug", "warehouse", "help",
    "by_rank", "all_steps", "measure",
)  # fmt: skip
RUN_ARGUMENTS = ("self", "name", "version", "params")
HEAD = (
    "kind", "scope", "name", "version", "summary", "requires", "needs", "grain", "order",
    "deprecated", "transient", "derived", "definition", "params", "columns", "changes",
)  # fmt: skip
PARAM_KEYS = ("type", "default", "doc", "unit", "min", "max", "choices")

_FILE = re.compile(r"([a-z][a-z0-9_]*)\.v([1-9]\d*)\.sql")
_REF = re.compile(r"([a-z][a-z0-9_]*)@([1-9]\d*)")


@dataclass(frozen=True, order=True)
class Ref:
    """A name and a version, `kernels@1`."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class Change:
    """What a version changed. A compatible one only added nullable columns to the version before it."""

    version: int
    text: str
    compatible: bool = False


@dataclass(frozen=True)
class Contract:
    """A table, view or analysis: what it reads, what it promises, and the SELECT that does it."""

    kind: Kind
    scope: Scope
    name: str
    version: int
    group: str | None
    summary: str
    requires: tuple[Ref, ...]
    needs: tuple[str, ...]
    grain: tuple[str, ...]
    order: tuple[str, ...]
    params: tuple[Param, ...]
    columns: tuple[Column, ...]
    changes: tuple[Change, ...]
    deprecated: str | None
    transient: bool
    derived: str | None
    definition: int | None
    body: str
    body_line: int
    source: str

    @property
    def ref(self) -> Ref:
        """Its name and version."""
        return Ref(self.name, self.version)

    @property
    def folder(self) -> str:
        """The folder under `sql/` that holds it: tables, rules, derived, views or analyses."""
        return PurePath(self.source).parts[1]

    @property
    def compatible_since(self) -> int:
        """The oldest version whose consumers can read this one: later ones only added nullable columns."""
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
        """True for a table of rules: it is made of nothing, so the same for every run."""
        return self.kind == "table" and bool(self.body) and not self.requires

    @property
    def is_built(self) -> bool:
        """True for a table that is built from published versions when it is read."""
        return self.kind == "table" and self.name in _BUILT

    @property
    def is_stored(self) -> bool:
        """True for a table whose rows are in Parquet files of the warehouse."""
        return self.kind == "table" and not (self.transient or self.is_built or self.is_constant)


def ref_of(path: PurePath) -> Ref | None:
    """The name and version that a file is called, None where it is not called like a contract."""
    match = _FILE.fullmatch(path.name)
    return Ref(match[1], int(match[2])) if match else None


def parse(text: str, path: PurePath, read_base: ReadBase | None = None) -> Contract:
    """The contract of a `.sql` file; raises ContractError with file, line and remedy."""
    head, place, body, body_line = split(text, path)
    if "like" in head:
        (head, body), body_line = inherit(head, body, place, read_base), body_line - 1
    check_keys(head, HEAD, place)
    for key in ("kind", "name", "version", "summary", "grain", "columns", "changes"):
        if key not in head:
            raise place.error(f"`{key}` is missing", f"add `-- {key} = …` to the block")
    kind, group = _identity(head, path, place)
    columns = parse_columns(head, place)
    contract = Contract(
        kind=kind,
        scope=one_of(head, "scope", ("rank", "run"), place, "rank"),  # type: ignore[arg-type]
        name=head["name"],
        version=head["version"],
        group=group,
        summary=_summary(head, place),
        requires=_requires(head, place),
        needs=_needs(head, place),
        grain=_column_list(head, "grain", columns, place),
        order=_column_list(head, "order", columns, place),
        params=_params(head, place),
        columns=columns,
        changes=_changes(head, place),
        deprecated=text_or_none(head, "deprecated", place),
        transient=flag(head, "transient", place),
        derived=text_or_none(head, "derived", place),
        definition=_definition(head, place),
        body=body,
        body_line=body_line,
        source=path.as_posix(),
    )
    _check_kind(contract, place)
    _check_shape(contract, place)
    _check_body(contract, place)
    return contract


def _identity(head: Mapping[str, Any], path: PurePath, place: Place) -> tuple[Kind, str | None]:
    kind = one_of(head, "kind", tuple(dict.fromkeys(FOLDERS.values())), place)
    match = _FILE.fullmatch(path.name)
    parts = path.parts[:-1]
    group = parts[-1] if kind == "analysis" and parts else None
    folder = parts[-2:-1] if group else parts[-1:]
    if match is None or not folder or FOLDERS.get(folder[0]) != kind:
        raise place.error(f"path and kind `{kind}` disagree", f"the path is {_path_of(kind)}", "kind")
    if group is not None and not NAME.fullmatch(group):
        raise place.error(f"group `{group}` is not snake case", "rename the folder", "kind")
    for key, wanted in (("name", match[1]), ("version", int(match[2]))):
        if head[key] != wanted or isinstance(head[key], bool):
            raise place.error(
                f"{key} {head[key]!r} and file name {path.name} disagree", f"write {wanted!r} or rename", key
            )
    return kind, group


def _path_of(kind: str) -> str:
    folder = {"table": "(tables|rules|derived)", "view": "views", "analysis": "analyses/<group>"}[kind]
    return f"sql/{folder}/<name>.v<version>.sql, in snake case"


def _summary(head: Mapping[str, Any], place: Place) -> str:
    value = head["summary"]
    if not isinstance(value, str) or not value.endswith(".") or "\n" in value:
        raise place.error("the summary is not one sentence", "one line that ends with a full stop", "summary")
    return value


def _requires(head: Mapping[str, Any], place: Place) -> tuple[Ref, ...]:
    refs = []
    for text in texts(head, "requires", place):
        match = _REF.fullmatch(text)
        if match is None:
            raise place.error(f"requires {text!r} has no version", 'write "name@version"', "requires")
        refs.append(Ref(match[1], int(match[2])))
    if len({ref.name for ref in refs}) < len(refs):
        raise place.error("requires names two versions of one table", "keep one of them", "requires")
    return tuple(refs)


def _needs(head: Mapping[str, Any], place: Place) -> tuple[str, ...]:
    needs = texts(head, "needs", place)
    for need in needs:
        if need not in (*NEEDS, *DERIVED_NEEDS) and not COUNTED_NEEDS.fullmatch(need):
            known = f"{', '.join((*NEEDS, *DERIVED_NEEDS))}, steps>=N, ranks>=N"
            raise place.error(f"need {need!r} is not known", f"known are {known}", "needs")
    return needs


def _definition(head: Mapping[str, Any], place: Place) -> int | None:
    value = head.get("definition")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise place.error(f"definition {value!r} is no number from 1", "write definition = 1", "definition")
    return value


def _column_list(
    head: Mapping[str, Any], key: str, columns: Sequence[Column], place: Place
) -> tuple[str, ...]:
    names = texts(head, key, place)
    known = [column.name for column in columns]
    for name in names:
        if name.removeprefix("-" if key == "order" else "") not in known:
            raise place.error(
                f"{key} names `{name}`, which is no column", f"known are {', '.join(known)}", key
            )
    if key == "grain" and not names:
        raise place.error("the grain is empty", "name the columns that identify a row", key)
    return names


def _changes(head: Mapping[str, Any], place: Place) -> tuple[Change, ...]:
    changes, version = head["changes"], head["version"]
    wanted = [str(number) for number in range(version, 0, -1)]
    if not isinstance(changes, dict) or list(changes) != wanted:
        hint = f"one line each for {', '.join(wanted)}, in this order"
        raise place.error("[changes] is not one line per version, newest first", hint, "", "changes")
    return tuple(_change(number, entry, place) for number, entry in changes.items())


def _change(number: str, entry: object, place: Place) -> Change:
    given = entry if isinstance(entry, dict) else {"text": entry}
    check_keys(given, ("text", "compatible"), place, f"changes.{number}")
    text, compatible = given.get("text"), given.get("compatible", False)
    if not isinstance(text, str) or not text.strip():
        raise place.error(f"change {number} is not a sentence", "say what changed", number, "changes")
    if not isinstance(compatible, bool) or compatible and number == "1":
        hint = "only a later version can be compatible: true or false"
        raise place.error(f"change {number}: compatible is {compatible!r}", hint, number, "changes")
    return Change(int(number), text, compatible)


def _params(head: Mapping[str, Any], place: Place) -> tuple[Param, ...]:
    found = section(head, "params", PARAM_KEYS, place)
    return tuple(_param(name, entry, place) for name, entry in found.items())


def _param(name: str, entry: Mapping[str, Any], place: Place) -> Param:
    if entry["type"] not in PARAM_TYPES:
        hint = f"write one of {', '.join(PARAM_TYPES)}"
        raise place.error(f"type {entry['type']!r} of `{name}` is not known", hint, name, "params")
    if name in (*SHARED_OPTIONS, *RUN_ARGUMENTS) or iskeyword(name):
        raise place.error(f"parameter `{name}` is a shared option or argument", "rename it", name, "params")
    choices = entry.get("choices", [])
    if not isinstance(choices, list):
        raise place.error(f"choices of `{name}` are not a list", "write choices = […]", name, "params")
    unit = unit_of(name, entry, place, "params")
    default, doc = entry.get("default"), entry["doc"]
    limits = [_limit(name, key, entry, place) for key in ("min", "max")]
    param = Param(name, entry["type"], default, doc, unit, limits[0], limits[1], tuple(choices))
    try:
        for value in (default, *choices):
            if value is not None and cast(param, value) != value:
                raise ParamError(f"{name}: {value!r} is no {param.type}")
    except ParamError as error:
        raise place.error(error.message, "write a default that the contract allows", name, "params") from None
    return param


def _limit(name: str, key: str, entry: Mapping[str, Any], place: Place) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or entry["type"] in ("VARCHAR", "BOOLEAN")
    ):
        raise place.error(f"{key} of `{name}` is not a limit", "only numbers have limits", name, "params")
    return value


def _check_kind(contract: Contract, place: Place) -> None:
    """Keys that belong to some kinds only."""
    kind, name = contract.kind, contract.name
    if contract.needs and kind != "analysis":
        raise place.error(f"a {kind} has no needs", "move them to the analyses that read it", "needs")
    if contract.params and kind == "view":
        raise place.error("a view has no parameters", "move them to the analyses that read it", "", "params")
    if contract.transient and kind != "table":
        raise place.error("an analysis or view is not transient", "only tables are", "transient")
    if contract.derived and kind != "table":
        raise place.error(f"a {kind} is not derived", "only tables are", "derived")
    if contract.derived and contract.derived not in DERIVED_NEEDS:
        hint = f"known are {', '.join(DERIVED_NEEDS)}"
        raise place.error(f"derivation {contract.derived!r} is not known", hint, "derived")
    if (contract.scope == "run") != (name in RUN_TABLES) and kind == "table":
        wanted = "run" if name in RUN_TABLES else "rank"
        raise place.error(f"scope of {kind} {name} is {contract.scope}", f'write scope = "{wanted}"', "scope")
    if contract.ref.name in {ref.name for ref in contract.requires}:
        raise place.error(f"{name} requires itself", "read what it is made of", "requires")


def _check_shape(contract: Contract, place: Place) -> None:
    """The key columns that every relation carries."""
    if contract.is_constant:
        return  # it belongs to no run
    if contract.kind != "table" and contract.scope == "run" or contract.name == "runs":
        keys = {"run_id": "VARCHAR"}
    else:
        keys = {"run_id": "VARCHAR", "rank": "INTEGER"}
    first = contract.columns[: len(keys)]
    if [(column.name, column.type) for column in first] != list(keys.items()):
        wanted = ", ".join(f"{name} {type_}" for name, type_ in keys.items())
        raise place.error("the key columns do not come first", f"begin with {wanted}", "", "columns")
    if contract.grain[: len(keys)] != tuple(keys):
        raise place.error("the grain lacks key columns", f"begin with {', '.join(keys)}", "grain")


def _check_body(contract: Contract, place: Place) -> None:
    if not contract.body:
        if contract.kind != "table":
            raise place.error("there is no SELECT", "write it under the block")
        if contract.requires and not (contract.derived or contract.transient):
            raise place.error("without a SELECT nothing is required", "leave it out", "requires")
        _check_definition(contract, place)
        return
    if contract.definition is not None:
        raise place.error("the SELECT is the definition", "leave the number out", "definition")
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
    """Stored rows of a rank have a SELECT or a number for what a builder or a format does."""
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
            raise _in_body(contract, mark, "a value comes in without a name", hint)
    words = {text.strip('"').lower() for text in found} | {column.name for column in contract.columns}
    for name in sorted(declared & words):
        hint = "rename the parameter: in a macro it would capture the column"
        raise place.error(f"parameter `{name}` is also a column or alias", hint, name, "params")


def _in_body(contract: Contract, text: str, message: str, hint: str) -> ContractError:
    line = next(token.line for token in tokens(contract.body, contract.body_line) if token.text == text)
    return ContractError(f"{contract.source}:{line}: {message}", hint)
