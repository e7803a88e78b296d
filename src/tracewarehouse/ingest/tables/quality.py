"""Table `data_quality`: each rule that fired on a rank, its number of rows, the affected time, an example.

The rules on launches are in `launch_quality`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.ingest.columns import among
from tracewarehouse.ingest.tables.launch_quality import LAUNCH_RULES
from tracewarehouse.ingest.tables.model import QualityInput, RuleHits
from tracewarehouse.ingest.tables.rows import SENTINEL_IDS, slabs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.formats.base import Finding, Loss, Outcome, Redaction
    from tracewarehouse.ingest.columns import Columns, Ints
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Flags, Numbers, Positions


_HASH_FACTORS: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
SCHEMA: Final = pa.schema(
    {
        "rule": pa.string(),
        "severity": pa.string(),
        "rows": pa.int64(),
        "affected_ns": pa.int64(),
        "example": pa.string(),
    }
)
# Maximum characters of an example; the example of redacted values lists them all.
_EXAMPLE_LENGTH: Final = 200
_REDACTIONS_LENGTH: Final = 4_000


class FiredRule(NamedTuple):
    """A rule that fired: number of rows, affected time (None if it affects no time), and the first row."""

    rule: str
    rows: int
    ns: int | None
    first: int


def fired_rules(given: QualityInput) -> Iterator[FiredRule]:
    """Every rule that fired, in no particular order."""
    for rule, hits in _RULES.items():
        found = hits(given)
        if len(found.rows):
            yield FiredRule(rule, len(found.rows), _total(found.ns), int(found.rows.min()))


def _total(ns: Ints | Numbers | None) -> int | None:
    """The sum of valid values; None if there are none, or if 64 bits cannot hold it."""
    if ns is None:
        return None
    values = ns if isinstance(ns, np.ndarray) else ns.values[ns.valid]
    if not len(values):
        return None
    total = exact_sum(values)
    return total if -(2**63) <= total < 2**63 else None


def exact_sum(lengths: Numbers) -> int:
    """The exact sum, even if 64 bits cannot hold it."""
    return (int((lengths >> 32).sum()) << 32) + int((lengths & 0xFFFFFFFF).sum())


def non_events(columns: Columns) -> Positions:
    """Rows that are not events: not an object, no phase, or neither name nor time."""
    no_phase = ~_has_text(columns, "ph")
    rows = np.flatnonzero(~(no_phase | _has_text(columns, "name") | columns.valid("ts_ns")))
    named = pc.fill_null(pc.match_substring(columns.texts("extra", rows).cast(pa.string()), '"name"'), False)
    bare = columns.texts("ts_text", rows).is_null()
    rows = rows[_flags(pc.and_(bare, pc.invert(named)))]
    return np.sort(np.concatenate((np.flatnonzero(no_phase), rows)))


def _has_text(columns: Columns, name: str) -> Flags:
    return columns.where(name, np.ones(len(columns.words(name)), np.bool_))


def invalid_timeline_rows(timeline: pa.Table) -> Positions:
    """Rows of a memory timeline that are not changes of memory."""
    odd: Positions = timeline.filter(pc.is_valid(timeline.column("element"))).column("event_id").to_numpy()
    return odd


def timeline_rules(timeline: pa.Table) -> Iterator[FiredRule]:
    """The rule that can fire on a memory timeline without activities."""
    odd = invalid_timeline_rows(timeline)
    if len(odd):
        yield FiredRule("non_event", len(odd), None, int(odd.min()))


def _non_event(given: QualityInput) -> RuleHits:
    return RuleHits(non_events(given.columns))


def _unknown_category(given: QualityInput) -> RuleHits:
    words = given.columns.words("raw_category")
    rows = np.flatnonzero(given.columns.where("raw_category", ~among(words, given.rules.categories)))
    return RuleHits(rows, given.columns.ints("dur_ns", rows))


def _duplicate_slice(given: QualityInput) -> RuleHits:
    """A slice with the times, thread, name and category of an earlier one."""
    columns = given.columns
    rows = _repeated(columns, _slices(columns) & columns.valid("ts_ns") & columns.valid("dur_ns"))
    if not len(rows):
        return RuleHits(rows)
    keys: list[Positions] = [columns.codes(name, rows).codes for name in ("category", "name", "tid", "pid")]
    keys += [columns.ints(name, rows).values for name in ("dur_ns", "ts_ns")]
    order = np.lexsort([rows, *keys])
    same = np.ones(len(rows) - 1, np.bool_)
    for key in keys:
        same &= key[order[1:]] == key[order[:-1]]
    rows = rows[order[1:][same]]
    return RuleHits(rows, columns.ints("dur_ns", rows))


def _repeated(columns: Columns, slices: Flags) -> Positions:
    """Slices whose times may equal another's: numbers are compared first, so that few texts need to be."""
    slices = _starting_together(columns, slices)
    counts = [int(np.count_nonzero(slices[part])) for part in slabs(len(slices))]
    ordered = np.empty(sum(counts), np.uint64)
    for part, high in zip(slabs(len(slices)), np.cumsum(counts, dtype=np.int64).tolist(), strict=True):
        hashes = _time_hashes(columns, part)[slices[part]]
        ordered[high - len(hashes) : high] = hashes
    ordered.sort()
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    del ordered
    if not len(repeated):
        return np.empty(0, np.int64)
    found = [
        np.flatnonzero(slices[part] & _is_in(_time_hashes(columns, part), repeated)) + part.start
        for part in slabs(len(slices))
    ]
    return np.concatenate(found)


def _starting_together(columns: Columns, slices: Flags) -> Flags:
    """The slices that start with another one; all of them if rows are not in the order of their start."""
    parts: list[Numbers] = []
    for part in slabs(len(slices)):
        starts = columns.ints("ts_ns", part).values[slices[part]]
        if (starts[1:] < starts[:-1]).any():
            return slices
        parts.append(starts)
    starts = np.concatenate(parts) if parts else np.empty(0, np.int64)
    if (starts[1:] < starts[:-1]).any():
        return slices
    equal = starts[1:] == starts[:-1]
    found = np.zeros(len(slices), np.bool_)
    rows = np.flatnonzero(slices)
    found[rows[1:][equal]] = found[rows[:-1][equal]] = True
    return found


def _time_hashes(columns: Columns, part: slice) -> NDArray[np.uint64]:
    """A hash of start and duration of each row."""
    times, lengths = columns.ints("ts_ns", part).values, columns.ints("dur_ns", part).values
    return times.view(np.uint64) * _HASH_FACTORS[0] + lengths.view(np.uint64) * _HASH_FACTORS[1]


def _is_in(numbers: NDArray[np.uint64], ordered: NDArray[np.uint64]) -> Flags:
    found: Flags = ordered[np.searchsorted(ordered, numbers).clip(max=len(ordered) - 1)] == numbers
    return found


def _slices(columns: Columns) -> Flags:
    return columns.is_one_of("ph", ["X", "B"])


def _untimed(columns: Columns) -> tuple[Positions, Flags]:
    """Slices without a valid duration, and which of them have a negative one in the file."""
    rows = np.flatnonzero(_slices(columns) & ~columns.valid("dur_ns"))
    negative = pc.starts_with(columns.texts("dur_text", rows).cast(pa.string()), "-")
    return rows, _flags(pc.fill_null(negative, False))


def _negative_duration(given: QualityInput) -> RuleHits:
    rows, negative = _untimed(given.columns)
    return RuleHits(rows[negative])


def _epoch_zero(given: QualityInput) -> RuleHits:
    columns = given.columns
    rows = np.flatnonzero(_slices(columns) & ~columns.valid("ts_ns"))
    return RuleHits(rows[_written_as_zero(given, rows)])


def _written_as_zero(given: QualityInput, rows: Positions) -> Flags:
    """Whether the start of each row is the number 0 in the file."""
    numbers = given.rules.numbers(given.columns.texts("ts_text", rows).to_pylist())
    return np.array([number == 0 for number in numbers], np.bool_)


def _unusable_time(given: QualityInput) -> RuleHits:
    columns = given.columns
    rows, negative = _untimed(columns)
    rows = rows[~negative]
    rows = rows[columns.is_one_of("ph", ["X"], rows)]
    return RuleHits(rows[columns.valid("ts_ns", rows) | ~_written_as_zero(given, rows)])


def _open_bracket(given: QualityInput) -> RuleHits:
    columns = given.columns
    begins = np.flatnonzero(columns.is_one_of("ph", ["B"]) & ~columns.valid("end_id"))
    ended = np.flatnonzero(columns.is_one_of("ph", ["E"]))
    return RuleHits(np.concatenate((begins, ended[~np.isin(ended, _known(columns, "end_id")[1])])))


def _crossing_slice(given: QualityInput) -> RuleHits:
    """The affected time is how much later than its parent it ends."""
    columns = given.columns
    rows = np.flatnonzero(columns.flags("crosses"))
    ends, around = (
        columns.ints("ts_ns", some).values + columns.ints("dur_ns", some).values
        for some in (rows, columns.ints("parent_id", rows).values)
    )
    return RuleHits(rows, ends - around)


def _dangling_frame(given: QualityInput) -> RuleHits:
    rows, callers = _known(given.columns, "python_parent_id")
    rows = rows[~np.isin(callers, _known(given.columns, "python_id")[1])]
    return RuleHits(rows, given.columns.ints("dur_ns", rows))


def _known(columns: Columns, name: str) -> tuple[Positions, Numbers]:
    """The rows with a value in a column, and the values."""
    rows = np.flatnonzero(columns.valid(name)).astype(np.int32)
    return rows, columns.ints(name, rows).values


def _flow_without_start(given: QualityInput) -> RuleHits:
    return RuleHits(given.flows_without_start)


def _sentinel_id(given: QualityInput) -> RuleHits:
    """0 is the usual value for no id and is not reported."""
    which = np.zeros(given.columns.rows, np.bool_)
    for name in ("correlation", "external_id"):
        if given.columns.has(name):
            for part in slabs(len(which)):
                ids = given.columns.ints(name, part)
                which[part] |= ids.valid & (ids.values != 0) & np.isin(ids.values, SENTINEL_IDS)
    return RuleHits(np.flatnonzero(which))


def _steps_inferred(given: QualityInput) -> RuleHits:
    steps = given.step_annotations
    return RuleHits(np.zeros(0, np.int64) if steps is None or not steps.inferred else steps.rows)


def _flags(found: pa.Array) -> Flags:
    return found.to_numpy(zero_copy_only=False).astype(np.bool_)  # type: ignore[no-any-return]


_RULES: Final[dict[str, Callable[[QualityInput], RuleHits]]] = {
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


class Row(NamedTuple):
    """A row of the table without its severity."""

    rule: str
    rows: int
    affected_ns: int | None
    example: str | None


def data_quality(
    fired: Iterable[FiredRule], columns: Columns | None, outcome: Outcome, rules: Rules
) -> pa.Table:
    """The rules that fired on the events and the findings of the file reader, by severity and rule.

    Findings of the format are stored unchanged. A rule that is not in `quality_rules` (of a format that is
    registered from outside) gets the severity info.
    """
    rows = [*_of_file(columns, outcome)]
    rows += [Row(each.rule, each.rows, each.ns, _example(columns, each.first)) for each in fired]
    known = rules.quality
    severities = [(known[row.rule].severity if row.rule in known else "info", row) for row in rows]
    severities.sort(key=lambda each: (each[0], each[1].rule))
    return pa.Table.from_pylist(
        [{"severity": severity} | row._asdict() for severity, row in severities], SCHEMA
    )


def _of_file(columns: Columns | None, outcome: Outcome) -> Iterator[Row]:
    """The rules that the file reader determines; none of them affects time."""
    yield from _losses(outcome.losses)
    yield from _redactions(outcome.redactions)
    if columns is not None:
        yield from _repaired(columns)
    yield from _findings(outcome.findings)


def _losses(losses: Iterable[Loss]) -> Iterator[Row]:
    """Lost events (1 if their number is unknown), else byte ranges; the example is the first range."""
    rows: Counter[str] = Counter()
    examples: dict[str, tuple[int, str]] = {}
    for loss in losses:
        rule = "skipped_bytes" if loss.events_lost == 0 else "lost_events"
        rule = "repaired_file" if loss.byte_to == loss.byte_from else rule
        rows[rule] += loss.events_lost or 1
        example = (loss.byte_from, f"bytes {loss.byte_from} to {loss.byte_to}: {loss.reason}")
        examples[rule] = min(examples.get(rule, example), example)
    for rule, count in rows.items():
        yield Row(rule, count, None, examples[rule][1][:_EXAMPLE_LENGTH])


def _redactions(redactions: Iterable[Redaction]) -> Iterator[Row]:
    """All redacted values, by event and path."""
    locations = sorted(
        (-1, f"header {each.path}")
        if each.event_id is None
        else (each.event_id, f"#{each.event_id} {each.path}")
        for each in redactions
    )
    if locations:
        example = ", ".join(text for _, text in locations)
        yield Row("redacted_value", len(locations), None, example[:_REDACTIONS_LENGTH])


def _repaired(columns: Columns) -> Iterator[Row]:
    rows = np.flatnonzero(columns.flags("repaired"))
    if len(rows):
        yield Row("repaired_event", len(rows), None, _example(columns, int(rows[0])))


def _findings(findings: Iterable[Finding]) -> Iterator[Row]:
    """The findings of the format; the rows of several findings of one rule are summed."""
    first: dict[str, Finding] = {}
    rows: Counter[str] = Counter()
    for each in findings:
        first.setdefault(each.rule, each)
        rows[each.rule] += each.rows
    for rule, each in first.items():
        yield Row(rule, rows[rule], None, each.example)


def _example(columns: Columns | None, row: int) -> str:
    """`#`, the event_id and the name."""
    name = None if columns is None else columns.texts("name", np.array([row]))[0].as_py()
    return f"#{row}{'' if name is None else ' ' + name}"[:_EXAMPLE_LENGTH]
