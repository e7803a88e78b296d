"""The typed columns of `args`, from its text.

A number may be written as a string; a value that does not fit its column's type is null there. Of a key that
is repeated the first value counts. Shapes and types of inputs are verbatim.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tracewarehouse.formats.json_text import members
from tracewarehouse.formats.kineto.batch import CODES, DOUBLES, INTS, KEYS
from tracewarehouse.formats.kineto.rules_connection import evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator

COLLECTIVE_KEY: Final = "Collective name"
_VERBATIM: Final = ("shapes", "dtypes")
_LISTS: Final = ("grid", "block")
_DIMENSIONS: Final = ("x", "y", "z")
TYPED_INTS: Final = tuple(name for name in INTS if name in KEYS or name[:-2] in _LISTS)
TYPED_TEXTS: Final = tuple(name for name in CODES if name in KEYS)
_KNOWN: Final = frozenset(key for keys in KEYS.values() for key in keys)
# Longer than what is nested too deep for a parser is nested deep; the text of known arguments is not.
_DEEP: Final = 500


def typed(args: pa.Array) -> pa.Table:
    """The typed columns of each text of arguments, and `has_collective`."""
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
    """The types of the first or second keys of all columns: both may not differ in case alone."""
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
    """The text, without what is nested too deep to be an argument that we know."""
    if text is None or text.count("[") + text.count("{") < _DEEP or not text.startswith("{"):
        return text
    kept = [(key, value) for key, value in members(text) if key in _KNOWN and value.count("[") < _DEEP]
    return "{" + ",".join(f'"{key}":{value}' for key, value in kept) + "}"


def _verbatim(text: str | None) -> dict[str, str]:
    """Shapes and types of inputs, where they are there and not null."""
    if text is None or not text.startswith("{") or ('"Input ' not in text and "\\" not in text):
        return {}
    return {key: value for key, value in dict(_first(text)).items() if value != "null" and key in _KNOWN}


def _first(text: str) -> Iterator[tuple[str, str]]:
    """The members, the first of those with a repeated key last, so that it wins."""
    return reversed(members(text))
