"""Overall change between two selections: comparability, verdict on the step time, gates and breakdown.

Two tables go with it. Bus bandwidths by collective, message size and number of ranks do not depend on
the model: the same collective should be as fast in another job on the same machine. Memory by call is that at
the peak of the device with the highest peak on each side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse.compare.diff.breakdown import LEVELS, Breakdown, breakdown
from tracewarehouse.compare.diff.causes import (
    causes,
    late_rank,
    memory_notes,
    new_blocking_call,
    spread_notes,
)
from tracewarehouse.compare.diff.comparable import Difference, differences, equal_positions
from tracewarehouse.compare.diff.gate import Gate, GateOptions, GateResult, Work, evaluate, read_work
from tracewarehouse.compare.diff.levels import long_steps, result_of
from tracewarehouse.compare.metric.expression import Metric, WorkUnit, parse_metric
from tracewarehouse.compare.metric.values import Statistic, by_job, measure
from tracewarehouse.compare.stats.two_sample import Earlier, ShiftTest
from tracewarehouse.compare.stats.verdict import StepTimes, Verdict, verdict
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Column, Contract, Ref, computed_contract
from tracewarehouse.errors import TwError
from tracewarehouse.query.selection import Selection
from tracewarehouse.runs.recording import recording_verdict
from tracewarehouse.runs.rows import recording_limits

if TYPE_CHECKING:
    from tracewarehouse.result import Result


BANDWIDTH_ANALYSIS = "bandwidth_by_size"
_MEMORY = "memory_pressure"  # the finding whose share is the peak of allocated memory
NOTICEABLE_BANDWIDTH = 0.1  # relative change of a bandwidth from which a row is worth reading
_COLLAPSED = 0.5  # share of base's bandwidth below which causes are suggested
_NEAR_FULL = 0.9


class Bandwidth(Struct, frozen=True):
    """Rows that both sides have, the most time lost or gained first, and hypotheses about collapses."""

    rows: Result
    notices: tuple[str, ...]

    @property
    def changed(self) -> list[dict[str, Any]]:
        """The rows whose bandwidth changed noticeably."""
        return [row for row in self.rows.rows() if abs(row["ratio"] - 1) >= NOTICEABLE_BANDWIDTH]


_BANDWIDTH = """
WITH
  total AS (
    SELECT
      side, collective, size_bucket_bytes, members, sum(instances)::BIGINT AS instances,
      sum(transfer_ns)::BIGINT AS transfer_ns, sum(bus_bytes) AS bus_bytes,
      sum(bus_bytes) / sum(transfer_ns) AS busbw
    FROM (SELECT 'base' AS side, * FROM base_rows UNION ALL SELECT 'head', * FROM head_rows)
    GROUP BY side, collective, size_bucket_bytes, members
  )
SELECT
  collective, size_bucket_bytes, members, base.instances AS base_instances, head.instances AS head_instances,
  base.busbw AS base_busbw_bytes_per_ns, head.busbw AS head_busbw_bytes_per_ns,
  head.busbw / base.busbw AS ratio,
  head.transfer_ns - round_even(head.bus_bytes / base.busbw, 0)::BIGINT AS lost_ns
FROM total AS base
JOIN total AS head USING (collective, size_bucket_bytes, members)
WHERE base.side = 'base' AND head.side = 'head'
ORDER BY abs(lost_ns) DESC, collective, size_bucket_bytes, members
"""


def bandwidth(base: Selection, head: Selection) -> Bandwidth | None:
    """Bus bandwidths of both sides; None if they have no collective of the same kind, size and group size."""
    from tracewarehouse.duck.engine import scratch

    results = [side.analyze(BANDWIDTH_ANALYSIS) for side in (base, head)]
    with scratch(1) as con:
        for side, result in zip(("base", "head"), results, strict=True):
            con.register(f"{side}_rows", result.arrow())
        rows = con.sql(_BANDWIDTH).to_arrow_table().to_pylist()
    if not rows:
        return None
    has_collapsed = any(row["ratio"] < _COLLAPSED for row in rows)
    notices = tuple(_hypotheses(base, head)) if has_collapsed else ()
    return Bandwidth(result_of(_bandwidth_contract(), rows, results[0].provenance), notices)


def _hypotheses(base: Selection, head: Selection) -> Iterator[str]:
    """What else the traces show where a bandwidth collapsed."""
    # Peak allocated memory as a share of the GPU's; None if not recorded.
    base_share, head_share = (
        max((row["share"] for row in side.analyze(_MEMORY).rows()), default=None) for side in (base, head)
    )
    if head_share is None:
        yield (
            "bandwidth collapsed; whether GPU memory was nearly full in head, which can shrink communication"
            " buffers, is unknown: record memory (profile_memory=True or a memory snapshot)"
        )
    elif head_share >= _NEAR_FULL and (base_share or 0) < head_share:
        yield (
            f"bandwidth collapsed while {head_share:.0%} of GPU memory was allocated in head; possible cause:"
            " too little was left for communication buffers (try a smaller batch)"
        )
    else:
        yield "bandwidth collapsed; GPU memory was not nearly full: check links, network and other jobs"


def _bandwidth_contract() -> Contract:
    busbw = "bus bandwidth in GB/s, without waiting for the last rank."
    lost = "Transfer time of head minus what it would be at the bandwidth of base, over all collectives."
    return computed_contract(
        "bandwidth_diff",
        group="comms",
        summary="Change of the bus bandwidth by collective, message size and number of ranks.",
        requires=(Ref(BANDWIDTH_ANALYSIS, 1),),
        grain=("collective", "size_bucket_bytes", "members"),
        order=("-lost_ns",),
        columns=(
            Column("collective", "VARCHAR", "The operation."),
            Column("size_bucket_bytes", "BIGINT", "Message size rounded down to a power of 2.", "bytes"),
            Column("members", "BIGINT", "Number of ranks in the group.", "count"),
            Column("base_instances", "BIGINT", "base: number of collectives.", "count"),
            Column("head_instances", "BIGINT", "head: number of collectives.", "count"),
            Column("base_busbw_bytes_per_ns", "DOUBLE", f"base: {busbw}", "bytes_per_ns", better="higher"),
            Column("head_busbw_bytes_per_ns", "DOUBLE", f"head: {busbw}", "bytes_per_ns", better="higher"),
            Column("ratio", "DOUBLE", "Bandwidth of head as a multiple of that of base.", "ratio"),
            Column("lost_ns", "BIGINT", lost, "ns", signed=True),
        ),
    )


SNAPSHOT_ANALYSIS = "snapshot_peak"
NOTICEABLE_MEMORY = 0.01  # change as a share of the larger peak, from which a row is worth reading

SnapshotKey = tuple[str, str]  # category, top frame


class SnapshotDiff(Struct, frozen=True):
    """Bytes at the peak of both sides by call, the largest change first."""

    rows: Result
    peak_bytes: int

    @property
    def changed(self) -> list[dict[str, Any]]:
        """The rows whose bytes changed noticeably."""
        return [
            row for row in self.rows.rows() if abs(row["delta_bytes"]) >= NOTICEABLE_MEMORY * self.peak_bytes
        ]


def snapshot_diff(base: Selection, head: Selection) -> SnapshotDiff | None:
    """The bytes at the peaks of both sides; None unless both have a memory snapshot."""
    results = [side.analyze_or_skip(SNAPSHOT_ANALYSIS) for side in (base, head)]
    before, after = (_by_call(result.rows()) for result in results)
    if not before or not after:
        return None
    rows: list[dict[str, Any]] = [
        {
            "category": category,
            "top_frame": frame,
            "base_bytes": before.get((category, frame), 0),
            "head_bytes": after.get((category, frame), 0),
            "delta_bytes": after.get((category, frame), 0) - before.get((category, frame), 0),
        }
        for category, frame in {**before, **after}
    ]
    rows.sort(key=lambda row: (-abs(row["delta_bytes"]), row["category"], row["top_frame"]))
    peak = max(sum(before.values()), sum(after.values()))
    return SnapshotDiff(result_of(_snapshot_contract(), rows, results[0].provenance), peak)


def _by_call(rows: list[dict[str, Any]]) -> Mapping[SnapshotKey, int]:
    """Bytes by call at the peak of the device with the highest peak; the first of several."""
    if not rows:
        return {}
    highest = max(rows, key=lambda row: row["peak_bytes"])
    device = [highest[name] for name in ("run_id", "rank", "device")]
    call_bytes: dict[SnapshotKey, int] = defaultdict(int)
    for row in rows:
        if [row[name] for name in ("run_id", "rank", "device")] == device:
            call_bytes[row["category"], row["top_frame"] or "no call stack"] += row["bytes"]
    return call_bytes


def _snapshot_contract() -> Contract:
    return computed_contract(
        "snapshot_diff",
        group="memory",
        summary="Change of the memory at the peak by call.",
        requires=(Ref(SNAPSHOT_ANALYSIS, 1),),
        grain=("category", "top_frame"),
        order=("-delta_bytes",),
        columns=(
            Column("category", "VARCHAR", "What the allocations are for."),
            Column("top_frame", "VARCHAR", "Innermost Python frame outside of PyTorch."),
            Column("base_bytes", "BIGINT", "base: active bytes at the peak.", "bytes", better="lower"),
            Column("head_bytes", "BIGINT", "head: active bytes at the peak.", "bytes", better="lower"),
            Column("delta_bytes", "BIGINT", "Bytes of head minus bytes of base.", "bytes", signed=True),
        ),
    )


STEP_TIME = "step_time"
ALPHA, MIN_EFFECT = 0.05, 0.01
_ROWS_SHOWN = 5
FindEarlier = Callable[[Metric, WorkUnit | None, Statistic], Earlier | None]


class CompareOptions(Struct, frozen=True):
    """How two sides are compared; see `Diff.changes`."""

    per: str | None = None
    alpha: float = ALPHA
    min_effect: float = MIN_EFFECT
    steps: tuple[int, ...] = ()
    earlier: FindEarlier | None = None
    alike: FindEarlier | None = None
    normalize: str | None = None


class Change(Struct, frozen=True):
    """Two sides compared; without a breakdown, `no_breakdown_reason` says why.

    `bandwidth` is None if the sides have no collective of the same kind, message size and group size;
    `snapshot` unless both sides have a memory snapshot.
    """

    base: tuple[str, ...]
    head: tuple[str, ...]
    differences: tuple[Difference, ...]
    verdict: Verdict
    breakdown: Breakdown | None
    no_breakdown_reason: str | None = None
    gates: tuple[GateResult, ...] = field(default=())
    bandwidth: Bandwidth | None = None
    snapshot: SnapshotDiff | None = None
    # The long steps that the mean moves by and the median does not, in words.
    long_steps: str | None = None
    # What the recordings of both sides can carry, in one line.
    recording: str = ""
    blocking: str | None = None  # a blocking call that only head makes, or makes more often
    memory: tuple[str, ...] = ()  # how allocated memory changed, in words

    @property
    def line(self) -> str:
        """The verdict in one line."""
        per, whole = (self.breakdown.per, self.breakdown.whole) if self.breakdown else ("step", "step")
        subject = f"median {whole}" if per == "step" else f"mean {whole.partition(':')[2] or whole}"
        return self.verdict.line(subject, self.long_steps)

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
        order = sorted(range(len(rows)), key=lambda index: -deltas[index])[:_ROWS_SHOWN]
        return replace(rows, table=rows.table.take(order))

    @property
    def late_rank(self) -> str | None:
        """The rank whose own time grew while the others wait more, in words; None if there is none."""
        return None if self.breakdown is None else late_rank(self.breakdown, self.blocking)

    @property
    def causes(self) -> tuple[str, ...]:
        """What the change is due to, in words: a late rank, or the largest row; and what is not known."""
        if self.breakdown is None:
            return self.memory
        return (*causes(self.breakdown, self.verdict.word == "no change", self.blocking), *self.memory)

    @property
    def spread_notes(self) -> tuple[str, ...]:
        """Which kernels and which rank the spread comes from, in words, if the verdict is open."""
        is_open = self.breakdown is not None and self.verdict.word == "inconclusive"
        return tuple(spread_notes(self.breakdown)) if is_open and self.breakdown else ()

    def rows(self, levels: Sequence[str] = LEVELS) -> Result:
        """The rows of levels of the breakdown, one level after the other; raises TwError without one."""
        if self.breakdown is None:
            raise TwError(f"no breakdown: {self.no_breakdown_reason}", "see the verdict")
        results = [self.breakdown.level(name).result() for name in levels]
        contract, provenance = results[0].contract, results[0].provenance
        assert contract is not None
        summary = "Change of the mean by several levels that each sum to the total."
        contract = replace(contract, name="breakdown", summary=summary, grain=("level", "name"), order=())
        return result_of(contract, [row for result in results for row in result.rows()], provenance)

    @property
    def failed(self) -> tuple[GateResult, ...]:
        """The gates that fail."""
        return tuple(result for result in self.gates if result.outcome == "fail")

    @property
    def inconclusive(self) -> tuple[GateResult, ...]:
        """The gates whose outcome is unknown."""
        return tuple(result for result in self.gates if result.outcome == "inconclusive")


def changes(
    base: Selection, head: Selection, catalog: Catalog, options: CompareOptions, gates: Iterable[Gate] = ()
) -> Change:
    """Compares two sides; raises ParamError, TwError."""
    whole_sides = base, head
    config_differences = differences(base, head)
    if options.steps:
        base, head = base.of_steps(options.steps), head.of_steps(options.steps)
    first_steps_note = None
    if not options.steps and any(difference.what == "steps" for difference in config_differences):
        base, head, first_steps_note = equal_positions(base, head, options.min_effect)
    work = None if options.normalize is None else read_work(options.normalize, base, head)
    parts: Breakdown | None = None
    reason = None
    try:
        parts = breakdown(base, head, per=options.per, alpha=options.alpha, catalog=catalog, work=work)
    except TwError as error:
        if options.per is not None or work is not None:  # its interval or a unit was requested
            raise
        reason = error.message
    step_verdict = _verdict(base, head, catalog, options, parts, work)
    if first_steps_note is not None:
        step_verdict = replace(step_verdict, notices=(first_steps_note, *step_verdict.notices))
    known_test = _step_time_test(step_verdict)
    earlier, alike = (_finder(finder, options.normalize) for finder in (options.earlier, options.alike))
    gate_options = GateOptions(options.alpha, earlier, alike, work)
    return Change(
        base=tuple(run.run for run in base.selected()),
        head=tuple(run.run for run in head.selected()),
        differences=config_differences,
        verdict=step_verdict,
        breakdown=parts,
        no_breakdown_reason=reason,
        gates=tuple(evaluate(gate, base, head, known_test, gate_options) for gate in gates),
        bandwidth=bandwidth(*whole_sides),
        snapshot=snapshot_diff(*whole_sides),
        long_steps=_long_steps(step_verdict, base, head, options.min_effect, parts),
        recording=recording_verdict(recording_limits([*base.selected(), *head.selected()]), several=True),
        blocking=None if parts is None else new_blocking_call(parts, base, head),
        memory=tuple(memory_notes(base, head)),
    )


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
        earlier = _finder(options.earlier, options.normalize)(metric, "value")
        if earlier is not None and work is not None:
            earlier = replace(earlier, values=tuple(value * work.scale for value in earlier.values))
        sides = [
            by_job(values, side.selected())
            for values, side in zip(measure(metric, base, head), (base, head), strict=True)
        ]
        divisors = work.divisors if work else ({}, {})
        times = [
            tuple(tuple(_per(step, by.get(run.run)) for step in run.steps) for run in side.runs)
            for side, by in zip(sides, divisors, strict=True)
        ]
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


def _long_steps(
    found: Verdict, base: Selection, head: Selection, min_effect: float, parts: Breakdown | None
) -> str | None:
    """The long steps in head, or in base, if the mean moves by more than the median; None otherwise."""
    if found.change is None or found.mean_change is None or found.base_mean_ns is None or parts is None:
        return None
    beyond = found.mean_change - found.change
    if parts.per != "step" or abs(beyond) <= min_effect:
        return None
    name, side = ("head", head) if beyond > 0 else ("base", base)
    text = long_steps(side, abs(beyond) * found.base_mean_ns / parts.scale, parts.on_host)
    return text and text.replace(" took", f" of {name} took", 1)


def _per(step_ns: float, work: Fraction | None) -> float:
    return round(step_ns) if work is None else float(step_ns / work)


def _finder(find: FindEarlier | None, normalize: str | None) -> Callable[[Metric, Statistic], Earlier | None]:
    """What `find` finds of a metric, per unit of work."""
    unit = None if normalize is None else WorkUnit.parse(normalize)
    return lambda metric, value: None if find is None else find(metric, unit, value)


def start_order(base: Selection, head: Selection, runs: Sequence[Container[str]]) -> tuple[bool, ...]:
    """For each of these runs of base and of head, by start time, whether it is of head.

    Empty if a run does not say when it started, or two say the same.
    """
    starts = [
        (run.version.brief.start_ns, is_head)
        for is_head, side in enumerate((base, head))
        for run in side.selected()
        if run.run in runs[is_head]
    ]
    times = [start for start, _ in starts if start is not None]
    if len(set(times)) < len(starts):
        return ()
    return tuple(bool(is_head) for _, is_head in sorted(starts))


def _step_time_test(step_verdict: Verdict) -> ShiftTest | None:
    """The test of the median step time; None if it was not tested between runs."""
    change, low, high, p = step_verdict.change, step_verdict.low, step_verdict.high, step_verdict.p
    if change is None or low is None or high is None or p is None:
        return None
    if step_verdict.sample != "run":
        return None
    return ShiftTest(change, low, high, p, step_verdict.test or step_verdict.sample)
