"""Operators and modules of replayed GPU activities, from the launches that were captured.

Lists are compared once per distinct pair of shapes. If several captures match a replay, order decides: of as
many captures as replays of that shape in a step, the k-th replay belongs to the k-th capture. Otherwise all
of them are possible, and a column is set only where they agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tracewarehouse.derive.graph_alignment import Alignment, align
from tracewarehouse.derive.graph_inputs import Capture, Launch, Replay, Replays

_TYPES: Final = {
    "how": pa.string(),
    "place_known": pa.bool_(),
    "capture_run": pa.string(),
    "capture_rank": pa.int32(),
    "capture_launch_id": pa.int64(),
    "capture_op_id": pa.int64(),
    "op_name": pa.string(),
    "op_sig": pa.string(),
    "path_sig": pa.string(),
    "module_path": pa.string(),
}
_OF_LAUNCH: Final = ("op_name", "op_sig", "path_sig", "module_path")
_Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Attributed:
    """The rows of `graph_nodes` of a rank, and how many of its activities have an operator's launch."""

    rows: pa.Table
    activities: int
    attributed: int


@dataclass(frozen=True)
class _Match:
    """The captures that may have become a replay shape, with the alignment of each."""

    how: str
    captures: tuple[tuple[Capture, Alignment], ...]


def attribute(replays: Replays, sources: Sequence[Sequence[Capture]]) -> Attributed:
    """The launch of each replayed activity; the first source of captures that has a match decides."""
    matcher = _Matcher(replays, sources)
    templates: dict[tuple[str, bool, int | None], int] = {}
    columns: _Columns = {name: [] for name in _TYPES}
    starts: list[int] = []
    event_ids, rows = [], []
    for replay in replays.all:
        match = matcher.match(replay)
        chosen = _chosen(match, replay)
        key = replay.shape, replay.ended_last, chosen
        if key not in templates:
            templates[key] = len(starts)
            starts.append(len(columns["how"]))
            _add(columns, match, chosen, len(replay.event_ids))
        event_ids.append(replay.event_ids)
        rows.append(starts[templates[key]] + np.arange(len(replay.event_ids)))
    return _attributed(event_ids, rows, columns)


def _attributed(event_ids: list[Any], rows: list[Any], columns: _Columns) -> Attributed:
    ids, place = np.concatenate(event_ids), np.concatenate(rows)
    order = np.argsort(ids)
    listed = {name: pa.array(columns[name], type_) for name, type_ in _TYPES.items()}
    taken = {name: column.take(pa.array(place[order])) for name, column in listed.items()}
    found = taken["how"]
    return Attributed(
        pa.table({"event_id": pa.array(ids[order], pa.int64()), **taken}),
        len(ids),
        len(ids) - found.null_count,
    )


def _chosen(match: _Match | None, replay: Replay) -> int | None:
    """The index of the replay's capture if order decides between several; None if it does not."""
    if match is None or len(match.captures) == 1 or len(match.captures) != replay.of:
        return None
    return replay.order - 1


def _add(columns: _Columns, match: _Match | None, chosen: int | None, activities: int) -> None:
    """Adds the rows of one replay."""
    if match is None:
        for column in columns.values():
            column += [None] * activities
        return
    captures = match.captures if chosen is None else match.captures[chosen : chosen + 1]
    for index in range(activities):
        possible = [
            (capture, capture.launches[position])
            for capture, alignment in captures
            for position in alignment.positions[index]
        ]
        for name, value in _row(match.how, possible).items():
            columns[name].append(value)


def _row(how: str, possible: Sequence[tuple[Capture, Launch]]) -> dict[str, Any]:
    """The columns in which all possible launches agree."""
    capture, launch = possible[0]
    alone = len(possible) == 1
    row: dict[str, Any] = {
        "how": how,
        "place_known": alone and how != "by_order",
        "capture_run": capture.run,
        "capture_rank": capture.rank,
        "capture_launch_id": launch.event_id if alone else None,
        "capture_op_id": launch.op_id if alone else None,
    }
    for name in _OF_LAUNCH:
        values = {getattr(each, name) for _, each in possible}
        row[name] = values.pop() if len(values) == 1 else None
    return row


@dataclass
class _Matcher:
    """Finds the captures of replay shapes, each pair of lists once."""

    replays: Replays
    sources: Sequence[Sequence[Capture]]
    _matches: dict[tuple[str, bool], _Match | None] = field(default_factory=dict)

    def match(self, replay: Replay) -> _Match | None:
        """The captures of a replay, from the first source that has some."""
        key = replay.shape, replay.ended_last
        if key not in self._matches:
            found = (self._of(captures, *key) for captures in self.sources)
            self._matches[key] = next((match for match in found if match), None)
        return self._matches[key]

    def _of(self, captures: Sequence[Capture], shape: str, may_be_cut: bool) -> _Match | None:
        named = _aligned(captures, self.replays.names[shape], may_be_cut)
        exact = tuple(each for each in named if each[1].exact)
        if exact:
            return _Match("same_list", exact)
        if named:
            fewest = min(len(capture.launches) for capture, _ in named)
            return _Match("aligned", tuple(each for each in named if len(each[0].launches) == fewest))
        equal = tuple(_in_order(captures, self.replays.activities[shape]))
        return _Match("by_order", equal) if equal else None


def _aligned(
    captures: Iterable[Capture], names: tuple[str, ...], may_be_cut: bool
) -> list[tuple[Capture, Alignment]]:
    """The captures with named launches that a replay of these names aligns with."""
    known: Mapping[tuple[str, ...], Alignment | None] = {
        captured: align(captured, names, may_be_cut=may_be_cut)
        for captured in {each.names for each in captures if each.names is not None}
    }
    return [
        (capture, alignment)
        for capture in captures
        if capture.names is not None and (alignment := known[capture.names]) is not None
    ]


def _in_order(
    captures: Iterable[Capture], activities: tuple[str, ...]
) -> Iterable[tuple[Capture, Alignment]]:
    """The captures without names that launch the same activities in the same order."""
    places = Alignment(tuple((position,) for position in range(len(activities))), True)
    for capture in captures:
        if capture.names is None and capture.activities == activities:
            yield capture, places
