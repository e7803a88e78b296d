"""What the Chrome trace format asks of a file, told rule by rule: a validator of our own."""

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
    """The document, numbers exact; raises where a number is none of JSON's."""
    found: dict[str, Any] = json.loads(text, parse_float=Decimal, parse_constant=_no_number)
    return found


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def faults(events: Iterable[Event]) -> list[str]:
    """What is against the rules, in words; nothing where all is well."""
    found = list(events)
    return [
        *_types(found),
        *_pairs(found),
        *_names(found),
        *_arrows(found),
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
                yield f"{key} is no number: {event}"
        if phase == "X" and Decimal(event.get("dur", 0)) < 0:
            yield f"ends before it begins: {event}"
        if any(not isinstance(event.get(key, 0), (int, str)) for key in ("pid", "tid", "id")):
            yield f"an id of another type: {event}"
        if phase == "C" and not all(isinstance(each, NUMBERS) for each in event["args"].values()):
            yield f"a series without numbers: {event}"


def _pairs(events: Iterable[Event]) -> Iterator[str]:
    """Each end closes what began last on its thread, and nothing stays open."""
    begun: dict[Any, list[Event]] = defaultdict(list)
    marks = [event for event in events if event.get("ph") in ("B", "E")]
    for event in sorted(marks, key=lambda event: Decimal(event["ts"])):
        thread = begun[event.get("pid"), event.get("tid")]
        if event["ph"] == "B":
            thread.append(event)
        elif not thread:
            yield f"ends what did not begin: {event}"
        else:
            thread.pop()
    yield from (f"does not end: {event}" for thread in begun.values() for event in thread)


def _names(events: Iterable[Event]) -> Iterator[str]:
    """What names or sorts a process or thread comes before all that happens there, and has its type."""
    seen: set[tuple[Any, ...]] = set()
    for event in events:
        place = (event.get("pid"), event.get("tid"))
        if event.get("ph") != "M":
            seen |= {place[:1], place}
            continue
        key, type_ = NAMES.get(event["name"], (None, object))
        if key is not None and not isinstance(event["args"].get(key), type_):
            yield f"{key} is not what it should be: {event}"
        if (place[:1] if event["name"].startswith("process") else place) in seen:
            yield f"comes after what it names: {event}"


def _arrows(events: list[Event]) -> Iterator[str]:
    """Each arrow has both ends, and each end lies on a slice of its thread."""
    slices = slices_by_thread(events)
    ends: dict[Any, set[str]] = defaultdict(set)
    for event in events:
        if event.get("ph") not in ("s", "f"):
            continue
        ends[event["cat"], event["name"], str(event["id"])].add(event["ph"])
        if not lies_on(event, slices):
            yield f"lies on no slice: {event}"
    yield from (f"has one end: {key}" for key, phases in ends.items() if phases != {"s", "f"})


def thread(event: Event) -> tuple[str, str]:
    """Where an event stands; some files write the same thread as a number and as a text."""
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
    """Whether an event is at a time at which its thread has a slice, its edges included."""
    at = Decimal(event["ts"])
    return any(start <= at <= end for start, end in slices.get(thread(event), ()))
