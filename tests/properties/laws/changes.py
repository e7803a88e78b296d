"""Changes of trace files for the laws, and their expected effect on columns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from random import Random

import msgspec
import polars as pl

from tracewarehouse.contracts.contract import UNITS, Column

SCALE = 3
SHIFT_NS = 7_777_777_777_123
FILE_TEXT = ("args", "extra", "ts_text", "dur_text")  # the file's own spelling, verbatim
TIME = re.compile(r'("(?:ts|dur|external ts)": ?)(-?\d+(?:\.\d+)?)')
RATE = re.compile(r'(\(GB/s\)": ?)(-?\d+(?:\.\d+)?)')
DURATION = re.compile(r"\b\d+(\.\d+)? (ns|µs|ms|s)\b")
BASE = re.compile(r'("baseTimeNanoseconds": ?)(\d+)')
ROW = re.compile(r"^(\s*\[)(\d+)(?=,\s?\d+,\s?-?\d+,\s?\d+\],?$)", re.MULTILINE)  # of memory, in ns
START = re.compile(rb'(?:"ts": ?|^\[)(-?\d+(?:\.\d+)?)')
DEVICE_CATEGORIES = ("kernel", "Kernel")
PREFIXES = re.compile(r"^(?:void |static |__global__ )*")

Place = tuple[str, int]  # run and rank
Frame = pl.DataFrame


class Change:
    """No change: the expectation of the laws of locality too. `broken` says what a failed law means."""

    name = "base"
    broken = "depends on other ranks or runs"
    scales_params = False

    def file(self, place: Place, text: str) -> str:
        """The text of the changed file."""
        return text

    def expected(self, column: Column, values: pl.Series) -> pl.Series:
        """The expected values of a column of the base."""
        return values

    def found(self, column: Column, values: pl.Series, frame: Frame) -> pl.Series:
        """A column of the changed warehouse, with the inverse change applied if there is one."""
        return values


class Scale(Change):
    """All times and thresholds in ns are multiplied by 3; rates are divided by 3."""

    name = "units"
    broken = "does not scale with the times of the trace: check its unit"
    scales_params = True

    def file(self, place: Place, text: str) -> str:
        return _scaled(BASE.sub(_times, text))

    def expected(self, column: Column, values: pl.Series) -> pl.Series:
        if column.name in FILE_TEXT:
            return _each(values, _scaled_text if column.name.endswith("_text") else _scaled)
        if column.name == "observation":
            return _each(values, _without_durations)
        power = UNITS[column.unit].time_power if column.unit else 0
        if power == 0:
            return values
        return values * SCALE**power if power > 0 else values / SCALE**-power

    def found(self, column: Column, values: pl.Series, frame: Frame) -> pl.Series:
        if column.name == "saving_step_ns":  # rounded down, so a multiple of the base's after division only
            return values // SCALE * SCALE
        return _each(values, _without_durations) if column.name == "observation" else values


def _without_durations(text: str) -> str:
    """A sentence of a finding: its durations change units, and have two digits or three."""
    return DURATION.sub("#", text)


def _scaled(text: str) -> str:
    rates = RATE.sub(lambda found: f"{found[1]}{float(found[2]) / SCALE!r}", text)
    return ROW.sub(_times, TIME.sub(_times, rates))


def _scaled_text(text: str) -> str:
    return str(Decimal(text) * SCALE)


def _times(found: re.Match[str]) -> str:
    return f"{found[1]}{Decimal(found[2]) * SCALE}"


class Shift(Change):
    """All times are later by the same amount."""

    name = "shift"
    broken = "is not independent of the origin of the times: check its unit"

    def file(self, place: Place, text: str) -> str:
        text = _shifted(text)
        if BASE.search(text):
            return BASE.sub(lambda found: f"{found[1]}{int(found[2]) + SHIFT_NS}", text)
        return text.replace("{", f'{{"baseTimeNanoseconds": {SHIFT_NS}, ', 1)

    def expected(self, column: Column, values: pl.Series) -> pl.Series:
        if column.name in FILE_TEXT:
            return _each(values, _shifted)
        return values + SHIFT_NS if column.unit == "ts" else values


def _shifted(text: str) -> str:
    return ROW.sub(lambda found: f"{found[1]}{int(found[2]) + SHIFT_NS}", text)


class Document(msgspec.Struct):
    """A trace file: the text of each of its events."""

    traceEvents: list[msgspec.Raw]


def elements(text: str) -> list[msgspec.Raw]:
    """The text of each event of a trace file, or of each element of a list."""
    if text.lstrip().startswith("["):
        return msgspec.json.decode(text, type=list[msgspec.Raw])
    return msgspec.json.decode(text, type=Document).traceEvents


class Shuffle(Change):
    """The events of a file are in another order, except those at the same time, whose order breaks ties."""

    name = "order"
    broken = "depends on the order of events in the file"

    def __init__(self) -> None:
        self.old: dict[Place, list[int]] = {}  # of each file: new position → old position

    def file(self, place: Place, text: str) -> str:
        events = elements(text)
        self.old[place] = order = _shuffled(events, Random(f"{place}"))
        head, key, _ = text.partition('"traceEvents"')
        head = f"{head}{key}: " if key else ""
        tail = text[text.rindex("]") :]
        return head + "[\n" + ",\n".join(bytes(events[old]).decode() for old in order) + tail

    def found(self, column: Column, values: pl.Series, frame: Frame) -> pl.Series:
        if column.unit != "id" or "rank" not in frame.columns:
            return values
        places = zip(frame["run_id"], frame["rank"], values, strict=True)
        old = [self._back((run, rank), value) for run, rank, value in places]
        return pl.Series(values.name, old, values.dtype)

    def _back(self, place: Place, value: object) -> object:
        order = self.old.get(place, [])
        if isinstance(value, int) and 0 <= value < len(order):
            return order[value]
        return [self._back(place, each) for each in value] if isinstance(value, (list, pl.Series)) else value


def _shuffled(events: Iterable[msgspec.Raw], dice: Random) -> list[int]:
    """New position → old position; events at one time keep their order."""
    found = [START.search(bytes(event)) for event in events]
    times = [Decimal(each[1].decode()) if each else None for each in found]
    order = list(range(len(times)))
    dice.shuffle(order)
    places: dict[Decimal, list[int]] = {}
    for new, old in enumerate(order):
        if (time := times[old]) is not None:
            places.setdefault(time, []).append(new)
    for news in places.values():
        for new, old in zip(news, sorted(order[new] for new in news), strict=True):
            order[new] = old
    return order


@dataclass
class Rename(Change):
    """Kernels have other unique names, which only reveal their kind."""

    names: Mapping[str, str]
    name = "names"
    broken = "depends on the names of kernels"
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = {**{_short(old): _short(new) for old, new in self.names.items()}, **self.names}
        longest = sorted(self.names, key=len, reverse=True)
        self.pattern = re.compile(rf"(?<![\w:.])(?:{'|'.join(map(re.escape, longest))})(?![\w<(])")
        self.literals = {json.dumps(old): json.dumps(new) for old, new in self.names.items()}
        self.literal = re.compile("|".join(map(re.escape, self.literals)))

    def file(self, place: Place, text: str) -> str:
        return self.literal.sub(lambda found: self.literals[found[0]], text)

    def expected(self, column: Column, values: pl.Series) -> pl.Series:
        if column.name in FILE_TEXT:
            return _each(values, lambda text: self.file(("", 0), text))
        return _each(values, self._renamed) if column.type.startswith("VARCHAR") else values

    def _renamed(self, text: str) -> str:
        return self.names.get(text) or self.pattern.sub(lambda found: self.names[found[0]], text)


def other_names(folder: Path) -> dict[str, str]:
    """New names for the kernels of all files: numbers for computation, longer names for collectives."""
    found = set()
    for path in folder.rglob("rank*.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        events = document["traceEvents"] if isinstance(document, dict) else document
        known = [event for event in events if isinstance(event, dict)]
        found |= {event["name"] for event in known if event.get("cat") in DEVICE_CATEGORIES}
    numbers: dict[str, int] = {}
    return {name: _other_name(name, number, numbers) for number, name in enumerate(sorted(found))}


def _other_name(name: str, number: int, numbers: dict[str, int]) -> str:
    prefix, short = PREFIXES.match(name)[0], _short(name)  # type: ignore[index]
    rest = name[len(prefix) + len(short) :]
    if re.search("nccl|reduce|gather|all_?to_?all", name, re.IGNORECASE) and "at::" not in name:
        return f"{prefix}{short}_of_another_library{rest}"
    return f"{prefix}k{numbers.setdefault(short, len(numbers)):04d}" + (f"<{number}>" if rest else "")


def _short(name: str) -> str:
    bare = re.match(r"(?:\(anonymous namespace\)|[^<(])+", PREFIXES.sub("", name))
    return re.sub(r"(\.kd| )+$", "", bare[0]) if bare else name


def _each(values: pl.Series, change: Callable[[str], str]) -> pl.Series:
    known: dict[str, str] = {}

    def changed(value: object) -> object:
        if isinstance(value, str):
            return known.get(value) or known.setdefault(value, change(value))
        return [changed(each) for each in value] if isinstance(value, list) else value

    return pl.Series(values.name, [changed(value) for value in values.to_list()], values.dtype)


class Combined(Change):
    """Several changes, one after the other."""

    name = "changed"
    broken = "depends on the order of events, the names of kernels or the origin or unit of time"

    def __init__(self, *changes: Change) -> None:
        self.changes = changes
        self.scales_params = any(change.scales_params for change in changes)

    def file(self, place: Place, text: str) -> str:
        for change in self.changes:
            text = change.file(place, text)
        return text

    def expected(self, column: Column, values: pl.Series) -> pl.Series:
        for change in self.changes:
            values = change.expected(column, values)
        return values

    def found(self, column: Column, values: pl.Series, frame: Frame) -> pl.Series:
        for change in reversed(self.changes):
            values = change.found(column, values, frame)
        return values
