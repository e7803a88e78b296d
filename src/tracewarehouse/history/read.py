"""A history out of what is recorded: read at once, pooled like any metric, cut into levels."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from statistics import median

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import ParamError, TwError, UnknownName
from tracewarehouse.history.recorded import Asking, measured, seen
from tracewarehouse.history.result import History
from tracewarehouse.history.series import Change, Dot, Line
from tracewarehouse.metric import Measured, Metric, check_filters
from tracewarehouse.result import Provenance
from tracewarehouse.runs.removal import matching, parse_where
from tracewarehouse.runs.selection import SelectedRun, in_order, known, narrow
from tracewarehouse.stats.points import MIN_RUNS, Point, change_points
from tracewarehouse.storage import Recorded, Store
from tracewarehouse.version import __version__

_NAMED = 3  # runs that a notice names


@dataclass(frozen=True)
class Subject:
    """A run that a history may tell of, and the file of its result, by definition."""

    selected: SelectedRun
    recorded: Mapping[str, str]


def every_run(store: Store, stored: Sequence[SelectedRun]) -> tuple[SelectedRun, ...]:
    """The stored runs, and the removed ones whose results are kept, in order of time."""
    held = {(each.run.lower(), each.version.source) for each in stored}
    kept = [SelectedRun(version, version.ranks) for version in store.kept()]
    gone = {(each.run.lower(), each.version.source): each for each in kept}
    every = [*stored, *(each for what, each in gone.items() if what not in held)]
    return in_order(sorted(every, key=lambda each: each.version.number))


def meant(
    selected: Sequence[SelectedRun], runs: Iterable[str] | None, where: Iterable[str]
) -> tuple[SelectedRun, ...]:
    """Those of the runs that the selectors and the conditions (`label.K=V`) mean.

    Raises UnknownName for a selector or label without a match, ParamError for another condition.
    """
    labels = parse_where(where)
    named = tuple(selected) if runs is None else narrow(selected, runs)
    found = matching(named, labels, None, 0)
    if labels and named and not found:
        known = {f"label.{key}={value}" for each in named for key, value in each.version.labels.items()}
        wanted = ",".join(f"label.{key}={value}" for key, value in labels.items())
        raise UnknownName("label", wanted, known, None if known else "no run has a label")
    return found


def labels_of(texts: Iterable[str], selected: Sequence[SelectedRun]) -> tuple[str, ...]:
    """The keys of `label.KEY` texts; raises ParamError for another text, UnknownName where no run has it."""
    known = {f"label.{key}" for each in selected for key in each.version.labels}
    keys = tuple(dict.fromkeys(texts))
    for text in keys:
        if not text.removeprefix("label.") or not text.startswith("label."):
            raise ParamError(f"not a label: {text or '(empty)'}", "write label.KEY")
        if text not in known and selected:
            raise UnknownName("label", text, known, None if known else "no run has a label")
    return tuple(text.removeprefix("label.") for text in keys)


def history(
    store: Store,
    catalog: Catalog,
    metric: Metric,
    selected: Sequence[SelectedRun],
    by: Sequence[str] = (),
    min_effect: float = 0.01,
) -> History:
    """The metric over the chosen runs: a line for each value of the labels `by` and each definition.

    Raises TwError where nothing of it is recorded, UnknownName where no row has what the filters name.
    """
    asking = Asking.of(metric.contract, catalog)
    subjects = _subjects(store, asking, selected)
    parts = _by_definition(asking, subjects)
    if not parts:
        raise _nothing(asking, len(selected))
    found = {
        definition: measured(
            store, metric, {each.selected.selector: each.recorded[definition] for each in part}
        )
        for definition, part in parts.items()
    }
    if not any(each.rows for one in found.values() for each in one.runs):
        files = [one for each in subjects for one in each.recorded.values()]
        check_filters(metric, found.values(), seen(store, metric, files))
    reasons = acknowledged(store, metric)
    lines = [
        line(name, definition, dots, reasons, min_effect)
        for definition, part in parts.items()
        for name, dots in _groups(part, found[definition], by).items()
    ]
    told = tuple(_notices(asking, subjects, lines, next(iter(found.values())).per))
    missing = tuple(each.selected.selector for each in subjects if not each.recorded)
    return History(metric, tuple(lines), missing, told, _provenance(asking, catalog, subjects))


def _subjects(store: Store, asking: Asking, selected: Sequence[SelectedRun]) -> list[Subject]:
    """Each run with its result: under the present definition, else under each other there is."""
    present: dict[tuple[str, str], list[Recorded]] = {}
    found = store.recorded(asking.contract.name, asking.contract.version)
    for one in found:
        present.setdefault((one.run, one.source), []).append(one)
    subjects = []
    for each in selected:
        there = present.get((each.run.lower(), each.version.source), [])
        now = [way for way in asking.ways(each.version) if way in there][:1]
        before = [one for one in there if one.effective != asking.definition]
        recorded = {one.effective: found[one] for one in now or before}
        subjects.append(Subject(each, recorded))
    return subjects


def _by_definition(asking: Asking, subjects: Sequence[Subject]) -> dict[str, list[Subject]]:
    """Definition → the runs recorded under it, the present one first."""
    known = sorted({definition for each in subjects for definition in each.recorded})
    known.sort(key=lambda definition: definition != asking.definition)
    return {each: [subject for subject in subjects if each in subject.recorded] for each in known}


def _groups(part: Sequence[Subject], found: Measured, by: Sequence[str]) -> dict[str, list[Dot]]:
    """The runs of each line, by what their labels say."""
    groups: dict[str, list[Dot]] = {}
    values = {each.run: each for each in found.runs}
    for each in part:
        version, told = each.selected.version, values[each.selected.selector]
        name = ", ".join(f"{key}={version.labels.get(key, '-')}" for key in by)
        dot = Dot(
            version.run, version.number, version.source, known(version).when[0], not version.tombstone,
            told.value, told.reason,
        )  # fmt: skip
        groups.setdefault(name, []).append(dot)
    return dict(sorted(groups.items()))


def _nothing(asking: Asking, runs: int) -> TwError:
    if not runs:
        return TwError("no run is meant", "tw runs lists what is stored")
    return TwError(
        f"nothing is recorded of {asking.contract.ref} for {runs:,} run{'s' if runs > 1 else ''}",
        f"tw record --all --analysis {asking.contract.name}, or tw record --all for every analysis",
    )


def _notices(asking: Asking, subjects: Sequence[Subject], lines: Sequence[Line], per: str) -> Iterator[str]:
    yield f"values are {per}"
    missing = [each.selected.selector for each in subjects if not each.recorded]
    if missing:
        yield f"{_count(missing, len(subjects))} not recorded ({_some(missing)}): tw record --all"
    other = [
        each.selected.selector
        for each in subjects
        if each.recorded and asking.definition not in each.recorded
    ]
    if other:
        yield (
            f"{_count(other, len(subjects))} recorded under another definition of {asking.contract.ref} only"
            f" ({_some(other)}), and a line apart: tw record --all"
        )
    kinds = {each.selected.selector: _machines(each) for each in subjects}
    mixed = [{kinds[f"{dot.run}@v{dot.number}"] for dot in one.dots} for one in lines]
    most = max(mixed, key=len)
    if len(most) > 1:
        told = f"a line has runs of {len(most)} kinds of machine ({_some(sorted(most))})"
        yield f"{told}: --where or --by a label keeps them apart"
    silent = Counter(dot.reason for one in lines for dot in one.dots if dot.value is None)
    for reason, count in silent.items():
        yield f"{count:,} of {len(subjects):,} runs tell nothing: {reason}"
    short = [one for one in lines if sum(dot.value is not None for dot in one.dots) < MIN_RUNS]
    if short:
        where = "" if len(lines) == 1 else f" in {len(short)} of {len(lines)} lines"
        yield f"fewer than {MIN_RUNS} runs{where}: no change is looked for"


def _machines(subject: Subject) -> str:
    """How many ranks the run has, on which GPUs."""
    ranks = subject.selected.version.by_rank
    names = {str(rank.facts["device_name"]) for rank in ranks if rank.facts.get("device_name")}
    return f"{len(ranks)} × {' and '.join(sorted(names)) or 'unknown'}"


def _count(some: Sequence[str], total: int) -> str:
    return f"{len(some):,} of {total:,} runs {'is' if len(some) == 1 else 'are'}"


def _some(runs: Sequence[str]) -> str:
    return ", ".join(runs[:_NAMED]) + (", …" if len(runs) > _NAMED else "")


def _provenance(asking: Asking, catalog: Catalog, subjects: Sequence[Subject]) -> Provenance:
    return Provenance(
        tool=__version__,
        runs=tuple(each.selected.selector for each in subjects if each.recorded),
        analysis=asking.contract.name,
        version=asking.contract.version,
        own_hash=catalog.own_hash(asking.contract),
        effective_hash=asking.effective,
    )


Reasons = Mapping[tuple[str, str], str]  # (run, source) → why its metric changed


def line(name: str, definition: str, dots: Sequence[Dot], reasons: Reasons, min_effect: float) -> Line:
    """The runs in order of time, with the levels and changes of those that tell a value."""
    telling = [dot for dot in dots if dot.value is not None]
    values = [dot.value for dot in telling if dot.value is not None]
    points = change_points(values, min_effect)
    edges = [0, *(point.at for point in points), len(values)]
    levels = [median(values[start:end]) for start, end in zip(edges, edges[1:], strict=False) if end > start]
    changes = tuple(
        _change(telling, point, levels[at], levels[at + 1], reasons) for at, point in enumerate(points)
    )
    level_of = {dot: levels[sum(point.at <= at for point in points)] for at, dot in enumerate(telling)}
    return Line(name, definition, tuple(replace(dot, level=level_of.get(dot)) for dot in dots), changes)


def _change(telling: Sequence[Dot], point: Point, old: float, new: float, reasons: Reasons) -> Change:
    before, after, earliest, latest = (
        telling[at] for at in (point.at - 1, point.at, point.earliest, point.latest)
    )
    around = telling[min(point.earliest, point.at) - 1 : max(point.latest, point.at) + 1]
    why = (reasons.get((dot.run, dot.source)) for dot in around)
    return Change(
        before.name, after.name, point.change, point.low, point.high, earliest.name, latest.name, old, new,
        next((text for text in why if text), None),
    )  # fmt: skip


@dataclass(frozen=True)
class Acknowledged:
    """Why a metric changed at what a run was (`source`)."""

    metric: str
    run: str
    source: str
    why: str


def name_of(metric: Metric) -> str:
    """The metric as acknowledgements name it: without a version, so that they outlive one."""
    filters = ",".join(sorted(f"{column.name}={value}" for column, value in metric.filters))
    return f"{metric.contract.name}.{metric.column.name}" + (f"[{filters}]" if filters else "")


def acknowledge(store: Store, metric: Metric, run: SelectedRun, why: str | None) -> None:
    """Keeps why the metric changed at a run; None takes that back. Raises ParamError for an empty text."""
    metric_name, source = name_of(metric), run.version.source
    key = sha256(f"{metric_name}\n{run.run.lower()}\n{source}".encode()).hexdigest()[:16]
    if why is None:
        store.forget_acknowledged(key)
        return
    if not why.strip():
        raise ParamError(f"the acknowledgement of {run.run} says nothing", "say why the metric changed there")
    store.acknowledge(key, json.dumps(vars(Acknowledged(metric_name, run.run, source, why.strip()))).encode())


def acknowledged(store: Store, metric: Metric) -> dict[tuple[str, str], str]:
    """(run, source) → why, for the metric."""
    name = name_of(metric)
    found = [Acknowledged(**json.loads(data)) for data in store.acknowledged()]
    return {(each.run, each.source): each.why for each in found if each.metric == name}
