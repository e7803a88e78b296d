"""The rules of `data_quality` that the events of a rank decide, each with the rows that fall under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.ingest.columns import among
from tracewarehouse.ingest.tables.evidence import Evidence, Hits
from tracewarehouse.ingest.tables.ids import SENTINEL_IDS
from tracewarehouse.ingest.tables.launch_rules import LAUNCH_RULES
from tracewarehouse.ingest.tables.rows import slabs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns, Ints

    Positions = NDArray[np.integer]
    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_MIX: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


class Fired(NamedTuple):
    """A rule that fired: on how many rows, on how much time (None: on no time), and the first row."""

    rule: str
    rows: int
    ns: int | None
    first: int


def fired(evidence: Evidence) -> Iterator[Fired]:
    """Every rule that fired, in no order."""
    for rule, hits in _RULES.items():
        found = hits(evidence)
        if len(found.rows):
            yield Fired(rule, len(found.rows), _total(found.ns), int(found.rows.min()))


def _total(ns: Ints | Numbers | None) -> int | None:
    """The sum of what is there; None where nothing is, or where 64 bits do not hold it."""
    if ns is None:
        return None
    values = ns if isinstance(ns, np.ndarray) else ns.values[ns.valid]
    if not len(values):
        return None
    total = total_ns(values)
    return total if -(2**63) <= total < 2**63 else None


def total_ns(lengths: Numbers) -> int:
    """An exact sum, even where 64 bits do not hold it."""
    return (int((lengths >> 32).sum()) << 32) + int((lengths & 0xFFFFFFFF).sum())


def non_events(columns: Columns) -> Positions:
    """Elements that are no event: no object, or one without phase, or one without name and time."""
    no_phase = ~_has_text(columns, "ph")
    rows = np.flatnonzero(~(no_phase | _has_text(columns, "name") | columns.valid("ts_ns")))
    named = pc.fill_null(pc.match_substring(columns.texts("extra", rows).cast(pa.string()), '"name"'), False)
    bare = columns.texts("ts_text", rows).is_null()
    rows = rows[_flags(pc.and_(bare, pc.invert(named)))]
    return np.sort(np.concatenate((np.flatnonzero(no_phase), rows)))


def _has_text(columns: Columns, name: str) -> Flags:
    return columns.where(name, np.ones(len(columns.words(name)), np.bool_))


def no_changes(timeline: pa.Table) -> Positions:
    """Elements of a memory timeline that are no change of memory."""
    odd: Positions = timeline.filter(pc.is_valid(timeline.column("element"))).column("event_id").to_numpy()
    return odd


def fired_on_timeline(timeline: pa.Table) -> Iterator[Fired]:
    """The rule that a memory timeline without activities may fall under."""
    odd = no_changes(timeline)
    if len(odd):
        yield Fired("non_event", len(odd), None, int(odd.min()))


def _non_event(evidence: Evidence) -> Hits:
    return Hits(non_events(evidence.columns))


def _unknown_category(evidence: Evidence) -> Hits:
    words = evidence.columns.words("raw_category")
    rows = np.flatnonzero(evidence.columns.where("raw_category", ~among(words, evidence.rules.categories)))
    return Hits(rows, evidence.columns.ints("dur_ns", rows))


def _duplicate_slice(evidence: Evidence) -> Hits:
    """A slice that agrees with an earlier one in times, thread, name and category."""
    columns = evidence.columns
    rows = _repeated(columns, _slices(columns) & columns.valid("ts_ns") & columns.valid("dur_ns"))
    if not len(rows):
        return Hits(rows)
    keys: list[Positions] = [columns.codes(name, rows).codes for name in ("category", "name", "tid", "pid")]
    keys += [columns.ints(name, rows).values for name in ("dur_ns", "ts_ns")]
    order = np.lexsort([rows, *keys])
    same = np.ones(len(rows) - 1, np.bool_)
    for key in keys:
        same &= key[order[1:]] == key[order[:-1]]
    rows = rows[order[1:][same]]
    return Hits(rows, columns.ints("dur_ns", rows))


def _repeated(columns: Columns, slices: Flags) -> Positions:
    """Slices that may share both times with another: numbers first, so that few texts are compared."""
    counts = [int(np.count_nonzero(slices[part])) for part in slabs(len(slices))]
    ranked = np.empty(sum(counts), np.uint64)
    for part, high in zip(slabs(len(slices)), np.cumsum(counts, dtype=np.int64).tolist(), strict=True):
        mixed = _mixed(columns, part)[slices[part]]
        ranked[high - len(mixed) : high] = mixed
    ranked.sort()
    twice = ranked[1:][ranked[1:] == ranked[:-1]]
    del ranked
    if not len(twice):
        return np.empty(0, np.int64)
    found = [
        np.flatnonzero(slices[part] & _is_in(_mixed(columns, part), twice)) + part.start
        for part in slabs(len(slices))
    ]
    return np.concatenate(found)


def _mixed(columns: Columns, part: slice) -> NDArray[np.uint64]:
    """A number for start and length of each row."""
    times, lengths = columns.ints("ts_ns", part).values, columns.ints("dur_ns", part).values
    return times.view(np.uint64) * _MIX[0] + lengths.view(np.uint64) * _MIX[1]


def _is_in(numbers: NDArray[np.uint64], ranked: NDArray[np.uint64]) -> Flags:
    found: Flags = ranked[np.searchsorted(ranked, numbers).clip(max=len(ranked) - 1)] == numbers
    return found


def _slices(columns: Columns) -> Flags:
    return columns.is_one_of("ph", ["X", "B"])


def _untimed(columns: Columns) -> tuple[Positions, Flags]:
    """Slices without a usable length, and which of them have a negative one in the file."""
    rows = np.flatnonzero(_slices(columns) & ~columns.valid("dur_ns"))
    negative = pc.starts_with(columns.texts("dur_text", rows).cast(pa.string()), "-")
    return rows, _flags(pc.fill_null(negative, False))


def _negative_duration(evidence: Evidence) -> Hits:
    rows, negative = _untimed(evidence.columns)
    return Hits(rows[negative])


def _epoch_zero(evidence: Evidence) -> Hits:
    columns = evidence.columns
    rows = np.flatnonzero(_slices(columns) & ~columns.valid("ts_ns"))
    return Hits(rows[_written_as_zero(evidence, rows)])


def _written_as_zero(evidence: Evidence, rows: Positions) -> Flags:
    """Rows whose start is the number 0 in the file."""
    numbers = evidence.rules.numbers(evidence.columns.texts("ts_text", rows).to_pylist())
    return np.array([number == 0 for number in numbers], np.bool_)


def _unusable_time(evidence: Evidence) -> Hits:
    columns = evidence.columns
    rows, negative = _untimed(columns)
    rows = rows[~negative]
    rows = rows[columns.is_one_of("ph", ["X"], rows)]
    return Hits(rows[columns.valid("ts_ns", rows) | ~_written_as_zero(evidence, rows)])


def _open_bracket(evidence: Evidence) -> Hits:
    columns = evidence.columns
    begins = np.flatnonzero(columns.is_one_of("ph", ["B"]) & ~columns.valid("end_id"))
    ended = np.flatnonzero(columns.is_one_of("ph", ["E"]))
    return Hits(np.concatenate((begins, ended[~np.isin(ended, _known(columns, "end_id")[1])])))


def _crossing_slice(evidence: Evidence) -> Hits:
    """Time is by how much it ends after the slice around it."""
    columns = evidence.columns
    rows = np.flatnonzero(columns.flags("crosses"))
    ends, around = (
        columns.ints("ts_ns", some).values + columns.ints("dur_ns", some).values
        for some in (rows, columns.ints("parent_id", rows).values)
    )
    return Hits(rows, ends - around)


def _dangling_frame(evidence: Evidence) -> Hits:
    rows, callers = _known(evidence.columns, "python_parent_id")
    rows = rows[~np.isin(callers, _known(evidence.columns, "python_id")[1])]
    return Hits(rows, evidence.columns.ints("dur_ns", rows))


def _known(columns: Columns, name: str) -> tuple[Positions, Numbers]:
    """The rows that have a value of a column, and the values."""
    rows = np.flatnonzero(columns.valid(name)).astype(np.int32)
    return rows, columns.ints(name, rows).values


def _flow_without_start(evidence: Evidence) -> Hits:
    return Hits(evidence.startless)


def _sentinel_id(evidence: Evidence) -> Hits:
    """0 is ordinary where there is no id, and is not reported."""
    which = np.zeros(evidence.columns.rows, np.bool_)
    for name in ("correlation", "external_id"):
        if evidence.columns.has(name):
            for part in slabs(len(which)):
                ids = evidence.columns.ints(name, part)
                which[part] |= ids.valid & (ids.values != 0) & np.isin(ids.values, SENTINEL_IDS)
    return Hits(np.flatnonzero(which))


def _steps_inferred(evidence: Evidence) -> Hits:
    marks = evidence.marks
    return Hits(np.zeros(0, np.int64) if marks is None or not marks.inferred else marks.rows)


def _flags(found: pa.Array) -> Flags:
    return found.to_numpy(zero_copy_only=False).astype(np.bool_)  # type: ignore[no-any-return]


_RULES: Final[dict[str, Callable[[Evidence], Hits]]] = {
    "non_event": _non_event,
    "unknown_category": _unknown_category,
    "duplicate_slice": _duplicate_slice,
    "negative_duration": _negative_duration,
    "epoch_zero": _epoch_zero,
    "invalid_time": _unusable_time,
    "unpaired_begin_end": _open_bracket,
    "crossing_slice": _crossing_slice,
    "dangling_frame": _dangling_frame,
    "flow_without_start": _flow_without_start,
    "sentinel_id": _sentinel_id,
    "steps_inferred": _steps_inferred,
    **LAUNCH_RULES,
}
