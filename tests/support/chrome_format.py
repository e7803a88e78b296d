"""A validator of the Chrome trace format."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

Event = dict[str, Any]
NUMBERS = (int, Decimal)
NAMES = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}
NEEDED = {
    "X": ("pid", "tid", "ts", "dur", "name"),
    "B": ("pid", "tid", "ts", "name"),
    "E": ("pid", "tid", "ts"),
    "C": ("pid", "ts", "name", "args"),
    "s": ("pid", "tid", "ts", "id", "cat", "name"),
    "f": ("pid", "tid", "ts", "id", "cat", "name"),
    "M": ("pid", "name", "args"),
}


def load(text: str) -> dict[str, Any]:
    """The document with exact numbers; raises ValueError for NaN and Infinity."""
    found: dict[str, Any] = json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)
    return found


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not valid JSON")


def faults(events: Iterable[Event]) -> list[str]:
    """The violations of the format, in words; empty for a valid trace."""
    found = list(events)
    return [
        *_types(found),
        *_pairs(found),
        *_names(found),
        *_flows(found),
    ]


def _types(events: Iterable[Event]) -> Iterator[str]:
    for event in events:
        phase = event.get("ph")
        lacking = [key for key in NEEDED.get(str(phase), ()) if key not in event]
        if not isinstance(phase, str) or lacking:
            yield f"lacks {lacking}: {event}"
        for key in ("ts", "dur"):
            value = event.get(key, 0)
            if not isinstance(value, (*NUMBERS, str)) or Decimal(value).is_nan():
                yield f"{key} is not a number: {event}"
        if phase == "X" and Decimal(event.get("dur", 0)) < 0:
            yield f"negative duration: {event}"
        if any(not isinstance(event.get(key, 0), (int, str)) for key in ("pid", "tid", "id")):
            yield f"invalid type of an id: {event}"
        if phase == "C" and not all(isinstance(each, NUMBERS) for each in event["args"].values()):
            yield f"a series without numbers: {event}"


def _pairs(events: Iterable[Event]) -> Iterator[str]:
    """Each E ends the B that began last on its thread, and no B is left open."""
    begun: dict[Any, list[Event]] = defaultdict(list)
    marks = [event for event in events if event.get("ph") in ("B", "E")]
    for event in sorted(marks, key=lambda event: Decimal(event["ts"])):
        thread = begun[event.get("pid"), event.get("tid")]
        if event["ph"] == "B":
            thread.append(event)
        elif not thread:
            yield f"end without a begin: {event}"
        else:
            thread.pop()
    yield from (f"does not end: {event}" for thread in begun.values() for event in thread)


def _names(events: Iterable[Event]) -> Iterator[str]:
    """Metadata events precede all events of their process or thread, and have the right types."""
    seen: set[tuple[Any, ...]] = set()
    for event in events:
        track = (event.get("pid"), event.get("tid"))
        if event.get("ph") != "M":
            seen |= {track[:1], track}
            continue
        key, type_ = NAMES.get(event["name"], (None, object))
        if key is not None and not isinstance(event["args"].get(key), type_):
            yield f"invalid type of {key}: {event}"
        if (track[:1] if event["name"].startswith("process") else track) in seen:
            yield f"follows events of its track: {event}"


def _flows(events: list[Event]) -> Iterator[str]:
    """Each flow has both ends, and each end is on a slice of its thread."""
    slices = slices_by_thread(events)
    ends: dict[Any, set[str]] = defaultdict(set)
    for event in events:
        if event.get("ph") not in ("s", "f"):
            continue
        ends[event["cat"], event["name"], str(event["id"])].add(event["ph"])
        if not lies_on(event, slices):
            yield f"not on a slice: {event}"
    yield from (f"has one end: {key}" for key, phases in ends.items() if phases != {"s", "f"})


def thread(event: Event) -> tuple[str, str]:
    """The thread of an event as text; some files write the same thread as a number and as a string."""
    return str(event.get("pid")), str(event.get("tid"))


def slices_by_thread(events: Iterable[Event]) -> dict[Any, list[tuple[Decimal, Decimal]]]:
    """Start and end of the slices of each thread."""
    found: dict[Any, list[tuple[Decimal, Decimal]]] = defaultdict(list)
    for event in events:
        if event.get("ph") == "X" and "dur" in event:
            start = Decimal(event["ts"])
            found[thread(event)].append((start, start + Decimal(event["dur"])))
    return found


def lies_on(event: Event, slices: Mapping[Any, list[tuple[Decimal, Decimal]]]) -> bool:
    """Whether a slice of its thread contains the time of an event, including both ends."""
    at = Decimal(event["ts"])
    return any(start <= at <= end for start, end in slices.get(thread(event), ()))
