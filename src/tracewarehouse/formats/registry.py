"""The formats that are read, in the order in which they are asked whether a file is theirs."""

from __future__ import annotations

import pickle
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracewarehouse.formats.base import Format

_registered: list[Format] = []


def register(format: Format) -> None:
    """Adds a format, or replaces the one of that name. It is asked before those of the package."""
    unregister(format.name)
    _registered.insert(0, format)


def unregister(name: str) -> None:
    """Takes a registered format out; one that comes with the package is there again."""
    _registered[:] = [known for known in _registered if known.name != name]


def formats() -> tuple[Format, ...]:
    """Every format, each name once."""
    found = {format.name: format for format in reversed((*_registered, *_of_the_package()))}
    order = dict.fromkeys(format.name for format in (*_registered, *_of_the_package()))
    return tuple(found[name] for name in order)


def format_named(name: str) -> Format | None:
    """The format of that name."""
    return next((format for format in formats() if format.name == name), None)


def can_be_sent() -> bool:
    """Whether worker processes can load what is registered: no class of a script, notebook or function."""
    try:
        return all(b"__main__" not in pickle.dumps(format) for format in _registered)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False


@cache
def _of_the_package() -> tuple[Format, ...]:
    from tracewarehouse.formats.kineto.format import KinetoFormat
    from tracewarehouse.formats.memory_timeline import MemoryTimelineFormat

    return MemoryTimelineFormat(), KinetoFormat()
