"""Graph replays and graph captures of a rank, as `tw derive graphs` compares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.duck.engine import Connection
from tracewarehouse.query.connections import connection
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Versions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

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


@dataclass(frozen=True)
class Replay:
    """A launch of a graph: its shape, activities, and place among the replays of the shape in its step."""

    shape: str
    event_ids: Integers
    order: int
    of: int
    ended_last: bool


@dataclass(frozen=True)
class Replays:
    """The replays of a rank; `names` and `activities` hold one replay of each shape."""

    all: tuple[Replay, ...]
    names: Mapping[str, tuple[str, ...]]
    activities: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Launch:
    """A captured launch and what encloses it."""

    event_id: int
    op_id: int | None
    op_name: str | None
    op_sig: str | None
    path_sig: str | None
    module_path: str | None


@dataclass(frozen=True)
class Capture:
    """A captured graph; `names` is None if the trace does not name the kernels of launches."""

    run: str
    rank: int
    launches: tuple[Launch, ...]
    activities: tuple[str, ...]
    names: tuple[str, ...] | None


@contextmanager
def opened(store: Versions, catalog: Catalog, selected: SelectedRun) -> Iterator[Connection]:
    """A connection with what replays and captures are read from. Raises WarehouseError."""
    contracts = [catalog.get(name) for name in _READS]
    with connection(store, catalog, (selected,), contracts) as con:
        yield con


def replays_by_rank(con: Connection) -> dict[int, Replays]:
    """Rank → its replays, for ranks that have some."""
    rows = con.execute(_REPLAYS).fetchall()
    ranks = sorted({row[0] for row in rows})
    return {rank: _replays(con, rank, [row for row in rows if row[0] == rank]) for rank in ranks}


def _replays(con: Connection, rank: int, rows: Sequence[tuple[Any, ...]]) -> Replays:
    columns = con.execute(_ACTIVITIES, {"rank": rank}).fetchnumpy()
    found, names, activities, low = [], {}, {}, 0
    for _, _, shape, count, order, of, ended_last in rows:
        part = slice(low, low + count)
        found.append(Replay(shape, columns["event_id"][part], order, of, ended_last))
        if shape not in names:
            names[shape] = tuple(columns["kernel"][part].tolist())
            activities[shape] = tuple(columns["activity"][part].tolist())
        low += count
    return Replays(tuple(found), names, activities)


def captures_of(con: Connection, run: str, rank: int) -> tuple[Capture, ...]:
    """The captures of a rank, in order."""
    rows = con.execute(_LAUNCHES, {"rank": rank}).fetchall()
    if not rows:
        return ()
    launches = _launches(con, rank, rows)
    by_capture: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        by_capture.setdefault(row[0], []).append(row)
    return tuple(_capture(run, rank, launches, group) for group in by_capture.values())


def _capture(run: str, rank: int, launches: Mapping[int, Launch], rows: Sequence[tuple[Any, ...]]) -> Capture:
    names = tuple(row[3] for row in rows)
    return Capture(
        run,
        rank,
        tuple(launches[row[1]] for row in rows),
        tuple(row[2] for row in rows),
        None if None in names else names,
    )


def _launches(con: Connection, rank: int, rows: Sequence[tuple[Any, ...]]) -> dict[int, Launch]:
    """Event → the launch with its operator and the frames around it.

    Frames and launches are visited in nesting order, with the frames that are open at each moment.
    """
    frames = iter(_frames(con, rank, rows))
    following = next(frames, None)
    stack: list[_Frame] = []
    found = {}
    for _, event_id, _, _, op_id, pre in sorted(rows, key=lambda row: int(row[5])):
        while following is not None and following.pre < pre:
            stack = [frame for frame in stack if following.pre <= frame.post]
            stack.append(following)
            following = next(frames, None)
        around = [frame for frame in stack if pre <= frame.post]
        found[event_id] = _launch(event_id, op_id, around)
    return found


@dataclass(frozen=True)
class _Frame:
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
    (kept,) = np.nonzero(first < last)
    parts = (np.ma.getdata(column)[kept].tolist() for column in columns.values())
    return [_Frame(*row) for row in zip(*parts, strict=True)]


def _launch(event_id: int, op_id: int | None, around: Sequence[_Frame]) -> Launch:
    names = [frame.name for frame in around if frame.name is not None]
    modules = [frame.name for frame in around if frame.is_module and frame.name is not None]
    op = next((frame for frame in around if frame.event_id == op_id), None)
    path, module = (_BETWEEN.join(part) or None for part in (names, modules))
    return Launch(event_id, op_id, op.name if op else None, op.op_sig if op else None, path, module)
