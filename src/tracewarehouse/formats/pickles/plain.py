"""Plain values in a pickle, and columns from lists of dictionaries. Runs in the child process."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol

import pyarrow as pa
import pyarrow.compute as pc

_INT64_LIMIT: Final = 2**63
_NONE: Final = type(None)
TEXT: Final = pa.dictionary(pa.int32(), pa.string())


class RefusedPickleError(Exception):
    """The pickle does not hold what the format defines; the message completes "the file …"."""


class PlainUnpickler(pickle.Unpickler):
    """Loads numbers, strings, tuples, lists, sets and dictionaries; every other request is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Called for every class and function that the pickle names."""
        raise RefusedPickleError(f"requests {module}.{name}")

    def persistent_load(self, pid: object) -> NoReturn:
        """Called for every reference to an object outside of the pickle."""
        raise RefusedPickleError("requests an object outside of the file (persistent id)")


@dataclass
class Budget:
    """The number of values that may be visited: values that are shared many times would never end."""

    left: int

    def spend(self, values: int) -> None:
        """Counts visited values."""
        self.left -= values
        if self.left < 0:
            raise RefusedPickleError("holds more values than a file of its size can: it repeats shared lists")


@dataclass
class Tables:
    """What a walk returns: tables, facts and metadata of the file, and counts of values of a wrong type."""

    tables: dict[str, pa.Table]
    facts: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    unusable: Counter[str] = field(default_factory=Counter)


class Walk(Protocol):
    """Turns the loaded values into tables; raises RefusedPickleError."""

    def __call__(self, root: object, budget: Budget) -> Tables: ...


def dictionaries(values: object, where: str, budget: Budget) -> list[dict[str, Any]]:
    """The value if it is a list of dictionaries; None counts as an empty list."""
    rows = items(values, where, budget)
    if set(map(type, rows)) - {dict}:
        at = next(at for at, row in enumerate(rows) if type(row) is not dict)
        raise RefusedPickleError(f"has {_kind(rows[at])} at {where}[{at}], not a dictionary")
    return rows


def items(values: object, where: str, budget: Budget) -> list[Any]:
    """The value if it is a list; None counts as an empty one."""
    if values is None:
        return []
    if type(values) is not list:
        raise RefusedPickleError(f"has {_kind(values)} at {where}, not a list")
    budget.spend(len(values))
    return values


def mapping(value: object, where: str) -> dict[Any, Any]:
    """The value if it is a dictionary."""
    if type(value) is not dict:
        raise RefusedPickleError(f"has {_kind(value)} at {where}, not a dictionary")
    return value


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[:1] in "aeiou" else f"a {name}"


@dataclass
class Records:
    """Columns of a list of dictionaries. A value of a wrong type becomes null and is counted."""

    rows: Sequence[Mapping[str, Any]]
    unusable: Counter[str]
    table: str = ""

    def values(self, *keys: str) -> list[Any]:
        """The value of the first of the keys that any row has."""
        several = len(keys) > 1
        key = next((key for key in keys if several and any(key in row for row in self.rows)), keys[0])
        return [row.get(key) for row in self.rows]

    def ints(self, *keys: str, scale: int = 1, signed: bool = False) -> pa.Array:
        """A column of 64-bit integers, multiplied by `scale`."""
        return self.int_array(self.values(*keys), keys[0], scale, signed)

    def int_array(self, values: list[Any], name: str, scale: int = 1, signed: bool = False) -> pa.Array:
        """The integers among the values."""
        if not set(map(type, values)) - {int, _NONE}:
            present = [value for value in values if value is not None]
            limit, lowest = _INT64_LIMIT // scale, -_INT64_LIMIT // scale if signed else 0
            if not present or (max(present) < limit and min(present) >= lowest):
                array = pa.array(values, pa.int64())
                return array if scale == 1 else pc.multiply(array, scale)
        usable = [_int(value, scale, signed) for value in values]
        self._count(values, usable, name)
        return pa.array(usable, pa.int64())

    def texts(self, *keys: str) -> pa.Array:
        """A dictionary-encoded column of strings."""
        return self.text_array(self.values(*keys), keys[0])

    def text_array(self, values: list[Any], name: str) -> pa.Array:
        """The strings among the values, dictionary-encoded."""
        if set(map(type, values)) - {str, _NONE}:
            usable = [value if type(value) is str else None for value in values]
            self._count(values, usable, name)
            values = usable
        try:
            return pa.array(values, pa.string()).dictionary_encode()
        except UnicodeEncodeError:
            safe = [value and value.encode("utf-8", "backslashreplace").decode() for value in values]
            return pa.array(safe, pa.string()).dictionary_encode()

    def flags(self, *keys: str) -> pa.Array:
        """A column of Booleans."""
        values = self.values(*keys)
        usable = [value if type(value) is bool else None for value in values]
        self._count(values, usable, keys[0])
        return pa.array(usable, pa.bool_())

    def _count(self, values: Iterable[Any], usable: Iterable[Any], name: str) -> None:
        wrong = sum(one is not None and other is None for one, other in zip(values, usable, strict=True))
        if wrong:
            self.unusable[f"{self.table}.{name}" if self.table else name] += wrong


def _int(value: object, scale: int, signed: bool) -> int | None:
    if type(value) is not int or (value < 0 and not signed):
        return None
    scaled = value * scale
    return scaled if -_INT64_LIMIT <= scaled < _INT64_LIMIT else None


def scalars(value: object, budget: Budget) -> dict[str, Any]:
    """The entries of a dictionary of settings whose values are numbers, strings or Booleans."""
    if type(value) is not dict:
        return {}
    budget.spend(len(value))
    kept = {
        key: one for key, one in value.items() if type(key) is str and type(one) in (str, int, bool, _NONE)
    }
    return {key: one for key, one in kept.items() if _is_short(one)}


def _is_short(value: object) -> bool:
    if type(value) is int:
        return -_INT64_LIMIT <= value < _INT64_LIMIT
    return len(json.dumps(value)) < 10_000
