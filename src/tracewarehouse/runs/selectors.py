"""Run selectors: name, unique prefix, `@latest`, `@previous`, `label:K=V[,K=V]`, `RUN@vN`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tracewarehouse import hints
from tracewarehouse.errors import TwError, UnknownName

_VERSIONED = re.compile(r"(?P<run>.+)@v(?P<number>[0-9]{1,9})")
_WALL_CLOCK_NS = 10**17  # 1973; smaller times are relative to an unknown start, and cannot order runs
_EXAMPLES = "a name, a unique prefix, @latest, @previous, label:KEY=VALUE, or RUN@vN"


@dataclass(frozen=True)
class RunAttributes:
    """What selectors match: a run's name, labels, first event (None if unknown) and time of ingest."""

    run: str
    labels: Mapping[str, str]
    start_ns: int | None
    ingested_at: str

    @property
    def order(self) -> tuple[int, str]:
        """The sort key of runs: start time from the trace, else time of ingest; ties by name."""
        if self.start_ns is not None and self.start_ns >= _WALL_CLOCK_NS:
            return self.start_ns, self.run
        return _iso_ns(self.ingested_at), self.run


@dataclass(frozen=True)
class Match:
    """A matching run; `number` is the requested version, None for the newest."""

    run: str
    number: int | None = None


class RunIndex(Protocol):
    """Runs that selectors can match; `names` and `attributes` read only versions of the requested runs."""

    def find(self, run: str, number: int | None) -> str | None:
        """The stored spelling of a run with exactly this name and version (None: any); None without one."""

    def names(self, prefix: str = "") -> Sequence[str]:
        """The names of all runs, or of those with a prefix."""

    def attributes(self, run: str) -> RunAttributes:
        """The attributes of a run."""


def match_runs(selectors: Iterable[str], index: RunIndex) -> tuple[Match, ...]:
    """The runs that match any of the selectors, each once.

    Raises UnknownName, with close matches, for a selector without a match, TwError for an ambiguous one.
    """
    found: dict[str, Match] = {}
    for selector in selectors:
        for each in _matches(selector, index):
            if found.setdefault(each.run, each) != each:
                raise TwError(f"run {each.run} was selected in two versions", "select one version at a time")
    return tuple(found.values())


def _matches(selector: str, index: RunIndex) -> list[Match]:
    if selector in ("@latest", "@previous"):
        return [_by_age(selector, index)]
    if selector.startswith("label:"):
        return _by_label(selector, index)
    if selector.startswith("@"):
        raise UnknownName("selector", selector, ["@latest", "@previous"], f"a run is {_EXAMPLES}")
    versioned = _VERSIONED.fullmatch(selector)
    if versioned:
        number = int(versioned["number"])
        return [Match(_by_name(versioned["run"], index, number), number)]
    return [Match(_by_name(selector, index))]


def _by_name(name: str, index: RunIndex, number: int | None = None) -> str:
    exact = index.find(name, number)
    if exact is not None:
        return exact
    found = sorted(index.names(name)) if name else []
    if len(found) > 1:
        shown = ", ".join(found[:8]) + (", …" if len(found) > 8 else "")
        raise TwError(f"'{name}' matches {len(found)} runs", f"use one of {shown}")
    if not found:
        names = index.names()
        raise UnknownName("run", name, names, _empty_hint(names))
    return found[0]


def _by_age(selector: str, index: RunIndex) -> Match:
    names = index.names()
    back = {"@latest": 1, "@previous": 2}[selector]
    if len(names) < back:
        stored = "one run" if names else "no runs"
        raise UnknownName("run", selector, [], f"the warehouse has {stored}")
    return Match(sorted(index.attributes(name).order for name in names)[-back][1])


def _by_label(selector: str, index: RunIndex) -> list[Match]:
    wanted = parse_labels(selector.removeprefix("label:").split(","))
    known = [index.attributes(name) for name in index.names()]
    found = [each for each in known if wanted.items() <= each.labels.items()]
    if not found:
        labels = {f"label:{key}={value}" for each in known for key, value in each.labels.items()}
        raise UnknownName("label", selector, labels, None if labels else "no run has a label")
    return [Match(run) for _, run in sorted(each.order for each in found)]


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """`["commit=3f2a", "cluster=a"]` as a mapping. Raises TwError for a text without a key."""
    labels = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise TwError(f"not a label: {text or '(empty)'}", "write KEY=VALUE")
        labels[key.strip()] = value.strip()
    return labels


def _empty_hint(names: Sequence[str]) -> str | None:
    return None if names else hints.fill("the warehouse is empty; {} ingests traces", hints.ingest())


def _iso_ns(text: str) -> int:
    time = datetime.fromisoformat(text)
    epoch = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    since_epoch = (time if time.tzinfo else time.replace(tzinfo=epoch.tzinfo)) - epoch
    return (since_epoch.days * 86_400 + since_epoch.seconds) * 10**9 + since_epoch.microseconds * 1_000
