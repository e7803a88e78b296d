"""What is reported of a source that was read: its window, what was lost, and what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tracewarehouse.formats.base import Outcome
from tracewarehouse.ingest.outcome import Content
from tracewarehouse.ingest.spans import Window
from tracewarehouse.storage import Json, RankSource

if TYPE_CHECKING:
    import pyarrow as pa

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.tables.build import Built


def lost_events(outcome: Outcome) -> int | None:
    """How many events are in the bytes that could not be read; None where that cannot be known."""
    counts = [loss.events_lost for loss in outcome.losses]
    return None if None in counts else sum(count or 0 for count in counts)


def window(activities: Columns | pa.Table | None) -> Window:
    """First start and last end of the slices of a source; None where no slice has a time."""
    import numpy as np

    from tracewarehouse.ingest.tables.rows import slabs

    if activities is None:
        return None, None
    assert not hasattr(activities, "schema")
    timed = activities.valid("ts_ns") & activities.is_one_of("ph", ["X"])
    if not timed.any():
        return None, None
    first, last = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    for part in slabs(len(timed)):
        starts = activities.ints("ts_ns", part).values[timed[part]]
        ends = starts + np.maximum(activities.ints("dur_ns", part).values[timed[part]], 0)
        first, last = min(first, int(starts.min(initial=first))), max(last, int(ends.max(initial=last)))
    return first, last


def content_of(outcome: Outcome, facts: Mapping[str, Json], built: Built) -> Content:
    """What the summary of an ingest says of one source."""

    def fact(name: str) -> int:
        value = facts.get(name)
        return value if isinstance(value, int) else 0

    return Content(
        status=outcome.status,
        text_bytes=outcome.text_bytes,
        events=fact("events"),
        non_events=fact("non_events"),
        lost_bytes=fact("lost_bytes"),
        lost_events=lost_events(outcome),
        steps=fact("steps"),
        gpu_ns=built.coverage.gpu_ns,
        launch_known_ns=built.coverage.launch_known_ns,
        with_op_ns=built.coverage.with_op_ns,
        quality=built.quality,
    )


def left_content(source: RankSource) -> Content:
    """What is known of a source that an earlier call made: its counts, not its quality."""

    def fact(name: str) -> int:
        value = source.facts.get(name)
        return value if isinstance(value, int) else 0

    lost = source.facts.get("lost_events")
    return Content(
        status=source.status,
        text_bytes=0,
        events=fact("events"),
        non_events=fact("non_events"),
        lost_bytes=fact("lost_bytes"),
        lost_events=lost if isinstance(lost, int) else None,
        steps=fact("steps"),
        gpu_ns=fact("gpu_ns"),
        launch_known_ns=fact("launch_known_ns"),
        with_op_ns=fact("with_op_ns"),
    )
