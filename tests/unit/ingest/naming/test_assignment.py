"""Runs and ranks of files, for names found in practice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import pytest
from msgspec.structs import replace

from tracewarehouse.errors import ParamError
from tracewarehouse.formats.base import Part
from tracewarehouse.formats.kineto.format import KinetoFormat
from tracewarehouse.ingest import assignment as rule
from tracewarehouse.ingest.inbox import SpoolNote
from tracewarehouse.ingest.naming import folder_run_name, split_path
from tracewarehouse.ingest.outcome import FileOutcome, Options
from tracewarehouse.ingest.sources import RankCommit, Source, Target, TimeWindow, TraceFile

WindowOf = Callable[[Path], TimeWindow]


@dataclass(frozen=True)
class Naming:
    """The targets by path; the outcomes of the other sources by state."""

    assigned: list[Target]
    paths: list[Path]
    refusals: list[FileOutcome]
    duplicates: list[FileOutcome]
    notes: list[str]


def no_window(path: Path) -> TimeWindow:
    return None, None


def assign(files: Iterable[Source], *, window: WindowOf = no_window, **options: Any) -> Naming:
    """The assignment of files that were read, with these windows."""
    read = [
        replace(one, commit=replace(one.committed, window=window(one.file.path))) if one.commit else one
        for one in files
    ]
    found = rule.assign(read, Options(**options))
    others = [outcome for _, outcome in found.others]
    return Naming(
        [source.target for source in found.sources],
        [source.file.path for source in found.sources],
        [outcome for outcome in others if outcome.state == "refused"],
        [outcome for outcome in others if outcome.state == "skipped"],
        found.notes,
    )


def surveyed(path: str, rank: int | None = None, part: str = "", **more: Any) -> Source:
    """A file whose beginning was read."""
    file = TraceFile(Path("/t") / path, named=False, note=more.pop("note", None))
    return Source(file, KinetoFormat(), Part(part, rank, **more), (1, 1), 1)


def trace(
    path: str,
    rank: int | None = None,
    world_size: int | None = None,
    digest: str = "",
    damaged: bool = False,
    note: SpoolNote | None = None,
    part: str = "",
) -> Source:
    """A file that was read."""
    commit = RankCommit(digest or path, "damaged" if damaged else "intact", 1, rank, world_size)
    return replace(surveyed(path, note=note, part=part), commit=commit)


def placed(naming: Naming) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to("/t")): (one.run, one.rank)
        for path, one in zip(naming.paths, naming.assigned, strict=True)
    }


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
    ("worker7_step_12.1694128201553.pt.trace.json.gz", 7, None, (), ""),
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
    ("node1_local_rank0.json", None, None, (("local", 0),), ""),
    ("node1_local_rank0_rank8.json", 8, None, (("local", 0),), ""),
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
    parts = split_path(PurePath(name))
    assert (parts.rank, parts.world_size, parts.coordinates, parts.remainder) == (
        rank,
        world_size,
        coordinates,
        remainder,
    )


def test_a_host_and_pid_are_seen_only_before_a_time() -> None:
    assert (
        split_path(PurePath("hmoss-6a49xb_1984753.1733768790785663393.pt.trace.json")).place == "hmoss-6a49xb"
    )
    assert split_path(PurePath("smci350_200691.pt.trace.json")).place == ""


# Of each file: rank and world size in the trace, run and rank. The name is the same alone and together.
NAMED_ALIKE: dict[str, dict[str, tuple[int | None, int | None, str, int]]] = {
    "rank and time are cut, a distinctive rest is the name": {
        "d/control.json.gz": (3, None, "control", 3),
        "d/test.json.gz": (1, None, "test", 1),
        "d/num_workers_4__worker0.1623143089861.pt.trace.json": (0, 2, "num_workers_4", 0),
    },
    "nothing distinctive is left": {
        "dlrm/worker0_step_12.1694128201545.pt.trace.json.gz": (0, None, "dlrm", 0),
        "dlrm/worker1_step_12.1694128201547.pt.trace.json.gz": (1, None, "dlrm", 1),
    },
    "veRL": {
        "v/actor_train_step1_rank0-of-2_pid500_20260930151150960.json.gz": (None, None, "actor_train", 0),
        "v/actor_train_step1_rank1-of-2_pid501_20260930151150960.json.gz": (None, None, "actor_train", 1),
    },
    "torchtitan and torchtune": {
        "JOB/profile_traces/iteration_10/rank0_trace.json": (None, 2, "JOB", 0),
        "JOB/profile_traces/iteration_10/rank1_trace.json": (None, 2, "JOB", 1),
    },
    "a folder per rank, which the headers say": {
        f"job/rank_{rank}/trace.json.gz": (rank, 4, "job", rank) for rank in range(4)
    },
    "a folder per rank, without headers": {
        f"job/rank_{rank}/trace.json.gz": (None, None, "job", rank) for rank in range(4)
    },
    "a folder per node": {
        f"job/node{rank // 2}/rank{rank}.pt.trace.json": (rank, 4, "job", rank) for rank in range(4)
    },
    "default names of ranks": {
        f"job/node{rank // 2}_{100 + rank}.17337687907856633{rank:02}.pt.trace.json": (rank, 4, "job", rank)
        for rank in range(4)
    },
    "default names without ranks": {
        "host/node00_4012.178800000.pt.trace.json": (None, None, "node00_4012", 0),
        "host/node01_4112.178800001.pt.trace.json": (None, None, "node01_4112", 0),
    },
    "exports without ranks": {
        f"reports/report{number}.sqlite": (None, None, f"report{number}", 0) for number in (1, 2)
    },
    "one process": {"lone/trace.json": (0, 1, "trace", 0), "lone/other.json": (0, 1, "other", 0)},
    "Accelerate": {f"job/profile_{rank}.json": (rank, 4, "job", rank) for rank in range(4)},
    "vLLM": {
        f"job/dp0_pp0_tp{tp}_dcp0_ep0_rank{tp}.1751410836.pt.trace.json.gz": (None, None, "job", tp)
        for tp in range(2)
    },
    "flight recorder": {
        f"hang/nccl_trace_rank_container-node0{rank // 2}_{rank}": (None, None, "hang", rank)
        for rank in range(4)
    },
    "coordinates": {
        f"sglang/1751410836.5-TP-{tp}-DP-0-PP-0-EP-{tp}.trace.json.gz": (None, None, "sglang", tp)
        for tp in range(4)
    },
}


@pytest.mark.parametrize("case", NAMED_ALIKE)
def test_a_file_has_the_same_name_alone_and_together(case: str) -> None:
    files = [trace(path, rank, world_size) for path, (rank, world_size, _, _) in NAMED_ALIKE[case].items()]
    targets = {path: (run, rank) for path, (_, _, run, rank) in NAMED_ALIKE[case].items()}
    assert placed(assign(files)) == targets
    for one in files:
        ((path, target),) = placed(assign([one])).items()
        assert target == targets[path]


def test_what_named_a_run_is_said_unless_it_is_the_folder_with_the_file() -> None:
    def named_after(path: str, rank: int | None = None) -> str:
        return assign([trace(path, rank)]).assigned[0].named_after

    assert named_after("job/rank0.json") == ""
    assert named_after("job/llama_rank0.json") == "the file"
    assert named_after("job/trace.json").startswith("the file, which says no rank (name those of one job")
    assert named_after("job/rank_0/trace.json") == "the folder /t/job"


def test_parts_of_a_file_are_numbered_and_say_no_rank() -> None:
    files = [trace(f"d/node{node}.sqlite", rank, part=f"pid {rank}") for node in (0, 1) for rank in (0, 1)]
    targets = [(one.run, one.rank) for one in assign(files).assigned]
    assert targets == [("node0", 0), ("node0", 1), ("node1", 0), ("node1", 1)]


def test_parents_in_a_path_are_resolved() -> None:
    assert placed(assign([trace("job/more/../rank0.json")])) == {"job/more/../rank0.json": ("job", 0)}


def test_iterations_of_a_job_are_windows() -> None:
    table = {f"JOB/profile_traces/iteration_{k}/rank{r}_trace.json": k for k in (10, 20) for r in (0, 1)}
    naming = assign(
        [trace(path) for path in table],
        window=lambda path: (table[str(path.relative_to("/t"))],) * 2,
    )
    assert placed(naming) == {
        f"JOB/profile_traces/iteration_{k}/rank{r}_trace.json": (f"JOB~{k // 10}", r)
        for k in (10, 20)
        for r in (0, 1)
    }


def test_nodes_with_a_rank_in_common_are_different_runs() -> None:
    files = [trace(f"job/node{node}/rank{rank}.json") for node in (0, 1) for rank in (0, 1)]
    runs = {one.run for one in assign(files).assigned}
    assert runs == {"job.node0", "job.node1"}
    files = [trace(f"job/x_node{node}_local_rank{rank}.json") for node in (0, 1) for rank in (0, 1)]
    assert {one.run for one in assign(files).assigned} == {"node0.x", "node1.x"}


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
    assert str(refusal.hint).startswith("ingest this file alone with rank=2")


def test_the_hint_works() -> None:
    naming = assign([trace("broken/rank2.json.gz", 0)], rank=2)
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
    (one,) = assign([trace(f"d/{name}", in_trace)], rank=requested).assigned
    assert one.rank == rank


def test_a_name_that_disagrees_with_the_trace_is_noted() -> None:
    (one,) = assign([trace("d/rank5.json", 3)]).assigned
    assert one.notes == ("the file name says rank 5, the trace rank 3",)


def test_a_name_with_the_rank_of_another_part_is_not_noted() -> None:
    files = [trace("d/rank0.sqlite", rank, part=f"pid {rank}") for rank in (0, 1)]
    naming = assign(files)
    assert [(one.rank, one.notes) for one in naming.assigned] == [(0, ()), (1, ())]
    (note,) = assign(files, rank=7).notes
    assert note.startswith("rank=7 is ignored")


def test_numbered_files_without_ranks_are_noted() -> None:
    files = [trace(f"d/report{number}.sqlite") for number in (1, 2)]
    naming = assign(files)
    assert [(one.run, one.rank) for one in naming.assigned] == [("report1", 0), ("report2", 0)]
    said = "the file, which says no rank (name those of one job rank0.sqlite, rank1.sqlite, …)"
    assert {one.named_after for one in naming.assigned} == {said}
    (refusal,) = assign(files, run="job", window=lambda path: (0, 1)).refusals
    assert str(refusal.hint).startswith(
        "name the files by rank (rank0.sqlite, rank1.sqlite, …), or ingest this"
    )
    ranks = assign([trace(f"d/trace_{rank}.json", rank) for rank in (0, 1)])
    assert {one.named_after for one in ranks.assigned} == {""}


def test_a_file_without_a_rank_beside_ranks_is_refused() -> None:
    naming = assign([trace("d/rank0.json", 0), trace("d/.json")])
    assert placed(naming) == {"d/rank0.json": ("d", 0)}
    assert naming.refusals[0].reason == "the file does not specify a rank, and run d has several"


def test_tensor_ranks_count_if_they_are_unique() -> None:
    files = [trace(f"d/17456789{i:02}.5-TP-{i}-DP-{i // 2}.trace.json.gz") for i in range(4)]
    naming = assign(files)
    assert [(one.run, one.rank) for one in naming.assigned] == [("d", 0), ("d", 1), ("d", 2), ("d", 3)]


def test_several_coordinates_number_the_ranks_from_the_outermost() -> None:
    def names(*coordinates: str) -> dict[str, int]:
        found = assign([trace(f"d/{name}.json") for name in coordinates])
        assert found.notes == ["ranks are numbered by DP, TP in the names of files"]
        return {path.stem: one.rank for path, one in zip(found.paths, found.assigned, strict=True)}

    assert names("TP-0-DP-0", "TP-0-DP-1", "TP-1-DP-0", "TP-1-DP-1") == {
        "TP-0-DP-0": 0,
        "TP-1-DP-0": 1,
        "TP-0-DP-1": 2,
        "TP-1-DP-1": 3,
    }
    expert = [f"TP-{tp}-DP-{dp}-PP-0-EP-{2 * dp + tp}" for tp in range(2) for dp in range(2)]
    assert sorted(names(*expert).values()) == [0, 1, 2, 3]


def test_default_names_of_two_jobs_on_two_hosts_are_two_runs() -> None:
    files = [trace(f"d/node{h}_{r}.17337687907856633{r:02}.pt.trace.json", r) for h in "ab" for r in range(2)]
    naming = assign(files)
    assert {(one.run, one.rank) for one in naming.assigned} == {
        ("d.nodea", 0),
        ("d.nodea", 1),
        ("d.nodeb", 0),
        ("d.nodeb", 1),
    }


def test_a_plain_number_is_a_rank_only_if_every_trace_agrees() -> None:
    agreed = assign([trace(f"d/trace_{r}.json", r) for r in range(3)])
    assert {(one.run, one.rank) for one in agreed.assigned} == {("d", 0), ("d", 1), ("d", 2)}
    steps = assign([trace(f"d/trace_{step}.json", 0) for step in range(3)])
    assert {(one.run, one.rank) for one in steps.assigned} == {
        ("trace_0", 0),
        ("trace_1", 0),
        ("trace_2", 0),
    }


def test_parents_are_prefixed_until_names_differ() -> None:
    files = [trace("a/x/traces/rank0.json"), trace("b/x/traces/rank0.json"), trace("c/other/rank0.json")]
    assert placed(assign(files)) == {
        "a/x/traces/rank0.json": ("a.x.traces", 0),
        "b/x/traces/rank0.json": ("b.x.traces", 0),
        "c/other/rank0.json": ("other", 0),
    }


def test_names_that_differ_only_in_case_do_not_collide() -> None:
    files = [trace("a/Runs/rank0.json"), trace("b/runs/rank0.json")]
    assert {one.run for one in assign(files).assigned} == {"a.Runs", "b.runs"}
    naming = assign([trace("a/x y/rank0.json"), trace("a/x-y/rank1.json")])
    assert len(naming.assigned) == len(naming.refusals) == 1
    assert "another folder" in naming.refusals[0].reason


def test_a_folder_named_like_a_remainder_is_distinguished() -> None:
    files = [trace("a/b.json"), trace("a/c.json"), trace("z/a.b/rank0.json")]
    runs = [one.run for one in assign(files).assigned]
    assert len(set(runs)) == 3


def test_the_same_content_again_is_a_duplicate() -> None:
    files = [trace("d/rank0.json", digest="x"), trace("d/rank0.json.gz", digest="x")]
    naming = assign(files)
    assert [path.name for path in naming.paths] == ["rank0.json"]
    (double,) = naming.duplicates
    assert (double.path.name, double.reason, double.run, double.rank) == (
        "rank0.json.gz",
        "same content as rank0.json",
        "d",
        0,
    )


def test_an_intact_file_precedes_a_damaged_one() -> None:
    files = [trace("d/rank0.json", digest="x", damaged=True), trace("d/rank0.json.gz", digest="y")]
    naming = assign(files, window=lambda path: (0, 10))
    assert [path.name for path in naming.paths] == ["rank0.json.gz"]
    assert [one.path.name for one in naming.refusals] == ["rank0.json"]


def windows(table: Mapping[str, tuple[int | None, int | None]]):  # type: ignore[no-untyped-def]
    return lambda path: table.get(path.name, (None, None))


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
    assert placed(assign(files, run="job")) == {
        "node0/rank0.json": ("job", 0),
        "node1/rank1.json": ("job", 1),
    }


def test_unlike_files_of_a_requested_run_are_not_windows() -> None:
    files = [trace("d/before.json"), trace("d/after.json")]
    naming = assign(files, run="job")
    assert placed(naming) == {"d/after.json": ("job", 0)}
    assert [one.path.name for one in naming.refusals] == ["before.json"]


def test_a_handler_knows_run_and_window() -> None:
    files = [
        trace(f"inbox/job/rank{r}.span{k}.json", r, note=SpoolNote("job", window_number=k))
        for r in range(2)
        for k in (1, 2)
    ]
    naming = assign(files)
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
        assign([trace("d/rank0.json")], run=name)
    assert error.value.hint


@pytest.mark.parametrize(
    ("name", "stored"), [("../x", "x"), ("läuf/3 b", "l-uf-3-b"), ("a/../../b", "a-..-..-b")]
)
def test_a_name_with_other_characters_is_refused_with_a_valid_one(name: str, stored: str) -> None:
    with pytest.raises(ParamError) as error:
        assign([trace("d/rank0.json")], run=name)
    assert error.value.hint == f"a valid name is {stored}"


def test_folders_with_other_characters_are_runs_all_the_same() -> None:
    assert folder_run_name("トレース x") == "x"
    assert folder_run_name("..") == folder_run_name("トレース") == "run"
    naming = assign([trace("my run/rank0.json")])
    assert naming.assigned[0].run == "my-run"
    assert "my-run" in naming.notes[0]


def test_long_folder_names_stay_apart() -> None:
    one, other = folder_run_name("x" * 200 + "a"), folder_run_name("x" * 200 + "b")
    assert len(one) == len(other) == 128
    assert one != other


def test_a_requested_name_is_no_selector() -> None:
    with pytest.raises(ParamError, match="a run name does not begin with @: '@latest'"):
        assign([trace("a.json")], run="@latest")


def beginnings(*sources: Source) -> dict[str, tuple[str, int]]:
    """File name → run and rank before the files are read."""
    return {Path(path).name: place for path, place in placed(assign(sources)).items()}


def test_a_rank_comes_from_the_beginning_else_from_the_name() -> None:
    sources = surveyed("job/rank0.json"), surveyed("job/rank1.json", 1), surveyed("job/x.rank5.json", 4)
    assert beginnings(*sources) == {
        "rank0.json": ("job", 0),
        "rank1.json": ("job", 1),
        "x.rank5.json": ("x", 4),
    }


def test_files_of_a_rank_that_differ_in_time_are_successive_windows() -> None:
    names = [f"rank{rank}.16941282{k}0545.pt.trace.json" for k in (1, 2) for rank in (0, 1)]
    found = beginnings(*(surveyed(f"job/{name}") for name in names))
    assert set(found.values()) == {("job~1", 0), ("job~2", 0), ("job~1", 1), ("job~2", 1)}
    assert found[names[0]][0] == found[names[1]][0] == "job~1"


def test_hints_of_windows_override_the_order_of_names() -> None:
    found = beginnings(
        surveyed("job/rank0.1694128210545.json", window=(50, 60)),
        surveyed("job/rank0.1694128220545.json", window=(10, 20)),
    )
    assert found["rank0.1694128210545.json"] == ("job~2", 0)


def test_a_file_with_the_rank_of_another_one_moves_no_other_file() -> None:
    sources = surveyed("job/rank0.json", 0), surveyed("job/rank1.json", 1), surveyed("job/rank2.json", 0)
    assert beginnings(*sources) == {"rank0.json": ("job", 0), "rank1.json": ("job", 1)}


def test_the_same_name_compressed_is_not_another_window() -> None:
    found = beginnings(surveyed("job/rank0.json"), surveyed("job/rank0.json.gz"))
    assert found == {"rank0.json": ("job", 0)}


def test_the_whole_file_overrides_its_beginning() -> None:
    source = surveyed("job/trace.json", 2, world_size=4)
    (target,) = assign([source]).assigned
    assert (target.rank, target.world_size) == (2, 4)
    read = replace(source, commit=RankCommit("digest", "intact", 1, rank=3, world_size=8))
    (target,) = assign([read]).assigned
    assert (target.rank, target.world_size) == (3, 8)
