"""Comparability of two selections, and their configuration differences: reported before any number."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.compare.metric.expression import WORK_LABELS
from tracewarehouse.compare.stats.two_sample import logs_of, robust_deviation
from tracewarehouse.compare.stats.verdict import StepTimes
from tracewarehouse.exact_text import missing_ranks, rank_list
from tracewarehouse.query.selection import Selection
from tracewarehouse.runs.rows import expected_ranks
from tracewarehouse.runs.selection import SelectedRun

_GROUPS = "SELECT rank, process_groups FROM ranks WHERE process_groups IS NOT NULL"
_WORLD = "default_pg"  # the group of all ranks
Positions = dict[str, tuple[int, int]]  # kind of group → the rank's position in it, and the group's size


def roles(base: Selection, head: Selection) -> tuple[dict[int, str], dict[int, str]] | None:
    """Rank → its role on each side, such as `mesh_data 1, mesh_tensor 0`; a kind that a side lacks is 0.

    None if the layouts are equal, or do not distinguish the ranks of a side.
    """
    sides = _positions(base), _positions(head)
    if not all(sides) or _layout(sides[0]) == _layout(sides[1]):
        return None
    kinds = sorted({kind for side in sides for positions in side.values() for kind in positions})
    rank_roles = tuple({rank: _role(positions, kinds) for rank, positions in side.items()} for side in sides)
    if any(len(set(side.values())) < len(side) for side in rank_roles):
        return None
    return rank_roles[0], rank_roles[1]


def layouts(base: Selection, head: Selection) -> tuple[str, str] | None:
    """The layouts in words, `mesh_data 4 × mesh_tensor 2`, if both are known and they differ."""
    sizes = [_layout(_positions(side)) for side in (base, head)]
    if not all(sizes) or sizes[0] == sizes[1]:
        return None
    texts = [" × ".join(f"{kind} {size}" for kind, size in sorted(layout.items())) for layout in sizes]
    return texts[0], texts[1]


def _positions(side: Selection) -> dict[int, Positions]:
    """Rank → its position in each group; empty if a rank has two positions in groups of one kind."""
    by_rank: dict[int, Positions] = {}
    for row in side.query(_GROUPS).rows():
        groups = row["process_groups"]
        groups = json.loads(groups) if isinstance(groups, str) else groups
        listed = groups if isinstance(groups, list) else ()
        for group in listed:
            ranks = group.get("ranks") if isinstance(group, dict) else None
            kind = str(group.get("pg_desc") or "").rstrip("0123456789_") if ranks else ""
            if isinstance(ranks, list) and row["rank"] in ranks and kind and kind != _WORLD:
                position = ranks.index(row["rank"]), len(ranks)
                if by_rank.setdefault(row["rank"], {}).setdefault(kind, position) != position:
                    return {}
    return by_rank


def _layout(ranks: Mapping[int, Positions]) -> dict[str, int]:
    """Kind of group → its size; of groups of different sizes the largest."""
    sizes: dict[str, int] = {}
    for positions in ranks.values():
        for kind, (_, size) in positions.items():
            sizes[kind] = max(size, sizes.get(kind, 0))
    return sizes


def _role(positions: Positions, kinds: Iterable[str]) -> str:
    return ", ".join(f"{kind} {positions.get(kind, (0, 1))[0]}" for kind in kinds)


_RANKS = """
SELECT run_id, rank, device_name, world_size, framework_version, status, format_version,
  gpu, shapes, stacks, modules, memory_events, kernel_counters
FROM ranks
"""
_STEPS = "SELECT run_id, rank, count(*) AS steps FROM steps WHERE NOT partial GROUP BY run_id, rank"
# Input shapes of operators: they differ with the batch size or the inputs.
# Without the profiler's operators, and the data loader's, which run in this process only without workers.
_SHAPES = """
WITH loading AS (
  SELECT run_id, rank, pre, post
  FROM events
  WHERE starts_with(name, 'enumerate(DataLoader)#') AND pre IS NOT NULL
)
SELECT name, CAST(shapes AS VARCHAR) AS shape, count(*) AS calls
FROM events
WHERE
  shapes IS NOT NULL
  AND NOT starts_with(name, 'profiler::')
  AND NOT EXISTS (
    SELECT * FROM loading
    WHERE
      loading.run_id = events.run_id
      AND loading.rank = events.rank
      AND events.pre >= loading.pre
      AND events.pre <= loading.post
  )
GROUP BY ALL
"""
_STEP_FLOP = """
SELECT sum(model_flop) / count(DISTINCT (run_id, rank, step)) AS flop
FROM op_work
WHERE step IS NOT NULL
"""
_FLAGS = {
    "shapes": "input shapes",
    "stacks": "Python stacks",
    "modules": "modules",
    "memory_events": "memory events",
    "kernel_counters": "hardware counters",
}
VERSION_LABELS = ("torch", "cuda", "rocm", "python", "host")  # of the trace handler
_RUNS_NAMED = 4
MIN_SHAPE_DIFFERENCE = 0.05  # share of calls without a counterpart from which shapes count as different


class Difference(Struct, frozen=True):
    """A configuration difference; with a warning, a change of times need not be one of the program."""

    what: str
    message: str
    is_warning: bool = False


class _SideFacts(Struct, frozen=True):
    """What the traces of a side record about their configuration."""

    name: str
    selection: Selection
    ranks: Sequence[dict[str, Any]]

    def values(self, column: str) -> list[Any]:
        """The distinct values of a column of its ranks, sorted."""
        return sorted({row[column] for row in self.ranks if row[column] is not None})

    @property
    def names(self) -> set[str]:
        """Its runs, with the selected versions."""
        return {run.selector for run in self.selection.selected()}


_Check = Callable[[_SideFacts, _SideFacts], Iterator[Difference]]


def differences(base: Selection, head: Selection) -> tuple[Difference, ...]:
    """The configuration differences of two sides, warnings first."""
    facts = tuple(
        _SideFacts(name, side, side.query(_RANKS).rows()) for name, side in (("base", base), ("head", head))
    )
    all_differences = [difference for check in _CHECKS for difference in check(*facts)]
    return tuple(sorted(all_differences, key=lambda difference: not difference.is_warning))


def _same(base: _SideFacts, head: _SideFacts) -> Iterator[Difference]:
    if names := sorted(base.names & head.names):
        yield Difference("same_run", f"the same run on both sides: {', '.join(names)}", is_warning=True)


def _gpu(base: _SideFacts, head: _SideFacts) -> Iterator[Difference]:
    busy = [any(row["gpu"] for row in side.ranks) for side in (base, head)]
    if busy[0] != busy[1]:
        without_gpu, with_gpu = (base, head) if busy[1] else (head, base)
        message = f"{without_gpu.name} has no GPU activities, {with_gpu.name} has"
        yield Difference("gpu", message, is_warning=True)


def _differing(what: str, column: str, name: str, is_warning: bool = False, null: bool = False) -> _Check:
    """A check that a column has the same values on both sides; `null`: also if a side does not record it."""

    def differs(base: _SideFacts, head: _SideFacts) -> Iterator[Difference]:
        values = base.values(column), head.values(column)
        if values[0] != values[1] and (null or all(values)):
            yield Difference(what, f"{name}: {_base_vs_head(*values)}", is_warning)

    return differs


def _layouts(base: _SideFacts, head: _SideFacts) -> Iterator[Difference]:
    if both_layouts := layouts(base.selection, head.selection):
        yield Difference("layout", f"layout: {_base_vs_head(*both_layouts)}")


def _missing(base: _SideFacts, head: _SideFacts) -> Iterator[Difference]:
    for side in (base, head):
        for run in side.selection.selected():
            expected = expected_ranks(run.version)
            missing, ranks = missing_ranks(run.version.ranks, expected)
            if missing:
                noun = "rank" if missing == 1 else "ranks"
                message = f"{side.name}: {run.run} lacks {noun} {ranks} of {expected}"
                yield Difference("missing_ranks", message)


def _ranks(base: _SideFacts, head: _SideFacts) -> Iterator[Difference]:
    ranks = [set(side.values("rank")) for side in (base, head)]
    for side, only in ((base, ranks[0] - ranks[1]), (head, ranks[1] - ranks[0])):
        if only:
            noun = "rank" if len(only) == 1 else "ranks"
            yield Difference("ranks", f"only in {side.name}: {noun} {rank_list(only)}")


def _damaged(base: _SideFacts, head: _SideFacts) -> Iterator[Difference]:
    for side in (base, head):
        broken = [f"{row['run_id']} rank {row['rank']}" for row in side.ranks if row["status"] == "damaged"]
        if broken:
            others_text = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
            message = f"{side.name} has damaged traces with lost events: {', '.join(broken[:3])}{others_text}"
            yield Difference("damaged", message)


def _work(base: _SideFacts, head: _SideFacts) -> Iterator[Difference]:
    """Labels that count the work of a step, if they differ."""
    for unit, key in WORK_LABELS.items():
        work_values = [
            {run.version.labels.get(key) for run in side.selection.selected()} for side in (base, head)
        ]
        if work_values[0] != work_values[1] and None not in work_values[0] | work_values[1]:
            texts = _base_vs_head(*(", ".join(map(str, sorted(side, key=str))) for side in work_values))
            option = hints.option("normalize", unit)
            yield Difference("work", hints.fill("{}: {}; times per {}: {}", key, texts, unit, option))


def _windows(base: _SideFacts, head: _SideFacts) -> Iterator[Difference]:
    for side in (base, head):
        for job, windows in Counter(run.job for run in side.selection.selected()).items():
            if windows > 1:
                text = f"{windows} runs are profiling windows of job {job}"
                yield Difference("windows", f"{side.name}: {text}, and count as one run")


def _versions(base: _SideFacts, head: _SideFacts) -> Iterator[Difference]:
    """What the jobs ran on by their labels, if both sides have them and they differ."""
    for key in VERSION_LABELS:
        sides = [{run.version.labels.get(key) for run in side.selection.selected()} for side in (base, head)]
        values = [sorted(label for label in side if label is not None) for side in sides]
        if values[0] != values[1] and all(values):
            yield Difference("versions", f"{key}: {_base_vs_head(*values)}")


def _kernel_rules(base: _SideFacts, head: _SideFacts) -> Iterator[Difference]:
    if line := other_kernel_rules(base.selection.selected(), head.selection.selected()):
        yield Difference("kernel_rules", line, is_warning=True)


def other_kernel_rules(base: Iterable[SelectedRun], head: Iterable[SelectedRun]) -> str | None:
    """A line with the remedy if the users' rules that classified the kernels of the sides differ."""
    runs = {selected.selector: selected.version.kernel_rules for selected in (*base, *head)}
    if len({digest for digests in runs.values() for digest in digests}) < 2:
        return None
    by_run = {run: " and ".join(digest or "none" for digest in digests) for run, digests in runs.items()}
    texts = [f"{run} by {digests}" for run, digests in by_run.items()]
    shown = ", ".join(texts[:_RUNS_NAMED] + ["…"] * (len(texts) > _RUNS_NAMED))
    return hints.fill(
        "kernels are classified by different kernel rules ({}): {} classifies all alike",
        shown,
        hints.call("upgrade"),
    )


def _flags(base: _SideFacts, head: _SideFacts) -> Iterator[Difference]:
    for flag, recorded in _FLAGS.items():
        has = [any(row[flag] for row in side.ranks) for side in (base, head)]
        if has[0] != has[1]:
            name = (base if has[0] else head).name
            yield Difference("profiler", f"only {name} has {recorded}; profiling overhead differs")


def _steps(base: _SideFacts, head: _SideFacts) -> Iterator[Difference]:
    counts = [sorted({row["steps"] for row in side.selection.query(_STEPS).rows()}) for side in (base, head)]
    if counts[0] != counts[1]:
        yield Difference("steps", f"complete steps per rank: {_base_vs_head(*map(_range, counts))}")


def _shapes(base: _SideFacts, head: _SideFacts) -> Iterator[Difference]:
    calls = [
        {(row["name"], row["shape"]): row["calls"] for row in side.selection.query(_SHAPES).rows()}
        for side in (base, head)
    ]
    if not all(calls):
        return
    sides = _unmatched(calls[0], calls[1]), _unmatched(calls[1], calls[0])
    share, names = max(sides, key=lambda side: side[0])
    if share >= MIN_SHAPE_DIFFERENCE:
        message = f"input shapes differ for {share:.0%} of operator calls, most in {', '.join(names)}"
        yield Difference("shapes", f"{message}; {_flop_ratio(base, head)}")


def _flop_ratio(base: _SideFacts, head: _SideFacts) -> str:
    """What different shapes mean for the FLOP of a step."""
    flop = [side.selection.query(_STEP_FLOP).rows()[0]["flop"] for side in (base, head)]
    if not all(flop):
        return "batch size or inputs may differ, and with them the work per step"
    ratio = flop[1] / flop[0]
    return "the FLOP per step are the same" if ratio == 1 else f"FLOP per step × {ratio:.3g}"


def _unmatched(own: dict[tuple[str, str], int], other: dict[tuple[str, str], int]) -> tuple[float, list[str]]:
    """The share of one side's calls, of operators that both have, with shapes that the other side lacks.

    Also the three operators with most of these calls.
    """
    names = {name for name, _ in other}
    shared = {key: calls for key, calls in own.items() if key[0] in names}
    total = sum(shared.values())
    by_name = Counter[str]()
    for (name, shape), calls in shared.items():
        if (name, shape) not in other:
            by_name[name] += calls
    most_called = sorted(by_name, key=lambda name: (-by_name[name], name))[:3]
    return (by_name.total() / total if total else 0.0), most_called


def _base_vs_head(base: object, head: object) -> str:
    return f"base {_listed(base)}, head {_listed(head)}"


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _range(counts: Sequence[int]) -> str:
    if not counts:
        return "none"
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


_POSITIONS = """
SELECT run_id, step, avg(period_ns) AS ns FROM steps WHERE NOT partial GROUP BY run_id, step ORDER BY ALL
"""


_ERRORS = 1.5  # standard errors of a mean; that of a median is a quarter larger


def first_steps(base: StepTimes, head: StepTimes, min_effect: float) -> tuple[int, str] | None:
    """As many steps as the shortest run has, if these are slower or faster than all steps of longer runs.

    That is if the median differs by more than half of `min_effect`, and by more than noise explains. Also a
    line that says so; None if all steps can be compared.
    """
    count = min((len(run) for side in (base, head) for run in side.nonempty_runs), default=0)
    shifts, noise = {"base": 0.0, "head": 0.0}, 0.0
    for name, side in zip(shifts, (base, head), strict=True):
        longer = [run for run in side.nonempty_runs if len(run) > count]
        if longer:
            shifts[name] = median(median(run[:count]) / median(run) - 1 for run in longer)
            spread = median(robust_deviation(logs_of(run)) for run in longer)
            noise = max(noise, _ERRORS * spread / math.sqrt(count * len(longer)))
    name = max(shifts, key=lambda side: abs(shifts[side]))
    if abs(shifts[name]) <= max(min_effect / 2, noise):
        return None
    which_steps = "first complete step" if count == 1 else f"first {count} complete steps"
    change_text = f"{'slower' if shifts[name] > 0 else 'faster'} ({100 * shifts[name]:+.1f} % in {name})"
    return count, f"compared the {which_steps} of each run: first steps are {change_text}"


def equal_positions(
    base: Selection, head: Selection, min_effect: float
) -> tuple[Selection, Selection, str | None]:
    """Both sides with only the first complete steps of each run, and a line, if they have to be compared."""
    times: tuple[dict[str, dict[int, float]], ...] = ({}, {})  # run → step → mean of its ranks
    for of_side, side in zip(times, (base, head), strict=True):
        for row in side.query(_POSITIONS).rows():
            of_side.setdefault(row["run_id"], {})[row["step"]] = row["ns"]
    of_base, of_head = (StepTimes(tuple(tuple(run.values()) for run in side.values())) for side in times)
    first = first_steps(of_base, of_head, min_effect) if all(times) else None
    if first is None:
        return base, head, None
    last_steps = [{run: [*steps][first[0] - 1] for run, steps in of_side.items()} for of_side in times]
    return base.until_steps(last_steps[0]), head.until_steps(last_steps[1]), first[1]


# The most important first.
_CHECKS: tuple[_Check, ...] = (
    _same,
    _gpu,
    _differing("gpu_model", "device_name", "GPU model", is_warning=True),
    _differing("world_size", "world_size", "world size", is_warning=True),
    _kernel_rules,
    _layouts,
    _missing,
    _ranks,
    _windows,
    _damaged,
    _shapes,
    _work,
    _steps,
    _flags,
    _versions,
    _differing("framework", "framework_version", "framework"),
    _differing("reader", "format_version", "ingested with different reader versions", null=True),
)
