"""The table `data_quality`: each rule that fired on a rank, how often, on how much time, and an example."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from tracewarehouse.formats.base import Finding, Loss, Outcome, Redaction
    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.event_rules import Fired

SCHEMA: Final = pa.schema(
    {
        "rule": pa.string(),
        "severity": pa.string(),
        "rows": pa.int64(),
        "affected_ns": pa.int64(),
        "example": pa.string(),
    }
)
# Characters of an example; redacted values have one example each.
_EXAMPLE_LENGTH: Final = 200
_REDACTIONS_LENGTH: Final = 4_000


class Row(NamedTuple):
    """A row of the table but for its severity."""

    rule: str
    rows: int
    affected_ns: int | None
    example: str | None


def data_quality(fired: Iterable[Fired], columns: Columns | None, outcome: Outcome, rules: Rules) -> pa.Table:
    """The rules that fired on the events, and what reading the file found, by severity and rule.

    Findings of the format stand as it gives them. A rule without a severity in `quality_rules`, of a format
    that was registered from outside, is stored as info.
    """
    rows = [*_of_file(columns, outcome)]
    rows += [Row(each.rule, each.rows, each.ns, _example(columns, each.first)) for each in fired]
    known = rules.quality
    told = [(known[row.rule].severity if row.rule in known else "info", row) for row in rows]
    told.sort(key=lambda each: (each[0], each[1].rule))
    return pa.Table.from_pylist([{"severity": severity} | row._asdict() for severity, row in told], SCHEMA)


def _of_file(columns: Columns | None, outcome: Outcome) -> Iterator[Row]:
    """The rules that only reading the file gives; none of them concerns time."""
    yield from _losses(outcome.losses)
    yield from _redactions(outcome.redactions)
    if columns is not None:
        yield from _repaired(columns)
    yield from _findings(outcome.findings)


def _losses(losses: Iterable[Loss]) -> Iterator[Row]:
    """Events lost (1 where the number is not known), else places; the example is the first place."""
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
    """Each redacted value by its event and path."""
    places = sorted(
        (-1, f"header {each.path}")
        if each.event_id is None
        else (each.event_id, f"#{each.event_id} {each.path}")
        for each in redactions
    )
    if places:
        example = ", ".join(text for _, text in places)
        yield Row("redacted_value", len(places), None, example[:_REDACTIONS_LENGTH])


def _repaired(columns: Columns) -> Iterator[Row]:
    rows = np.flatnonzero(columns.flags("repaired"))
    if len(rows):
        yield Row("repaired_event", len(rows), None, _example(columns, int(rows[0])))


def _findings(findings: Iterable[Finding]) -> Iterator[Row]:
    """What the format found; of several findings of one rule the rows are added up."""
    first: dict[str, Finding] = {}
    rows: Counter[str] = Counter()
    for each in findings:
        first.setdefault(each.rule, each)
        rows[each.rule] += each.rows
    for rule, each in first.items():
        yield Row(rule, rows[rule], None, each.example)


def _example(columns: Columns | None, row: int) -> str:
    """The event_id after a #, and the name."""
    name = None if columns is None else columns.texts("name", np.array([row]))[0].as_py()
    return f"#{row}{'' if name is None else ' ' + name}"[:_EXAMPLE_LENGTH]
