"""Provisional runs and ranks, and the groups of files that tasks read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tracewarehouse.formats.base import Part
from tracewarehouse.ingest.outcome import Options
from tracewarehouse.ingest.plan import (
    GROUP_BYTES,
    GROUP_RANKS,
    Item,
    Target,
    provisional_assignments,
    task_groups,
)
from tracewarehouse.ingest.survey import SurveyedSource


@dataclass(frozen=True)
class Named:
    """A stand-in for a format."""

    name: str = "kineto"
    version: int = 1


def surveyed(name: str, rank: int | None = None, window: tuple[int, int] | None = None) -> SurveyedSource:
    """A file of the folder `job`, with the rank at its beginning."""
    part = Part(rank=rank, window=window)
    return SurveyedSource(Path("/traces/job") / name, (1, 1), Named(), part, 1)  # type: ignore[arg-type]


def assignments(*sources: SurveyedSource, **options: object) -> dict[str, tuple[str, int]]:
    """File name → (run, rank)."""
    found = provisional_assignments(sources, Options(**options))  # type: ignore[arg-type]
    return {sources[number].path.name: (one.run, one.rank) for number, one in found.items()}


def test_a_rank_comes_from_the_beginning_else_from_the_name() -> None:
    found = assignments(
        surveyed("rank0.json"), surveyed("rank1.json", rank=1), surveyed("x.rank5.json", rank=4)
    )
    assert found == {"rank0.json": ("job", 0), "rank1.json": ("job", 1), "x.rank5.json": ("job.x", 4)}


def test_files_of_a_rank_that_differ_in_time_are_successive_windows() -> None:
    names = [f"rank{rank}.16941282{k}0545.pt.trace.json" for k in (1, 2) for rank in (0, 1)]
    found = assignments(*(surveyed(name) for name in names))
    assert set(found.values()) == {("job~1", 0), ("job~2", 0), ("job~1", 1), ("job~2", 1)}
    assert found[names[0]][0] == found[names[1]][0] == "job~1"


def test_hints_of_windows_override_the_order_of_names() -> None:
    found = assignments(
        surveyed("rank0.1694128210545.json", window=(50, 60)),
        surveyed("rank0.1694128220545.json", window=(10, 20)),
    )
    assert found["rank0.1694128210545.json"] == ("job~2", 0)


def test_a_file_with_the_rank_of_another_one_moves_no_other_file() -> None:
    found = assignments(
        surveyed("rank0.json", rank=0), surveyed("rank1.json", rank=1), surveyed("rank2.json", rank=0)
    )
    assert found == {"rank0.json": ("job", 0), "rank1.json": ("job", 1)}


def test_the_same_name_compressed_is_not_another_window() -> None:
    assert assignments(surveyed("rank0.json"), surveyed("rank0.json.gz")) == {"rank0.json": ("job", 0)}


def item(number: int, text_bytes: int, run: str | None = "job") -> Item:
    """An item of rank `number`."""
    place = Target(run, number) if run else None
    return Item(number, Path(f"rank{number}"), Named(), Part(), (1, 1), text_bytes, place)  # type: ignore[arg-type]


def numbers(found: list[tuple[Item, ...]]) -> list[list[int]]:
    """The numbers of the items of each group."""
    return [[one.number for one in group] for group in found]


def test_small_ranks_of_a_run_share_a_task_and_every_process_has_one() -> None:
    items = [item(number, 1000) for number in range(8)]
    assert numbers(task_groups(items, 1)) == [list(range(8))]
    assert numbers(task_groups(items, 2)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_task_has_limited_ranks_and_text() -> None:
    many = task_groups([item(number, 10) for number in range(2 * GROUP_RANKS + 1)], 1)
    assert sorted(map(len, many)) == [1, GROUP_RANKS, GROUP_RANKS]
    half = GROUP_BYTES // 2 + 1
    assert numbers(task_groups([item(number, half) for number in range(3)], 1)) == [[0], [1], [2]]


def test_the_largest_task_comes_first_and_runs_do_not_mix() -> None:
    items = [item(0, 10, "a"), item(1, GROUP_BYTES * 2, "b"), item(2, 30, None), item(3, 10, "a")]
    assert numbers(task_groups(items, 1)) == [[1], [2], [0, 3]]
