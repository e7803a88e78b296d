"""`tw derive graphs`: operators and modules of replayed GPU activities, from the launches that were captured.

A graph replays the captured launches in their order, so the replayed names are those of the capture, except
for launches that were not replayed (a node without work, or the end of the recording). An edit script from
capture to replay may therefore only delete; where several such scripts exist, positions are a range.

Lists are compared once per distinct pair of shapes. If several captures match a replay, order decides: of as
many captures as replays of that shape in a step, the k-th replay belongs to the k-th capture. Otherwise all
of them are possible, and a column is set only where they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.derive.critical_path import Derived, definition, publish_tables
from tracewarehouse.duck.engine import Connection
from tracewarehouse.ingest.naming import SOURCE_FOLDER
from tracewarehouse.query.connections import connection
from tracewarehouse.runs.readable import derived_fact
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage.model import Json, Rank
from tracewarehouse.storage.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]


# Largest share of the captured launches that may be missing in a replay; one may be missing in a longer list.
_MISSING: Final = 0.01
_LAUNCHES_PER_MISSING: Final = 10


class Alignment(Struct, frozen=True):
    """For each replayed activity, its possible positions in the capture; `exact`: both lists are equal."""

    positions: tuple[tuple[int, ...], ...]
    exact: bool


def align(captured: Sequence[str], replayed: Sequence[str], *, may_be_cut: bool) -> Alignment | None:
    """The alignment of a replay with a capture; None if they are not of the same graph.

    `may_be_cut`: the recording may have ended during the replay, so that its last activities are missing.
    """
    first = _earliest(captured, replayed)
    if not first:
        return None
    begun = captured[: first[-1] + 1] if may_be_cut else captured
    deleted = len(begun) - len(replayed)
    if deleted > max(1, _MISSING * len(begun)) or deleted * _LAUNCHES_PER_MISSING > len(replayed):
        return None
    from_end = _earliest(begun[::-1], replayed[::-1]) or first
    last = [len(begun) - 1 - position for position in reversed(from_end)]
    positions = tuple(
        tuple(position for position in range(low, high + 1) if begun[position] == name)
        for low, high, name in zip(first, last, replayed, strict=True)
    )
    return Alignment(positions, len(captured) == len(replayed))


def _earliest(captured: Sequence[str], replayed: Sequence[str]) -> list[int] | None:
    """The first position of each replayed name after that of the one before; None if one has none."""
    positions, position = [], 0
    for name in replayed:
        while position < len(captured) and captured[position] != name:
            position += 1
        if position == len(captured):
            return None
        positions.append(position)
        position += 1
    return positions


_BETWEEN: Final = " > "
_READS: Final = ("graph_replays", "replayed_activities", "captured_launches", "host_frames")

_REPLAYS = """
SELECT rank, runtime_id, shape, activities, order_in_step, replays_in_step, ended_last
FROM graph_replays
ORDER BY rank, start_ns, runtime_id
"""
_ACTIVITIES = """
SELECT activity.event_id, activity.activity, activity.kernel
FROM replayed_activities AS activity
JOIN graph_replays AS replay
  ON replay.rank = activity.rank
  AND replay.runtime_id = activity.runtime_id
WHERE activity.rank = $rank
ORDER BY replay.start_ns, replay.runtime_id, activity.position
"""
_LAUNCHES = """
SELECT capture, event_id, activity, kernel, op_id, coalesce(pre, 0) AS pre
FROM captured_launches
WHERE rank = $rank
ORDER BY capture, position
"""
_FRAMES = """
SELECT event_id, name, is_module, op_sig, pre, post
FROM host_frames
WHERE rank = $rank
  AND pre < (SELECT max(pre) FROM launched)
  AND post >= (SELECT min(pre) FROM launched)
ORDER BY pre
"""


class Replay(Struct, frozen=True):
    """A launch of a graph: its shape, activities, and place among the replays of the shape in its step."""

    shape: str
    event_ids: Integers
    order: int
    of: int
    ended_last: bool


class Replays(Struct, frozen=True):
    """The replays of a rank; `names` and `activities` hold one replay of each shape."""

    all: tuple[Replay, ...]
    names: Mapping[str, tuple[str, ...]]
    activities: Mapping[str, tuple[str, ...]]


class Launch(Struct, frozen=True):
    """A captured launch and what encloses it."""

    event_id: int
    op_id: int | None
    op_name: str | None
    op_sig: str | None
    path_sig: str | None
    module_path: str | None


class Capture(Struct, frozen=True):
    """A captured graph; `names` is None if the trace does not name the kernels of launches."""

    run: str
    rank: int
    launches: tuple[Launch, ...]
    activities: tuple[str, ...]
    names: tuple[str, ...] | None


def replays_by_rank(con: Connection) -> dict[int, Replays]:
    """Rank → its replays, for ranks that have some."""
    rows = con.execute(_REPLAYS).fetchall()
    ranks = sorted({row[0] for row in rows})
    return {rank: _replays(con, rank, [row for row in rows if row[0] == rank]) for rank in ranks}


def _replays(con: Connection, rank: int, rows: Sequence[tuple[Any, ...]]) -> Replays:
    columns = con.execute(_ACTIVITIES, {"rank": rank}).fetchnumpy()
    replays, names, activities, low = [], {}, {}, 0
    for _, _, shape, count, order, total, ended_last in rows:
        rows_of_replay = slice(low, low + count)
        replays.append(Replay(shape, columns["event_id"][rows_of_replay], order, total, ended_last))
        if shape not in names:
            names[shape] = tuple(columns["kernel"][rows_of_replay].tolist())
            activities[shape] = tuple(columns["activity"][rows_of_replay].tolist())
        low += count
    return Replays(tuple(replays), names, activities)


def captures_of(con: Connection, run: str, rank: int) -> tuple[Capture, ...]:
    """The captures of a rank, in order."""
    rows = con.execute(_LAUNCHES, {"rank": rank}).fetchall()
    if not rows:
        return ()
    launches = _launches(con, rank, rows)
    by_capture: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        by_capture.setdefault(row[0], []).append(row)
    captures = []
    for group in by_capture.values():
        _, event_ids, activities, names, *_ = zip(*group, strict=True)
        of_capture = tuple(launches[event_id] for event_id in event_ids)
        captures.append(Capture(run, rank, of_capture, activities, None if None in names else names))
    return tuple(captures)


def _launches(con: Connection, rank: int, rows: Sequence[tuple[Any, ...]]) -> dict[int, Launch]:
    """Event → the launch with its operator and the frames around it.

    Frames and launches are visited in nesting order, with the frames that are open at each moment.
    """
    frames = iter(_frames(con, rank, rows))
    following = next(frames, None)
    stack: list[_Frame] = []
    by_event = {}
    for _, event_id, _, _, op_id, pre in sorted(rows, key=lambda row: int(row[5])):
        while following is not None and following.pre < pre:
            stack = [frame for frame in stack if following.pre <= frame.post]
            stack.append(following)
            following = next(frames, None)
        around = [frame for frame in stack if pre <= frame.post]
        names = [frame.name for frame in around if frame.name is not None]
        modules = [frame.name for frame in around if frame.is_module and frame.name is not None]
        path, module = (_BETWEEN.join(names_of_frames) or None for names_of_frames in (names, modules))
        op = next((frame for frame in around if frame.event_id == op_id), None)
        name, signature = (op.name, op.op_sig) if op else (None, None)
        by_event[event_id] = Launch(event_id, op_id, name, signature, path, module)
    return by_event


class _Frame(Struct, frozen=True):
    event_id: int
    name: str | None
    is_module: bool
    op_sig: str
    pre: int
    post: int


def _frames(con: Connection, rank: int, rows: Sequence[tuple[Any, ...]]) -> list[_Frame]:
    """The frames around any of the launches, in nesting order."""
    launched = np.unique(np.array([row[5] for row in rows], np.int64))
    con.register("launched", pa.table({"pre": launched}))
    columns = con.execute(_FRAMES, {"rank": rank}).fetchnumpy()
    con.unregister("launched")
    first, last = (
        np.searchsorted(launched, columns[name].astype(np.int64), side="right") for name in ("pre", "post")
    )
    (enclosing,) = np.nonzero(first < last)
    parts = (np.ma.getdata(column)[enclosing].tolist() for column in columns.values())
    return [_Frame(*row) for row in zip(*parts, strict=True)]


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


class Attributed(Struct, frozen=True):
    """The rows of `graph_nodes` of a rank, and how many of its activities have an operator's launch."""

    rows: pa.Table
    activities: int
    attributed: int


class _Match(Struct, frozen=True):
    """The captures that may have become a replay shape, with the alignment of each."""

    how: str
    captures: tuple[tuple[Capture, Alignment], ...]


def attribute(replays: Replays, sources: Sequence[Callable[[], Sequence[Capture]]]) -> Attributed:
    """The launch of each replayed activity; the first source of captures that has a match decides."""
    matcher = _Matcher(replays, sources)
    templates: dict[tuple[str, bool, int | None], int] = {}
    columns: dict[str, list[Any]] = {name: [] for name in _TYPES}
    starts: list[int] = []
    event_ids, rows = [], []
    for replay in replays.all:
        match = matcher.match(replay)
        # Order decides between several captures if all of them are there.
        is_ordered = match is not None and len(match.captures) != 1 and len(match.captures) == replay.of
        capture_index = replay.order - 1 if is_ordered else None
        key = replay.shape, replay.ended_last, capture_index
        if key not in templates:
            templates[key] = len(starts)
            starts.append(len(columns["how"]))
            _add(columns, match, capture_index, len(replay.event_ids))
        event_ids.append(replay.event_ids)
        rows.append(starts[templates[key]] + np.arange(len(replay.event_ids)))
    ids, row_of_id = np.concatenate(event_ids), np.concatenate(rows)
    order = np.argsort(ids)
    listed = {name: pa.array(columns[name], type_) for name, type_ in _TYPES.items()}
    of_activities = {name: column.take(pa.array(row_of_id[order])) for name, column in listed.items()}
    table = pa.table({"event_id": pa.array(ids[order], pa.int64()), **of_activities})
    return Attributed(table, len(ids), len(ids) - of_activities["how"].null_count)


def _add(columns: dict[str, list[Any]], match: _Match | None, chosen: int | None, activities: int) -> None:
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
    is_only_one = len(possible) == 1
    row: dict[str, Any] = {
        "how": how,
        "place_known": is_only_one and how != "by_order",
        "capture_run": capture.run,
        "capture_rank": capture.rank,
        "capture_launch_id": launch.event_id if is_only_one else None,
        "capture_op_id": launch.op_id if is_only_one else None,
    }
    for name in _OF_LAUNCH:
        values = {getattr(launch, name) for _, launch in possible}
        row[name] = values.pop() if len(values) == 1 else None
    return row


class _Matcher(Struct):
    """Finds the captures of replay shapes, each pair of lists once."""

    replays: Replays
    sources: Sequence[Callable[[], Sequence[Capture]]]
    _matches: dict[tuple[str, bool], _Match | None] = field(default_factory=dict)

    def match(self, replay: Replay) -> _Match | None:
        """The captures of a replay, from the first source that has some."""
        key = replay.shape, replay.ended_last
        if key not in self._matches:
            matches = (self._of(captures(), *key) for captures in self.sources)
            self._matches[key] = next((match for match in matches if match), None)
        return self._matches[key]

    def _of(self, captures: Sequence[Capture], shape: str, may_be_cut: bool) -> _Match | None:
        aligned = _aligned(captures, self.replays.names[shape], may_be_cut)
        exact = tuple(match for match in aligned if match[1].exact)
        if exact:
            return _Match("same_list", exact)
        if aligned:
            fewest = min(len(capture.launches) for capture, _ in aligned)
            return _Match("aligned", tuple(match for match in aligned if len(match[0].launches) == fewest))
        activities = self.replays.activities[shape]
        in_order = Alignment(tuple((position,) for position in range(len(activities))), True)
        unnamed = tuple(
            (capture, in_order)
            for capture in captures
            if capture.names is None and capture.activities == activities
        )
        return _Match("by_order", unnamed) if unnamed else None


def _aligned(
    captures: Iterable[Capture], names: tuple[str, ...], may_be_cut: bool
) -> list[tuple[Capture, Alignment]]:
    """The captures with named launches that a replay of these names aligns with."""
    known: Mapping[tuple[str, ...], Alignment | None] = {
        captured: align(captured, names, may_be_cut=may_be_cut)
        for captured in {capture.names for capture in captures if capture.names is not None}
    }
    return [
        (capture, alignment)
        for capture in captures
        if capture.names is not None and (alignment := known[capture.names]) is not None
    ]


NAME: Final = "graphs"
_TABLE: Final = "graph_nodes"


class CaptureRuns(Struct, frozen=True):
    """The runs in which captures are searched, after the run itself: the best candidate of a rank first.

    `named` is the run of `--capture`, used for ranks that it has, else for all if it has only one.
    """

    named: SelectedRun | None
    others: tuple[SelectedRun, ...]

    def of(self, rank: Rank) -> Iterator[tuple[SelectedRun, int]]:
        """Runs and ranks that may have captured the graphs of a rank."""
        if self.named is not None:
            ranks = self.named.ranks
            if rank.rank in ranks or len(ranks) == 1:
                yield self.named, rank.rank if rank.rank in ranks else ranks[0]
            return
        file_name = _file_name(rank)
        candidates = [(run, other) for run in self.others for other in run.by_rank if _fits(rank, other)]
        for run, other in sorted(
            candidates,
            key=lambda place: (-len(commonprefix((file_name, _file_name(place[1])))), place[0].run),
        ):
            yield run, other.rank

    def state(self, ranks: Iterable[Rank]) -> list[Json]:
        """What is searched, for the question whether a stored derivation is current."""
        runs = {f"{run.run} {run.version.source}" for rank in ranks for run, _ in self.of(rank)}
        return [*sorted(runs)]


def _fits(rank: Rank, other: Rank) -> bool:
    """Whether a rank of another run is a capture of this rank: file name, folder, rank and world size."""
    is_capture = "capture" in _file_name(other).lower() and other.run != rank.run
    facts = [(rank.facts.get(name), other.facts.get(name)) for name in ("world_size", SOURCE_FOLDER)]
    return is_capture and other.rank == rank.rank and all(None in pair or len({*pair}) == 1 for pair in facts)


def _file_name(rank: Rank) -> str:
    return str(rank.facts.get("source_name") or "")


def derive_graphs(store: Store, catalog: Catalog, selected: SelectedRun, captures: CaptureRuns) -> Derived:
    """Derives the operators of a run's graph replays, unless they are stored and current. Raises TwError."""
    searched = captures.state(selected.by_rank)
    stored = [derived_fact(rank, NAME) for rank in selected.by_rank]
    current_hash = definition(catalog, NAME)
    ranks: dict[int, tuple[str, ...]] = dict.fromkeys(selected.ranks, ())
    if all(fact.get("hash") == current_hash and fact.get("searched") == searched for fact in stored):
        return Derived(selected.run, ranks, None, (), _counts(stored))
    rows_by_rank = _attribute_ranks(store, catalog, selected, captures)
    if not rows_by_rank:
        notice = f"{selected.run}: no graph launches with GPU activities"
        return Derived(selected.run, ranks, None, (notice,))
    facts = {rank: _rank_fact(rows_by_rank.get(rank), searched) for rank in selected.ranks}
    tables = {_TABLE: {rank: attributed.rows for rank, attributed in rows_by_rank.items()}}
    version = publish_tables(store, catalog, selected, NAME, (tables, facts))
    counts = _counts(list(facts.values()))
    return Derived(selected.run, ranks, version.number if version else None, (), counts)


def _counts(facts: Sequence[dict[str, Json]]) -> tuple[int, int]:
    """Attributed and all replayed activities."""
    attributed, activities = (
        sum(value for fact in facts if isinstance(value := fact.get(name), int))
        for name in ("attributed", "activities")
    )
    return attributed, activities


def _attribute_ranks(
    store: Store, catalog: Catalog, selected: SelectedRun, captures: CaptureRuns
) -> dict[int, Attributed]:
    """Rank → its rows, for ranks with graph replays."""
    attributed = {}
    with ExitStack() as stack:
        connections: dict[str, Connection] = {}

        def connected(run: SelectedRun) -> Connection:
            if run.run not in connections:
                contracts = [catalog.get(name) for name in _READS]
                opened = connection(store, catalog, (run,), contracts)
                connections[run.run] = stack.enter_context(opened)
            return connections[run.run]

        def captures_at(run: SelectedRun, rank: int) -> tuple[Capture, ...]:
            return captures_of(connected(run), run.run, rank)

        replays = replays_by_rank(connected(selected))
        for rank in selected.by_rank:
            if rank.rank in replays:
                runs_and_ranks = [(selected, rank.rank), *captures.of(rank)]
                sources = [cache(partial(captures_at, *run_and_rank)) for run_and_rank in runs_and_ranks]
                attributed[rank.rank] = attribute(replays[rank.rank], sources)
    return attributed


def _rank_fact(rows: Attributed | None, searched: list[Json]) -> dict[str, Json]:
    return {
        "searched": searched,
        "activities": rows.activities if rows else 0,
        "attributed": rows.attributed if rows else 0,
    }
