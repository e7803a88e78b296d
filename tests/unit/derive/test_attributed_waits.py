"""`check` attributes the waits of a run once, stores that if it can, and names the cause in one finding."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import deep
from tracewarehouse import findings
from tracewarehouse.errors import DamagedRunError, WarehouseError
from tracewarehouse.query import connections
from tracewarehouse.storage.objects import LocalObjects
from tracewarehouse.warehouse import Warehouse

SMALL = {"ranks": 4, "steps": 6, "layers": 2, "stacks": False, "memory": False, "syncs": False, "tensor": 2}
LATE = 3
LOADS = f"slow-rank:rank={LATE},what=data,factor=30"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files of four ranks, of which one loads data for long."""
    folder = tmp_path_factory.mktemp("attribution") / "job"
    return [Path(file) for file in tw.simulate(folder, **SMALL, injections=[LOADS]).files]


@pytest.fixture(scope="module")
def stored(traces: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with the run `job`, never checked."""
    root = tmp_path_factory.mktemp("stored") / "warehouse"
    tw.open(root).ingest(*traces, run="job", jobs=1)
    return root


@pytest.fixture
def wh(stored: Path, tmp_path: Path) -> Warehouse:
    """A copy of it."""
    return tw.open(shutil.copytree(stored, tmp_path / "warehouse"))


@pytest.fixture
def few_rules(only_rules: Callable[..., None]) -> None:
    """Checks only by the rule of late ranks, by that of their cause, and by one that all ranks have."""
    only_rules("slow_rank", "input_bound", "exposed_comm")


def version(wh: Warehouse) -> int:
    """The number of the newest version of the run, as another process sees it."""
    (run,) = tw.open(wh.root).select("job").selected()
    return run.version.number


def of_cause(wh: Warehouse, run: str = "job", **options: Any) -> dict[tuple[str, int], dict[str, Any]]:
    """The findings of a rule and rank that are more than info, but for communication that all ranks have."""
    rows = wh.check(run, **options).rows()
    assert [row["rule"] for row in rows[:1]] == ["slow_rank"]
    severe = [row for row in rows if row["severity"] in ("warning", "critical")]
    return {(row["rule"], row["rank"]): row for row in severe if row["rule"] != "exposed_comm"}


@pytest.mark.usefixtures("few_rules")
def test_the_first_check_attributes_the_waits_and_the_next_reads_them(wh: Warehouse) -> None:
    first = wh.check("job")
    assert version(wh) == 2 and [str(run) for run in first.provenance.runs] == ["job@v2"]
    assert tw.open(wh.root).check("job").rows() == first.rows() and version(wh) == 2
    assert not wh.straggler_causes().skipped and wh.verify(deep=True) == []
    assert wh.derive("wait_attribution", "job").version is None
    # An earlier version is not published again: what it lacks is computed in memory.
    assert tw.open(wh.root).check("job@v1").rows() == first.rows() and version(wh) == 2


@pytest.mark.usefixtures("few_rules", "short_pages")
def test_a_report_attributes_the_waits_too(wh: Warehouse) -> None:
    assert f"Rank {LATE} is late" in "".join(wh.report("job").html())
    assert version(wh) == 2


def test_the_cause_is_part_of_the_finding(wh: Warehouse) -> None:
    """The rule alone still finds the slow loading, and its worst occurrence can be exported."""
    alone = {row["rank"]: row for row in wh.input_bound().rows() if row["severity"] != "none"}
    found = of_cause(wh)
    assert alone.keys() == {LATE} and found.keys() == {("slow_rank", LATE)}
    (row,) = found.values()
    why = alone[LATE]["observation"].partition(". ")[0]
    assert row["observation"].startswith(f"Rank {LATE} is late: t{why[1:]}; other ranks wait up to ")
    assert (row["culprit"], row["advice"]) == (alone[LATE]["culprit"], alone[LATE]["advice"])
    assert row["confidence"] == "high"
    assert "".join(wh.export_trace("job", LATE, around="input_bound"))


@pytest.mark.usefixtures("few_rules", "short_pages")
def test_a_warehouse_that_cannot_be_written_has_the_same_findings(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_objects: LocalObjects) -> None:
        raise WarehouseError("read-only file system")

    files = sorted(wh.root.rglob("*"))
    with monkeypatch.context() as patched:
        patched.setattr(LocalObjects, "check_writable", refuse)
        held = wh.check("job")
        page = "".join(wh.report("job").html())
    assert sorted(wh.root.rglob("*")) == files and version(wh) == 1
    assert f"Rank {LATE} is late" in page
    assert held.rows() == tw.open(wh.root).check("job").rows() and version(wh) == 2


@pytest.mark.usefixtures("few_rules")
def test_a_rank_that_comes_later_or_is_replaced_is_attributed_again(
    traces: list[Path], stored: Path, tmp_path: Path
) -> None:
    *first, last = traces
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(*first, run="job", jobs=1)
    assert all(row["rule"] != "slow_rank" for row in wh.check("job").rows())
    wh.ingest(last, run="job", jobs=1)
    whole = of_cause(wh)
    assert whole == of_cause(tw.open(shutil.copytree(stored, tmp_path / "at-once")))
    other = tw.simulate(tmp_path / "other", **SMALL).files[LATE]
    wh.ingest(other, run="job", rank=LATE, replace=True, jobs=1)
    assert {
        row["wait_attribution"] for row in wh.select("job").query("SELECT wait_attribution FROM ranks").rows()
    } == {False}
    wh.check("job")
    assert {
        row["wait_attribution"] for row in wh.select("job").query("SELECT wait_attribution FROM ranks").rows()
    } == {True}


@pytest.mark.usefixtures("few_rules")
def test_parts_of_a_run_and_single_ranks_pay_nothing(
    traces: list[Path], wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("attributed")

    monkeypatch.setattr("tracewarehouse.findings._attributed", fail)
    wh.ingest(traces[0], run="single", jobs=1)
    wh.select("single").check()
    wh.select("job", ranks=[0, 1]).check()
    with pytest.raises(AssertionError):
        wh.select("job").check()


def test_a_damaged_run_is_not_attributed(wh: Warehouse) -> None:
    """The error says what is damaged, as without attribution."""
    path = next(path for path in wh.root.rglob("*.parquet") if "kernels" in path.parts)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DamagedRunError):
        wh.check("job")
    assert version(wh) == 1


def test_views_are_computed_once_for_the_attribution_and_the_rules(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: Counter[str] = Counter()
    materialize = connections._PooledConnection._materialize

    def counted(opened: Any, relations: Any, view: Any) -> None:
        computed[view.name] += 1
        materialize(opened, relations, view)

    monkeypatch.setattr(connections._PooledConnection, "_materialize", counted)
    wh.check("job")
    assert version(wh) == 2
    assert computed["collective_arrivals"] == computed["collectives"] == 1


FAULTS = {
    "computation": (f"slow-rank:rank={LATE},what=compute,factor=2", {}, "its computation takes "),
    "copies": (f"slow-rank:rank={LATE},what=copies,factor=300", {}, "the GPU only copies for "),
    "host": (
        f"slow-rank:rank={LATE},what=host,factor=2",
        {"hidden": 256, "sequence": 256},
        "kernels finish before the host launches the next one: ",
    ),
}


@pytest.mark.parametrize("cause", deep(*FAULTS))
def test_injected_causes_are_one_finding_of_the_right_rank(tmp_path: Path, cause: str) -> None:
    fault, settings, why = FAULTS[cause]
    tw.simulate(tmp_path / "traces", **SMALL, **settings, injections=[fault])
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(tmp_path / "traces", run="job", jobs=1)
    found = of_cause(wh)
    assert [rank for rule, rank in found if rule == "slow_rank"] == [LATE]
    assert [rule for rule, rank in found if rank == LATE] == ["slow_rank"]
    assert found["slow_rank", LATE]["observation"].startswith(f"Rank {LATE} is late: {why}")
    causes = {row["cause"] for row in wh.straggler_causes().rows()[:1]}
    assert causes == {cause}


def row(rule: str, saving_ns: int, text: str, culprit: str | None = None, rank: int = 0) -> dict[str, Any]:
    """A finding as a rule returns it, as far as merging reads it."""
    return {
        "run_id": "a",
        "rank": rank,
        "rule": rule,
        "severity": "warning",
        "saving_ns": saving_ns,
        "observation": text,
        "advice": f"fix {rule}",
        "culprit": culprit,
    }


def slow(cause: str | None, saving_ns: int = 100) -> dict[str, Any]:
    """A late rank with a cause."""
    return row("slow_rank", saving_ns, "Rank 0 is late: some reason; others wait up to 9 ms.", cause)


GAPS = [row("launch_bound", 50, "Short gaps. Most.", "aten::mm")]


@pytest.mark.parametrize(
    ("rows", "merged"),
    [
        (GAPS, None),
        (
            [slow("host"), *GAPS],
            {"slow_rank": "Rank 0 is late: short gaps; others wait up to 9 ms. Most."},
        ),
        ([slow("host"), row("launch_bound", 49, "Short gaps.")], None),  # less than half of it
        ([slow("host"), *GAPS, row("launch_bound", 1, "Short gaps.", rank=1)], None),  # 49 more
        ([slow("data"), row("input_bound", 1, "Loads.")], {"slow_rank": "loads; others"}),
        ([slow("data"), row("launch_bound", 90, "Short gaps.")], None),  # another cause
        ([slow("computation"), row("tensor_cores", 90, "Slow.")], None),  # all ranks may compute so
        ([slow(None), row("launch_bound", 90, "Short gaps.")], None),  # unknown
        ([slow("data"), row("input_bound", 90, "Loads.", rank=1)], None),
        ([{**slow("data"), "severity": "none"}, row("input_bound", 90, "Loads.")], None),
    ],
)
def test_findings_of_one_cause_are_merged(rows: list[dict[str, Any]], merged: dict[str, str] | None) -> None:
    given = [dict(each) for each in rows]
    found = findings._merged([dict(each) for each in rows])
    if merged is None:
        assert found == given
        return
    assert [each["rule"] for each in found] == [*merged]
    for each in found:
        assert merged[each["rule"]] in each["observation"]
        if each["rule"] == "slow_rank":
            assert each["advice"] in ("fix launch_bound", "fix input_bound")


def test_small_savings_are_info(wh: Warehouse) -> None:
    (found,) = (each for each in wh.slow_rank().rows() if each["severity"] != "none")
    share = found["saving_share"]
    assert found["severity"] == "critical"
    for minor_share, severity in ((share * 0.99, "critical"), (share * 1.01, "info")):
        rows = wh.slow_rank(minor_share=minor_share).rows()
        assert [each["severity"] for each in rows if each["severity"] != "none"] == [severity]
