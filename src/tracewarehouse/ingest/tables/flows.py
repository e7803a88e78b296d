"""The table `flows`: both ends of arrows between rows, and which start belongs to which end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tracewarehouse.ingest.tables.events import SLAB_ROWS
from tracewarehouse.ingest.tables.flow_ids import flow_numbers
from tracewarehouse.ingest.tables.made import numbers, rows_or_null, taken, worded
from tracewarehouse.ingest.tables.rows import slabs
from tracewarehouse.ingest.tables.search import last_before
from tracewarehouse.ingest.tables.stretches import host_lanes, moments, operators

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns, Ints
    from tracewarehouse.ingest.tables.model import Nesting

    Positions = NDArray[np.integer[Any]]
    Flags = NDArray[np.bool_]

COLUMNS = (
    "event_id", "category", "flow_id", "name", "role", "pid", "tid", "ts_ns", "start_id", "slice_id",
)  # fmt: skip
ROLES = {"s": "start", "t": "step", "f": "end"}
# Arrows from a launch to a GPU row; their ends are the pairs of `correlations`.
LAUNCH_CATEGORY = "ac2g"
# Of more ends than this, some ids are looked at at a time.
_PART_ENDS: Final = 1 << 19
_MOST_PARTS: Final = 127
# Spreads ids over parts.
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


class Ends(NamedTuple):
    """Rows that are ends of arrows. `group` numbers id and category as in the file, -1 without an id."""

    rows: Positions
    is_start: Flags
    group: NDArray[np.int64]
    ts_ns: Ints

    def only(self, some: NDArray[np.int64]) -> Ends:
        """Some of them."""
        times = type(self.ts_ns)(self.ts_ns.values[some], self.ts_ns.valid[some])
        return Ends(self.rows[some], self.is_start[some], self.group[some], times)


class Arrows(NamedTuple):
    """The rows of `flows`, where each arrow starts and what slice it is bound to; -1 for none."""

    rows: Positions
    start: Positions
    bound: Positions

    @property
    def without_start(self) -> Positions:
        """The rows whose arrow starts nowhere in the file."""
        return self.rows[self.start < 0]


def flows(columns: Columns, nesting: Nesting) -> pa.Table:
    """The table as a whole; see `find_arrows`."""
    return pa.concat_tables(flow_slabs(columns, find_arrows(columns, nesting)), promote_options="permissive")


def find_arrows(columns: Columns, nesting: Nesting) -> Arrows:
    """Every row of phase s, t or f, in the order of the file.

    `start_id` of a step or end is the last start with its id and category (as the file spells it) that is not
    after it, else the first after it; of starts at one time the first in the file. Where a time is missing,
    the first start in the file that has a time, else the first of all; of an end without a time the first of
    all. A start is its own. `slice_id` is the innermost operator on the same thread that starts at the same
    time; null for arrows from launches to GPU rows.
    """
    ends = _ends(columns)
    start = _all_starts(ends)
    rows, ts_ns = ends.rows, ends.ts_ns
    del ends
    return Arrows(rows, start, _operators(columns, nesting, rows, ts_ns))


def flow_slabs(columns: Columns, arrows: Arrows, slab_rows: int = SLAB_ROWS) -> Iterator[pa.Table]:
    """The table in slabs, at least one."""
    roles = pa.array([ROLES.get(word) for word in columns.words("ph").to_pylist()], pa.string())
    for low in range(0, max(len(arrows.rows), 1), slab_rows):
        rows, start, bound = (each[low : low + slab_rows] for each in arrows)
        found = taken(columns, rows, {name: name for name in ("category", "flow_id", "name", "pid", "tid")})
        times = columns.ints("ts_ns", rows)
        found |= {
            "event_id": numbers(rows),
            "role": worded(columns.codes("ph", rows).codes, roles),
            "ts_ns": numbers(times.values, times.valid),
            "start_id": rows_or_null(start),
            "slice_id": rows_or_null(bound),
        }
        yield pa.table({name: found[name] for name in COLUMNS})


def _ends(columns: Columns) -> Ends:
    rows = np.flatnonzero(columns.is_one_of("ph", ROLES)).astype(np.int32)
    group = flow_numbers(columns, rows)
    return Ends(rows, columns.is_one_of("ph", ["s"], rows), group, columns.ints("ts_ns", rows))


def _all_starts(ends: Ends) -> Positions:
    """The row of the start of each end, -1 where the file has none; of many ends some ids at a time."""
    parts = min(len(ends.rows) // _PART_ENDS + 1, _MOST_PARTS)
    if parts == 1:
        return _starts(ends)
    part_of = np.empty(len(ends.rows), np.int8)
    for slab in slabs(len(part_of)):
        part_of[slab] = ((ends.group[slab].view(np.uint64) * _MIX) >> np.uint64(32)) % np.uint64(parts)
    found = np.empty(len(ends.rows), np.int32)
    for part in range(parts):
        some = np.flatnonzero(part_of == part)
        found[some] = _starts(ends.only(some))
    return found


def _starts(ends: Ends) -> Positions:
    """The row of the start of each end; -1 where there is none."""
    found = np.full(len(ends.rows), -1, np.int64)
    asked = np.flatnonzero(~ends.is_start & (ends.group >= 0))
    given = np.flatnonzero(ends.is_start & (ends.group >= 0))
    timed, untimed = given[ends.ts_ns.valid[given]], given[~ends.ts_ns.valid[given]]
    with_time = asked[ends.ts_ns.valid[asked]]
    found[with_time] = _nearest(ends, timed, with_time)
    without = with_time[found[with_time] < 0]
    found[without] = _first(ends, untimed, without)
    no_time = asked[~ends.ts_ns.valid[asked]]
    found[no_time] = _first(ends, given, no_time)
    found[ends.is_start] = np.flatnonzero(ends.is_start)
    return np.where(found < 0, np.int32(-1), ends.rows[found])


def _nearest(ends: Ends, given: Positions, asked: Positions) -> Positions:
    """Of starts the last one at or before each end, else the first after it."""
    group, times = ends.group, ends.ts_ns.values
    # Of starts at one time the first in the file: turned round, it is the last.
    given = given[::-1]
    before = last_before(group[given], times[given], group[asked], times[asked])
    after = last_before(group[given], ~times[given], group[asked], ~times[asked])
    found = np.where(before < 0, after, before)
    return np.where(found < 0, -1, np.append(given, -1)[found])


def _first(ends: Ends, given: Positions, asked: Positions) -> Positions:
    """The first start of each end's id in the file."""
    given = given[::-1]
    same = np.zeros(len(given) + len(asked), np.int64)
    found = last_before(ends.group[given], same[: len(given)], ends.group[asked], same[len(given) :])
    return np.where(found < 0, -1, np.append(given, -1)[found])


def _operators(columns: Columns, nesting: Nesting, rows: Positions, ts_ns: Ints) -> Positions:
    """The row of the innermost operator that starts with each end on its thread; -1 where there is none."""
    found = np.full(len(rows), -1, np.int32)
    category = columns.codes("category", rows)
    asked = np.flatnonzero((category.codes >= 0) & ~category.is_one_of([LAUNCH_CATEGORY]) & ts_ns.valid)
    del category
    if not len(asked):
        return found
    ends = moments(host_lanes(columns, nesting, rows[asked]), ts_ns.values[asked])
    for stretch, some in ends.within(columns, nesting):
        places = operators(columns, nesting, stretch)
        starts = columns.ints("ts_ns", nesting.rows[places]).values
        # In the order of nesting the innermost of operators that start together comes last.
        at = some.latest(nesting, places, starts)
        at[np.append(starts, 0)[at] != some.ts_ns] = -1
        found[asked[some.number]] = np.append(nesting.rows[places], np.int32(-1))[at]
    return found
