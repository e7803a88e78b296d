"""Whether two sides can be compared, and in what they differ beside their times: said before any number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tracewarehouse import hints
from tracewarehouse.diff.roles import layouts
from tracewarehouse.errors import TwError
from tracewarehouse.exact_text import rank_list
from tracewarehouse.metric import Side
from tracewarehouse.runs.quality import expected_ranks

_RANKS = """
SELECT run_id, rank, device_name, world_size, framework_version, status, format_version,
  gpu, shapes, stacks, modules, memory_events, kernel_counters
FROM ranks
"""
_STEPS = "SELECT run_id, rank, count(*) AS steps FROM steps WHERE NOT partial GROUP BY run_id, rank"
# What operators work on: other shapes are another batch, or other inputs.
_SHAPES = """
SELECT name, CAST(shapes AS VARCHAR) AS shape, count(*) AS calls
FROM events
WHERE shapes IS NOT NULL
GROUP BY ALL
"""
_FLAGS = {
    "shapes": "shapes",
    "stacks": "Python functions",
    "modules": "modules",
    "memory_events": "allocations",
    "kernel_counters": "hardware counters",
}
OTHER_SHAPES = 0.05  # share of calls that have no counterpart, from which shapes count as different


class NotComparable(TwError):
    """Two sides that cannot be compared in a meaningful way; `force` compares them anyway."""


@dataclass(frozen=True)
class Difference:
    """In what the sides differ; a `hard` one makes the comparison of times meaningless."""

    what: str
    message: str
    hard: bool = False


@dataclass(frozen=True)
class _Told:
    """What a side says of itself."""

    who: str
    side: Side
    ranks: Sequence[dict[str, Any]]

    def values(self, column: str) -> list[Any]:
        """What its ranks say of a column, each once, sorted."""
        return sorted({row[column] for row in self.ranks if row[column] is not None})

    @property
    def names(self) -> set[str]:
        """Its runs, in the versions looked at."""
        return {each.selector for each in self.side.selected()}


def differences(base: Side, head: Side) -> tuple[Difference, ...]:
    """In what the sides differ, hard differences first."""
    told = tuple(
        _Told(who, side, side.query(_RANKS).rows()) for who, side in (("base", base), ("head", head))
    )
    found = [each for check in _CHECKS for each in check(*told)]
    return tuple(sorted(found, key=lambda each: not each.hard))


def check(found: Iterable[Difference]) -> None:
    """Raises NotComparable where a difference is hard."""
    hard = [each.message for each in found if each.hard]
    if hard:
        raise NotComparable(
            f"not comparable: {'; '.join(hard)}",
            hints.fill("use {} to compare anyway", hints.option("force")),
        )


def _same(base: _Told, head: _Told) -> Iterator[Difference]:
    if both := sorted(base.names & head.names):
        yield Difference("same_run", f"the same run on both sides: {', '.join(both)}", hard=True)


def _gpu(base: _Told, head: _Told) -> Iterator[Difference]:
    busy = [any(row["gpu"] for row in side.ranks) for side in (base, head)]
    if busy[0] != busy[1]:
        without = base.who if busy[1] else head.who
        yield Difference("gpu", f"{without} has no GPU rows and the other side has", hard=True)


def _model(base: _Told, head: _Told) -> Iterator[Difference]:
    names = base.values("device_name"), head.values("device_name")
    if all(names) and names[0] != names[1]:
        yield Difference("gpu_model", f"GPU model: {_against(*names)}", hard=True)


def _world(base: _Told, head: _Told) -> Iterator[Difference]:
    sizes = base.values("world_size"), head.values("world_size")
    if all(sizes) and sizes[0] != sizes[1]:
        yield Difference("world_size", f"world size: {_against(*sizes)}", hard=True)


def _layouts(base: _Told, head: _Told) -> Iterator[Difference]:
    if found := layouts(base.side, head.side):
        yield Difference("layout", f"layout: {_against(*found)}")


def _missing(base: _Told, head: _Told) -> Iterator[Difference]:
    for side in (base, head):
        for each in side.side.selected():
            expected = set(range(expected_ranks(each.version) or 0))
            if gone := expected - set(each.version.ranks):
                what = f"{each.run} lacks ranks {rank_list(gone)} of {len(expected)}"
                yield Difference("missing_ranks", f"{side.who}: {what}")


def _ranks(base: _Told, head: _Told) -> Iterator[Difference]:
    ranks = [set(side.values("rank")) for side in (base, head)]
    for side, only in ((base, ranks[0] - ranks[1]), (head, ranks[1] - ranks[0])):
        if only:
            yield Difference("ranks", f"ranks only in {side.who}: {rank_list(only)}")


def _damaged(base: _Told, head: _Told) -> Iterator[Difference]:
    for side in (base, head):
        broken = [f"{row['run_id']} rank {row['rank']}" for row in side.ranks if row["status"] == "damaged"]
        if broken:
            more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
            yield Difference(
                "damaged", f"{side.who} has damaged traces, events are lost: {', '.join(broken[:3])}{more}"
            )


def _flags(base: _Told, head: _Told) -> Iterator[Difference]:
    for flag, what in _FLAGS.items():
        has = [any(row[flag] for row in side.ranks) for side in (base, head)]
        if has[0] != has[1]:
            who = (base if has[0] else head).who
            yield Difference("profiler", f"only {who} was recorded with {what}: recording costs time")


def _framework(base: _Told, head: _Told) -> Iterator[Difference]:
    versions = base.values("framework_version"), head.values("framework_version")
    if all(versions) and versions[0] != versions[1]:
        yield Difference("framework", f"framework: {_against(*versions)}")


def _reader(base: _Told, head: _Told) -> Iterator[Difference]:
    versions = base.values("format_version"), head.values("format_version")
    if versions[0] != versions[1]:
        yield Difference("reader", f"read by other versions of the reader: {_against(*versions)}")


def _steps(base: _Told, head: _Told) -> Iterator[Difference]:
    counts = [sorted({row["steps"] for row in side.side.query(_STEPS).rows()}) for side in (base, head)]
    if counts[0] != counts[1]:
        yield Difference("steps", f"complete steps of a rank: {_against(*map(_range, counts))}")


def _shapes(base: _Told, head: _Told) -> Iterator[Difference]:
    calls = [
        {(row["name"], row["shape"]): row["calls"] for row in side.side.query(_SHAPES).rows()}
        for side in (base, head)
    ]
    if not all(calls):
        return
    alone = [_alone(calls[0], calls[1]), _alone(calls[1], calls[0])]
    if max(alone) >= OTHER_SHAPES:
        share = max(alone)
        yield Difference(
            "shapes", f"other shapes: {share:.0%} of the operators' calls, so batches or inputs differ"
        )


def _alone(ours: dict[tuple[str, str], int], theirs: dict[tuple[str, str], int]) -> float:
    """The share of our calls of operators that both have, whose shapes the other side never has."""
    names = {name for name, _ in theirs}
    shared = {key: calls for key, calls in ours.items() if key[0] in names}
    total = sum(shared.values())
    return sum(calls for key, calls in shared.items() if key not in theirs) / total if total else 0.0


def _against(base: object, head: object) -> str:
    return f"base {_listed(base)}, head {_listed(head)}"


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _range(counts: Sequence[int]) -> str:
    if not counts:
        return "none"
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


_Check = Callable[[_Told, _Told], Iterator[Difference]]
# In the order in which people want to hear of them.
_CHECKS: tuple[_Check, ...] = (
    _same,
    _gpu,
    _model,
    _world,
    _layouts,
    _missing,
    _ranks,
    _damaged,
    _shapes,
    _steps,
    _flags,
    _framework,
    _reader,
)
