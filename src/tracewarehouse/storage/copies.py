"""Small objects that nothing else could restore are stored twice, so that the loss of one is noticed.

These are acknowledgements, markers of pending ranks, lists of recorded results, and kept versions of removed
runs. Readers use the first intact one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Generic, TypeVar

from msgspec import Struct

from tracewarehouse.errors import TwError
from tracewarehouse.storage.objects import Objects, names_in

T = TypeVar("T")
_COPY = ".copy"
# `clean` may delete an unpublished commit after its grace period; a younger one is safe.
FRESH = timedelta(hours=1)


class Stored(Generic[T], Struct, frozen=True):
    """An object that is stored twice: value and bytes of the first intact one, and problems by key."""

    key: str
    value: T | None
    problems: tuple[tuple[str, str], ...] = ()
    data: bytes = b""


def key_of_copy(key: str) -> str:
    """The key of the copy of an object."""
    return f"{key}{_COPY}"


def put(objects: Objects, found: Mapping[str, bytes]) -> None:
    """Stores objects twice."""
    objects.put(found)
    objects.put({f"{key}{_COPY}": data for key, data in found.items()})


def delete(objects: Objects, keys: Sequence[str]) -> None:
    """Deletes objects with their copies; after a kill in between they are still stored."""
    objects.delete([f"{key}{_COPY}" for key in keys])
    objects.delete(keys)


def every(objects: Objects, folder: str, decode: Callable[[str, bytes], T]) -> Iterator[Stored[T]]:
    """Every object of a folder; `decode(key, data)` raises ValueError, KeyError or TwError."""
    names = {name.removesuffix(_COPY) for name in names_in(objects, folder)}
    for name in sorted(names):
        yield _stored(objects, f"{folder}/{name}", decode)


def _stored(objects: Objects, key: str, decode: Callable[[str, bytes], T]) -> Stored[T]:
    found: list[tuple[bytes, T]] = []
    problems = []
    for each, data in objects.get_many((key, f"{key}{_COPY}")):
        if data is None:
            problems.append((each, "missing, its copy is there"))
            continue
        try:
            found.append((data, decode(key, data)))
        except (ValueError, KeyError, TypeError, TwError) as error:
            problems.append((each, f"damaged: {error}"))
    if len(found) == 2 and found[0][0] != found[1][0]:
        problems += [(each, "differs from its copy") for each in (key, f"{key}{_COPY}")]
    if found:
        # A call that may still run, or was killed, may not have written the copy yet.
        entry, copy = objects.stat(key), objects.stat(f"{key}{_COPY}")
        if copy is None and entry is not None and objects.clock() - entry.modified < FRESH:
            problems = []
    data, value = found[0] if found else (b"", None)
    return Stored(key, value, tuple(problems), data)
