"""Call stacks: equal ones are kept once, already while a pickle is loaded. Runs in the child process."""

from __future__ import annotations

import gc
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import IO, Any, Final

import pyarrow as pa

from tracewarehouse.formats.pickles.plain import Budget, Records

_FRAMES: Final = "frames"
_FRAME_KEYS: Final = ("filename", "line", "name")
_KEY_SET: Final = frozenset(_FRAME_KEYS)
# New lists and dictionaries after which call stacks are folded.
_FOLD_EVERY: Final = 50_000


class EqualStacks:
    """Finds the first of equal call stacks.

    Frames are shared objects, lists of frames often are not. A list is looked up by its length and five of
    its frames, then compared: equal objects compare by identity, which is much faster than hashing all.
    """

    def __init__(self) -> None:
        self._similar: dict[int, list[list[Any]]] = {}

    def first(self, stack: list[Any]) -> list[Any]:
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


class FoldingReader(io.BufferedReader):
    """A file whose reader keeps equal call stacks once, which a pickle repeats for each entry.

    The unpickler reads input many times. In between, every list of frames that is part of a dictionary is
    complete: its content is replaced by a list that all equal stacks share (see `unfolded`). The unpickler
    itself holds each list, so only its content can be released. The garbage collector, which must be
    disabled, lists the new dictionaries.
    """

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(io.FileIO(file.fileno(), closefd=False))
        self._equal = EqualStacks()

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
                    stack[:] = [self._equal.first(stack)]
        gc.freeze()  # so that they are not listed again


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
