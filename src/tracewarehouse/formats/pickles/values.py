"""Plain values, call stacks and columns from a pickle. Runs in the child process."""

from __future__ import annotations

import gc
import io
import json
import pickle
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import IO, Annotated, Any, Final, NoReturn, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

_INT64_LIMIT: Final = 2**63
# What msgspec raises for a value of another type; for half of a character it is the second.
_OTHER_TYPE: Final = (msgspec.ValidationError, UnicodeEncodeError)


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


class Budget(Struct):
    """The number of values that may be visited: values that are shared many times would never end."""

    left: int

    def spend(self, values: int) -> None:
        """Counts visited values."""
        self.left -= values
        if self.left < 0:
            raise RefusedPickleError("holds more values than a file of its size can: it repeats shared lists")


class Job(Struct):
    """What the child process does: it makes tables with a walk, from one open file into the other.

    What it may use beyond what it uses when it starts: memory, CPU time, and visits of values.
    """

    input: int
    output: int
    walk: str
    is_json: bool
    memory_bytes: int
    cpu_s: int
    values: int


class Tables(Struct):
    """What a walk returns: tables, facts and metadata of the file, and counts of values of a wrong type."""

    tables: dict[str, pa.Table]
    facts: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    unusable: Counter[str] = field(default_factory=Counter)


# Turns the loaded values into tables; raises RefusedPickleError.
Walk: TypeAlias = Callable[[object, Budget], Tables]


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


# The values of a column; None for those of the key with its name.
Values: TypeAlias = list[Any] | None


class Records(Struct):
    """Columns of a list of dictionaries: of the values of a key, or of others that are given.

    A value of a wrong type becomes null and is counted.
    """

    rows: Sequence[Mapping[str, Any]]
    unusable: Counter[str]
    table: str = ""

    def values(self, *keys: str) -> list[Any]:
        """The value of the first of the keys that any row has."""
        several = len(keys) > 1
        key = next((key for key in keys if several and any(key in row for row in self.rows)), keys[0])
        return [row.get(key) for row in self.rows]

    def ints(self, name: str, values: Values = None, *, scale: int = 1, signed: bool = False) -> pa.Array:
        """A column of the 64-bit integers among the values, multiplied by `scale`."""
        most = _INT64_LIMIT - 1
        bounds = msgspec.Meta(ge=-most - 1 if signed else 0, le=most // scale)
        array = pa.array(self._usable(name, values, Annotated[int, bounds]), pa.int64())
        return array if scale == 1 else pc.multiply(array, scale)

    def texts(self, name: str, values: Values = None) -> pa.Array:
        """A dictionary-encoded column of the strings among the values."""
        usable = self._usable(name, values, str)
        try:
            return pa.array(usable, pa.string()).dictionary_encode()
        except UnicodeEncodeError:
            safe = [value and value.encode("utf-8", "backslashreplace").decode() for value in usable]
            return pa.array(safe, pa.string()).dictionary_encode()

    def flags(self, name: str) -> pa.Array:
        """A column of the Booleans among the values."""
        return pa.array(self._usable(name, None, bool), pa.bool_())

    def _usable(self, name: str, values: Values, type_: Any) -> list[Any]:
        """The values, null in place of those without the type, which are counted."""
        values = self.values(name) if values is None else values
        with suppress(*_OTHER_TYPE):
            return msgspec.convert(values, list[type_ | None])
        usable = [_typed(value, type_) for value in values]
        wrong = sum(one is not None and other is None for one, other in zip(values, usable, strict=True))
        self.unusable[f"{self.table}.{name}" if self.table else name] += wrong
        return usable


def _typed(value: object, type_: Any) -> Any:
    with suppress(*_OTHER_TYPE):
        return msgspec.convert(value, type_)
    return None


def scalars(value: object, budget: Budget) -> dict[str, Any]:
    """The entries of a dictionary of settings whose values are numbers, strings or Booleans."""
    if type(value) is not dict:
        return {}
    budget.spend(len(value))
    return {key: one for key, one in value.items() if type(key) is str and _is_short(one)}


def _is_short(value: object) -> bool:
    if type(value) is int:
        return -_INT64_LIMIT <= value < _INT64_LIMIT
    return type(value) in (str, bool, type(None)) and len(json.dumps(value)) < 10_000


_FRAMES: Final = "frames"
_FRAME_KEYS: Final = ("filename", "line", "name")
_KEY_SET: Final = frozenset(_FRAME_KEYS)
# New lists and dictionaries after which call stacks are folded.
_FOLD_EVERY: Final = 50_000


class FoldingReader(io.BufferedReader):
    """A file whose reader keeps equal call stacks once, which a pickle repeats for each entry.

    The unpickler reads input many times. In between, every list of frames that is part of a dictionary is
    complete: its content is replaced by a list that all equal stacks share (see `unfolded`). The unpickler
    itself holds each list, so only its content can be released. The garbage collector, which must be
    disabled, lists the new dictionaries.

    Frames are shared objects, lists of frames often are not. A list is looked up by its length and five of
    its frames, then compared: equal objects compare by identity, which is much faster than hashing all.
    """

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(io.FileIO(file.fileno(), closefd=False))
        self._similar: dict[int, list[list[Any]]] = {}

    def peek(self, size: int = 0) -> bytes:
        """As in the base class."""
        self._fold()
        return super().peek(size)

    def read(self, size: int | None = -1) -> bytes:
        """As in the base class."""
        self._fold()
        return super().read(size)

    def _fold(self) -> None:
        if gc.get_count()[0] < _FOLD_EVERY:
            return
        for entry in gc.get_objects(0):
            if type(entry) is dict:
                stack = entry.get(_FRAMES)
                if type(stack) is list and len(stack) > 1:
                    stack[:] = [self._first(stack)]
        gc.freeze()  # so that they are not listed again

    def _first(self, stack: list[Any]) -> list[Any]:
        """The first equal stack, as a separate list. Frames must stay alive."""
        size = len(stack)
        half = size >> 1
        key = hash((
            size, id(stack[0]), id(stack[half >> 1]), id(stack[half]), id(stack[(half + size) >> 1]),
            id(stack[-1]),
        ))  # fmt: skip
        similar = self._similar.setdefault(key, [])
        for other in similar:
            if other == stack:
                return other
        similar.append(stack.copy())
        return similar[-1]


def unfolded(stack: object) -> object:
    """The frames of a stack that may have been folded."""
    if type(stack) is list and len(stack) == 1 and type(stack[0]) is list:
        return stack[0]
    return stack


class SharedFrames:
    """An object hook for JSON, which repeats the content of each frame: equal frames become one object."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], dict[str, Any]] = {}

    def __call__(self, value: dict[str, Any]) -> dict[str, Any]:
        """The first equal frame, or the value if it is not a frame."""
        if value.keys() != _KEY_SET:
            return value
        return self._known.setdefault(tuple(_plain(value, key) for key in _FRAME_KEYS), value)


class Stacks:
    """Numbers for call stacks: equal stacks have the same number."""

    def __init__(self, budget: Budget, unusable: Counter[str]) -> None:
        self._budget, self._unusable = budget, unusable
        # By identity: each with the object, which thus stays alive.
        self._lists: dict[int, tuple[list[Any], int | None]] = {}
        self._objects: dict[int, tuple[Mapping[Any, Any], int]] = {}
        # By content.
        self._stacks: dict[tuple[int, ...], int] = {}
        self._frames: dict[tuple[object, ...], int] = {}

    def numbers(self, stacks: Sequence[object]) -> list[int | None]:
        """The number of each stack; None without frames."""
        return [self._number(stack) for stack in stacks]

    def table(self) -> pa.Table:
        """A row per stack and depth; depth 0 is the innermost frame."""
        frames = [dict(zip(_FRAME_KEYS, frame, strict=True)) for frame in self._frames]
        records = Records(frames, self._unusable, "frames")
        sizes = list(map(len, self._stacks))
        rows = pa.array(chain.from_iterable(self._stacks), pa.int64())
        numbers = (number for number, size in enumerate(sizes) for _ in range(size))
        return pa.table({
            "stack_id": pa.array(numbers, pa.int64()),
            "depth": pa.array(chain.from_iterable(map(range, sizes)), pa.int64()),
            "file": records.texts("filename").take(rows),
            "line": records.ints("line").take(rows),
            "name": records.texts("name").take(rows),
        })  # fmt: skip

    def _number(self, stack: object) -> int | None:
        stack = unfolded(stack)
        if type(stack) is not list or not stack:
            return None
        known = self._lists.get(id(stack))
        if known is None:
            known = self._lists[id(stack)] = stack, self._new_number(stack)
        return known[1]

    def _new_number(self, stack: list[Any]) -> int | None:
        self._budget.spend(len(stack))
        content = tuple(self._frame_number(frame) for frame in stack if type(frame) is dict)
        if len(content) < len(stack):
            self._unusable[_FRAMES] += len(stack) - len(content)
        return self._stacks.setdefault(content, len(self._stacks)) if content else None

    def _frame_number(self, frame: Mapping[Any, Any]) -> int:
        known = self._objects.get(id(frame))
        if known is None:
            content = tuple(_plain(frame, key) for key in _FRAME_KEYS)
            known = self._objects[id(frame)] = frame, self._frames.setdefault(content, len(self._frames))
        return known[1]


def _plain(frame: Mapping[Any, Any], key: str) -> object:
    """A hashable value of a frame."""
    value = frame.get(key)
    return value if type(value) in (str, int, type(None)) else repr(type(value))
