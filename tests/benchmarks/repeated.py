"""Builds a longer trace from a short one: its events repeated with later times and new ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from isal import igzip

# Numbers that grow from one repetition to the next; 0 means none and is unchanged.
_TIME = r'(?<="ts": )\d+(?=\.)'
_STEP = r"(?<=ProfilerStep#)\d+"
_KINDS = "External id|correlation|id|Ev Idx|Python id|Python parent id|Sequence number|Record function id"
_ID = rf'(?<=")(?:{_KINDS}|wait_on_cuda_event_record_corr_id|wait_on_cuda_event_id)": (?=[1-9])'
_NUMBER = re.compile(rf"({_TIME})|({_STEP})|({_ID})(\d+)")
# Events that are written once: names of threads and processes, and markers of the profiler.
_ONCE = re.compile(r'"ph": "(M|i)"|"cat": "Trace"')
_LENGTH = re.compile(r'"ts": (\d+)\.\d+,\s*"dur": (\d+)')


class _Trace(msgspec.Struct):
    traceEvents: msgspec.Raw


@dataclass(frozen=True)
class Base:
    """A trace to repeat: text before, between and after its events, and what grows in them.

    `chunks` alternates texts and numbers; a number is (kind, value).
    """

    before: str
    after: str
    once: str
    chunks: tuple[str | tuple[str, int], ...]
    again: int
    written_once: int
    grows: dict[str, int]

    def events(self, times: int) -> int:
        """The number of events of `times` repetitions."""
        return self.written_once + times * self.again

    def texts(self, times: int) -> Iterator[str]:
        """The text of the trace in chunks."""
        yield self.before + "[\n  " + self.once
        for number in range(times):
            grown = {kind: number * by for kind, by in self.grows.items()}
            yield ",\n  "
            yield "".join(p if isinstance(p, str) else str(p[1] + grown[p[0]]) for p in self.chunks)
        yield "\n  ]" + self.after


def base(path: Path) -> Base:
    """Reads a simulated trace (.json.gz) to repeat."""
    text = igzip.decompress(path.read_bytes())
    array = bytes(msgspec.json.decode(text, type=_Trace).traceEvents)
    before, _, after = text.decode().partition(array.decode())
    events = [bytes(each).decode() for each in msgspec.json.decode(array, type=list[msgspec.Raw])]
    again = [each for each in events if not _ONCE.search(each)]
    once = [each for each in events if _ONCE.search(each)]
    chunks = tuple(_cut(",\n  ".join(again)))
    found = [tuple(map(int, each)) for each in _LENGTH.findall("".join(again))]
    period_us = max(ts + dur for ts, dur in found) - min(ts for ts, _ in found) + 100
    numbers = [p for p in chunks if not isinstance(p, str)]
    most = {kind: max((n for k, n in numbers if k == kind), default=0) for kind in ("id", "step")}
    grows = {"ts": period_us, **most}
    return Base(before, after, ",\n  ".join(once), chunks, len(again), len(once), grows)


def _cut(text: str) -> Iterator[str | tuple[str, int]]:
    at = 0
    for found in _NUMBER.finditer(text):
        time, step, name, number = found.groups()
        yield text[at : found.start()] + (name or "")
        yield ("ts", int(time)) if time else ("step", int(step)) if step else ("id", int(number))
        at = found.end()
    yield text[at:]


def write(made: Base, times: int, path: Path) -> int:
    """Writes `times` repetitions as .json.gz; returns the size of the text in bytes."""
    size = 0
    with igzip.open(path, "wb", compresslevel=1) as out:
        for text in made.texts(times):
            size += out.write(text.encode())
    return size
