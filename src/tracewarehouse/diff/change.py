"""What changed between two sides, in the order it is told: comparable, verdict, gates, account."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.diff.amounts import LEVELS
from tracewarehouse.diff.breakdown import Account, account
from tracewarehouse.diff.comparable import Difference, check, differences
from tracewarehouse.diff.gate import Gate, Interval, Judged, judge
from tracewarehouse.errors import TwError
from tracewarehouse.metric import Side, measure, parse_metric
from tracewarehouse.stats import Steps, Verdict, verdict

if TYPE_CHECKING:
    from tracewarehouse.result import Result
    from tracewarehouse.runs.selection import SelectedRun

STEP_TIME = "step_time"
ALPHA, MIN_EFFECT = 0.05, 0.01


@dataclass(frozen=True)
class Asked:
    """How two sides are compared; see `Warehouse.changes`."""

    per: str | None = None
    alpha: float = ALPHA
    min_effect: float = MIN_EFFECT
    force: bool = False
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class _OfSteps:
    """A side of which only some steps are looked at, by number."""

    side: Side
    steps: tuple[int, ...]

    def run(self, name: str, version: int | None = None, **params: object) -> Result:
        """The rows of an analysis, of all steps."""
        return self.side.run(name, version, **params)

    def query(self, sql: str) -> Result:
        """The rows of a SELECT, to which there are no other steps."""
        listed = ", ".join(map(str, self.steps))
        return self.side.query(f"WITH steps AS (SELECT * FROM steps WHERE step IN ({listed})) {sql}")

    def selected(self) -> tuple[SelectedRun, ...]:
        """The runs, each with the ranks of it that are looked at."""
        return self.side.selected()


@dataclass(frozen=True)
class Change:
    """Two sides compared. Where no part of the time can be told, `account` is None and `lacks` says why."""

    base: tuple[str, ...]
    head: tuple[str, ...]
    differences: tuple[Difference, ...]
    verdict: Verdict
    account: Account | None
    lacks: str | None = None
    gates: tuple[Judged, ...] = field(default=())

    @property
    def line(self) -> str:
        """The verdict in one line."""
        per = self.account.per if self.account else "step"
        return self.verdict.line("median step" if per == "step" else f"mean {per.partition(':')[2] or per}")

    def rows(self, levels: Sequence[str] = LEVELS) -> Result:
        """The rows of levels of the account, one below the other; raises TwError where there is none."""
        from tracewarehouse.duck.arrow import table_of
        from tracewarehouse.result import Result

        if self.account is None:
            raise TwError(f"no account: {self.lacks}", "what there is to say is in the verdict")
        results = [self.account.level(name).result() for name in levels]
        contract, provenance = results[0].contract, results[0].provenance
        assert contract is not None
        summary = "What changed, by several levels that each add up to the whole."
        contract = replace(contract, name="account", summary=summary, grain=("level", "name"), order=())
        table = table_of(contract, [row for result in results for row in result.rows()])
        return Result(table, provenance, contract)

    @property
    def failed(self) -> tuple[Judged, ...]:
        """The gates that do not hold."""
        return tuple(each for each in self.gates if each.outcome == "fail")

    @property
    def open(self) -> tuple[Judged, ...]:
        """The gates of which nothing can be said."""
        return tuple(each for each in self.gates if each.outcome == "inconclusive")


def changes(base: Side, head: Side, catalog: Catalog, asked: Asked, gates: Iterable[Gate] = ()) -> Change:
    """Compares two sides; raises NotComparable unless `force`, ParamError, TwError."""
    found = differences(base, head)
    if not asked.force:
        check(found)
    if asked.steps:
        base, head = _OfSteps(base, asked.steps), _OfSteps(head, asked.steps)
    try:
        told, lacks = account(base, head, per=asked.per, alpha=asked.alpha), None
    except TwError as error:
        if asked.per is not None:
            raise
        told, lacks = None, error.message
    said = _verdict(base, head, catalog, asked, told)
    return Change(
        base=tuple(each.run for each in base.selected()),
        head=tuple(each.run for each in head.selected()),
        differences=found,
        verdict=said,
        account=told,
        lacks=lacks,
        gates=tuple(judge(gate, base, head, _interval(gate, said), alpha=asked.alpha) for gate in gates),
    )


def _verdict(base: Side, head: Side, catalog: Catalog, asked: Asked, told: Account | None) -> Verdict:
    """Of complete steps; of a window or an annotation the mean is known, and nothing of its noise."""
    means = None if told is None else (float(told.base_mean), float(told.head_mean))
    if told is None or told.per == "step":
        sides = measure(parse_metric(STEP_TIME, catalog), base, head)
        times = [tuple(tuple(map(round, run.steps)) for run in side.runs) for side in sides]
    else:
        times = [((round(mean),),) for mean in (told.base_mean, told.head_mean)]
    return verdict(*map(Steps, times), alpha=asked.alpha, min_effect=asked.min_effect, total_means=means)


def _interval(gate: Gate, said: Verdict) -> Interval | None:
    """What the verdict knows of a gate's metric: it is the step time's."""
    metric = gate.metric
    is_step_time = metric.contract.name == "step_summary" and metric.column.name == "period_ns"
    if not is_step_time or metric.filters or said.change is None or said.low is None or said.high is None:
        return None
    return Interval(said.change, said.low, said.high)
