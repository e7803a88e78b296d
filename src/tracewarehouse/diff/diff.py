"""An analysis asked of two sides, and the comparison of what they say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tracewarehouse.analyses import Analyses
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.columns import Column
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.diff.join import Plan, able, plan, select
from tracewarehouse.errors import ParamError, TwError
from tracewarehouse.metric import BY_STEP, COMPLETE, Side
from tracewarehouse.result import Result
from tracewarehouse.runs.selection import SelectedRun, spans
from tracewarehouse.stats import MIN_SAMPLES

if TYPE_CHECKING:
    import pyarrow as pa

    from tracewarehouse.diff.change import Change
    from tracewarehouse.diff.join import Plan
    from tracewarehouse.duck.engine import Connection
    from tracewarehouse.stats import RowTest


SIDES = ("base", "head")


@dataclass(frozen=True)
class Diff(Analyses[Result]):
    """What differs between two sides; every analysis is a method, as of a `Warehouse`.

    Ranks, devices and steps are taken together, and every value is per rank: measures that add up are
    summed and divided by the ranks that answered; where the rows tell steps, by the complete steps of those,
    and rows of other steps are left out, unless `all_steps`. With `by_rank` the ranks stay apart, and those
    that both sides have are compared. `measure` decides about increased and decreased, by default the first.
    A parameter `by_step` is not looked at: the comparison sets it.

    `alpha` is how often noise alone may pass for a change, `min_effect` a change that does not matter, in
    parts of base: of a row for its verdict, of the step for that of `changes`.
    """

    base: Side
    head: Side
    catalog: Catalog
    by_rank: bool = False
    all_steps: bool = False
    measure: str | None = None
    alpha: float = 0.05
    min_effect: float = 0.01

    def run(self, name: str, version: int | None = None, **params: object) -> Result:
        """The comparison of an analysis: keys, base, head and delta of each measure, change and verdict.

        Raises UnknownName, ParamError; TwError where a side has no rank, or no complete step, to tell of.
        """
        contract = self.catalog.get(name, version, kind="analysis")
        steps = self._complete_steps(contract)
        if any(param.name == BY_STEP for param in contract.params):
            params = {**params, BY_STEP: steps is not None}
        made = plan(contract, self.by_rank, bool(steps), self.measure)
        answers = [
            _Answer(who, side.run(name, version, **params), side.selected(), table)
            for who, side, table in zip(SIDES, (self.base, self.head), steps or (None, None), strict=True)
        ]
        return self._compared(made, answers)

    def changes(
        self,
        *,
        per: str | None = None,
        steps: Iterable[int] = (),
        anyway: bool = False,
        gates: Iterable[str] = (),
    ) -> Change:
        """What changed as a whole: whether it is comparable, the verdict on the step time, account, gates.

        `per` is `step`, `window` or `annotation:NAME`; `steps` are numbers of those to look at, by default
        all complete ones. Raises NotComparable where a comparison would say nothing, unless `anyway`;
        ParamError, UnknownName.
        """
        from tracewarehouse.diff.change import Asked, changes
        from tracewarehouse.diff.gate import parse

        parsed = [parse(gate, self.catalog) for gate in gates]
        asked = Asked(per, self.alpha, self.min_effect, anyway, tuple(steps))
        return changes(self.base, self.head, self.catalog, asked, parsed)

    def _complete_steps(self, contract: Contract) -> list[pa.Table] | None:
        """The complete steps of both sides, where values are to be per step."""
        if self.by_rank or self.all_steps or "step" not in contract.grain:
            return None
        found = [side.query(COMPLETE).arrow() for side in (self.base, self.head)]
        if all(table.num_rows for table in found):
            return found
        if any(param.name == BY_STEP for param in contract.params):
            return None
        raise TwError("a side has no complete step", "compare all of it: --all-steps")

    def _compared(self, made: Plan, answers: Sequence[_Answer]) -> Result:
        if made.pooled:
            parts = [each.parts for each in answers]
            kept, notices = None, [f"values are {made.per}: base has {parts[0]:,}, head has {parts[1]:,}"]
        else:
            parts, kept = [1, 1], _common(answers)
            notices = _only_on_one(answers, kept)
        if self.measure is None and len(able(made.measures, self.by_rank)) > 1:
            notices.append(f"change and verdict are those of {made.deciding.name}: --measure chooses another")
        from tracewarehouse.duck.arrow import table_of
        from tracewarehouse.duck.engine import execute

        promised = replace(made.result, body=select(made, *parts))
        by, units = _units(made, answers)
        with _tables(answers, kept) as con:
            rows = execute(con, promised, {}).to_pylist()
            keys = [tuple(row[key.name] for key in made.keys) for row in rows]
            verdicts = judged(con, made, keys, units, self.alpha, self.min_effect)
        promised = replace(promised, columns=(*promised.columns, *columns(made.deciding, by)))
        table = table_of(promised, [row | more for row, more in zip(rows, verdicts, strict=True)])
        return _told(answers, promised, table, notices)


@dataclass(frozen=True)
class _Answer:
    """What a side says, and the ranks and complete steps that it says it of."""

    who: str
    result: Result
    selected: Sequence[SelectedRun]
    steps: pa.Table | None

    @property
    def ranks(self) -> set[tuple[str, int]]:
        silent = {(each.run_id, each.rank) for each in self.result.abstained}
        return {(each.run, rank) for each in self.selected for rank in each.ranks} - silent

    def units(self, names: Sequence[str]) -> Units:
        """Its runs, or its complete steps by run, each with the ranks that tell of it."""
        if self.steps is None:
            return Units(Counter((run,) for run, _ in sorted(self.ranks)))
        ranks = self.ranks
        told = [row for row in self.steps.to_pylist() if (row["run_id"], row["rank"]) in ranks]
        return Units(Counter(tuple(row[name] for name in names) for row in told))

    @property
    def parts(self) -> int:
        """What its sums are divided by; raises TwError where that is nothing."""
        ranks = self.ranks
        if self.steps is None:
            found = len(ranks)
        else:
            told = zip(self.steps["run_id"].to_pylist(), self.steps["rank"].to_pylist(), strict=True)
            found = sum(key in ranks for key in told)
        if not found:
            why = ", ".join(sorted({each.reason for each in self.result.abstained})) or "no complete step"
            raise TwError(f"{self.who} has nothing to compare: {why}", "tw show NAME --run RUN says more")
        return found


def _units(made: Plan, answers: Sequence[_Answer]) -> tuple[str | None, dict[str, Units]]:
    """What is measured again and again: runs where there are some, else steps; neither rank by rank."""
    none = {each.who: Units({}) for each in answers}
    if not made.pooled:
        return None, none
    by_run = {each.who: each.units(("run_id",)) for each in answers}
    if sum(map(len, by_run.values())) >= MIN_SAMPLES:
        return "runs", by_run
    by_step = {each.who: each.units(("run_id", "step")) for each in answers if each.steps is not None}
    known = len(by_step) == len(answers) and sum(map(len, by_step.values())) >= MIN_SAMPLES
    return ("steps, within these runs only", by_step) if known else (None, none)


def _common(answers: Sequence[_Answer]) -> set[int]:
    """The ranks that both sides tell of; raises ParamError where there are none or one side has more runs."""
    if any(len(each.selected) != 1 for each in answers):
        raise ParamError("rank by rank takes one run on each side", "leave --by-rank out")
    base, head = ({rank for _, rank in each.ranks} for each in answers)
    if not base & head:
        raise ParamError("base and head have no rank in common that can tell", "leave --by-rank out")
    return base & head


def _only_on_one(answers: Sequence[_Answer], kept: set[int]) -> list[str]:
    left_out = {each.who: {rank for _, rank in each.ranks} - kept for each in answers}
    return [f"ranks only in {who}, left out: {spans(ranks)}" for who, ranks in left_out.items() if ranks]


@contextmanager
def _tables(answers: Iterable[_Answer], ranks: set[int] | None) -> Iterator[Connection]:
    """A connection with the rows that count, as `base` and `head`."""
    from tracewarehouse.duck.engine import connect

    with connect() as con:
        for each in answers:
            con.register(f"{each.who}_rows", each.result.arrow())
            sql = f"SELECT told.* FROM {each.who}_rows AS told"
            if each.steps is not None:
                con.register(f"{each.who}_steps", each.steps)
                sql += f" SEMI JOIN {each.who}_steps USING (run_id, rank, step)"
            if ranks is not None:
                sql += f" WHERE rank IN ({', '.join(map(str, ranks))})"
            con.execute(f"CREATE TABLE {each.who} AS {sql}")
        yield con


def _told(answers: Iterable[_Answer], promised: Contract, table: pa.Table, notices: Iterable[str]) -> Result:
    """Rows with what is to be known of both sides."""
    base, head = (each.result for each in answers)
    runs = (*base.provenance.runs, *head.provenance.runs)
    ranks = {**(base.provenance.ranks or {}), **(head.provenance.ranks or {})} or None
    provenance = replace(base.provenance, runs=runs, ranks=ranks)
    abstained = tuple(dict.fromkeys((*base.abstained, *head.abstained)))
    told = tuple(dict.fromkeys((*notices, *base.notices, *head.notices)))
    return Result(table, provenance, promised, abstained, told)


VERDICTS = "better, worse (higher, lower where no direction is the good one), no change or inconclusive"
Unit = tuple[Any, ...]  # a run, or a run and a step
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Units:
    """What is measured again and again on a side: each run or step, with the ranks that were in it."""

    parts: Mapping[Unit, int]

    def __len__(self) -> int:
        return len(self.parts)


def columns(measure: Column, by: str | None) -> tuple[Column, ...]:
    """What is told of each row; `by` says over what the noise is known, None where it is not."""
    over = f"over {by}" if by else "not known here: it takes four runs in all, or steps"
    null = "null where it was not tested, as rows under 0.1 % of the whole"
    return (
        Column(
            "verdict", "VARCHAR", f"By {measure.name} and its noise {over}: {VERDICTS}; {null}.", null=True
        ),
        _ratio("low", f"Where the interval of the relative change of {measure.name} begins; {null}."),
        _ratio("high", f"Where it ends; {null}."),
        _ratio("q", f"p after Benjamini and Hochberg over the rows; {null}."),
    )


def _ratio(name: str, doc: str) -> Column:
    return Column(name, "DOUBLE", doc, "ratio", null=True, signed=True)


def judged(
    con: Connection,
    plan: Plan,
    keys: Sequence[Key],
    sides: Mapping[str, Units],
    alpha: float,
    min_effect: float,
) -> list[dict[str, object]]:
    """The columns for each row, by the tables `base` and `head` of the connection."""
    from tracewarehouse.stats import rows

    if sum(map(len, sides.values())) < MIN_SAMPLES or not all(map(len, sides.values())):
        return [_row(plan.deciding, None, min_effect)] * len(keys)
    base, head = (_values(con, plan, side, units, keys) for side, units in sides.items())
    sizes = [max(map(_mean, pair)) for pair in zip(base, head, strict=True)]
    whole = sum(sizes) or 1.0
    tests = rows(base, head, [size / whole for size in sizes], alpha=alpha)
    return [_row(plan.deciding, test, min_effect) for test in tests]


def _values(con: Connection, plan: Plan, side: str, units: Units, keys: Sequence[Key]) -> list[list[float]]:
    """For each key what a rank took in each unit, 0 where there is no such row."""
    width = len(next(iter(units.parts)))
    unit = ("run_id", "step")[:width]
    names = [*(quote_name(key.name) for key in plan.keys), *unit]
    listed = ", ".join(names)
    sql = f"SELECT {listed}, sum({quote_name(plan.deciding.name)}) FROM {side} GROUP BY {listed}"
    found: dict[Key, dict[Unit, float]] = defaultdict(dict)
    for row in con.execute(sql).fetchall():
        found[row[: len(plan.keys)]][row[len(plan.keys) : -1]] = float(row[-1] or 0)
    return [[found[key].get(each, 0.0) / parts for each, parts in units.parts.items()] for key in keys]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _row(measure: Column, test: RowTest | None, min_effect: float) -> dict[str, object]:
    if test is None or not test.tested:
        return {"verdict": None, "low": None, "high": None, "q": None}
    told = {"low": test.low, "high": test.high, "q": test.q}
    if test.low is not None and test.high is not None and max(-test.low, test.high) <= min_effect:
        return {"verdict": "no change", **told}
    if not test.significant:
        return {"verdict": "inconclusive", **told}
    return {"verdict": _word(measure, test.change > 0), **told}


def _word(measure: Column, higher: bool) -> str:
    if measure.better is None:
        return "higher" if higher else "lower"
    return "better" if higher == (measure.better == "higher") else "worse"
