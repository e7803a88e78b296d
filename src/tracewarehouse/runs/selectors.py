"""Which runs a selector means: name, unique prefix, `@latest`, `@previous`, `label:K=V[,K=V]`, `RUN@vN`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tracewarehouse import hints
from tracewarehouse.errors import TwError, UnknownName

_VERSIONED = re.compile(r"(?P<run>.+)@v(?P<number>[0-9]{1,9})")
_WALL_CLOCK_NS = 10**17  # 1973: a smaller time counts from some start of its own, and orders nothing
_EXAMPLES = "a name, a unique prefix, @latest, @previous, label:KEY=VALUE, or RUN@vN"


@dataclass(frozen=True)
class Known:
    """What selectors go by: a run's name, labels, first event (None where unknown) and time of ingest."""

    run: str
    labels: Mapping[str, str]
    start_ns: int | None
    ingested_at: str

    @property
    def when(self) -> tuple[int, str]:
        """The order of runs: start time from the trace, else time of ingest; ties by name."""
        if self.start_ns is not None and self.start_ns >= _WALL_CLOCK_NS:
            return self.start_ns, self.run
        return _iso_ns(self.ingested_at), self.run


@dataclass(frozen=True)
class Pick:
    """A run that was selected; `number` is the published version asked for, None for the newest."""

    run: str
    number: int | None = None


class Shelf(Protocol):
    """What selectors look at; `names` and `known` read versions of the runs they are asked for."""

    def find(self, run: str, number: int | None) -> str | None:
        """The stored spelling of a run of just this name that has this version (None: one to be seen)."""

    def names(self, prefix: str = "") -> Sequence[str]: ...

    def known(self, run: str) -> Known: ...


def pick(selectors: Iterable[str], shelf: Shelf) -> tuple[Pick, ...]:
    """The runs that any of the selectors means, each once.

    Raises UnknownName, with close matches, for one that means nothing, TwError for one that is ambiguous.
    """
    found: dict[str, Pick] = {}
    for selector in selectors:
        for each in _picks(selector, shelf):
            if found.setdefault(each.run, each) != each:
                raise TwError(f"run {each.run} is asked for in two versions", "select one of them at a time")
    return tuple(found.values())


def _picks(selector: str, shelf: Shelf) -> list[Pick]:
    if selector in ("@latest", "@previous"):
        return [_by_age(selector, shelf)]
    if selector.startswith("label:"):
        return _by_label(selector, shelf)
    if selector.startswith("@"):
        raise UnknownName("selector", selector, ["@latest", "@previous"], f"a run is {_EXAMPLES}")
    versioned = _VERSIONED.fullmatch(selector)
    if versioned:
        number = int(versioned["number"])
        return [Pick(_by_name(versioned["run"], shelf, number), number)]
    return [Pick(_by_name(selector, shelf))]


def _by_name(name: str, shelf: Shelf, number: int | None = None) -> str:
    exact = shelf.find(name, number)
    if exact is not None:
        return exact
    found = sorted(shelf.names(name)) if name else []
    if len(found) > 1:
        shown = ", ".join(found[:8]) + (", …" if len(found) > 8 else "")
        raise TwError(f"{name} is the beginning of {len(found)} runs", f"one of {shown}")
    if not found:
        names = shelf.names()
        raise UnknownName("run", name, names, _nothing(names))
    return found[0]


def _by_age(selector: str, shelf: Shelf) -> Pick:
    names = shelf.names()
    back = {"@latest": 1, "@previous": 2}[selector]
    if len(names) < back:
        holds = "no run" if not names else "one run only"
        raise UnknownName("run", selector, [], f"the warehouse holds {holds}")
    return Pick(sorted(shelf.known(name).when for name in names)[-back][1])


def _by_label(selector: str, shelf: Shelf) -> list[Pick]:
    wanted = parse_labels(selector.removeprefix("label:").split(","))
    known = [shelf.known(name) for name in shelf.names()]
    found = [each for each in known if wanted.items() <= each.labels.items()]
    if not found:
        labels = {f"label:{key}={value}" for each in known for key, value in each.labels.items()}
        raise UnknownName("label", selector, labels, None if labels else "no run has a label")
    return [Pick(run) for _, run in sorted(each.when for each in found)]


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """`["commit=3f2a", "cluster=a"]` as a mapping. Raises TwError for a text without a key."""
    labels = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise TwError(f"not a label: {text or '(empty)'}", "write KEY=VALUE")
        labels[key.strip()] = value.strip()
    return labels


def _nothing(names: Sequence[str]) -> str | None:
    return None if names else hints.fill("the warehouse is empty; {} ingests traces", hints.ingest())


def _iso_ns(text: str) -> int:
    moment = datetime.fromisoformat(text)
    seconds = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    passed = (moment if moment.tzinfo else moment.replace(tzinfo=seconds.tzinfo)) - seconds
    return (passed.days * 86_400 + passed.seconds) * 10**9 + passed.microseconds * 1_000
