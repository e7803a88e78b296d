"""Overall change between two selections: comparability, verdict on the step time, gates and breakdown."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from tracewarehouse.compare.diff.amounts import LEVELS
from tracewarehouse.compare.diff.bandwidth import Bandwidth, bandwidth
from tracewarehouse.compare.diff.breakdown import Breakdown, breakdown
from tracewarehouse.compare.diff.cause import causes, late_rank
from tracewarehouse.compare.diff.comparable import Difference, check, differences
from tracewarehouse.compare.diff.gate import Gate, GateOptions, GateResult, evaluate
from tracewarehouse.compare.diff.snapshot import SnapshotDiff, snapshot_diff
from tracewarehouse.compare.diff.spread import spread_notes
from tracewarehouse.compare.diff.waits import Waits, waits
from tracewarehouse.compare.diff.work import Work, read_work
from tracewarehouse.compare.metric import Measured, Metric, WorkUnit, measure, parse_metric
from tracewarehouse.compare.stats import Earlier, ShiftTest, StepTimes, Verdict, verdict
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import TwError
from tracewarehouse.runs.selection import Selection, run_attributes

if TYPE_CHECKING:
    from tracewarehouse.result import Result
    from tracewarehouse.runs.selection import SelectedRun

STEP_TIME = "step_time"
ALPHA, MIN_EFFECT = 0.05, 0.01
_ROWS_SHOWN = 5
FindEarlier = Callable[[Metric, WorkUnit | None], Earlier | None]


@dataclass(frozen=True)
class CompareOptions:
    """How two sides are compared; see `Diff.changes`."""

    per: str | None = None
    alpha: float = ALPHA
    min_effect: float = MIN_EFFECT
    force: bool = False
    steps: tuple[int, ...] = ()
    within_run: bool = False
    earlier: FindEarlier | None = None
    normalize: str | None = None


@dataclass(frozen=True)
class _StepSelection:
    """A selection restricted to some steps, by number."""

    selection: Selection
    steps: tuple[int, ...]

    def run(self, name: str, version: int | None = None, **params: object) -> Result:
        """The rows of an analysis, of all steps."""
        return self.selection.run(name, version, **params)

    def run_or_skip(self, name: str, version: int | None = None, **params: object) -> Result:
        """The rows of an analysis, without runs that lack a table of it, of all steps."""
        return self.selection.run_or_skip(name, version, **params)

    def query_all(self, sql: str) -> Result:
        """The rows of a SELECT, for which only these steps exist."""
        listed = ", ".join(map(str, self.steps))
        return self.selection.query_all(f"WITH steps AS (SELECT * FROM steps WHERE step IN ({listed})) {sql}")

    def selected(self) -> tuple[SelectedRun, ...]:
        """The runs, each with its selected ranks."""
        return self.selection.selected()


@dataclass(frozen=True)
class Change:
    """Two sides compared; without a breakdown, `no_breakdown_reason` says why.

    `bandwidth` is None if the sides have no collective of the same kind, message size and group size; `waits`
    if no rank waits for another one, or a side has no complete step; `snapshot` unless both sides have
    a memory snapshot.
    """

    base: tuple[str, ...]
    head: tuple[str, ...]
    differences: tuple[Difference, ...]
    verdict: Verdict
    breakdown: Breakdown | None
    no_breakdown_reason: str | None = None
    gates: tuple[GateResult, ...] = field(default=())
    bandwidth: Bandwidth | None = None
    waits: Waits | None = None
    snapshot: SnapshotDiff | None = None

    @property
    def line(self) -> str:
        """The verdict in one line."""
        per = self.breakdown.per if self.breakdown else "step"
        if self.breakdown and self.breakdown.unit:
            return self.verdict.line(f"median {self.breakdown.whole}")
        return self.verdict.line("median step" if per == "step" else f"mean {per.partition(':')[2] or per}")

    def __repr__(self) -> str:
        """The verdict, and the largest rows of the breakdown as a table."""
        rows = f"no breakdown: {self.no_breakdown_reason}"
        return f"{self.line}\n{rows if self.breakdown is None else self._largest()!r}"

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        rows = f"<div>no breakdown: {escape(str(self.no_breakdown_reason))}</div>"
        return f"<div>{escape(self.line)}</div>" + (
            rows if self.breakdown is None else self._largest()._repr_html_()
        )

    def _largest(self) -> Result:
        """The rows by cause that changed most."""
        rows = self.rows(LEVELS[:1])
        deltas = [abs(row["delta_ns"] or 0) for row in rows.rows()]
        order = sorted(range(len(rows)), key=lambda at: -deltas[at])[:_ROWS_SHOWN]
        return replace(rows, table=rows.table.take(order))

    @property
    def late_rank(self) -> str | None:
        """The rank whose own time grew while the others wait more, in words; None if there is none."""
        return None if self.breakdown is None else late_rank(self.breakdown)

    @property
    def causes(self) -> tuple[str, ...]:
        """What the change is due to, in words: a late rank, or the largest row; and what is not known."""
        if self.breakdown is None:
            return ()
        return tuple(causes(self.breakdown, self.verdict.word == "no change"))

    @property
    def spread_notes(self) -> tuple[str, ...]:
        """Which kernels and which rank the spread comes from, in words, if the verdict is open."""
        is_open = self.breakdown is not None and self.verdict.word == "inconclusive"
        return tuple(spread_notes(self.breakdown)) if is_open and self.breakdown else ()

    def rows(self, levels: Sequence[str] = LEVELS) -> Result:
        """The rows of levels of the breakdown, one level after the other; raises TwError without one."""
        from tracewarehouse.duck.arrow import table_of
        from tracewarehouse.result import Result

        if self.breakdown is None:
            raise TwError(f"no breakdown: {self.no_breakdown_reason}", "see the verdict")
        results = [self.breakdown.level(name).result() for name in levels]
        contract, provenance = results[0].contract, results[0].provenance
        assert contract is not None
        summary = "Change of the mean by several levels that each sum to the total."
        contract = replace(contract, name="breakdown", summary=summary, grain=("level", "name"), order=())
        table = table_of(contract, [row for result in results for row in result.rows()])
        return Result(table, provenance, contract)

    @property
    def failed(self) -> tuple[GateResult, ...]:
        """The gates that fail."""
        return tuple(each for each in self.gates if each.outcome == "fail")

    @property
    def inconclusive(self) -> tuple[GateResult, ...]:
        """The gates whose outcome is unknown."""
        return tuple(each for each in self.gates if each.outcome == "inconclusive")


def changes(
    base: Selection, head: Selection, catalog: Catalog, options: CompareOptions, gates: Iterable[Gate] = ()
) -> Change:
    """Compares two sides; raises NotComparable unless `force`, ParamError, TwError."""
    whole_sides = base, head
    config_differences = differences(base, head)
    if not options.force:
        check(config_differences)
    if options.steps:
        base, head = _StepSelection(base, options.steps), _StepSelection(head, options.steps)
    work = _work(base, head, options)
    parts, reason = _breakdown(base, head, catalog, options, work)
    step_verdict = _verdict(base, head, catalog, options, parts, work)
    known = _step_time_test(step_verdict, options.within_run)
    gate_options = GateOptions(options.alpha, options.within_run, partial(_earlier, options), work)
    return Change(
        base=tuple(each.run for each in base.selected()),
        head=tuple(each.run for each in head.selected()),
        differences=config_differences,
        verdict=step_verdict,
        breakdown=parts,
        no_breakdown_reason=reason,
        gates=tuple(
            evaluate(gate, base, head, known if gate.is_of_step_time else None, gate_options)
            for gate in gates
        ),
        bandwidth=bandwidth(*whole_sides),
        waits=waits(base, head) if work is None else None,
        snapshot=snapshot_diff(*whole_sides),
    )


def _work(base: Selection, head: Selection, options: CompareOptions) -> Work | None:
    if options.normalize is None:
        return None
    return read_work(options.normalize, base, head)


def _breakdown(
    base: Selection, head: Selection, catalog: Catalog, options: CompareOptions, work: Work | None
) -> tuple[Breakdown | None, str | None]:
    """The breakdown, or why there is none; raises TwError if its interval or a unit was requested."""
    try:
        settings: dict[str, Any] = {"per": options.per, "alpha": options.alpha, "catalog": catalog}
        return breakdown(base, head, **settings, work=work), None
    except TwError as error:
        if options.per is not None or work is not None:
            raise
        return None, error.message


def _verdict(
    base: Selection,
    head: Selection,
    catalog: Catalog,
    options: CompareOptions,
    parts: Breakdown | None,
    work: Work | None,
) -> Verdict:
    """Of complete steps; of a window or an annotation the mean is known, but not its noise."""
    means = None if parts is None else (float(parts.base_mean), float(parts.head_mean))
    if work is not None and parts is not None:
        work = replace(work, scale=parts.scale)
    if parts is None or parts.per == "step":
        metric = parse_metric(STEP_TIME, catalog)
        sides, earlier = measure(metric, base, head), _earlier(options, metric, work)
        times = _step_times(sides, work)
        order: Sequence[bool] | None = start_order(
            base, head, [{run.run for run in side.runs if run.steps} for side in sides]
        )
    else:
        order, earlier = None, None
        times = [((round(mean),),) for mean in (parts.base_mean, parts.head_mean)]
    steps = map(StepTimes, times)
    return verdict(
        *steps,
        alpha=options.alpha,
        min_effect=options.min_effect,
        total_means=means,
        order=order,
        earlier=earlier,
    )


def _step_times(sides: Sequence[Measured], work: Work | None) -> list[tuple[tuple[float, ...], ...]]:
    """The steps of each run in whole ns, or per unit of work."""
    divisors = work.divisors if work else ({}, {})
    return [
        tuple(tuple(_per(step, by.get(run.run)) for step in run.steps) for run in side.runs)
        for side, by in zip(sides, divisors, strict=True)
    ]


def _per(step_ns: float, work: Fraction | None) -> float:
    return round(step_ns) if work is None else float(step_ns / work)


def _earlier(options: CompareOptions, metric: Metric, work: Work | None = None) -> Earlier | None:
    """The earlier runs of the metric per unit of work; the values per `scale` units of `work`, if given."""
    unit = None if options.normalize is None else WorkUnit.parse(options.normalize)
    found = None if options.earlier is None else options.earlier(metric, unit)
    if found is None or work is None:
        return found
    return replace(found, values=tuple(value * work.scale for value in found.values))


def start_order(base: Selection, head: Selection, runs: Sequence[Container[str]]) -> tuple[bool, ...]:
    """For each of these runs of base and of head, by start time, whether it is of head.

    Empty if a run does not say when it started, or two say the same.
    """
    starts = [
        (run_attributes(each.version).start_ns, is_head)
        for is_head, side in enumerate((base, head))
        for each in side.selected()
        if each.run in runs[is_head]
    ]
    times = [start for start, _ in starts if start is not None]
    if len(set(times)) < len(starts):
        return ()
    return tuple(bool(is_head) for _, is_head in sorted(starts))


def _step_time_test(step_verdict: Verdict, within_run: bool) -> ShiftTest | None:
    """The test of the step time, None if it was not tested between runs, unless `within_run`."""
    change, low, high, p = step_verdict.change, step_verdict.low, step_verdict.high, step_verdict.p
    if change is None or low is None or high is None or p is None:
        return None
    if step_verdict.sample != "run" and not within_run:
        return None
    return ShiftTest(change, low, high, p, step_verdict.test or step_verdict.sample)
