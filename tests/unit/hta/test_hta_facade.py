"""`tracewarehouse.hta`: the examples of HTA's documentation, with and without figures."""

from __future__ import annotations

import gzip
import inspect
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import ROOT
from tracewarehouse.errors import ParamError, TwError
from tracewarehouse.hta import (
    DeviceType,
    LabeledTrace,
    MemoryAnalysis,
    TimeSeriesTypes,
    TraceAnalysis,
    TraceDiff,
    traces,
)
from tracewarehouse.hta.common import trace_filter as filters
from tracewarehouse.hta.traces import library

STEPS = ROOT / "tests" / "data" / "first-steps"


@pytest.fixture(scope="module")
def analyzer(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalysis:
    """Four ranks of a small job, as a user of HTA opens them."""
    return TraceAnalysis(trace_dir=str(STEPS), warehouse=tmp_path_factory.mktemp("facade") / "house")


@pytest.fixture(scope="module")
def warehouse(analyzer: TraceAnalysis) -> tw.Warehouse:
    """The same without the facade."""
    return analyzer.traces.warehouse


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The renderers that figures were shown with, one per figure."""
    found: list[str | None] = []
    import plotly.graph_objects as go
    import plotly.io as pio

    monkeypatch.setattr(go.Figure, "show", lambda self, renderer=None: found.append(renderer))
    monkeypatch.setattr(pio.renderers, "default", "png")
    return found


def test_temporal_breakdown(analyzer: TraceAnalysis, warehouse: tw.Warehouse) -> None:
    found = analyzer.get_temporal_breakdown(visualize=False)
    assert list(found.columns) == [
        *("rank", "idle_time(us)", "compute_time(us)", "non_compute_time(us)", "kernel_time(us)"),
        *("idle_time_pctg", "compute_time_pctg", "non_compute_time_pctg"),
    ]
    ours = warehouse.analyze("temporal_breakdown").rows()
    assert [1_000 * us for us in found["kernel_time(us)"]] == pytest.approx([r["window_ns"] for r in ours])
    assert [1_000 * us for us in found["compute_time(us)"]] == pytest.approx([r["compute_ns"] for r in ours])
    parts = found["idle_time(us)"] + found["compute_time(us)"] + found["non_compute_time(us)"]
    assert list(parts) == pytest.approx(list(found["kernel_time(us)"]))
    assert found["idle_time_pctg"][0] == round(100 * ours[0]["idle_ns"] / ours[0]["window_ns"], 2)


def test_comm_comp_overlap(analyzer: TraceAnalysis, warehouse: tw.Warehouse) -> None:
    found = analyzer.get_comm_comp_overlap(visualize=False)
    assert list(found.columns) == ["rank", "comp_comm_overlap_pctg"]
    assert list(found["comp_comm_overlap_pctg"]) == [
        round(100 * row["overlap"], 2) for row in warehouse.analyze("comm_comp_overlap").rows()
    ]


def test_kernel_breakdown(analyzer: TraceAnalysis, warehouse: tw.Warehouse) -> None:
    types, kernels = analyzer.get_gpu_kernel_breakdown(visualize=False, num_kernels=1_000)
    assert list(types.columns) == ["kernel_type", "sum", "percentage"]
    assert types["percentage"].sum() == pytest.approx(100, abs=0.3)
    busy = sum(row["busy_ns"] for row in warehouse.analyze("temporal_breakdown").rows())
    assert 1_000 * types["sum"].sum() == pytest.approx(busy)
    names = ["name", "sum (us)", "max (us)", "min (us)", "stddev", "mean (us)", "kernel_type", "rank"]
    assert list(kernels.columns) == names
    ours = {(r["rank"], r["kind"].upper(), r["name"]): r for r in warehouse.analyze("kernel_summary").rows()}
    assert len(kernels) == len(ours)
    for row in kernels.to_dict("records"):
        said = ours[row["rank"], row["kernel_type"], row["name"]]
        wanted = (said["sum_ns"], said["max_ns"], said["min_ns"], said["mean_ns"], said["std_ns"] or 0)
        keys = ("sum (us)", "max (us)", "min (us)", "mean (us)", "stddev")
        assert tuple(1_000 * row[key] for key in keys) == pytest.approx(wanted, rel=1e-9, abs=1e-3)


def test_others_has_statistics_of_all_folded_durations(
    analyzer: TraceAnalysis, warehouse: tw.Warehouse
) -> None:
    _, kernels = analyzer.get_gpu_kernel_breakdown(visualize=False, num_kernels=1, duration_ratio=1.0)
    (row,) = kernels[
        (kernels.name == "others") & (kernels["rank"] == 0) & (kernels.kernel_type == "COMPUTATION")
    ].to_dict("records")
    named = kernels[(kernels.kernel_type == "COMPUTATION") & (kernels["rank"] == 0)].name
    rows = warehouse.query("SELECT name, dur_ns FROM kernels WHERE rank = 0 AND kind = 'computation'").rows()
    folded = [each["dur_ns"] / 1_000 for each in rows if each["name"] not in set(named)]
    mean = sum(folded) / len(folded)
    spread = (sum((each - mean) ** 2 for each in folded) / (len(folded) - 1)) ** 0.5
    assert (row["sum (us)"], row["max (us)"], row["min (us)"]) == pytest.approx(
        (sum(folded), max(folded), min(folded))
    )
    assert (row["mean (us)"], row["stddev"]) == pytest.approx((mean, spread))


def test_kernel_breakdown_without_memory(analyzer: TraceAnalysis) -> None:
    types, kernels = analyzer.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=False)
    assert not types["kernel_type"].str.contains("MEMORY").any()
    assert set(kernels["kernel_type"]) == {"COMPUTATION", "COMMUNICATION"}


def test_idle_breakdown_with_interval_statistics(analyzer: TraceAnalysis, warehouse: tw.Warehouse) -> None:
    found, intervals = analyzer.get_idle_time_breakdown(
        ranks=[0], visualize=False, show_idle_interval_stats=True, consecutive_kernel_delay=30
    )
    assert list(found.columns) == ["rank", "stream", "idle_category", "idle_time", "idle_time_ratio"]
    ours = warehouse.select(ranks=[0]).analyze("stream_idle").rows()
    said = {(row["stream"], row["cause"]): (row["idle_ns"], row["count"]) for row in ours}
    rows = zip(found["stream"], found["idle_category"], found["idle_time"], strict=True)
    assert {(s, c): pytest.approx(1_000 * us) for s, c, us in rows} == {k: ns for k, (ns, _) in said.items()}
    counts = {(row["stream"], row.name): row["count"] for _, row in intervals.iterrows()}
    assert counts == {key: count for key, (_, count) in said.items()}
    assert analyzer.get_idle_time_breakdown(visualize=False)[1] is None
    few, _ = analyzer.get_idle_time_breakdown(streams=[7], visualize=False)
    assert set(few["stream"]) == {7}
    assert set(few["rank"]) == {0}  # HTA's default


def test_queue_series_and_summary(analyzer: TraceAnalysis, warehouse: tw.Warehouse) -> None:
    series = analyzer.get_queue_length_time_series(ranks=[0, 1])
    assert list(series) == [0, 1]
    assert list(series[0].columns) == ["ts", "pid", "tid", "stream", "queue_length"]
    summary = analyzer.get_queue_length_summary(ranks=[0, 1])
    again = analyzer.get_queue_length_summary_from_time_series(series)
    assert summary.equals(again)
    assert "rank" not in series[0].columns
    ours = warehouse.select(ranks=[0, 1]).analyze("queue_length_summary").rows()
    for row in ours:
        of_stream = summary.loc[(row["rank"], row["stream"])]["queue_length"]
        assert of_stream["count"] == 2 * row["launched"]
        assert (of_stream["max"], of_stream["mean"]) == pytest.approx((row["max_length"], row["change_mean"]))


def test_time_blocked(analyzer: TraceAnalysis, warehouse: tw.Warehouse) -> None:
    series = analyzer.get_queue_length_time_series(ranks=[0, 1, 2, 3])
    found = analyzer.get_time_spent_blocked_on_full_queue(series, max_queue_length=2)
    ours = [row for row in warehouse.analyze("queue_blocked", max_length=2).rows() if row["blocked_ns"]]
    assert [1_000 * us for us in found["duration_at_max_queue_length"]] == pytest.approx(
        [row["blocked_ns"] for row in ours]
    )
    assert list(found["relative_duration_at_max_queue_length"]) == [row["share"] for row in ours]
    assert len(analyzer.get_time_spent_blocked_on_full_queue(series)) == 0


def test_bandwidth_series_and_summary(analyzer: TraceAnalysis, warehouse: tw.Warehouse) -> None:
    series = analyzer.get_memory_bw_time_series(ranks=[0])
    assert list(series[0].columns) == ["ts", "pid", "name", "memory_bw_gbps"]
    summary = analyzer.get_memory_bw_summary(ranks=[0])
    ours = {
        row["direction"]: row
        for row in warehouse.select(ranks=[0]).analyze("memory_bandwidth_summary").rows()
    }
    for direction, row in ours.items():
        name = direction if direction == "Memset" else f"Memcpy {direction}"
        assert summary.loc[(0, name)]["memory_bw_gbps"]["max"] == pytest.approx(row["max_bytes_per_ns"])


def test_launch_statistics(analyzer: TraceAnalysis, warehouse: tw.Warehouse) -> None:
    found = analyzer.get_cuda_kernel_launch_stats(ranks=[3, 0], visualize=False)
    assert list(found) == [3, 0]
    assert list(found[0].columns) == ["correlation", "cpu_duration", "gpu_duration", "launch_delay"]
    ours = warehouse.select(ranks=[0]).analyze("launch_stats").rows()
    linked = [row for row in ours if row["runtime_id"] is not None]
    assert 1_000 * found[0]["launch_delay"].sum() == pytest.approx(
        sum(r["return_to_start_ns"] for r in linked)
    )
    kernels = analyzer.get_cuda_kernel_launch_stats(include_memory_events=False, visualize=False)[0]
    assert len(kernels) == sum(row["kind"] != "memory" for row in linked)


def test_steps_and_annotations(analyzer: TraceAnalysis, warehouse: tw.Warehouse) -> None:
    steps = {row["step"] for row in warehouse.analyze("step_summary").rows()}
    assert analyzer.get_profiler_steps() == sorted(steps)
    found = analyzer.get_gpu_user_annotation_breakdown(use_gpu_annotation=False, visualize=False)
    assert {f"ProfilerStep#{step}" for step in steps} <= set(found["name"])
    few = analyzer.get_gpu_user_annotation_breakdown(
        use_gpu_annotation=False,
        visualize=False,
        num_kernels=1,
        duration_ratio=0.01,
        allowlist_patterns=[r"Step#\d"],
    )
    assert {f"ProfilerStep#{step}" for step in steps} <= set(few["name"])
    rows = analyzer.get_gpu_kernels_with_user_annotations(0)
    (gpu_activities,) = warehouse.query("SELECT count(*) AS n FROM kernels WHERE rank = 0").rows()
    assert len(rows) == gpu_activities["n"]
    assert rows["s_user_annotation"].str.startswith("ProfilerStep#").any()


def test_annotated_kernels_are_those_of_the_rank(tmp_path: Path) -> None:
    """Event ids repeat across ranks: here the call of rank 0 has the id of the kernel of rank 1."""

    def event(cat: str, ts: int, **args: object) -> dict[str, object]:
        return {"ph": "X", "cat": cat, "name": cat, "pid": 0, "tid": 7, "ts": ts, "dur": 2, "args": args}

    note = {**event("user_annotation", 0), "dur": 9, "pid": 1}
    call, kernel = (
        {**event("cuda_runtime", 3, correlation=1), "pid": 1},
        event("kernel", 6, correlation=1, stream=7, device=0),
    )
    for rank, events in enumerate([[note, call, kernel], [note, kernel, call]]):
        text = {"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": events}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(text))
    analyzer = TraceAnalysis(trace_dir=tmp_path)
    for rank, at in ((0, 2), (1, 1)):
        found = analyzer.get_gpu_kernels_with_user_annotations(rank)
        assert list(zip(found["index"], found["cat"], strict=True)) == [(at, "kernel")]


def test_figures_are_shown(analyzer: TraceAnalysis, shown: list[str | None]) -> None:
    calls: list[Any] = [
        analyzer.get_temporal_breakdown,
        analyzer.get_comm_comp_overlap,
        lambda: analyzer.get_gpu_kernel_breakdown(image_renderer="svg"),
        analyzer.get_idle_time_breakdown,
        lambda: analyzer.get_idle_time_breakdown(visualize_pctg=False),
        analyzer.get_cuda_kernel_launch_stats,
        lambda: analyzer.get_potential_stragglers(visualize=True),
        lambda: analyzer.get_frequent_cuda_kernel_sequences("aten::", min_pattern_len=1, visualize=True),
        lambda: analyzer.get_gpu_user_annotation_breakdown(use_gpu_annotation=False),
    ]
    for call in calls:
        before = len(shown)
        call()
        assert len(shown) - before == len(analyzer.figures.last) > 0
        assert all(figure.data for figure in analyzer.figures.last)
    assert set(shown) == {None, "svg"}


@pytest.mark.parametrize(
    ("installed", "advice"),
    [
        ((), "pip install 'tracewarehouse[hta]'"),
        (("IPython", "nbformat"), "pip install kaleido"),
        (("IPython", "nbformat", "kaleido"), "install it, or run plotly_get_chrome"),
    ],
)
def test_a_figure_that_cannot_be_shown_does_not_lose_the_numbers(
    analyzer: TraceAnalysis,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    installed: tuple[str, ...],
    advice: str,
) -> None:
    import plotly.graph_objects as go
    import plotly.io as pio

    def show(self: go.Figure, renderer: str | None = None) -> None:
        tried.append(renderer)
        if renderer is None:  # the default
            raise ValueError("Kaleido requires Google Chrome to be installed.\nMore lines.")

    tried = list[str | None]()
    monkeypatch.setattr(go.Figure, "show", show)
    monkeypatch.setattr(pio.renderers, "default", "svg")
    monkeypatch.setattr(traces, "_is_installed", lambda name: name in installed)
    monkeypatch.setattr(traces, "_in_notebook", lambda: bool(installed))
    monkeypatch.setattr(analyzer, "figures", traces.Figures())
    assert len(analyzer.get_temporal_breakdown()) == 4
    assert len(analyzer.get_comm_comp_overlap()) == 4
    (line,) = [each.getMessage() for each in caplog.records]
    assert advice in line and "as svg" in line and "\n" not in line
    assert tried == ([None, "notebook"] * 2 if installed else [None] * 2)
    assert len(analyzer.figures.last) == 1


def test_defaults_that_differ_from_hta_are_mentioned_once(
    analyzer: TraceAnalysis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tracewarehouse.hta.trace_analysis._NOTED", set())
    analyzer.get_queue_length_series(ranks=[0])
    assert not caplog.records
    found = analyzer.get_queue_length_series()
    analyzer.get_memory_bw_time_series()
    (line,) = [each.getMessage() for each in caplog.records]
    assert list(found) == [0] and line == "without ranks=, rank 0 of 4 is analyzed, as in HTA"


def test_the_last_step_is_mentioned_if_there_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tracewarehouse.hta.trace_analysis._NOTED", set())
    step = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "dur": 9}
    events = [{**step, "name": f"ProfilerStep#{number}", "ts": 10 * number} for number in (3, 4)]
    for name, count in (("one", 1), ("two", 2)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events[:count]}))
        TraceAnalysis([path])
        assert len(caplog.records) == count - 1


def test_without_a_renderer_nothing_is_shown(
    analyzer: TraceAnalysis, shown: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library("plotly.io").renderers, "default", "")
    analyzer.get_temporal_breakdown()
    assert shown == []
    assert analyzer.figures.last


@pytest.fixture(scope="module")
def pair() -> tuple[LabeledTrace, LabeledTrace]:
    """Two of the ranks as two traces."""
    files = {
        label: {0: STEPS / f"{rank}.json.gz"} for label, rank in (("before", "rank0"), ("after", "rank2"))
    }
    before, after = (LabeledTrace(label, t=TraceAnalysis(trace_files=each)) for label, each in files.items())
    return before, after


def test_trace_diff(pair: tuple[LabeledTrace, LabeledTrace]) -> None:
    before, after = pair
    found = TraceDiff.compare_traces(before, after)
    assert list(found.columns) == [
        *("before_counts", "before_total_duration", "after_counts", "after_total_duration"),
        *("diff_counts", "diff_duration", "counts_change_categories"),
    ]
    for trace in pair:
        first = trace.iterations()[0]
        rows = trace.traces.warehouse.analyze("name_summary", by_step=True).rows()
        counts: dict[str, int] = {}
        for row in rows:
            if row["step"] == first:
                counts[row["name"]] = counts.get(row["name"], 0) + row["count"]
        named = found[found[f"{trace.label}_counts"] > 0][f"{trace.label}_counts"]
        assert named.to_dict() == counts
    groups = TraceDiff.ops_diff(before, after)
    assert sorted(name for names in groups.values() for name in names) == sorted(found.index)
    assert set(groups) == {"added", "deleted", "increased", "decreased", "unchanged"}
    assert groups["unchanged"]


def test_trace_diff_by_device_and_name(pair: tuple[LabeledTrace, LabeledTrace]) -> None:
    gpu = TraceDiff.compare_traces(*pair, device_type=DeviceType.GPU)
    host = TraceDiff.compare_traces(*pair, device_type=DeviceType.CPU)
    assert not set(gpu.index) & set(host.index)
    again = LabeledTrace("after", t=TraceAnalysis({0: STEPS / "rank2.json.gz"}).t)  # HTA's Trace
    assert TraceDiff.compare_traces(pair[0], again, device_type=DeviceType.GPU).equals(gpu)
    short = TraceDiff.compare_traces(*pair, use_short_name=True)
    assert len(short) <= len(gpu) + len(host)
    assert short["before_counts"].sum() == gpu["before_counts"].sum() + host["before_counts"].sum()


def test_trace_diff_has_totals_of_several_steps(
    pair: tuple[LabeledTrace, LabeledTrace], caplog: pytest.LogCaptureFixture
) -> None:
    before, after = pair
    steps = before.iterations()[:2]
    both = TraceDiff.compare_traces(before, after, control_iteration=steps, test_iteration=steps)
    assert not caplog.records
    each = [
        TraceDiff.compare_traces(before, after, control_iteration=step, test_iteration=step) for step in steps
    ]
    for column in ("before_counts", "before_total_duration", "after_counts", "after_total_duration"):
        assert both[column].sum() == pytest.approx(sum(one[column].sum() for one in each))
    assert both.loc[f"ProfilerStep#{steps[0]}", "before_counts"] == 1
    TraceDiff.compare_traces(before, after, control_iteration=steps, test_iteration=steps[0])
    (line,) = [each.getMessage() for each in caplog.records]
    assert "before has 2 steps, after 1" in line


def test_trace_diff_refuses_invalid_arguments(pair: tuple[LabeledTrace, LabeledTrace]) -> None:
    before, after = pair
    with pytest.raises(ParamError, match="has no step 99"):
        TraceDiff.compare_traces(before, after, control_iteration=99)
    with pytest.raises(ParamError, match="has no rank 5"):
        before.extract_ops(rank=5)
    with pytest.raises(ParamError, match="both traces have the label before"):
        TraceDiff.compare_traces(before, before)
    with pytest.raises(ParamError, match="not a result of compare_traces"):
        TraceDiff.visualize_counts_diff(before.extract_ops())
    with pytest.raises(ParamError, match="specify either t or trace_dir"):
        LabeledTrace("neither")
    with pytest.raises(ParamError, match="t is a str"):
        LabeledTrace("folder", "traces")  # type: ignore[arg-type]


def test_trace_diff_plots(
    pair: tuple[LabeledTrace, LabeledTrace], shown: list[str | None], tmp_path: Path
) -> None:
    found = TraceDiff.compare_traces(*pair)
    TraceDiff.visualize_counts_diff(found)
    TraceDiff.visualize_duration_diff(found, show_image=False, export_image_path=tmp_path / "diff.html")
    assert len(shown) == 1
    assert [bar.name for bar in TraceDiff.figures.last[0].data] == ["before", "after", "Difference"]
    assert "plotly" in (tmp_path / "diff.html").read_text()


@pytest.mark.deep
def test_trace_diff_accepts_folders() -> None:
    found = TraceDiff.compare_traces(str(STEPS), ROOT / "tests" / "data" / "gloo-cpu")
    assert {"Control_counts", "Test_counts"} <= set(found.columns)


def test_counters_are_written_to_the_given_folder(analyzer: TraceAnalysis, tmp_path: Path) -> None:
    analyzer.generate_trace_with_counters(ranks=[0, 1, 2, 3], output_dir=tmp_path / "out")
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == [f"rank{n}_with_counters.json.gz" for n in range(4)]
    with gzip.open(files[0], "rt") as text, gzip.open(STEPS / "rank0.json.gz", "rt") as original:
        events, before = json.load(text)["traceEvents"], json.load(original)["traceEvents"]
    assert events[: len(before)] == before
    counters = [event for event in events[len(before) :] if event["ph"] == "C"]
    queue = [event for event in counters if event["name"].startswith("queue_length ")]
    starts = {event["ts"] for event in before if event.get("cat") == "kernel"}
    assert starts & {event["ts"] for event in queue}
    streams = {event["args"]["stream"] for event in before if "stream" in event.get("args", {})}
    assert {int(event["name"].rpartition(" ")[2]) for event in queue} <= streams


def test_counters_of_one_kind_and_rank(analyzer: TraceAnalysis, tmp_path: Path) -> None:
    kind = TimeSeriesTypes.MEMCPY_BANDWIDTH
    analyzer.generate_trace_with_counters(kind, ranks=[2], output_suffix="_bw", output_dir=tmp_path)
    with gzip.open(tmp_path / "rank2_bw.json.gz", "rt") as text:
        names = {event["name"] for event in json.load(text)["traceEvents"] if event["ph"] == "C"}
    assert names
    assert all(name.startswith("memory_bandwidth ") for name in names)


def test_counters_are_not_written_next_to_the_input(analyzer: TraceAnalysis) -> None:
    with pytest.raises(ParamError, match="contains the input traces"):
        analyzer.generate_trace_with_counters(output_dir=STEPS)


def test_delays_of_aten_operators(analyzer: TraceAnalysis, warehouse: tw.Warehouse) -> None:
    found = analyzer.get_aten_op_kernels_and_delay(ranks=[0, 1, 2, 3])
    assert list(found) == [0, 1, 2, 3]
    ours = warehouse.select(ranks=[1]).analyze("op_kernel_delays", with_memory=False).rows()
    wanted = {
        (row["name"], row["kernels"].replace(" | ", " -> ")): (
            row["count"],
            round((row["op_to_kernel_ns"] - row["launch_to_kernel_ns"]) / row["count"] / 1_000, 3),
            round(row["launch_to_kernel_ns"] / row["count"] / 1_000, 3),
        )
        for row in ours
        if row["name"].startswith("aten::")
    }
    assert wanted
    rows = [tuple(row) for row in found[1].itertuples(index=False)]
    assert {row[:2]: row[2:] for row in rows} == wanted
    counts = list(found[1]["occurrence_count"])
    assert counts == sorted(counts, reverse=True)
    with pytest.raises(ParamError, match="unknown column: size"):
        analyzer.get_aten_op_kernels_and_delay(sort_by=["size"])


def test_sequences_of_kernels(analyzer: TraceAnalysis, warehouse: tw.Warehouse, tmp_path: Path) -> None:
    found = analyzer.get_frequent_cuda_kernel_sequences("aten::", tmp_path / "seen", min_pattern_len=1)
    ours = warehouse.select(ranks=[0]).analyze("kernel_sequences", operator="aten::", min_kernels=1).rows()
    names = {f"{row['name']}|{row['kernels'].replace(' | ', '|')}": row for row in ours}
    assert names
    for row in found.to_dict("records"):
        said = names[row["pattern"]]
        assert row["count"] == said["count"]
        assert 1_000 * row["GPU kernel duration (us)"] == pytest.approx(said["kernel_sum_ns"])
        assert 1_000 * row["CPU op duration (us)"] == pytest.approx(said["op_sum_ns"])
    assert len(found) == len(names)
    assert [path.name for path in (tmp_path / "seen").iterdir()] == ["overlaid_rank0.json.gz"]
    with pytest.raises(ParamError, match="compress_other_kernels"):
        analyzer.get_frequent_cuda_kernel_sequences("aten::", compress_other_kernels=True)
    with pytest.raises(ParamError, match="operator_name is empty"):
        analyzer.get_frequent_cuda_kernel_sequences("")


def test_stragglers(analyzer: TraceAnalysis, warehouse: tw.Warehouse) -> None:
    ours = [row["rank"] for row in warehouse.analyze("stragglers").rows() if row["caused_wait_ns"]]
    assert ours
    assert analyzer.get_potential_stragglers(num_candidates=9) == ours
    assert analyzer.get_potential_stragglers(num_candidates=1) == ours[:1]
    steps = analyzer.get_profiler_steps()
    assert set(analyzer.get_potential_stragglers(profiler_steps=steps[:1])) <= {0, 1, 2, 3}
    with pytest.raises(ParamError, match="unknown steps"):
        analyzer.get_potential_stragglers(profiler_steps=[99])
    with pytest.raises(ParamError, match="num_candidates"):
        analyzer.get_potential_stragglers(num_candidates=0)
    with pytest.raises(ParamError, match="straggler_identification_impl"):
        analyzer.get_potential_stragglers(straggler_identification_impl=print)


def test_the_critical_path_sums_to_the_scope(tmp_path: Path) -> None:
    analyzer = TraceAnalysis(trace_files={0: STEPS / "rank0.json.gz"})
    path, ok = analyzer.critical_path_analysis(0, "ProfilerStep", 1)
    assert ok
    frame = path.get_critical_path_breakdown()
    warehouse = tw.open(path.traces.root)
    parts = warehouse.analyze("critical_path_breakdown").rows()
    assert 1_000 * frame["duration"].sum() == pytest.approx(sum(row["path_ns"] for row in parts))
    assert path.summary().sum() == pytest.approx(100)
    whole, _ = analyzer.critical_path_analysis(0, "", None)
    assert whole.get_critical_path_breakdown()["duration"].sum() > frame["duration"].sum()
    file = analyzer.overlay_critical_path_analysis(0, path, tmp_path / "seen")
    assert file == str(tmp_path / "seen" / "overlaid_critical_path_rank0.json.gz")
    with gzip.open(file, "rt") as text, gzip.open(STEPS / "rank0.json.gz", "rt") as original:
        events, before = json.load(text)["traceEvents"], json.load(original)["traceEvents"]
    assert events[: len(before)] == before
    assert len(events) > len(before) + len(frame)
    with pytest.raises(ParamError, match="not supported"):
        analyzer.overlay_critical_path_analysis(0, path, tmp_path, only_show_critical_events=True)
    loads = path.get_critical_path_breakdown(data_load_events=["."])
    assert "data_loading" in set(loads["bound_by"])
    with pytest.raises(ParamError, match="no instance 9: 3 annotations"):
        analyzer.critical_path_analysis(0, "ProfilerStep", 9)
    with pytest.raises(ParamError, match="rank 0 has no annotation that contains 'ProfilerStp'") as error:
        analyzer.critical_path_analysis(0, "ProfilerStp", 0)
    assert "ProfilerStep#" in (error.value.hint or "")
    assert not hasattr(path, "__len__")
    with pytest.raises(AttributeError, match="no critical_path_nodes: it is not a graph"):
        list(path.critical_path_nodes)
    with pytest.raises(ParamError, match="a range of instances"):
        analyzer.critical_path_analysis(0, "ProfilerStep", (0, 1))


def test_hardware_counters(tmp_path: Path) -> None:
    def slice_of(category: str, name: str, ts: int, dur: int, **args: object) -> dict[str, object]:
        return {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": 1,
            "tid": 1,
            "ts": ts,
            "dur": dur,
            "args": args,
        }

    events = [
        slice_of("cpu_op", "aten::conv2d", 0, 30),
        slice_of("cpu_op", "aten::_convolution", 1, 20),
        slice_of("cuda_runtime", "cudaLaunchKernel", 5, 2),
        slice_of("cuda_runtime", "cudaLaunchKernel", 25, 2),
        slice_of("cuda_profiler_range", "gemm", 100, 10, fadd=3, fmul=4),
        slice_of("cuda_profiler_range", "relu", 110, 10, fadd=1, fmul=0),
    ]
    (tmp_path / "a.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    (found,) = TraceAnalysis(trace_files={0: tmp_path / "a.json"}).get_cupti_counter_data_with_operators()
    assert found["name"].tolist() == ["gemm", "relu"]
    assert found[["fadd", "fmul"]].to_numpy().tolist() == [[3, 4], [1, 0]]
    assert found["op_stack"].tolist() == [["aten::conv2d", "aten::_convolution"], ["aten::conv2d"]]
    assert found["top_level_op"].tolist() == ["aten::conv2d", "aten::conv2d"]
    assert found["bottom_level_op"].tolist() == ["aten::_convolution", "aten::conv2d"]


def test_a_memory_timeline(tmp_path: Path, shown: list[str | None]) -> None:
    rows = [[-1, 0, 400, 0], [1_000, 1, 100, 4], [2_000, 1, 50, 4], [3_000, 3, -150, 4]]
    path = tmp_path / "timeline.raw.json.gz"
    path.write_bytes(gzip.compress(json.dumps(rows).encode()))
    memory = MemoryAnalysis(path)
    frame = memory.timeline()
    assert frame["Parameter"].iloc[-1] == 400
    assert frame["Activation"].tolist()[-3:] == [100, 150, 0]
    memory.plot_memory_timeline()
    assert len(shown) == 1
    memory.plot_memory_timeline(save_graph=tmp_path / "images" / "memory.html")
    assert (tmp_path / "images" / "memory.html").is_file()
    assert len(shown) == 1


@pytest.mark.deep
def test_traces_without_a_gpu_have_results_or_errors(tmp_path: Path) -> None:
    analyzer = TraceAnalysis(trace_dir=ROOT / "tests" / "data" / "gloo-cpu")
    for frame in (
        analyzer.get_temporal_breakdown(),
        analyzer.get_comm_comp_overlap(),
        *analyzer.get_gpu_kernel_breakdown(),
        *analyzer.get_idle_time_breakdown(show_idle_interval_stats=True),
        *analyzer.get_cuda_kernel_launch_stats().values(),
        *analyzer.get_aten_op_kernels_and_delay().values(),
        analyzer.get_frequent_cuda_kernel_sequences("aten::"),
        analyzer.get_time_spent_blocked_on_full_queue(analyzer.get_queue_length_time_series()),
    ):
        assert len(frame) == 0
        assert len(frame.columns)
    assert analyzer.get_queue_length_time_series() == analyzer.get_memory_bw_time_series() == {}
    assert analyzer.get_queue_length_summary() is analyzer.get_memory_bw_summary() is None
    assert analyzer.get_gpu_user_annotation_breakdown() is None
    assert analyzer.get_gpu_kernels_with_user_annotations(0) is None
    assert analyzer.get_cupti_counter_data_with_operators() == []
    assert analyzer.get_potential_stragglers()
    with pytest.raises(ParamError, match="no GPU activities recorded"):
        analyzer.generate_trace_with_counters(output_dir=tmp_path)


def test_files_by_rank_and_a_temporary_warehouse(tmp_path: Path) -> None:
    files = {7: shutil.copy(STEPS / "rank1.json.gz", tmp_path / "a.json.gz")}
    found = TraceAnalysis(trace_files=files)
    assert len(found.get_temporal_breakdown(visualize=False)) == 1
    root = found.traces.warehouse.root
    assert root.is_dir()
    del found
    assert not root.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "specify trace_dir, trace_files or both"),
        ({"trace_dir": "a", "trace_files": {}}, "trace_files is empty"),
        ({"trace_files": {}}, "trace_files is empty"),
        ({"trace_files": str(STEPS)}, "trace_files is a list, or maps ranks to files"),
        ({"trace_files": STEPS}, "trace_files is a list, or maps ranks to files"),
        ({"trace_files": [STEPS]}, "first-steps is a folder"),
        ({"trace_files": {0: "first-steps"}, "trace_dir": STEPS.parent}, "first-steps is a folder"),
        ({"trace_dir": "/nowhere/at/all"}, "is not a folder"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamError, match=message):
        TraceAnalysis(**arguments)


def test_invalid_values_are_refused(analyzer: TraceAnalysis) -> None:
    with pytest.raises(ParamError, match="has no rank 9"):
        analyzer.get_queue_length_summary(ranks=[9])
    with pytest.raises(ParamError, match="duration_ratio must be above 0 and at most 1, not 2"):
        analyzer.get_gpu_kernel_breakdown(duration_ratio=2)
    with pytest.raises(ParamError, match="num_kernels must be at least 1, not 0"):
        analyzer.get_gpu_kernel_breakdown(num_kernels=0)
    with pytest.raises(ParamError, match="max_queue_length must be at least 1, not 0"):
        analyzer.get_time_spent_blocked_on_full_queue({}, max_queue_length=0)


def test_a_single_path_ingests_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tw.Warehouse, "ingest", lambda *_, **__: pytest.fail("ingested"))
    with pytest.raises(ParamError, match="trace_files is a list") as error:
        TraceAnalysis("/nowhere/at/all")  # type: ignore[arg-type]
    assert error.value.hint == "TraceAnalysis(trace_dir='/nowhere/at/all')"


def test_names_of_files_are_relative_to_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, absolute = "rank1.json.gz", STEPS / "rank2.json.gz"
    found = TraceAnalysis(trace_files={3: inside, 4: absolute}, trace_dir=STEPS, run="both")
    assert (found.traces.ranks, found.traces.run) == ([3, 4], "both")
    monkeypatch.chdir(STEPS.parent)
    assert TraceAnalysis([inside], trace_dir=STEPS.name).traces.ranks == [1]
    monkeypatch.setenv("HOME", str(STEPS.parent))
    assert TraceAnalysis([inside], trace_dir=f"~/{STEPS.name}").traces.ranks == [1]
    assert TraceAnalysis([f"{STEPS.name}/{inside}"], trace_dir=STEPS.name).traces.ranks == [1]


def test_a_folder_without_traces(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("no")
    with pytest.raises(TwError, match="no trace could be read"):
        TraceAnalysis(trace_dir=tmp_path)


def test_a_missing_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.express", None)
    with pytest.raises(TwError, match="plotly is not installed") as error:
        library("plotly.express")
    assert error.value.hint == "pip install 'tracewarehouse[hta]'"


def test_every_argument_of_hta_exists() -> None:
    """Names and defaults in HTA 0.6.1's order; what we add comes after them."""
    hta = {
        "get_temporal_breakdown": {"visualize": True},
        "get_comm_comp_overlap": {"visualize": True},
        "get_gpu_user_annotation_breakdown": {
            "use_gpu_annotation": True,
            "visualize": True,
            "duration_ratio": 0.8,
            "num_kernels": 1000,
            "allowlist_patterns": None,
            "image_renderer": None,
        },
        "get_idle_time_breakdown": {
            "ranks": None,
            "streams": None,
            "visualize": True,
            "visualize_pctg": True,
            "show_idle_interval_stats": False,
            "consecutive_kernel_delay": 30,
        },
        "get_cuda_kernel_launch_stats": {
            "ranks": None,
            "runtime_cutoff": 50,
            "launch_delay_cutoff": 100,
            "include_memory_events": True,
            "visualize": True,
        },
        "generate_trace_with_counters": {
            "time_series": None,
            "ranks": None,
            "output_suffix": "_with_counters",
        },
    }
    for name, arguments in hta.items():
        ours = list(inspect.signature(getattr(TraceAnalysis, name)).parameters.values())[1:]
        found = {each.name: each.default for each in ours[: len(arguments)]}
        assert (list(found), found) == (list(arguments), arguments)


# The rows


def test_t_has_the_events_of_a_rank(analyzer: TraceAnalysis, warehouse: tw.Warehouse) -> None:
    frame = analyzer.t.get_trace(1)
    (said,) = (
        warehouse.select(ranks=[1])
        .query(
            "SELECT count(*) AS rows, min(ts_ns) AS first, sum(dur_ns)::BIGINT AS dur_ns FROM events "
            "WHERE ph IN ('X', 'B') AND dur_ns IS NOT NULL"
        )
        .rows()
    )
    assert len(frame) == said["rows"]
    assert frame["dur"].sum() == pytest.approx(said["dur_ns"] / 1_000)
    assert frame["ts"].min() == pytest.approx((said["first"] - analyzer.traces.start_ns) / 1_000)
    assert list(frame.index) == list(frame["index"]) and frame["index"].is_unique
    assert analyzer.t.get_trace(1) is frame
    assert list(analyzer.t.get_all_traces()) == analyzer.t.get_ranks() == [0, 1, 2, 3]
    with pytest.raises(ParamError, match="no rank 9"):
        analyzer.t.get_trace(9)


def test_t_links_gpu_activities_and_calls(analyzer: TraceAnalysis) -> None:
    frame = analyzer.t.get_trace(0)
    gpu = frame[frame.on_gpu & (frame.index_correlation >= 0)]
    assert (
        len(gpu) and (frame.loc[gpu.index_correlation, "correlation"].values == gpu.correlation.values).all()
    )
    first = gpu.groupby("index_correlation")["index"].min()
    assert (frame.loc[first.index, "index_correlation"] == first).all()


def test_filters_select_matching_rows(analyzer: TraceAnalysis, warehouse: tw.Warehouse) -> None:
    frame, steps = analyzer.t.get_trace(0), analyzer.t.get_iterations()
    assert steps == analyzer.get_profiler_steps()
    kernels = warehouse.select(ranks=[0]).query("SELECT count(*) AS rows FROM kernels").rows()[0]["rows"]
    gpu, host = filters.GPUKernelFilter()(frame), filters.CPUOperatorFilter()(frame, analyzer.t.symbol_table)
    assert (len(gpu), len(host)) == (kernels, len(frame) - kernels)
    assert set(filters.NameFilter("aten::")(frame).name.str[:6]) == {"aten::"}
    assert filters.NameFilter("ten::")(frame).empty
    first = filters.FirstIterationFilter()(frame)
    assert first.equals(filters.IterationFilter(steps[0])(frame)) and len(first)
    assert first.equals(filters.IterationIndexFilter([0])(frame))
    assert (filters.ZeroDurationFilter(frame).dur > 0).all()
    both = filters.CompositeFilter([filters.IterationFilter(steps[:1]), filters.GPUKernelFilter()])(frame)
    assert len(both) == (first.on_gpu).sum() > 0
    copies = frame[frame.cat == "gpu_memcpy"]
    found = filters.MemCopyEventFilter(copies.name.iloc[0])(frame)
    assert set(found.name) == {copies.name.iloc[0]} and set(found.cat) == {"gpu_memcpy"}


def test_a_time_range_selects_complete_rows(analyzer: TraceAnalysis) -> None:
    frame = analyzer.t.get_trace(0)
    one = frame[frame.on_gpu].iloc[0]
    found = filters.TimeRangeFilter((one.ts, one.end))(frame)
    assert one["index"] in found["index"] and (found.ts >= one.ts).all() and (found.end <= one.end).all()
    assert one["index"] not in filters.TimeRangeFilter((one.ts, one.end - 0.001))(frame)["index"]
    with pytest.raises(ParamError, match="ends before"):
        filters.TimeRangeFilter((2, 1))


def test_the_rank_filter_needs_a_column(analyzer: TraceAnalysis) -> None:
    frame = analyzer.get_temporal_breakdown(visualize=False)
    assert list(filters.RankFilter([1, 3])(frame)["rank"]) == [1, 3]
