"""Tables of random ranks compared with the reference, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plain_tables
import pytest
from activity_rows import Row, build, in_small_parts, random_rows

from conftest import deep, deep_seeds
from witness.stack import Place

LAUNCH_AND_IDLE = (
    "launch_api", "launch_dur_ns", "launch_to_start_ns", "stream_idle_ns", "stream_previous_id",
)  # fmt: skip
SEEDS = [range(12), *deep_seeds(12, 3000)]


def check(rows: list[dict[str, Any]], spill: Path | None = None) -> None:
    """Asserts that every table equals the reference."""
    built = build(rows, spill)
    found = plain_tables.places(rows)
    check_places(built.rows("events"), found)
    links = plain_tables.launched_by(rows, found)
    rows = plain_tables.cut(rows, links)
    kernels = built.rows("kernels", "event_id", "runtime_id")
    assert kernels == [(n, links[n][0] if n in links else None) for n in plain_tables.gpu_activities(rows)]
    assert built.rows("kernels", *LAUNCH_AND_IDLE) == plain_tables.launch_and_idle(rows, links)
    assert built.rows("correlations", "kernel_id", "via") == [
        (n, links[n][1]) for n in sorted(links, key=lambda n: (links[n][0], n))
    ]
    assert built.rows("events", "step") == plain_tables.steps_of_rows(rows, links)
    assert built.rows("steps") == plain_tables.step_table(rows, found, links)
    check_attribution(rows, built.rows("kernels"), built.rows("runtime"), found)


def check_places(events: list[dict[str, Any]], found: dict[int, Place]) -> None:
    names = ("parent_id", "depth", "pre", "post", "crosses")
    wanted = {n: tuple(vars(place).values()) for n, place in found.items()}
    assert [tuple(row[name] for name in names) for row in events] == [
        wanted.get(n, (None,) * 5) for n in range(len(events))
    ]


def check_attribution(
    rows: list[dict[str, Any]], kernels: list[Row], runtime: list[Row], found: dict[int, Place]
) -> None:
    assert [row["event_id"] for row in runtime] == plain_tables.calls(rows)
    for row in runtime:
        assert row["op_id"] == plain_tables.belongs_to(rows, found, row["event_id"])["op_id"]
    for row in kernels:
        wanted = dict.fromkeys(("op_id", "top_op_id", "module_id", "annotation_id", "path_sig"))
        collective = None
        if row["runtime_id"] is None:
            assert row["pass"] == "other"
        else:
            wanted = plain_tables.belongs_to(rows, found, row["runtime_id"])
            collective = wanted.pop("collective_id")
        assert {name: row[name] for name in wanted} == wanted
        own = rows[row["event_id"]].get("has_collective")
        speaks = row["kind"] == "communication" and not own and collective is not None
        assert row["collective"] == ("allreduce" if speaks else None)


@pytest.mark.parametrize("seeds", SEEDS)
def test_random_ranks(seeds: range) -> None:
    for seed in seeds:
        check(random_rows(seed))


@pytest.mark.parametrize("slices", [1, 7])
@pytest.mark.parametrize("seeds", [range(3), *deep_seeds(3, 500)])
def test_a_few_slices_at_a_time_give_the_same(
    seeds: range, slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_small_parts(monkeypatch, slices, rows=5)
    for seed in seeds:
        check(random_rows(seed))


@pytest.mark.parametrize("seed", [*range(2), *deep(*range(2, 12))])
def test_columns_in_a_file_give_the_same(seed: int, tmp_path: Path) -> None:
    check(random_rows(seed), tmp_path)
