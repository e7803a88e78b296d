"""A stored warehouse of an earlier release gives the same results as then.

`data/make_warehouse_1.py` built the warehouse and the results. `opened` converts a copy with `tw upgrade`,
and `format1_names` translates the stored results to current names. Other intended differences are listed
below, each with its reason.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import compress
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
import warehouse_answers as now
from conftest import deep
from format1_names import today
from ingesting import files_under, write
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import SchemaVersionError

DATA = Path(__file__).parent / "data"
WAREHOUSE, ANSWERS = DATA / "warehouse-1", DATA / "warehouse-1-answers"
RUNS = ("good", "odd", "slow", "timeline")
MOST_BYTES = 1 << 20

# Path in a result (a regular expression for the entire path) → why it may differ.
NOT_COMPARED = {
    r"\.dtypes\.(dtype|element_bytes)": "sizes that are recorded in bytes have a row",
    r"\.\w+\.rows\.(observation|advice)\[\d+\]": "sentences have numbers and culprits: golden files",
    r"\.slow_collectives\.rows\.evidence_filter\[\d+\]": "the rank whose rows are the evidence",
    r"\.low_gpu_use\.rows\.severity\[\d+\]": "info if the findings about its causes are there",
    r"\.runs\.rows\.tool_version": "the release that converted the run, not the one that ingested it",
    r"\.runs\.rows\.schema_versions\[1\]": "the memory timeline is no longer stored as events, too",
    r"\.runs\.rows\.bytes": "the Parquet files are written again",
    r"\.diff\.(kernel|name)_summary\.(rows\.change|notices\[1\])": "rows are classified by time",
    r"\.diff\.name_summary\.rows\.name\[73\]": "the numbers of steps are ignored",
}
# Computed, so that a new analysis has no list to extend; an analysis that is missing is a difference.
NEW_ANALYSES = sorted(
    {contract.name for contract in Catalog.load().analyses()}
    - today(now.read(ANSWERS / f"{RUNS[0]}.answers.json.gz"))["analyses"].keys()
)
# Path → why only the current result has it. The contents of these columns have separate tests.
ADDED = {
    r"\.ranks\.\w+\.(source_format|source_part|source_schema)": "format and part of the file: new",
    r"\.ranks\.\w+\.clock": "the clock of the times, for formats with other clocks than the wall clock",
    rf"\.({'|'.join(NEW_ANALYSES)})": "new analyses",
    r"\.(fused_operator_names|link_rules|phase_rules|serving_attention_rules|stack_rules)": "new rules",
    r"\.graph_nodes": "operators of graph replays",
    r"\.coverage\.rows\.(graph_ns|graph_attributed_ns|in_graph)": "GPU time in graph launches",
    r"\.op_summary\.rows\.kernel_self_graph_ns": "GPU time in graph launches",
    r"\.memory_bandwidth(_summary)?\.rows\.(bandwidth_source|copy_ns)": "whose bandwidth it is",
    r"(\.runs\.rows\.schema_versions\[\d\])?\.(modules|kernel_modules)": "tables of modules",
    r"(\.runs\.rows\.schema_versions\[\d\])?\.op_work": "table of work",
    r"\.(step|window)_kernels\.rows\.(module_path|family|work_unit|work)": "modules and work of kernels",
    r"\.(device_specs|join_rules|metric_rules|gpu_metric_rules)": "new rules",
    r"\.ranks\.\w+\.(snapshot|flight_records|kernel_metrics|execution_nodes)": "what files add to a rank",
    r"\.ranks\.\w+\.gpu_metrics": "sampled GPU metrics",
    r"\.(flight_records|kernel_metrics|execution_nodes)": "tables of these files",
    r"\.snapshot_(events|segments|blocks|frames)": "tables of memory snapshots",
    r"\.\w+\.rows\.(step|culprit|saving_step_ns|saving_share)": "findings: where, of what, and per step",
    r"\.critical_path_breakdown\.rows\.is_explained": "what no recorded dependency explains comes first",
    r"\.collective_waits\.rows\.(group_source|direction|peer)": "evidence for the group; send and receive",
    r"\.collective_waits\.rows\.(pair_wait_ns|possible_wait_ns|last_rank)": "waits of other kinds",
    r"\.stragglers\.rows\.(blamed_ns|blamed_share)": "waits by the rank that caused them",
    r"\.stragglers\.rows\.(pair_wait_ns|possible_wait_ns)": "waits of other kinds",
    r"\.ranks\.\w+\.blame": "whether it was derived",
    r"\.(blame|blame_basis|data_loading_rules)": "tables of blame",
    r"\.kernels\.(launch_api|launch_dur_ns|launch_to_start_ns)": "the launch of each activity: kernels@2",
    r"\.kernels\.(stream_idle_ns|stream_previous_id)": "idle time before each activity: kernels@2",
    r"\.memory_timeline\.(file_time_ns|file_action|file_category|element)": "once only in events.extra",
}
# Path → why a number is greater by one.
ONE_MORE = {
    r"\.runs\.rows\.version\[[0-3]\]": "the upgrade publishes every run once more; row 4 waits",
    r"\.runs\.rows\.schema_versions\[\d\]\.kernels": "kernels@2",
    r"\.versions\.\w+": "the version of the upgrade is one of them",
}
# Part of a result → why it has a separate test.
SEPARATE = {
    ("whole", "older"): "versions of format 1 are refused once the warehouse is converted",
    ("timeline.tables", "events"): "a memory timeline has no events: its rows were in events.extra",
    ("whole", "changes"): "exposed communication is split",
    ("whole", "history"): "runs on other hardware are separate series",
    **{
        (f"{run}.answers", name): "exposed communication is split"
        for run in RUNS
        for name in ("step_account", "window_account", "exposed_comm", "check()")
    },
}
# Tolerance for floats of analyses, whose order of summation depends on threads. Stored floats are equal.
FLOATS_WITHIN = 1e-12


def opened(copy: Path) -> tw.Warehouse:
    """The copy as this release reads it, converted from format 1."""
    converted = tw.open(copy).upgrade()
    *runs, results, acknowledgements = converted.lines
    assert [line.partition(":")[0] for line in runs] == [*RUNS, "waits"]
    assert results == "recorded results: 6 carried over"
    assert acknowledgements == "acknowledgements: 1 carried over"
    assert converted.unconverted == ()
    return tw.open(copy)


@pytest.fixture(scope="module")
def odd_tables(wh: tw.Warehouse) -> dict[str, Any]:
    """Every stored table of the run `odd`."""
    return now.tables(wh, "odd")


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """A copy of the stored warehouse."""
    return opened(Path(shutil.copytree(WAREHOUSE, tmp_path_factory.mktemp("fixture") / "warehouse")))


def is_in(places: Iterable[str], place: str) -> bool:
    return any(re.fullmatch(each, place) for each in places)


def differences(old: Any, new: Any, within: float, place: str = "") -> Iterator[str]:
    """Each path at which two results differ, with both values."""
    if is_in(NOT_COMPARED, place):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            if key in old and key in new:
                yield from differences(old[key], new[key], within, f"{place}.{key}")
            elif key in old or not is_in(ADDED, f"{place}.{key}"):
                yield f"{place}.{key}: only in the {'old' if key in old else 'new'} answer"
    elif place.startswith(".runs.rows.schema_versions[") and isinstance(old, list):
        yield from differences(dict(old), dict(new), within, place)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for at, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, within, f"{place}[{at}]")
    elif not same(old + 1 if is_in(ONE_MORE, place) else old, new, within):
        yield f"{place}: was {old!r}, is {new!r}"


def same(old: Any, new: Any, within: float) -> bool:
    """Equality of single values; NaN equals itself, and True is not 1."""
    if isinstance(old, float) and isinstance(new, float):
        return old == new or math.isclose(old, new, rel_tol=within) or (math.isnan(old) and math.isnan(new))
    both_texts = isinstance(old, str) and isinstance(new, str)  # a hint is a text
    return (both_texts or type(old) is type(new)) and bool(old == new)


def stored(name: str, part: str | None = None) -> Any:
    """A stored file of results, or one part of it."""
    found = now.read(ANSWERS / f"{name}.json.gz")
    return found[part] if part else found


def check(
    name: str,
    part: str | None,
    new: Any,
    within: float = FLOATS_WITHIN,
    names: tuple[str, ...] | None = None,
) -> None:
    """Compares current results with a stored file, or one part of it, except those with separate tests.

    `names`: of a result with only these.
    """
    separate = {key for file, key in SEPARATE if file == name}
    old, new = (
        {key: value for key, value in each.items() if key not in separate}
        for each in (today(stored(name, part)), new)
    )
    if names is not None:
        old = {key: value for key, value in old.items() if key in names}
        assert set(names) == set(old) | (set(names) & separate)
    found = list(differences(old, new, within))
    assert not found, "\n".join([f"{len(found)} differences", *found[:20]])


def test_runs_and_comparisons(wh: tw.Warehouse) -> None:
    check("whole", None, now.whole(wh, leave_out=[key for name, key in SEPARATE if name == "whole"]))


def test_stored_tables(odd_tables: dict[str, Any]) -> None:
    check("odd.tables", None, odd_tables, within=0)


@pytest.mark.deep
@pytest.mark.parametrize("run", ["timeline", "good", "slow"])
def test_stored_tables_of_other_runs(run: str, wh: tw.Warehouse) -> None:
    check(f"{run}.tables", None, now.tables(wh, run), within=0)


# Results of the same tables with the same SQL, which golden files compare, too: a few of each kind.
SOME = (
    "temporal_breakdown",
    "kernel_summary",
    "launch_stats",
    "op_summary",
    "step_summary",
    "collective_waits",
    "memory_by_op",
    "stream_idle",
    "memory_bandwidth",
    "quality",
    "low_gpu_use",
    "allocator_calls",
)


def test_some_analyses(wh: tw.Warehouse) -> None:
    check_analyses(wh, "odd", SOME)


@pytest.mark.deep
@pytest.mark.parametrize("run", RUNS)
def test_analyses(run: str, wh: tw.Warehouse) -> None:
    check_analyses(wh, run)


def check_analyses(wh: tw.Warehouse, run: str, names: tuple[str, ...] | None = None) -> None:
    answers = now.analyses(wh, run, names)
    quality = answers["quality"]["rows"]
    assert isinstance(quality, dict)
    kept = [rule != "over_peak" for rule in quality["rule"]]  # a newer rule
    answers["quality"]["rows"] = {name: list(compress(values, kept)) for name, values in quality.items()}
    check(f"{run}.answers", "analyses", answers, names=names)


@pytest.mark.parametrize("run", ["odd", "timeline", *deep("good", "slow")])
def test_exported_traces_are_unchanged(run: str, wh: tw.Warehouse) -> None:
    check(f"{run}.answers", "exported", now.exported(wh, run))


@pytest.mark.parametrize("metric", ["step_time", "kernel_summary.sum_ns[kind=communication]"])
def test_a_series_continues(metric: str, wh: tw.Warehouse) -> None:
    """Results recorded in format 1 and those of now are one series. The removed run has other hardware."""
    copy = tw.Warehouse(shutil.copytree(wh.root, wh.root.with_name(f"again-{metric[:4]}")))
    report = copy.record(["good", "slow"], analyses=["step_summary", "kernel_summary"])
    assert (report.written, report.present) == (0, 4)
    effective = copy.catalog.effective_hash(
        copy.catalog.get(metric.partition(".")[0], kind="analysis")
        if "." in metric
        else copy.catalog.get("step_summary")
    )
    lines = copy.history(metric).series
    assert [[point.name for point in line.points] for line in lines] == [["good", "slow"], ["gone@v1"]]
    assert {line.definition for line in lines} == {effective[:16]}


def test_values_of_histories_are_unchanged(wh: tw.Warehouse) -> None:
    """By run, as the series have another order; the removed run is not published again by the upgrade."""
    for metric, answer in stored("whole", "history").items():
        was = {row["run_id"]: row for row in rows_of(answer["rows"])}
        rows = {row["run_id"]: row for row in wh.history(metric).rows()}
        assert sorted(rows) == sorted(was) and rows
        for run, row in rows.items():
            assert (row["value"], row["time_ns"]) == (was[run]["value"], was[run]["time_ns"])
            assert (row["version"], row["stored"]) == (was[run]["version"] + (run != "gone"), run != "gone")


def rows_of(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def folded(name: str) -> str:
    """A category, or a row of a rank, with the parts of exposed communication as one."""
    return re.sub("exposed_(wait|transfer|unassigned)$", "exposed_comm", name)


def other_findings(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Findings by rule, whose order is by severity now, without those that have separate tests."""
    found: dict[str, Any] = {}
    for row in sorted(rows, key=lambda row: (row["rank"], row["subject"])):
        if row["rule"] not in ("exposed_comm", *NEW_ANALYSES):
            columns = found.setdefault(row["rule"], {"rows": defaultdict(list)})["rows"]
            for name, value in row.items():
                columns[name].append(value)
    return found


ACCOUNTS = {"step_account": "step", "window_account": "occurrence"}


@pytest.mark.parametrize("run", [*RUNS[:1], *deep(*RUNS[1:])])
def test_parts_of_exposed_communication_add_up_to_it(run: str, wh: tw.Warehouse) -> None:
    old, part = today(stored(f"{run}.answers", "analyses")), wh.select(run)
    new = {name: now.answer(lambda name=name: part.run(name)) for name in (*ACCOUNTS, "exposed_comm")}  # type: ignore[misc]
    new["check()"] = now.answer(part.check)
    for name, interval in ACCOUNTS.items():
        sums = []
        for answer in (old[name], new[name]):
            found: dict[tuple[Any, ...], int] = defaultdict(int)
            for row in rows_of(answer["rows"]):
                found[row["rank"], row[interval], folded(row["category"])] += row["category_ns"]
            sums.append(found)
        assert sums[0] == sums[1], name
        assert old[name]["abstained"] == new[name]["abstained"], name
    before = {row["rank"]: row for row in rows_of(old["exposed_comm"]["rows"])}
    after = rows_of(new["exposed_comm"]["rows"])
    for rank, row in before.items():
        parts = [each for each in after if each["rank"] == rank]
        assert {each["analyzed_ns"] for each in parts} == {row["analyzed_ns"]}
        assert sum(each["saving_ns"] for each in parts) <= row["saving_ns"]
    others = [other_findings(rows_of(answer["check()"]["rows"])) for answer in (old, new)]
    assert not list(differences(*others, FLOATS_WITHIN))


@pytest.mark.deep
def test_parts_of_exposed_communication_add_up_to_its_change(wh: tw.Warehouse) -> None:
    others = ("runs", "ranks", "versions", "older", "history", "diff")
    old, new = (each["changes"] for each in (today(stored("whole")), now.whole(wh, leave_out=others)))
    assert old["line"] == new["line"]
    for column in ("base_ns", "head_ns", "delta_ns"):
        sums = []
        for answer in (old, new):
            found: dict[tuple[str, str], int] = defaultdict(int)
            for row in rows_of(answer["rows"]):
                if row["level"] not in ("modules", "work"):  # newer levels
                    found[row["level"], folded(row["name"])] += row[column]
            sums.append(found)
        assert sums[0].keys() == sums[1].keys()
        rounded = [abs(sums[0][key] - sums[1][key]) for key in sums[0]]
        assert max(rounded) <= 2, column


def test_versions_of_format_1_are_refused(wh: tw.Warehouse) -> None:
    assert set(stored("whole", "older")) == {"rows", "abstained", "notices"}
    for run, number in (("odd", 1), ("odd", 2), ("good", 1), ("timeline", 1)):
        with pytest.raises(SchemaVersionError) as refused:
            wh.select(f"{run}@v{number}")
        path = wh.root / "_tw" / "runs" / run / f"v{number:06d}.parquet"
        assert refused.value.message == f"{path}: a version of format 1"
        assert refused.value.hint == "name the run without a version"
    assert wh.select("odd@v3").selected()[0].ranks == (0, 1, 2, 3)


def test_a_memory_timeline_is_no_longer_among_the_events(wh: tw.Warehouse) -> None:
    old = stored("timeline.tables", "events")
    tables = {table.name: table for table in now.stored_tables(wh)}
    events, rows = (now.rows_of(wh, "timeline", tables[name]) for name in ("events", "memory_timeline"))
    assert events == {column: [] for column in today(old, "events")}
    assert rows["event_id"] == old["event_id"]
    elements = [json.loads(each) for each in old["extra"]]
    assert rows["bytes"] == [size for _, _, size, _ in elements]
    said = zip(rows["ts_ns"], rows["file_time_ns"], strict=True)
    assert [at if at is not None else in_file for at, in_file in said] == [at for at, _, _, _ in elements]
    assert rows["file_action"] == [action if action == 0 else None for _, action, _, _ in elements]
    assert set(rows["file_category"] + rows["element"]) == {None}


@pytest.mark.parametrize("run", RUNS)
def test_new_columns_of_ranks(run: str, wh: tw.Warehouse) -> None:
    ranks = wh.info(run).ranks.rows()
    name = "memory_timeline" if run == "timeline" else "kineto"
    for each in ranks:
        assert (each["source_format"], each["source_part"]) == (name, "")
        assert (each["source_schema"], each["clock"]) == (None, None)


def test_the_warehouse_contains_the_documented_cases(wh: tw.Warehouse) -> None:
    """The warehouse has all cases that it was built for."""
    ranks = wh.info("odd").ranks.rows()
    assert [(row["status"], row["redacted"]) for row in ranks] == [
        ("intact", 4), ("damaged", 0), ("repaired", 0), ("intact", 0),
    ]  # fmt: skip
    assert wh.query("SELECT count(*) AS n FROM events WHERE ph IN ('B', 'E')").rows() == [{"n": 24}]
    assert len(list((WAREHOUSE / "data" / "events" / "odd").iterdir())) == 1  # packed
    assert {each.run for each in wh.selected()} == set(RUNS)
    assert list(wh.store.pending_runs()) == ["waits"]
    assert [version.run for version in wh.store.kept()] == ["gone"]
    assert wh.verify() == []


def test_no_injected_secret_is_stored(odd_tables: dict[str, Any]) -> None:
    assert "planted" not in json.dumps(odd_tables)  # the pages of Parquet files are compressed
    for path in WAREHOUSE.rglob("*"):
        assert path.is_dir() or b"planted" not in path.read_bytes(), path


def test_the_pending_run_is_published_with_its_other_rank(wh: tw.Warehouse, tmp_path: Path) -> None:
    wh = tw.open(shutil.copytree(wh.root, tmp_path / "warehouse"))
    wh.ingest(*write(tmp_path / "waits", [1]), run="waits", expect_ranks=2)
    (waited,) = wh.select("waits").selected()
    assert waited.ranks == (0, 1)


def test_reading_writes_nothing(wh: tw.Warehouse) -> None:
    before = files_under(wh.root)
    assert len(tw.open(wh.root).select("odd").run("launch_stats")) == 46
    assert files_under(wh.root) == before


def test_it_is_small() -> None:
    files = [path for folder in (WAREHOUSE, ANSWERS) for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ({"a": [1, 2]}, {"a": [1, 2]}, 0),
        ({"a": [1, 2]}, {"a": [1, 3]}, 1),
        ({"a": [1]}, {"a": [1, 2]}, 1),
        ({"a": [1]}, {"b": [1]}, 2),
        ({"a": [1]}, {"a": [True]}, 1),
        ({"a": [1.0]}, {"a": [1.0 + 1e-13]}, 0),
        ({"a": [1.0]}, {"a": [1.0 + 1e-11]}, 1),
        ({"a": [None]}, {"a": [0]}, 1),
        ({"bytes": [1]}, {"bytes": [2]}, 1),
        ({"bytes": [1]}, {}, 1),
        ({"versions": {"odd": 2}}, {"versions": {"odd": 3}}, 0),
        ({"versions": {"odd": 2}}, {"versions": {"odd": 2}}, 1),
        ({"a": {"notices": ["one"]}}, {"a": {"notices": ["one", "two"]}}, 1),
        ({"coverage": {"linked": [1]}}, {"coverage": {"launch_known": [1]}}, 0),
        ({"coverage": {"rows": {"linked": [1]}}}, {"coverage": {"rows": {"launch_known": [1]}}}, 0),
        ({"coverage": {"linked": [1]}}, {"coverage": {"linked": [1]}}, 2),
        ({"kernels": {"linked": [1]}}, {"kernels": {"launch_known": [1]}}, 2),
        ({"kernels": {"launch_state": ["linked"]}}, {"kernels": {"launch_state": ["known"]}}, 0),
        ({"kernels": {"name": ["linked"]}}, {"kernels": {"name": ["known"]}}, 1),
        ({"ranks": {"odd": {}}}, {"ranks": {"odd": {"clock": [None]}}}, 0),
        ({"ranks": {"odd": {"clock": [None]}}}, {"ranks": {"odd": {}}}, 1),
        ({"runs": {"rows": {"bytes": [1]}}}, {"runs": {"rows": {"bytes": [2]}}}, 0),
    ],
)
def test_a_difference_is_found(old: Any, new: Any, found: int) -> None:
    assert len(list(differences(today(old), new, FLOATS_WITHIN))) == found
