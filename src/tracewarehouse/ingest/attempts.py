"""Attempts: the starts of one job under one name. The first is run `RUN`, later ones `RUN+1`, `RUN+2`, ….

Ranks belong to one start if the trace handler says so, else if their recordings overlap. A rank that is there
already is of another start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct, field

from tracewarehouse.formats.base import number
from tracewarehouse.ingest.outcome import content_of
from tracewarehouse.ingest.sources import Source, TimeWindow
from tracewarehouse.storage.model import Json, RankSource

# The fact of a rank with what the trace handler said about its process.
_FACT: Final = "attempt"
# Rank, profiling window, and what the source adds to a rank.
Place: TypeAlias = tuple[int, int, str]
# First start and last end.
Span: TypeAlias = tuple[int, int]


class Recording(Struct, frozen=True):
    """A source, stored or new, as far as its attempt is known.

    `content` identifies what is in the file; `keys` are those of the trace handler, `process` is its process,
    "" for files that it did not write. `is_replaceable`: another recording may take its place.
    """

    place: Place
    content: tuple[str, str]
    span: Span | None
    process: str
    keys: Mapping[str, str]
    is_replaceable: bool = False

    def is_same(self, stored: Recording) -> bool:
        """Whether both are one recording: a process writes each of its windows once."""
        return self.content == stored.content or bool(self.process) and self.process == stored.process


def recording_of(source: Source, rank: int) -> Recording:
    """A new source. Before it is read, its content is unknown, and its times if the beginning lacks them."""
    note, commit = source.file.note, source.commit
    window_number = (note.window_number if note else None) or 1
    return Recording(
        (rank, window_number, source.part.addition),
        (commit.digest if commit else str(source.file.path), source.part.name),
        _span(commit.window if commit else source.part.window or (None, None)),
        note.process if note else "",
        note.attempt if note else {},
    )


def _span(window: TimeWindow) -> Span | None:
    start, end = window
    return None if start is None or end is None else (start, end)


def attempt_fact(source: Source) -> dict[str, Json]:
    """What is stored with a rank, so that later ones find their attempt; nothing without a trace handler."""
    note = source.file.note
    if note is None or not note.process:
        return {}
    return {_FACT: {"process": note.process, "keys": dict(note.attempt), "span": note.window_number}}


def stored_recording(source: RankSource, window_number: int, may_replace: bool) -> Recording:
    """A stored source of the run of a window."""
    fact = source.facts.get(_FACT)
    note = fact if isinstance(fact, dict) else {}
    keys = note.get("keys")
    start, end = source.facts.get("start_ns"), source.facts.get("end_ns")
    return Recording(
        (source.rank, number(note.get("span")) or window_number, content_of(source.facts, "intact").addition),
        (source.digest, source.part),
        (start, end) if isinstance(start, int) and isinstance(end, int) else None,
        str(note.get("process") or ""),
        {str(kind): str(key) for kind, key in keys.items()} if isinstance(keys, dict) else {},
        may_replace or source.status == "damaged",
    )


def run_of_attempt(run: str, attempt: int) -> str:
    """The name of the run of an attempt, from 0."""
    return f"{run}+{attempt}" if attempt else run


def place_of_run(run: str, name: str) -> tuple[int, int] | None:
    """The attempt and the window of a run with this name, if it may be of job `run`."""
    match = re.fullmatch(rf"{re.escape(run)}(?:\+([1-9]\d{{0,5}}))?(?:~(\d{{1,6}}))?", name, re.IGNORECASE)
    return (int(match[1] or 0), int(match[2] or 1)) if match else None


class Attempt(Struct):
    """What is known of a start of the job: its recordings by place, and what they have in common."""

    held: dict[Place, Recording] = field(default_factory=dict)
    keys: dict[str, set[str]] = field(default_factory=dict)
    processes: set[str] = field(default_factory=set)
    # Of the recordings whose times are known.
    span: Span | None = None

    def add(self, recording: Recording) -> None:
        """Adds a recording, in place of one that it replaces."""
        self.held[recording.place] = recording
        self.processes.add(recording.process)
        for kind, key in recording.keys.items():
            self.keys.setdefault(kind, set()).add(key)
        spans = [span for span in (self.span, recording.span) if span]
        self.span = (min(start for start, _ in spans), max(end for _, end in spans)) if spans else None

    def has_keys(self, keys: Mapping[str, str]) -> bool | None:
        """What the first kind of key that both have says; None if there is none."""
        return next((key in self.keys[kind] for kind, key in keys.items() if kind in self.keys), None)

    def suits(self, members: Sequence[Recording]) -> int:
        """How well the recordings of a process suit it; 0 if they are of another start."""
        is_same = self.has_keys(max((recording.keys for recording in members), key=len))
        occupied = [(new, self.held[new.place]) for new in members if new.place in self.held]
        if is_same is False:
            return 0
        if any(new.is_same(stored) for new, stored in occupied):
            return 5
        if not all(stored.is_replaceable for _, stored in occupied):
            return 0
        if members[0].process and members[0].process in self.processes:
            return 4
        spans = [recording.span for recording in members if recording.span]
        is_at_once = not (self.span and spans) or any(
            start <= self.span[1] and self.span[0] <= end for start, end in spans
        )
        return 2 * is_at_once + bool(is_same)


def is_mixed(sources: Iterable[RankSource]) -> bool:
    """Whether sources of a run are of different starts, by what the trace handler said."""
    attempt = Attempt()
    for source in sources:
        recording = stored_recording(source, 1, may_replace=False)
        if attempt.has_keys(recording.keys) is False:
            return True
        attempt.add(recording)
    return False


def number_attempts(recordings: Sequence[Recording], stored: Sequence[Attempt]) -> list[int]:
    """The attempt of each new recording, in their order; those of one process are in one attempt."""
    attempts = list(stored)
    processes: dict[str, list[int]] = {}
    for index, recording in enumerate(recordings):
        processes.setdefault(recording.process, []).append(index)
    numbers = [0] * len(recordings)
    for indexes in processes.values():
        members = [recordings[index] for index in indexes]
        suits = [attempt.suits(members) for attempt in attempts]
        # The newest of those that suit best.
        best = max(range(len(suits)), key=lambda attempt: (suits[attempt], attempt), default=0)
        if not suits or not suits[best]:
            best = len(attempts)
            attempts.append(Attempt())
        for index, recording in zip(indexes, members, strict=True):
            attempts[best].add(recording)
            numbers[index] = best
    return numbers
