"""The breakdown of a change: levels and sums, calls and speed, replaced kernels, ranks, tests, errors."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from msgspec.structs import replace

import sketch
import tracewarehouse as tw
from tracewarehouse.compare.diff.breakdown import Breakdown, breakdown
from tracewarehouse.compare.diff.levels import Level, Row, rounded
from tracewarehouse.compare.diff.pairing import Joined, LocatedKernel, replacements
from tracewarehouse.errors import ParamError, TwError
from tracewarehouse.result import Provenance

STEP_NS = 1_000


def run(name: str, rank: int, steps: int, lengths: dict[str, int], jitter: int = 0) -> Iterator[str]:
    """Lines of a rank: in each step its kernels in sequence, each launched by an operator of its name.

    A kernel `a/b` is b within operator a. The first and the last step are partial.
    """
    number = 0
    for step in range(steps):
        at = step * STEP_NS
        yield f"{name} {rank} step t1 {step} {at} {STEP_NS}"
        for place, (kernel, length) in enumerate(lengths.items()):
            number += 1
            op, _, short = kernel.rpartition("/")
            call = at + 5 + 10 * place
            yield f"{name} {rank} op t1 {op or short} {call - 2} 8"
            yield f"{name} {rank} call t1 cudaLaunchKernel {call} 4 id={number}"
            length += jitter * (step * 7_919 % 5)
            yield f"{name} {rank} gpu s7 {short} {at + 100 + 200 * place} {length} id={number}"


RUNS = {
    "base": [("base", 0, 20, {"gemm": 50, "gelu/old": 20, "relu": 10}, 1)],
    "head": [("head", 0, 20, {"gemm": 70, "gelu/new": 30, "relu": 10}, 1)],
    "moved": [("moved", 4, 8, {"gemm": 60, "gelu/old": 20, "more": 5}, 1)],
    "short": [("short", 0, 2, {"gemm": 50}, 0)],
    "b1": [("b1", 0, 5, {"gemm": 52, "relu": 10}, 1)],
    "h1": [("h1", 0, 5, {"gemm": 80, "relu": 10}, 1)],
}


def host_run(name: str, load_ns: int) -> Iterator[str]:
    """Lines of a rank without a GPU: in each step it loads data, then runs an operator in another one."""
    for step in range(8):
        at = step * STEP_NS
        yield f"{name} 0 step t1 {step} {at} {STEP_NS}"
        yield f"{name} 0 ann t1 load_batch {at} {load_ns + step}"
        yield f"{name} 0 op t1 aten::linear {at + 400} 300"
        yield f"{name} 0 op t1 aten::mm {at + 450} 100"


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    folder = tmp_path_factory.mktemp("account")
    lines = [line for ranks in RUNS.values() for rank in ranks for line in run(*rank)]
    lines += ["b1 0 ann t1 part 1000 500", "b1 0 ann t1 part 2000 500", "h1 0 ann t1 part 1000 300"]
    lines += ["host 0 op t1 aten::mm 0 10"]
    lines += [line for name, load_ns in (("fed", 40), ("starved", 340)) for line in host_run(name, load_ns)]
    sketch.write("\n".join(lines), folder / "traces")
    made = tw.open(folder / "warehouse")
    made.ingest(folder / "traces", jobs=1)
    return made


def breakdown_of(wh: tw.Warehouse, base: list[str], head: list[str], per: str | None = None) -> Breakdown:
    found = breakdown(wh.selection.select(base), wh.selection.select(head), per=per)
    for level in found.levels:
        assert (level.base, level.head, level.delta) == (found.base_mean, found.head_mean, found.delta)
        whole = level.result().rows()
        assert sum(row["delta_ns"] for row in level.result(2).rows()) == sum(row["delta_ns"] for row in whole)
        assert sum(row["base_ns"] for row in whole) == round(found.base_mean)
    return found


def parts(level: Level) -> dict[str, tuple[Fraction, str | None]]:
    return {row.part: (row.delta, row.change) for row in level.rows}


def test_kernels_show_what_changed_and_how(wh: tw.Warehouse) -> None:
    found = breakdown_of(wh, ["base"], ["head"])
    assert (found.per, found.base_intervals, found.head_intervals, found.replicate) == (
        "step",
        18,
        18,
        "step",
    )
    assert found.base_mean == found.head_mean - 30 + 30  # each step ends with relu, at the same time
    rows = parts(found.level("kernels"))
    assert rows["gemm"] == (20, "slower")
    assert rows["old → new"] == (10, "replaced, and 45 % slower per call")
    assert rows["relu"] == (0, "unchanged")
    assert rows["idle_queued"] == (-30, "shorter")
    assert parts(found.level("operators"))["gelu"] == (10, "slower")
    gemm = next(row for row in found.level("kernels").result().rows() if row["name"] == "gemm")
    assert (gemm["calls_ns"], gemm["speed_ns"], gemm["significant"]) == (0, 20, True)


@pytest.mark.deep
def test_other_ranks_are_paired_in_order(wh: tw.Warehouse) -> None:
    found = breakdown_of(wh, ["base"], ["moved"])
    assert [row.part for row in found.level("ranks").rows] == ["rank 0 → 4 (own work)"]
    rows = parts(found.level("kernels"))
    assert {name: rows[name][1] for name in ("relu", "more")} == {"relu": "removed", "more": "added"}


def test_several_runs_are_the_replicates(wh: tw.Warehouse) -> None:
    found = breakdown_of(wh, ["base", "b1"], ["head", "h1"], per="step")
    assert (found.replicate, found.base_intervals) == ("run", 21)
    rows = {row.part: row for row in found.level("kernels").rows}
    assert len(rows["gemm"].base_replicates) == 2
    assert rows["gemm"].test is not None and rows["gemm"].test.tested
    assert rows["gemm"].test.low is not None and rows["gemm"].test.low < rows["gemm"].test.change


def test_few_steps_fall_back_to_the_window(wh: tw.Warehouse) -> None:
    found = breakdown_of(wh, ["short"], ["base"])
    assert (found.per, found.base_intervals) == ("window", 1)
    assert found.notices[0] == "fewer than 3 complete steps: the breakdown covers the entire trace"
    # From the first gemm to the end of the second: two recorded steps, and more of them in head.
    assert (found.base_mean, found.whole) == (1_050 / 2, "window per step")
    assert all(row.test is None or not row.test.tested for row in found.level("kernels").rows)


def test_ranks_without_data_are_listed(wh: tw.Warehouse) -> None:
    found = breakdown_of(wh, ["base", "host"], ["head"], per="step")
    assert [(each.run_id, each.reason) for each in found.skipped] == [("host", "no GPU activities recorded")]
    assert (found.base_intervals, found.delta) == (18, 0)


def test_breakdown_per_annotation(wh: tw.Warehouse) -> None:
    found = breakdown_of(wh, ["b1"], ["h1"], per="annotation:part")
    assert (found.base_intervals, found.head_intervals, found.delta) == (2, 1, -200)


@pytest.mark.parametrize(
    ("base", "head", "per", "message"),
    [
        ("short", "base", "step", "base has no data to break down: no complete step"),
        ("host", "base", None, "base has no data to break down: no GPU activities recorded"),
        ("base", "base", "annotation:none", "base has no data to break down: no none"),
        ("base", "base", "epoch", "unknown interval 'epoch'"),
        ("base", "base", "annotation:", "unknown interval 'annotation:'"),
    ],
)
def test_missing_data_is_an_error(
    wh: tw.Warehouse, base: str, head: str, per: str | None, message: str
) -> None:
    with pytest.raises(TwError) as raised:
        breakdown(wh.selection.select(base), wh.selection.select(head), per=per)
    assert raised.value.message == message
    assert isinstance(raised.value, ParamError) == message.startswith("unknown interval ")


@pytest.mark.deep
def test_the_same_run_twice_changes_nothing(wh: tw.Warehouse) -> None:
    found = breakdown_of(wh, ["base"], ["base"])
    assert found.delta == 0
    assert {row.change for level in found.levels for row in level.rows} == {"unchanged"}
    assert {row["share"] for row in found.level("kernels").result().rows()} == {None}


@pytest.mark.parametrize(("removed", "shares"), [(94, [None, None]), (80, [5.0, -4.0])])
def test_shares_of_a_total_that_nearly_cancels_are_null(
    removed: int, shares: list[float | None], wh: tw.Warehouse
) -> None:
    provenance = breakdown_of(wh, ["base"], ["base"]).level("kernels").provenance
    rows = (Row("slower", Fraction(0), Fraction(100)), Row("faster", Fraction(removed), Fraction(0)))
    level = Level("kernels", rows, "step", provenance)
    assert [row["share"] for row in level.result().rows()] == shares
    assert [row["delta_ns"] for row in level.result().rows()] == [100, -removed]


def cell(name: str, path: str | None, op: str | None = "op", count: int = 1) -> LocatedKernel:
    return LocatedKernel("computation", name, path, op, count, count)


def test_a_kernel_is_replaced_location_by_location() -> None:
    base = [cell("a", "p1"), cell("a", "p2"), cell("b", "p3"), cell("c", "p4"), cell("d", "p5", "sig")]
    head = [cell("A", "p1"), cell("a", "p2"), cell("b", "p3"), cell("x", "p3"), cell("D", "p6", "sig")]
    forth, back = replacements(base, head)
    a, d = Joined(("a",), ("A",), "replaced"), Joined(("d",), ("D",), "replaced")
    assert forth == {base[0]: a, base[4]: d}  # d: another path, the same operator and shapes
    assert back == {head[0]: a, head[4]: d}


def test_the_most_frequent_kernels_of_a_location_are_paired() -> None:
    base = [cell("a", "p", count=9), cell("b", "p", count=2)]
    head = [cell("B", "p", count=2), cell("A", "p", count=9), cell("C", "p", count=1)]
    found = {old.name: joined.new for old, joined in replacements(base, head)[0].items()}
    assert found == {"a": ("A",), "b": ("B",)}


def test_kernels_without_a_location_are_never_replaced() -> None:
    assert replacements([cell("a", None, None)], [cell("b", None, None)]) == ({}, {})


def test_rounding_keeps_the_sum() -> None:
    thirds = [Fraction(1, 3), Fraction(-4, 3), Fraction(8, 3), Fraction(1, 3)]
    assert rounded(thirds) == [0, -1, 3, 0]
    assert rounded([Fraction(1, 2)] * 3) == [1, 1, 0]
    assert rounded([]) == []


@pytest.mark.parametrize(
    ("counts", "ns", "lengths", "change", "calls"),
    [
        ((2, 4), (100, 200), (100, 200), "more calls", 100),
        ((4, 2), (200, 90), (200, 90), "fewer calls", -100),
        ((2, 2), (100, 140), (100, 140), "slower", 0),
        ((2, 2), (100, 60), (100, 60), "faster", 0),
        ((2, 2), (10, 90), (100, 100), "more exposed", 0),
        ((2, 2), (90, 10), (100, 100), "less exposed", 0),
        ((0, 2), (0, 60), (0, 60), "added", 60),
        ((2, 0), (60, 0), (60, 0), "removed", -60),
        ((2, 2), (60, 60), (60, 60), "unchanged", 0),
    ],
)
def test_calls_and_speed_sum_to_the_change(
    counts: tuple[int, int], ns: tuple[int, int], lengths: tuple[int, int], change: str, calls: int
) -> None:
    row = Row("x", *map(Fraction, ns), *map(Fraction, counts), *map(Fraction, lengths))
    assert (row.change, row.calls) == (change, calls)
    assert row.calls is not None and row.speed is not None
    assert row.calls + row.speed == row.delta


@pytest.mark.parametrize(
    ("counts", "work", "ns", "change"),
    [
        ((4, 4), (10, 20), (100, 194), "more work, FLOP × 2.0, time per FLOP -3 %"),
        ((4, 4), (10, 5), (100, 50), "less work, FLOP × 0.5, same time per FLOP"),
        ((4, 4), (10, 20), (100, 500), "slower, FLOP × 2.0, time per FLOP +150 %"),
        ((4, 8), (10, 20), (100, 200), "more calls"),
        ((4, 3), (10, 6), (100, 60), "fewer calls, FLOP × 0.6, same time per FLOP"),
        ((4, 4), (10, 10), (100, 140), "slower"),
    ],
)
def test_work_decides_between_more_work_and_slower(
    counts: tuple[int, int], work: tuple[int, int], ns: tuple[int, int], change: str
) -> None:
    row = Row("x", *map(Fraction, ns), *map(Fraction, counts), *map(Fraction, ns))
    row = replace(row, base_work=Fraction(work[0]), head_work=Fraction(work[1]), work_unit="FLOP")
    assert row.change == change and row.calls is not None and row.speed is not None
    assert row.calls + row.speed == row.delta


def test_rows_have_the_same_ns_however_many_are_shown() -> None:
    thirds = [(Fraction(300 * at + 1, 3), Fraction(300 * at + 2, 3)) for at in range(6)]
    parts = tuple(Row(part, *sides) for part, sides in zip("abcdef", thirds, strict=True))
    level = Level("kernels", parts, "step", Provenance("", ()))
    every = {row["name"]: (row["base_ns"], row["head_ns"]) for row in level.result().rows()}
    for count in range(1, 5):
        *first, other = level.result(count).rows()
        assert [(row["base_ns"], row["head_ns"]) for row in first] == [every[row["name"]] for row in first]
        rest = [every[name] for name in "abcdef"[count:]]
        assert (other["base_ns"], other["head_ns"]) == tuple(map(sum, zip(*rest, strict=True)))


def test_levels_have_their_declared_columns(wh: tw.Warehouse, tmp_path: Path) -> None:
    result = breakdown_of(wh, ["short"], ["base"], per="window").level("kernels").result(2)
    assert [row["name"] for row in result.rows()][-1] == "other (5 rows)"
    assert result.contract is not None and result.contract.name == "account_kernels"
    assert {field.name: field.unit for field in result.columns()}["delta_ns"] == "ns"
    assert result.write(tmp_path / "kernels.parquet").exists()


@pytest.mark.parametrize("per", [None, "window"])
def test_without_a_gpu_the_training_thread_is_broken_down(wh: tw.Warehouse, per: str | None) -> None:
    found = breakdown(wh.selection.select("fed"), wh.selection.select("starved"), per=per)
    assert found.on_host and found.per == (per or "step")
    for level in found.levels:
        assert (level.base, level.head) == (found.base_mean, found.head_mean)
    steps = 6 if per is None else 1  # the first and the last are partial
    loads, rest = found.level("breakdown").rows[:2]
    assert (loads.part, rest.part) == ("data_loading", "unrecorded")
    assert loads.delta == -rest.delta == (300 if per is None else 8 * 300)
    (mm,) = [row for row in found.level("operators").rows if row.part == "operator: aten::mm"]
    assert mm.base == mm.head == (100 if per is None else 800) and found.base_intervals == steps


def test_annotations_without_a_gpu_are_refused(wh: tw.Warehouse) -> None:
    with pytest.raises(ParamError, match="interval 'annotation:load' needs GPU activities"):
        breakdown(wh.selection.select("fed"), wh.selection.select("starved"), per="annotation:load")
