"""The TOML block on top of a `.sql` file, read key by key; an error names file, line and remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from .errors import ContractError

NAME = re.compile(r"[a-z][a-z0-9_]*")

# The part of TOML that contracts are written in; whatever else there is, tomllib reads.
_VALUE = r'"[^"\\\x00-\x1f\x7f]*"|true|false|-?(?:0|[1-9]\d*)(?:\.\d+)?'
_LIST = rf"\[(?:(?:{_VALUE})(?:, (?:{_VALUE}))*)?\]"
_VALUES = re.compile(_VALUE)
_ENTRY = re.compile(rf"(\w+) = ({_VALUE}|{_LIST})(?:, | \}}$)", re.ASCII)
_LINE = re.compile(rf"(\w+) *= (?:({_VALUE}|{_LIST})|\{{ (.*))", re.ASCII)


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
    plain = _plain(place.lines)
    if plain is not None:
        return plain
    import tomllib

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


def _plain(lines: Sequence[str]) -> dict[str, Any] | None:
    """What tomllib reads, ten times as fast, or None where more of TOML is needed than contracts use."""
    head: dict[str, Any] = {}
    here = head
    for line in lines:
        if line[:1] == "[":
            name = line[1:-1]
            if line[-1] != "]" or not NAME.fullmatch(name) or name in head:
                return None
            here = head[name] = {}
        elif line:
            match = _LINE.fullmatch(line)
            value = _table(match[3]) if match and match[3] else _value(match[2]) if match else None
            if match is None or value is None or match[1] in here:
                return None
            here[match[1]] = value
    return head


def _table(text: str) -> dict[str, Any] | None:
    """The entries up to the closing brace at the end."""
    entries: dict[str, Any] = {}
    end = 0
    while entry := _ENTRY.match(text, end):
        if entry[1] in entries:
            return None
        entries[entry[1]] = _value(entry[2])
        end = entry.end()
    return entries if end == len(text) and text[-1] == "}" else None


def _value(text: str) -> Any:
    if text[0] == '"':
        return text[1:-1]
    if text[0] == "[":
        return [_value(each) for each in _VALUES.findall(text)]
    if text in ("true", "false"):
        return text == "true"
    return float(text) if "." in text else int(text)


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
