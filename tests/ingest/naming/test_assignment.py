"""Runs and ranks of files, for names found in practice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from tracewarehouse.errors import ParamError
from tracewarehouse.ingest import assignment as rule
from tracewarehouse.ingest.assignment import Naming, TimeWindow, TraceFile
from tracewarehouse.ingest.naming import folder_run_name, split_name


def no_window(path: Path) -> tuple[int | None, int | None]:
    raise AssertionError(f"{path} collides with nothing: its window is not needed")


def assign(files: Iterable[TraceFile], *, window: Callable[[Path], TimeWindow], **options: object) -> Naming:
    return rule.assign(files, windows=lambda paths: {path: window(path) for path in paths}, **options)  # type: ignore[arg-type]


def trace(path: str, rank: int | None = None, **more: object) -> TraceFile:
    return TraceFile(Path("/t") / path, digest=str(more.pop("digest", path)), rank=rank, **more)  # type: ignore[arg-type]


def placed(naming: Naming) -> dict[str, tuple[str, int]]:
    return {str(one.path.relative_to("/t")): (one.run, one.rank) for one in naming.assigned}


NAMES = [
    # name, rank token, world size, coordinates, remainder
    ("rank0.pt.trace.json.gz", 0, None, (), ""),
    ("rank-0.json", 0, None, (), ""),
    ("rank_12.json.gz", 12, None, (), ""),
    ("RANK00003.json", 3, None, (), ""),
    ("rank=7.json", 7, None, (), ""),
    ("rank0_et.json.gz", 0, None, (), "et"),
    ("sampled_rank-0.json", 0, None, (), "sampled"),
    ("rank-34.Jul_15_10_52_41.1070.pt.trace.json.gz", 34, None, (), ""),
    ("cpu_only_rank-34of300.pt.trace.json.gz", 34, 300, (), "cpu_only"),
    ("a100_nccl_pg_config_rank0of2.json.gz", 0, 2, (), "a100_nccl_pg_config"),
    ("worker0.1623143089861.pt.trace.json.gz", 0, None, (), ""),
    ("num_workers_0__worker0.1623143089861.pt.trace.json.gz", 0, None, (), "num_workers_0"),
    ("worker7_step_12.1694128201553.pt.trace.json.gz", 7, None, (), "step_12"),
    ("r0of8.json", 0, 8, (), ""),
    ("r3.json", 3, None, (), ""),
    ("deepseek-r1.json", None, None, (), "deepseek-r1"),
    ("deepseek-r1_rank2.json", 2, None, (), "deepseek-r1"),
    ("1745678901.1234567-TP-3-DP-0.trace.json.gz", None, None, (("tp", 3), ("dp", 0)), ""),
    ("TP-0-DP-0.json", None, None, (("tp", 0), ("dp", 0)), ""),
    (
        "dp0_pp0_tp1_dcp0_ep0_rank1.1751410836.pt.trace.json.gz",
        1,
        None,
        (("dp", 0), ("pp", 0), ("tp", 1), ("dcp", 0), ("ep", 0)),
        "",
    ),
    ("model_ep3.json", None, None, (), "model_ep3"),
    ("node1_local_rank0.json", None, None, (("local_rank", 0),), "node1"),
    ("node1_local_rank0_rank8.json", 8, None, (("local_rank", 0),), "node1"),
    ("train-20241209-101112_rank_2.json", 2, None, (), "train"),
    ("train_2024-12-09T10:11:12.json", None, None, (), "train"),
    ("frank0.json", None, None, (), "frank0"),
    ("rank_non_gpu.json.gz", None, None, (), "rank_non_gpu"),
    ("bs_32_rank0.json.gz", 0, None, (), "bs_32"),
    ("xdit_flux.1__capture_trace_rank_0.json.gz", 0, None, (), "xdit_flux.1__capture_trace"),
    (
        "gaunernst_bert-small-uncased__1016001.json.gz",
        None,
        None,
        (),
        "gaunernst_bert-small-uncased__1016001",
    ),
    ("mi350x_smci350_200691.pt.trace.json", None, None, (), "mi350x_smci350_200691"),
    ("trace_view.json", None, None, (), "trace_view"),
]


@pytest.mark.parametrize(
    ("name", "rank", "world_size", "coordinates", "remainder"), NAMES, ids=lambda value: str(value)
)
def test_names_are_split(
    name: str,
    rank: int | None,
    world_size: int | None,
    coordinates: tuple[tuple[str, int], ...],
    remainder: str,
) -> None:
    parts = split_name(name)
    assert (parts.rank, parts.world_size, parts.coordinates, parts.remainder) == (
        rank,
        world_size,
        coordinates,
        remainder,
    )


def test_a_host_and_pid_are_seen_only_before_a_time() -> None:
    assert split_name("hmoss-6a49xb_1984753.1733768790785663393.pt.trace.json").host == "hmoss-6a49xb"
    assert split_name("smci350_200691.pt.trace.json").host is None


def test_one_remainder_is_the_folder_and_several_are_separate_runs() -> None:
    one = assign([trace("dlrm/worker0_step_12.1694128201545.pt.trace.json.gz", 0)], window=no_window)
    assert set(placed(one).values()) == {("dlrm", 0)}
    two = assign([trace("d/control.json.gz", 3), trace("d/test.json.gz", 1)], window=no_window)
    assert placed(two) == {"d/control.json.gz": ("d.control", 3), "d/test.json.gz": ("d.test", 1)}


def test_the_folder_with_broken_ranks() -> None:
    files = [
        trace("broken/rank0.json.gz", 0, world_size=8),
        trace("broken/rank1.json.gz"),
        trace("broken/rank2.json.gz", 0, world_size=8),
        trace("broken/rank3.json.gz", 3, world_size=16),
    ]
    naming = assign(files, window=lambda path: (0, 10))
    assert placed(naming) == {
        "broken/rank0.json.gz": ("broken", 0),
        "broken/rank1.json.gz": ("broken", 1),
        "broken/rank3.json.gz": ("broken", 3),
    }
    (refusal,) = naming.refusals
    assert refusal.reason == "rank 0 of run broken is already assigned to rank0.json.gz"
    assert refusal.hint.startswith("ingest this file alone with rank=2")


def test_the_hint_works() -> None:
    naming = assign([trace("broken/rank2.json.gz", 0)], rank=2, window=no_window)
    assert placed(naming) == {"broken/rank2.json.gz": ("broken", 2)}
    assert naming.assigned[0].notes == ("stored as rank 2, although the file says rank 0",)


@pytest.mark.parametrize(
    ("in_trace", "name", "requested", "rank"),
    [
        (3, "rank5.json", None, 3),
        (None, "rank5.json", None, 5),
        (None, "trace.json", 7, 7),
        (None, "trace.json", None, 0),
        (None, "TP-3-DP-0.json", None, 3),
        (None, "TP-0-DP-2.json", None, 2),
        (None, "TP-3-DP-1.json", None, 3),
    ],
)
def test_where_a_rank_comes_from(in_trace: int | None, name: str, requested: int | None, rank: int) -> None:
    (one,) = assign([trace(f"d/{name}", in_trace)], rank=requested, window=no_window).assigned
    assert one.rank == rank


def test_a_name_that_disagrees_with_the_trace_is_noted() -> None:
    (one,) = assign([trace("d/rank5.json", 3)], window=no_window).assigned
    assert one.notes == ("the file name says rank 5, the trace rank 3",)


def test_a_name_with_the_rank_of_another_part_is_not_noted() -> None:
    files = [replace(trace("d/rank0.sqlite", rank), part=f"pid {rank}") for rank in (0, 1)]
    naming = assign(files, window=no_window)
    assert [(one.rank, one.notes) for one in naming.assigned] == [(0, ()), (1, ())]
    (note,) = assign(files, rank=7, window=no_window).notes
    assert note.startswith("rank=7 is ignored")


def test_numbered_files_without_ranks_are_noted() -> None:
    files = [trace(f"d/report{number}.sqlite") for number in (1, 2)]
    naming = assign(files, window=no_window)
    assert [(one.run, one.rank) for one in naming.assigned] == [("d.report1", 0), ("d.report2", 0)]
    (note,) = naming.notes
    assert note.startswith("report1.sqlite, report2.sqlite, …: separate runs of rank 0")
    assert "rank0.sqlite, rank1.sqlite" in note
    (refusal,) = assign(files, run="job", window=lambda path: (0, 1)).refusals
    assert refusal.hint.startswith("name the files by rank (rank0.sqlite, rank1.sqlite, …), or ingest this")
    assert assign([trace("d/before.json"), trace("d/after.json")], window=no_window).notes == ()
    assert assign([trace(f"d/trace_{rank}.json", rank) for rank in (0, 1)], window=no_window).notes == ()


def test_a_file_without_a_rank_beside_ranks_is_refused() -> None:
    naming = assign([trace("d/rank0.json", 0), trace("d/.json")], window=no_window)
    assert placed(naming) == {"d/rank0.json": ("d", 0)}
    assert naming.refusals[0].reason == "the file does not specify a rank, and run d has several"


def test_tensor_ranks_count_if_they_are_unique() -> None:
    files = [trace(f"d/17456789{i:02}.5-TP-{i}-DP-{i // 2}.trace.json.gz") for i in range(4)]
    naming = assign(files, window=no_window)
    assert [(one.run, one.rank) for one in naming.assigned] == [("d", 0), ("d", 1), ("d", 2), ("d", 3)]


def test_ambiguous_coordinates_are_not_guessed() -> None:
    files = [trace(f"d/TP-{tp}-DP-{dp}.json") for tp in range(2) for dp in range(2)]
    naming = assign(files, window=lambda path: (0, 1))
    assert len(naming.assigned) + len(naming.refusals) == 4
    assert [one.path.name for one in naming.assigned] == ["TP-0-DP-0.json"]


def test_default_names_of_one_job_on_two_hosts_are_one_run() -> None:
    files = [trace(f"d/node{r // 2}_{100 + r}.17337687907856633{r:02}.pt.trace.json", r) for r in range(4)]
    naming = assign(files, window=no_window)
    assert {one.run for one in naming.assigned} == {"d"}
    assert sorted(one.rank for one in naming.assigned) == [0, 1, 2, 3]


def test_default_names_of_two_jobs_on_two_hosts_are_two_runs() -> None:
    files = [trace(f"d/node{h}_{r}.17337687907856633{r:02}.pt.trace.json", r) for h in "ab" for r in range(2)]
    naming = assign(files, window=no_window)
    assert {(one.run, one.rank) for one in naming.assigned} == {
        ("d.nodea", 0),
        ("d.nodea", 1),
        ("d.nodeb", 0),
        ("d.nodeb", 1),
    }


def test_default_names_without_ranks_keep_their_pid() -> None:
    files = [trace(f"d/h_{pid}.17337687907856633{pid}.pt.trace.json") for pid in (11, 12)]
    assert {one.run for one in assign(files, window=no_window).assigned} == {"d.h_11", "d.h_12"}


def test_a_plain_number_is_a_rank_only_if_every_trace_agrees() -> None:
    agreed = assign([trace(f"d/trace_{r}.json", r) for r in range(3)], window=no_window)
    assert {(one.run, one.rank) for one in agreed.assigned} == {("d", 0), ("d", 1), ("d", 2)}
    steps = assign([trace(f"d/trace_{step}.json", 0) for step in range(3)], window=no_window)
    assert {(one.run, one.rank) for one in steps.assigned} == {
        ("d.trace_0", 0),
        ("d.trace_1", 0),
        ("d.trace_2", 0),
    }


def test_parents_are_prefixed_until_names_differ() -> None:
    files = [trace("a/x/traces/rank0.json"), trace("b/x/traces/rank0.json"), trace("c/other/rank0.json")]
    assert placed(assign(files, window=no_window)) == {
        "a/x/traces/rank0.json": ("a.x.traces", 0),
        "b/x/traces/rank0.json": ("b.x.traces", 0),
        "c/other/rank0.json": ("other", 0),
    }


def test_names_that_differ_only_in_case_do_not_collide() -> None:
    files = [trace("a/Runs/rank0.json"), trace("b/runs/rank0.json")]
    assert {one.run for one in assign(files, window=no_window).assigned} == {"a.Runs", "b.runs"}
    naming = assign([trace("a/x y/rank0.json"), trace("a/x-y/rank1.json")], window=no_window)
    assert len(naming.assigned) == len(naming.refusals) == 1
    assert "another folder" in naming.refusals[0].reason


def test_a_folder_named_like_a_remainder_is_distinguished() -> None:
    files = [trace("a/b.json"), trace("a/c.json"), trace("z/a.b/rank0.json")]
    runs = [one.run for one in assign(files, window=no_window).assigned]
    assert len(set(runs)) == 3


def test_the_same_content_again_is_a_duplicate() -> None:
    files = [trace("d/rank0.json", digest="x"), trace("d/rank0.json.gz", digest="x")]
    naming = assign(files, window=no_window)
    assert [one.path.name for one in naming.assigned] == ["rank0.json"]
    (double,) = naming.duplicates
    assert (double.path.name, double.of.name, double.run, double.rank) == (
        "rank0.json.gz",
        "rank0.json",
        "d",
        0,
    )


def test_an_intact_file_precedes_a_damaged_one() -> None:
    files = [trace("d/rank0.json", digest="x", damaged=True), trace("d/rank0.json.gz", digest="y")]
    naming = assign(files, window=lambda path: (0, 10))
    assert [one.path.name for one in naming.assigned] == ["rank0.json.gz"]
    assert [one.path.name for one in naming.refusals] == ["rank0.json"]


def windows(table: Mapping[str, tuple[int | None, int | None]]):  # type: ignore[no-untyped-def]
    return lambda path: table[path.name]


def test_windows_are_numbered_across_ranks() -> None:
    table = {
        f"worker{r}.16231430{k}0000.json": (100 * k + r, 100 * k + 50) for r in range(2) for k in (3, 2, 1)
    }
    naming = assign([trace(f"d/{name}") for name in table], window=windows(table))
    assert placed(naming) == {
        f"d/worker{r}.16231430{k}0000.json": (f"d~{k}", r) for r in range(2) for k in (1, 2, 3)
    }
    assert {one.window_number for one in naming.assigned} == {1, 2, 3}


def test_a_rank_that_missed_a_window_keeps_the_others() -> None:
    table: dict[str, tuple[int | None, int | None]] = {
        "rank0.1623143010000.json": (0, 10),
        "rank0.1623143020000.json": (20, 30),
        "rank0.1623143030000.json": (40, 50),
        "rank1.1623143030000.json": (41, 49),
    }
    naming = assign([trace(f"d/{name}") for name in table], window=windows(table))
    assert placed(naming)["d/rank1.1623143030000.json"] == ("d~3", 1)


def test_overlapping_windows_are_not_numbered() -> None:
    table = {"rank0.1623143010000.json": (0, 10), "rank0.1623143020000.json": (9, 30)}
    naming = assign([trace(f"d/{name}") for name in table], window=windows(table))
    assert placed(naming) == {"d/rank0.1623143010000.json": ("d", 0)}
    assert naming.refusals[0].path.name == "rank0.1623143020000.json"


def test_a_window_without_times_is_not_numbered() -> None:
    table = {"rank0.1623143010000.json": (None, None), "rank0.1623143020000.json": (9, 30)}
    naming = assign([trace(f"d/{name}") for name in table], window=windows(table))
    assert len(naming.assigned) == len(naming.refusals) == 1


def test_a_requested_run_has_all_files() -> None:
    files = [trace("node0/rank0.json"), trace("node1/rank1.json")]
    assert placed(assign(files, run="job", window=no_window)) == {
        "node0/rank0.json": ("job", 0),
        "node1/rank1.json": ("job", 1),
    }


def test_unlike_files_of_a_requested_run_are_not_windows() -> None:
    files = [trace("d/before.json"), trace("d/after.json")]
    naming = assign(files, run="job", window=no_window)
    assert placed(naming) == {"d/after.json": ("job", 0)}
    assert [one.path.name for one in naming.refusals] == ["before.json"]


def test_a_handler_knows_run_and_window() -> None:
    files = [
        trace(f"inbox/job/rank{r}.span{k}.json", r, run="job", window_number=k)
        for r in range(2)
        for k in (1, 2)
    ]
    naming = assign(files, window=no_window)
    assert {(one.run, one.rank, one.window_number) for one in naming.assigned} == {
        ("job", 0, 1),
        ("job", 1, 1),
        ("job~2", 0, 2),
        ("job~2", 1, 2),
    }


def test_the_order_of_the_files_does_not_matter() -> None:
    table = {f"worker{r}.16231430{k}0000.json": (100 * k, 100 * k + 50) for r in range(3) for k in (1, 2)}
    files = [trace(f"d/{name}") for name in table] + [trace("d/other.json"), trace("e/d/rank0.json")]
    naming = assign(files, window=windows(table))
    assert naming == assign(reversed(files), window=windows(table))


@pytest.mark.parametrize("name", ["", "x" * 129, "…", "/", "--", "../.."])
def test_hostile_run_names_are_refused(name: str) -> None:
    with pytest.raises(ParamError) as error:
        assign([trace("d/rank0.json")], run=name, window=no_window)
    assert error.value.hint


@pytest.mark.parametrize(
    ("name", "stored"), [("../x", "x"), ("läuf/3 b", "l-uf-3-b"), ("a/../../b", "a-..-..-b")]
)
def test_other_characters_become_dashes_and_that_is_noted(name: str, stored: str) -> None:
    naming = assign([trace("d/rank0.json")], run=name, window=no_window)
    assert naming.assigned[0].run == stored
    assert stored in naming.notes[0]


def test_folders_with_other_characters_are_runs_all_the_same() -> None:
    assert folder_run_name("トレース x") == "x"
    assert folder_run_name("..") == folder_run_name("トレース") == "run"
    naming = assign([trace("my run/rank0.json")], window=no_window)
    assert naming.assigned[0].run == "my-run"
    assert "my-run" in naming.notes[0]


def test_long_folder_names_stay_apart() -> None:
    one, other = folder_run_name("x" * 200 + "a"), folder_run_name("x" * 200 + "b")
    assert len(one) == len(other) == 128
    assert one != other


def test_a_requested_name_is_no_selector() -> None:
    with pytest.raises(ParamError, match="a run name does not begin with @: '@latest'"):
        assign([trace("a.json")], window=no_window, run="@latest")
