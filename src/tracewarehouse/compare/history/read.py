"""Builds a history from recorded results: selection of runs, series, notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.compare.history.history import (
    History,
    Point,
    Series,
    acknowledge,
    acknowledgements,
    build_series,
)
from tracewarehouse.compare.history.recorded import (
    damaged_result,
    filter_values,
    recorded_values,
    serves,
)
from tracewarehouse.compare.metric.expression import Measured, Metric, WorkUnit, is_normalized, per_unit
from tracewarehouse.compare.metric.values import Statistic, check_filters, of_steps, parse_statistic
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import ExpressionError, ParamError, TwError, UnknownName
from tracewarehouse.present.render.text import one_line, plural
from tracewarehouse.query.selection import Selection
from tracewarehouse.result import Provenance
from tracewarehouse.runs.removal import matching, parse_where
from tracewarehouse.runs.selection import SelectedRun, in_order, narrow
from tracewarehouse.storage import layout
from tracewarehouse.storage.model import RunVersion
from tracewarehouse.storage.results import (
    ROLLUP,
    Packs,
    Recorded,
    RecordedAnalysis,
    by_kind,
    differ_in_rules,
    is_intact,
    same_rows,
)
from tracewarehouse.storage.store import Store
from tracewarehouse.storage.versions import FEW_RUNS
from tracewarehouse.version import __version__


class ValueForm(Struct, frozen=True):
    """A statistic of the complete steps, or `value` for the metric itself; per `unit` of work, if given."""

    statistic: Statistic = "value"
    unit: WorkUnit | None = None

    def title(self, metric: Metric) -> str:
        """What the values are, on one line."""
        title = str(metric) if self.statistic == "value" else f"{self.statistic}({metric})"
        return one_line(title if self.unit is None else f"{title} per {self.unit.name}")

    def per(self, per: str) -> str:
        """What one value refers to, in words, if the metric's own values refer to `per`."""
        per = (
            per
            if self.statistic == "value"
            else f"the {self.statistic} of the complete steps, mean of their ranks"
        )
        return per if self.unit is None else f"{per}, per {self.unit.name}"

    def for_runs(self, metric: Metric, selected: Sequence[SelectedRun]) -> Callable[[Measured], Measured]:
        """Gives measured values of these runs this form; a run that does not say its work has no value.

        Raises TwError if no run says its work, ParamError if the metric is neither a time nor a size.
        """
        work = {} if self.unit is None else _work(metric, self.unit, selected)
        return lambda measured: _normalized(of_steps(self.statistic, measured), self.unit, work)


PLAIN = ValueForm()


def _work(metric: Metric, unit: WorkUnit, selected: Sequence[SelectedRun]) -> dict[str, Fraction]:
    """`RUN@vN` → the work of a step, of the runs that say it."""
    if not is_normalized(metric):
        raise ParamError(f"{metric} is neither a time nor a size", "only those are per unit of work")
    work, error = {}, None
    for selected_run in selected:
        try:
            work[selected_run.selector] = unit.of(selected_run.version)
        except TwError as problem:
            error = problem
    if error is not None and not work:
        raise error
    return work


def _normalized(measured: Measured, unit: WorkUnit | None, work: dict[str, Fraction]) -> Measured:
    if unit is None:
        return measured
    reason = f"no label {unit.label}, or not a number above 0"
    runs = tuple(
        run if run.run in work else replace(run, value=None, mean=None, steps=(), reason=reason)
        for run in measured.runs
    )
    unchanged = dict.fromkeys((run.run for run in runs), Fraction(1))
    return per_unit(replace(measured, runs=runs), unchanged | work)


_RUNS_NAMED = 3  # in a notice


class NothingRecorded(TwError):
    """No selected run has recorded results of an analysis."""


class RecordedRun(Struct, frozen=True, gc=False):
    """A selected run with the files of its results, by definition."""

    selected: SelectedRun
    files: Mapping[str, str]


def runs_with_results(store: Store, catalog: Catalog) -> tuple[SelectedRun, ...]:
    """The stored runs and the removed ones whose results were kept, in time order.

    Of the stored ones, only those with derived tables are read, which are part of the keys of results.
    """
    derived = frozenset(table.name for table in catalog.tables() if table.derived)
    stored, entries = store.listing(lambda summary: derived.isdisjoint(summary.tables))
    versions = (*store.kept(entries), *stored)
    by_content = {(version.run.lower(), version.source): version for version in versions}
    by_number = sorted(by_content.values(), key=lambda version: version.number)
    return in_order(SelectedRun(version, version.ranks) for version in by_number)


def matching_runs(
    selected: Sequence[SelectedRun], runs: Iterable[str] | None, where: Iterable[str]
) -> tuple[SelectedRun, ...]:
    """The runs that match the selectors and the conditions (`label.K=V`).

    Raises UnknownName for a selector or label without a match, ExpressionError for another condition.
    """
    labels = parse_where(where)
    within = tuple(selected) if runs is None else narrow(selected, runs)
    matches = matching(within, labels, None, 0)
    if labels and within and not matches:
        known_labels = {f"label.{key}={value}" for run in within for key, value in run.version.labels.items()}
        condition = ",".join(f"label.{key}={value}" for key, value in labels.items())
        raise UnknownName("label", condition, known_labels, None if known_labels else "no run has a label")
    return matches


def label_keys(texts: Iterable[str], selected: Sequence[SelectedRun]) -> tuple[str, ...]:
    """The keys of `label.KEY` texts; raises ExpressionError for other texts, UnknownName for unused ones."""
    known_labels = {f"label.{key}" for run in selected for key in run.version.labels}
    keys = tuple(dict.fromkeys(texts))
    for label in keys:
        if not label.removeprefix("label.") or not label.startswith("label."):
            raise ExpressionError(f"not a label: {label or '(empty)'}", "write label.KEY")
        if label not in known_labels and selected:
            raise UnknownName("label", label, known_labels, None if known_labels else "no run has a label")
    return tuple(label.removeprefix("label.") for label in keys)


def build_history(
    store: Store,
    catalog: Catalog,
    metric: Metric,
    selected: Sequence[SelectedRun],
    by: Sequence[str] = (),
    min_effect: float = 0.01,
    form: ValueForm = PLAIN,
) -> History:
    """The metric over the selected runs: one series per value of the labels `by`, hardware and definition.

    Values have a `form`. Raises TwError if no results are recorded, UnknownName if no row has the values of
    the filters, and what `ValueForm.for_runs` raises.
    """
    in_form = form.for_runs(metric, selected)
    analysis = RecordedAnalysis.of(metric.contract, catalog)
    packs = Packs.read(store.objects, store.files, layout.results(*analysis.contract.ref))
    keys = [analysis.possible_keys(selected_run.version) for selected_run in selected]
    stored, rollups = _stored(store, analysis, keys, packs, serves(metric))
    rollups, _ = _intact(store, rollups if serves(metric) else {}, packs.said)
    intact, damaged = _intact(store, stored, packs.said, rollups)
    rollups = {key: path for key, path in rollups.items() if key in stored or path in packs.said}
    runs = _recorded_runs(store, analysis, selected, keys, intact | rollups, intact)
    by_definition = _by_definition(analysis, runs)
    if not by_definition:
        if damaged:
            raise damaged_result(f"{damaged[0]} is damaged")
        raise _nothing_recorded(analysis, len(selected))
    measured = {
        definition: in_form(
            recorded_values(
                store, metric, {run.files[definition]: run.selected.selector for run in recorded}, packs
            )
        )
        for definition, recorded in by_definition.items()
    }
    if metric.filters and not any(run.rows for values in measured.values() for run in values.runs):
        files = [file for run in _whole_results(store, analysis, selected) for file in run.files.values()]
        check_filters(metric, measured.values(), filter_values(store, metric, files))
    reasons = acknowledgements(store, metric)
    series = [
        build_series(name, definition, points, reasons, min_effect)
        for definition, recorded in by_definition.items()
        for name, points in _points_by_group(recorded, measured[definition], by).items()
    ]
    per = form.per(next(iter(measured.values())).per)
    notices = tuple(_notices(analysis, runs, series, per, len(damaged)))
    missing = tuple(run.selected.selector for run in runs if not run.files)
    provenance = _provenance(analysis, catalog, runs)
    return History(metric, tuple(series), missing, notices, provenance, form.title(metric))


def recorded_files(
    store: Store, analysis: RecordedAnalysis, selected: Sequence[SelectedRun]
) -> dict[str, str]:
    """`RUN@vN` → path of its result under the definition of the newest, in time order, if it has one."""
    runs = _whole_results(store, analysis, selected)
    definition = _current(analysis, runs)
    return {run.selected.selector: run.files[definition] for run in runs if definition in run.files}


def _whole_results(
    store: Store, analysis: RecordedAnalysis, selected: Sequence[SelectedRun]
) -> list[RecordedRun]:
    """Each run with its results, not roll-ups or copies in packs."""
    intact, _ = _intact(store, store.recorded(*analysis.contract.ref), ())
    keys = [analysis.possible_keys(run.version) for run in selected]
    return _recorded_runs(store, analysis, selected, keys, intact, intact)


def _stored(
    store: Store,
    analysis: RecordedAnalysis,
    possible: Iterable[Sequence[Recorded]],
    packs: Packs,
    with_rollups: bool,
) -> tuple[dict[Recorded, str], dict[Recorded, str]]:
    """The results and roll-ups of runs; those are listed of which no pack has the current one.

    `with_rollups`: a roll-up in a pack counts. All are listed if these runs are many, or have a result of
    another definition, which must be compared.
    """
    current = {key for keys in possible for key in keys}
    stored, rollups = by_kind(key for key in packs.said if with_rollups or not key.endswith(ROLLUP))
    packed = {(key.run, key.source) for key in (*stored, *rollups) if key in current}
    lacking = {(key.run, key.source) for key in current} - packed
    runs = sorted({run for run, _ in lacking})
    if len(runs) <= FEW_RUNS:
        listed = store.with_rollups(*analysis.contract.ref, runs)
        both = stored | listed[0], rollups | listed[1]
        theirs = (key for keys in both for key in keys if (key.run, key.source) in lacking)
        if all(key in current for key in theirs):
            return both
    return store.with_rollups(*analysis.contract.ref)


def _recorded_runs(
    store: Store,
    analysis: RecordedAnalysis,
    selected: Sequence[SelectedRun],
    possible: Iterable[Sequence[Recorded]],
    files: Mapping[Recorded, str],
    whole: Mapping[Recorded, str],
) -> list[RecordedRun]:
    """Each run with its result under the current definition, or else under all others that exist.

    `possible`: the keys of each run under the current definition. `files` are results or roll-ups, `whole`
    the results, whose rows can be compared.
    An earlier definition whose results have the same rows counts as the current one, but not one that differs
    in users' rules: these may classify kernels of other runs.
    """
    by_run: dict[tuple[str, str], list[Recorded]] = {}
    for key in files:
        by_run.setdefault((key.run, key.source), []).append(key)
    candidates: list[tuple[SelectedRun, list[Recorded], list[Recorded]]] = []
    for run, keys in zip(selected, possible, strict=True):
        present = by_run.get((run.run.lower(), run.version.source), [])
        current = [key for key in keys if key in present][:1]
        own = analysis.definition(run.version)
        candidates.append((run, current, [key for key in present if key.effective != own]))
    substitutes = {
        key.effective
        for run, current, others in candidates
        if not current
        for key in others
        if not differ_in_rules(key.effective, analysis.definition(run.version))
    }
    pairs = [(other, key) for _, current, others in candidates for key in current for other in others]
    equal = set()  # definitions under which at least one run has the same rows, and none has others
    for definition in substitutes:
        compared = [
            same_rows(store.path(whole[other]), store.path(whole[key]))
            for other, key in pairs
            if other.effective == definition and other.request == key.request and {other, key} <= whole.keys()
        ]
        if compared and all(compared):
            equal.add(definition)
    return [
        RecordedRun(
            run,
            {
                analysis.definition(run.version) if key.effective in equal else key.effective: files[key]
                for key in current or others
            },
        )
        for run, current, others in candidates
    ]


def _current(analysis: RecordedAnalysis, runs: Sequence[RecordedRun]) -> str:
    """The definition of the newest recorded run."""
    definitions = (analysis.definition(run.selected.version) for run in reversed(runs) if run.files)
    return next(definitions, "")


def _intact(
    store: Store, files: Mapping[Recorded, str], packed: Collection[str], rollups: Collection[Recorded] = ()
) -> tuple[dict[Recorded, str], tuple[str, ...]]:
    """The results that are in a pack, have a roll-up or the checksum in their name, and the others' paths."""
    trusted = {key: path for key, path in files.items() if key in rollups or path in packed}
    unchecked = {key: path for key, path in files.items() if key not in trusted}
    store.files.copy(unchecked.values())
    intact = trusted | {key: path for key, path in unchecked.items() if is_intact(store.path(path), key)}
    return intact, tuple(path for key, path in files.items() if key not in intact)


def _by_definition(analysis: RecordedAnalysis, runs: Sequence[RecordedRun]) -> dict[str, list[RecordedRun]]:
    """Definition → the runs recorded under it, that of the newest run first."""
    current = _current(analysis, runs)
    definitions = {definition for run in runs for definition in run.files}
    in_order = sorted(definitions, key=lambda definition: (definition != current, definition))
    return {definition: [run for run in runs if definition in run.files] for definition in in_order}


def _points_by_group(
    runs: Sequence[RecordedRun], measured: Measured, by: Sequence[str]
) -> dict[str, list[Point]]:
    """The points of each series, by the values of their labels; those on other hardware are other series."""
    groups: dict[str, list[Point]] = {}
    values = {run_value.run: run_value for run_value in measured.runs}
    kinds: dict[str, set[str]] = {}  # values of the labels `by` → the hardware of the runs with them
    for version in (run.selected.version for run in runs):
        kinds.setdefault(_label_text(version, by), set()).add(hardware_text(version))
    for run in runs:
        version, value = run.selected.version, values[run.selected.selector]
        labels = _label_text(version, by)
        hardware = (hardware_text(version),) if len(kinds[labels]) > 1 else ()
        name = ", ".join(filter(None, (labels, *hardware)))
        start_ns, _ = version.brief.order
        point = Point(
            version.run, version.number, version.source, start_ns, not version.tombstone,
            value.value, value.reason,
        )  # fmt: skip
        groups.setdefault(name, []).append(point)
    return dict(sorted(groups.items()))


def _label_text(version: RunVersion, by: Sequence[str]) -> str:
    return ", ".join(f"{key}={version.labels.get(key, '-')}" for key in by)


def _nothing_recorded(analysis: RecordedAnalysis, runs: int) -> NothingRecorded:
    if not runs:
        return NothingRecorded("no runs selected", hints.fill("{} lists the stored runs", hints.call("runs")))
    return NothingRecorded(
        f"no recorded results of {analysis.contract.ref} for {plural(runs, 'run')}",
        hints.fill("{}, or {} for all analyses", hints.record(analysis.contract.name), hints.record()),
    )


def _notices(
    analysis: RecordedAnalysis, runs: Sequence[RecordedRun], series: Sequence[Series], per: str, damaged: int
) -> Iterator[str]:
    from tracewarehouse.compare.stats.change_points import MIN_RUNS

    if damaged:
        yield hints.fill("left out {}: {}", plural(damaged, "damaged recorded result"), hints.call("repair"))
    yield f"values are {per}"
    missing = [run.selected.selector for run in runs if not run.files]
    if missing:
        yield hints.fill(
            "{} not recorded ({}): {}", _count(missing, len(runs)), _some(missing), hints.record()
        )
    recorded = [(run, analysis.definition(run.selected.version)) for run in runs if run.files]
    newest = _current(analysis, runs)
    if rules := [run.selected.selector for run, used in recorded if differ_in_rules(used, newest)]:
        yield hints.fill(
            "{} classified by other kernel rules than the newest ({}), a separate series: {}, then {}",
            _count(rules, len(runs)), _some(rules), hints.call("upgrade"), hints.record(),
        )  # fmt: skip
    if differing := [run.selected.selector for run, definition in recorded if definition not in run.files]:
        yield hints.fill(
            "{} recorded with a different definition of {} ({}), shown as a separate series: {}",
            _count(differing, len(runs)), analysis.contract.ref, _some(differing), hints.record(),
        )  # fmt: skip
    without = Counter(point.reason for line in series for point in line.points if point.value is None)
    for reason, count in without.items():
        yield f"{count:,} of {len(runs):,} runs {'has' if count == 1 else 'have'} no value: {reason}"
    for line in series:
        for remark in line.remarks():
            yield f"{line.name}: {remark}" if line.name else remark
    short = [line for line in series if len(line.known) < MIN_RUNS]
    if short:
        share = "" if len(series) == 1 else f" ({len(short)} of {len(series)} series have fewer)"
        yield f"change detection needs at least {MIN_RUNS} runs{share}"


def hardware_text(version: RunVersion) -> str:
    """The number of ranks of a run and its GPU models: `8 × NVIDIA H100`."""
    ranks, names = version.hardware
    return f"{ranks} × {' and '.join(names)}" if names else f"{ranks} × unknown GPU"


def _count(some: Sequence[str], total: int) -> str:
    return f"{len(some):,} of {total:,} runs {'is' if len(some) == 1 else 'are'}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_RUNS_NAMED]) + (", …" if len(names) > _RUNS_NAMED else "")


def _provenance(analysis: RecordedAnalysis, catalog: Catalog, runs: Sequence[RecordedRun]) -> Provenance:
    return Provenance(
        tool=__version__,
        runs=tuple(run.selected.selector for run in runs if run.files),
        analysis=analysis.contract.name,
        version=analysis.contract.version,
        own_hash=catalog.own_hash(analysis.contract),
        effective_hash=analysis.effective_hash,
    )


def recorded_runs(
    selection: Selection, runs: Iterable[str] | None = None, where: Iterable[str] = ()
) -> tuple[SelectedRun, ...]:
    """The selected runs that match, in time order; of all runs, also removed ones with recorded results."""
    selected = selection.runs
    if selected is None:
        selected = runs_with_results(selection.store, selection.catalog)
    return matching_runs(selected, runs, where)


def metric_history(
    selection: Selection,
    metric: str,
    runs: Iterable[str] | None = None,
    where: Iterable[str] = (),
    by: Iterable[str] = (),
    min_effect: float = 0.01,
    normalize: str | None = None,
    states_left_out: bool = False,
) -> History:
    """A metric over the recorded runs of a selection; see `Warehouse.history`."""
    if selection.has_workers:
        call = partial(
            metric_history,
            metric=metric,
            runs=None if runs is None else tuple(runs),
            where=tuple(where),
            by=tuple(by),
            min_effect=min_effect,
            normalize=normalize,
            states_left_out=states_left_out,
        )
        return selection.in_worker(call)
    statistic, parsed = parse_statistic(metric, selection.catalog)
    selected = recorded_runs(selection, runs, where)
    form = ValueForm(statistic, None if normalize is None else WorkUnit.parse(normalize))
    keys = label_keys(by, selected)
    history = build_history(selection.store, selection.catalog, parsed, selected, keys, min_effect, form)
    if not states_left_out:
        return history
    lines = (
        () if selected and all(run.named for run in selected) else selection.note(answered=len(selected))[1]
    )
    selection.noted.update(dict.fromkeys(history.missing, "not recorded"))
    return replace(history, notices=(*lines, *history.notices))


def acknowledge_run(selection: Selection, metric: str, run: str, why: str | None) -> str:
    """Stores why a metric changed at a run; None removes it. Returns the run. Raises UnknownName."""
    _, parsed = parse_statistic(metric, selection.catalog)  # one reason for all statistics of a metric
    runs = recorded_runs(selection, [run])
    if len(runs) != 1:
        names = ", ".join(selected_run.selector for selected_run in runs)
        raise UnknownName("single run", run, [], f"it matches {names}")
    acknowledge(selection.store, parsed, runs[0], why)
    return runs[0].selector
