"""The table `flows`: both ends of arrows between rows, and which start belongs to which end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from tracewarehouse.ingest.tables.events import SLAB_ROWS
from tracewarehouse.ingest.tables.made import numbers, rows_or_null, taken, worded
from tracewarehouse.ingest.tables.rows import local_codes, threads
from tracewarehouse.ingest.tables.search import last_before

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns, Ints
    from tracewarehouse.ingest.tables.model import Nesting

    Positions = NDArray[np.int64]
    Flags = NDArray[np.bool_]

COLUMNS = (
    "event_id", "category", "flow_id", "name", "role", "pid", "tid", "ts_ns", "start_id", "slice_id",
)  # fmt: skip
ROLES = {"s": "start", "t": "step", "f": "end"}
# Arrows from a launch to a GPU row; their ends are the pairs of `correlations`.
LAUNCH_CATEGORY = "ac2g"
OPERATOR_CATEGORY = "cpu_op"


class Ends(NamedTuple):
    """Rows that are ends of arrows. `group` numbers id and category as in the file, -1 without an id."""

    rows: Positions
    is_start: Flags
    group: Positions
    ts_ns: Ints


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
    return Arrows(ends.rows, _starts(ends), _operators(columns, nesting, ends.rows))


def flow_slabs(columns: Columns, arrows: Arrows, slab_rows: int = SLAB_ROWS) -> Iterator[pa.Table]:
    """The table in slabs, at least one."""
    phases = columns.codes("ph")
    roles = pa.array([ROLES.get(word) for word in phases.words.to_pylist()], pa.string())
    for low in range(0, max(len(arrows.rows), 1), slab_rows):
        rows, start, bound = (each[low : low + slab_rows] for each in arrows)
        found = taken(columns, rows, {name: name for name in ("category", "flow_id", "name", "pid", "tid")})
        times = columns.ints("ts_ns", rows)
        found |= {
            "event_id": numbers(rows),
            "role": worded(phases.codes[rows], roles),
            "ts_ns": numbers(times.values, times.valid),
            "start_id": rows_or_null(start),
            "slice_id": rows_or_null(bound),
        }
        yield pa.table({name: found[name] for name in COLUMNS})


def _ends(columns: Columns) -> Ends:
    phases = columns.codes("ph")
    rows = np.flatnonzero(phases.is_one_of(ROLES))
    codes = local_codes(columns.texts("flow_id", rows))[0].astype(np.int64)
    category = columns.codes("raw_category")
    group = np.where(codes < 0, -1, codes * (len(category.words) + 1) + category.codes[rows] + 1)
    return Ends(rows, phases.is_one_of(["s"])[rows], group, columns.ints("ts_ns", rows))


def _starts(ends: Ends) -> Positions:
    """The row of the start of each end; -1 where the file has none."""
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
    return np.where(found < 0, -1, ends.rows[found])


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


def _operators(columns: Columns, nesting: Nesting, rows: Positions) -> Positions:
    """The row of the innermost operator that starts with each end on its thread; -1 where there is none."""
    category = columns.codes("category")
    times = columns.ints("ts_ns")
    found = np.full(len(rows), -1, np.int64)
    other = (category.codes[rows] >= 0) & ~category.is_one_of([LAUNCH_CATEGORY])[rows]
    other &= (threads(columns, rows) >= 0) & times.valid[rows]
    asked = rows[other]
    if not len(asked):
        return found
    operators = nesting.rows[category.is_one_of([OPERATOR_CATEGORY])[nesting.rows]]
    operators = operators[np.isin(times.values[operators], times.values[asked])]
    # In the order of nesting the innermost of operators that start together comes last.
    place = last_before(
        threads(columns, operators), times.values[operators], threads(columns, asked), times.values[asked]
    )
    row = np.append(operators, -1)[place]
    found[other] = np.where((place >= 0) & (times.values[row] == times.values[asked]), row, -1)
    return found
