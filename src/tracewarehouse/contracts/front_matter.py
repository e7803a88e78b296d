"""The TOML block on top of a `.sql` file, read key by key; an error names file, line and remedy."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from tracewarehouse.errors import ContractError

NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Place:
    """Where the block stands in its file, so that an error can name the line."""

    source: str
    lines: Sequence[str]

    def error(self, message: str, hint: str, key: str = "", section: str = "") -> ContractError:
        return ContractError(f"{self.source}:{self._line(key, section)}: {message}", hint)

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


def split(text: str, path: PurePath) -> tuple[dict[str, Any], Place, str, int]:
    lines = text.split("\n")
    source = path.as_posix()
    if lines[0].rstrip() != "-- /// tw":
        raise ContractError(f"{source}:1: no contract", "begin the file with the line `-- /// tw`")
    end = next((n for n, line in enumerate(lines) if n and line.rstrip() == "-- ///"), None)
    if end is None:
        raise ContractError(f"{source}:1: the contract has no end", "close it with the line `-- ///`")
    for number, line in enumerate(lines[1:end], start=2):
        if not line.startswith("-- ") and line.rstrip() != "--":
            raise ContractError(
                f"{source}:{number}: not a comment", "begin each line of the block with `-- `"
            )
    place = Place(source, [line[3:] for line in lines[1:end]])
    rest = lines[end + 1 :]
    said = any(line.strip() and not line.lstrip().startswith("--") for line in rest)
    return toml(place), place, "\n".join(rest).rstrip() if said else "", end + 2


def toml(place: Place) -> dict[str, Any]:
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


def check_keys(found: Mapping[str, Any], known: Sequence[str], place: Place, where: str = "") -> None:
    for key in found:
        if key not in known:
            section, _, name = where.partition(".")
            label = f"{where}.{key}" if where else key
            raise place.error(f"unknown key `{label}`", f"known are {', '.join(known)}", name or key, section)


def one_of(
    head: Mapping[str, Any], key: str, known: Sequence[str], place: Place, default: str | None = None
) -> str:
    value = head.get(key, default)
    if not isinstance(value, str) or value not in known:
        raise place.error(f"{key} {value!r} is not known", f"write one of {', '.join(known)}", key)
    return value


def text_or_none(head: Mapping[str, Any], key: str, place: Place) -> str | None:
    value = head.get(key)
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise place.error(f"{key} is not a sentence", "write a text", key)
    return value


def flag(head: Mapping[str, Any], key: str, place: Place, column: str = "") -> bool:
    value = head.get(key, False)
    if not isinstance(value, bool):
        section = "columns" if column else ""
        raise place.error(f"{key} is {value!r}", "write true or false", column or key, section)
    return value


def texts(head: Mapping[str, Any], key: str, place: Place) -> tuple[str, ...]:
    value = head.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise place.error(f"{key} is not a list of names", f'write {key} = ["…"]', key)
    if len(set(value)) < len(value):
        raise place.error(f"{key} names something twice", "name each once", key)
    return tuple(value)


def section(head: Mapping[str, Any], key: str, known: Sequence[str], place: Place) -> dict[str, Any]:
    """The entries of `[key]`, each a table with at least a type and a doc."""
    found = head.get(key, {})
    if not isinstance(found, dict):
        raise place.error(f"{key} is not a section", f"write [{key}]", key)
    for name, entry in found.items():
        if not NAME.fullmatch(name):
            raise place.error(f"{key}: `{name}` is not snake case", "rename it", name, key)
        if not isinstance(entry, dict):
            raise place.error(f"{key}: `{name}` has no table", "write { type = …, doc = … }", name, key)
        check_keys(entry, known, place, f"{key}.{name}")
        for need in ("type", "doc"):
            if not isinstance(entry.get(need), str) or not entry[need].strip():
                raise place.error(f"`{name}` has no {need}", f'add {need} = "…"', name, key)
    return found
