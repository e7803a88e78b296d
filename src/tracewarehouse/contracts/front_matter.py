"""Front matter, the TOML block of a `.sql` file: its grammar as Structs; errors name file and line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from tracewarehouse.contracts.contract import Kind, Scope
from tracewarehouse.errors import ContractError

NAME = re.compile(r"[a-z][a-z0-9_]*")
UnitName = Literal[
    "ns", "ts", "id", "count", "bytes", "ratio", "bytes_per_ns", "flop", "flop_per_ns", "depth"
]
_Text = Annotated[str, Meta(pattern=r"\S")]
_Shape = TypeVar("_Shape")
# Messages of msgspec for a wrong key, and for a wrong value with its path below `$`.
_KEY = re.compile(r"Object (missing required|contains unknown) field `(\w+)`")
_PATH = re.compile(r" - at `\$\.(\w+)[^`]*`$")


class ColumnEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of `[columns]`."""

    type: str
    doc: _Text
    unit: UnitName | None = None
    better: Literal["lower", "higher"] | None = None
    null: bool = False
    signed: bool = False
    fold: str | None = None


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
    grain: tuple[str, ...]
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


@dataclass(frozen=True)
class Place:
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
            known = ", ".join(each.name for each in msgspec.structs.fields(shape))
            text = f"`{label}{key}` is missing" if is_missing else f"unknown key `{label}{key}`"
            line = name or ("" if is_missing else key)
            return self.error(text, f"add {key} = …" if is_missing else f"known are {known}", line, section)
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
        here = ""
        for number, line in enumerate(self.lines, start=2):
            if line.startswith("["):
                here = line.strip("[] \t\r")
                if here == (section or key) and not (section and key):
                    return number
            elif here == section and key and re.match(rf'"?{re.escape(key)}"?\s*=', line):
                return number
        return 1


def _hint(key: str, annotation: Any) -> str:
    """A hint what to write for a key of this type."""
    if choices := _choices(annotation):
        return f"write one of {', '.join(choices)}"
    text = str(annotation)
    for word, value in (("bool", "true or false"), ("tuple", '["…"]'), ("int", "1"), ("str", '"text"')):
        if word in text:
            return f"write {key} = {value}"
    return f"correct {key}"


def _choices(annotation: Any) -> tuple[str, ...]:
    """The values of a Literal, also if it is optional."""
    nested = [_choices(each) for each in get_args(annotation) if not isinstance(each, str)]
    return tuple(each for each in get_args(annotation) if isinstance(each, str)) or sum(nested, ())


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


def check_keys(found: Mapping[str, Any], known: Sequence[str], place: Place) -> None:
    """Raises ContractError for an unknown key."""
    for key in found:
        if key not in known:
            raise place.error(f"unknown key `{key}`", f"known are {', '.join(known)}", key)


def split(text: str, path: PurePath) -> tuple[dict[str, Any], Place, str, int]:
    """The parsed block, its place, the SELECT below it, and the line of the SELECT. Raises ContractError."""
    lines = text.split("\n")
    source = path.as_posix()
    if lines[0].rstrip() != "-- /// tw":
        raise ContractError(f"{source}:1: no contract", "begin the file with the line `-- /// tw`")
    end = next((n for n, line in enumerate(lines) if n and line.rstrip() == "-- ///"), None)
    if end is None:
        raise ContractError(f"{source}:1: the block has no end", "close it with the line `-- ///`")
    for number, line in enumerate(lines[1:end], start=2):
        if not line.startswith("-- ") and line.rstrip() != "--":
            raise ContractError(
                f"{source}:{number}: not a comment", "begin each line of the block with `-- `"
            )
    place = Place(source, [line[3:] for line in lines[1:end]])
    rest = lines[end + 1 :]
    has_body = any(line.strip() and not line.lstrip().startswith("--") for line in rest)
    return _toml(place), place, "\n".join(rest).rstrip() if has_body else "", end + 2


def _toml(place: Place) -> dict[str, Any]:
    try:
        return tomllib.loads("\n".join(place.lines))
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = min(int(found[1]) if found else len(place.lines), len(place.lines)) + 1
        reason = re.sub(r" \(at .*\)", "", str(error))
        raise ContractError(
            f"{place.source}:{line}: not TOML: {reason}",
            'write `key = "text"`, `key = 1` or `key = ["a", "b"]`',
        ) from None
