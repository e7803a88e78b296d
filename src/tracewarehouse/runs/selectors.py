"""Run selectors: name, unique prefix, glob, `@latest`, `@previous`, `label:K=V[,K=V]`, `RUN@vN`, `A,B`.

A name may have characters that ingest replaces: `feature/x` selects the run `feature-x`.
A glob (`run-*`, `label:sweep=*`) has `*`, `?` or `[ab]`; a list has selectors separated by commas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Protocol

from tracewarehouse import hints
from tracewarehouse.errors import ExpressionError, ParamError, TwError, UnknownName
from tracewarehouse.storage import run_name

_VERSIONED = re.compile(r"(?P<run>.+)@v(?P<number>[0-9]{1,9})")
_WALL_CLOCK_NS = 10**17  # 1973; smaller times are relative to an unknown start, and cannot order runs
_FEW_RUNS = 8  # are listed in messages
_GLOB = re.compile(r"[*?\[]")
_EXAMPLES = "a name, a prefix or glob, @latest, @previous, label:KEY=VALUE, RUN@vN, or a list A,B"


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

    def removed(self, run: str) -> str | None:
        """The last readable version of a removed run, as `run@v1`; None if it was not removed."""


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


def is_plain(selector: str) -> bool:
    """Whether the selector names one run: it is not a glob, list, label or `@latest`."""
    return not (selector.startswith(("@", "label:")) or "," in selector or _GLOB.search(selector))


def split_list(selector: str) -> list[str]:
    """The selectors of a list `a,label:k=v,l=w,b`: a part with `=` belongs to the label before it."""
    parts: list[str] = []
    for part in selector.split(","):
        if parts and parts[-1].startswith("label:") and "=" in part and not part.startswith("label:"):
            parts[-1] += f",{part}"
        else:
            parts.append(part.strip())
    return parts


def _matches(selector: str, index: RunIndex) -> list[Match]:
    parts = split_list(selector)
    if len(parts) > 1:
        return [match for part in parts if part for match in _matches(part, index)]
    if selector in ("@latest", "@previous"):
        return [_by_age(selector, index)]
    if selector.startswith("label:"):
        return _by_label(selector, index)
    if selector.startswith("@"):
        raise UnknownName("selector", selector, ["@latest", "@previous"], f"a run is {_EXAMPLES}")
    if _GLOB.search(selector):
        return _by_glob(selector, index)
    versioned = _VERSIONED.fullmatch(selector)
    if versioned:
        number = int(versioned["number"])
        return [Match(_by_name(versioned["run"], index, number), number)]
    return [Match(_by_name(selector, index))]


def _by_name(name: str, index: RunIndex, number: int | None = None) -> str:
    exact = index.find(name, number) or _as_stored(name, index, number)
    if exact is not None:
        return exact
    found = sorted(index.names(name)) if name else []
    if len(found) > 1:
        shown = ", ".join(found[:8]) + (", …" if len(found) > 8 else "")
        raise TwError(f"'{name}' matches {len(found)} runs", f"use one of {shown}")
    if not found and (last := index.removed(name)):
        removed = hints.fill("it was removed; readable as {} until {}", last, hints.call("clean"))
        raise UnknownName("run", name, (), removed)
    if not found:
        names = index.names()
        many = hints.fill("{} lists all runs", hints.call("runs")) if len(names) > _FEW_RUNS else None
        raise UnknownName("run", name, names, _empty_hint(names) or many)
    return found[0]


def _as_stored(name: str, index: RunIndex, number: int | None) -> str | None:
    """The run of a name that ingest stores with other characters: `pr-feature/x` is `pr-feature-x`."""
    try:
        stored, differs = run_name(name)
    except ParamError:  # too long, or without a letter
        return None
    return index.find(stored, number) if differs else None


def _by_glob(pattern: str, index: RunIndex) -> list[Match]:
    names = index.names()
    found = [index.attributes(name) for name in names if fnmatchcase(name, pattern)]
    if not found:
        plain = _GLOB.split(pattern)[0]
        raise UnknownName(
            "run", pattern, names, _empty_hint(names) or f"no run matches; {_listed(names, plain)}"
        )
    return [Match(run) for _, run in sorted(each.order for each in found)]


def _listed(names: Sequence[str], like: str) -> str:
    """The runs that begin like the text, else how to list all."""
    near = [name for name in names if like and name.startswith(like)][:8]
    return f"there are {', '.join(near)}" if near else hints.fill("{} lists all", hints.call("runs"))


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
    found = [each for each in known if all(_has(each.labels, *label) for label in wanted.items())]
    if not found:
        labels = {f"label:{key}={value}" for each in known for key, value in each.labels.items()}
        raise UnknownName("label", selector, labels, None if labels else "no run has a label")
    return [Match(run) for _, run in sorted(each.order for each in found)]


def _has(labels: Mapping[str, str], key: str, wanted: str) -> bool:
    value = labels.get(key)
    return value is not None and (value == wanted or fnmatchcase(value, wanted))


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """`["commit=3f2a", "cluster=a"]` as a mapping. Raises ExpressionError for a text without a key."""
    labels = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ExpressionError(f"not a label: {text or '(empty)'}", "write KEY=VALUE")
        labels[key.strip()] = value.strip()
    return labels


def _empty_hint(names: Sequence[str]) -> str | None:
    return None if names else hints.fill("the warehouse is empty; {} ingests traces", hints.ingest())


def _iso_ns(text: str) -> int:
    time = datetime.fromisoformat(text)
    epoch = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    since_epoch = (time if time.tzinfo else time.replace(tzinfo=epoch.tzinfo)) - epoch
    return (since_epoch.days * 86_400 + since_epoch.seconds) * 10**9 + since_epoch.microseconds * 1_000
