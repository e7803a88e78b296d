"""`tw check`: all rules have the same columns, find injected faults, and find nothing without a fault."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import tracewarehouse as tw
from cli_runner import on_terminal
from cli_runner import tw as command
from conftest import real_traces
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.findings import OF_ALL_RANKS, SEVERITIES, is_of_one_rank
from tracewarehouse.result import Result
from tracewarehouse.warehouse import Warehouse

CATALOG = Catalog.load()
RULES = CATALOG.rules()
ANALYSES = {each.name for each in CATALOG.analyses()}
CONFIDENCE = ("low", "medium", "high")
TRACES = real_traces()
# Run: settings of the simulation, injected faults, and all expected findings.
SIMULATED: dict[str, tuple[dict[str, object], tuple[str, ...], dict[str, str]]] = {
    "quiet": ({}, (), {}),
    "data": ({"stacks": True}, ("slow-rank:what=data,factor=100",), {"input_bound": "critical"}),
    "small": (
        {"ranks": 1, "hidden": 64, "sequence": 64, "batch": 1, "stacks": False, "load_us": 1},
        (),
        {"launch_bound": "critical", "low_gpu_use": "info"},
    ),
    "slow-rank": ({}, ("slow-rank:rank=1,factor=2",), {"slow_rank": "critical"}),
    "float": (
        {"ranks": 1},
        ("renamed-kernel:kernel=gemm,to=ampere_sgemm_128x64_nn",),
        {"tensor_cores": "critical"},
    ),
    "full": (
        {"ranks": 1},
        ("growing-memory:mb=20000",),
        {"memory_growth": "critical", "memory_pressure": "warning"},
    ),
    "slow-link": ({"tensor": 2}, ("slow-link:group=tensor0,factor=8",), {"exposed_comm": "critical"}),
}


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A warehouse with a run for each of SIMULATED; read-only."""
    folder = tmp_path_factory.mktemp("findings")
    stored, files = tw.open(folder / "warehouse"), list[Path]()
    every = {"ranks": 2, "steps": 4, "stacks": False}
    for name, (settings, injections, _) in SIMULATED.items():
        made = tw.simulate(folder / name, injections=injections, **{**every, **settings})
        files += made.files
    stored.ingest(*files, jobs=1)
    return stored


@pytest.fixture(scope="module")
def everything(wh: Warehouse) -> Result:
    """The rows of all rules for all runs, including passing checks."""
    return wh.check(passed=True)


def severities(found: Result, run: str) -> dict[str, str]:
    """The severity of each rule that found something in a run."""
    rows = [row for row in found.rows() if row["run_id"] == run]
    return {row["rule"]: row["severity"] for row in rows if row["severity"] != "none"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_has_the_same_columns(rule: Contract) -> None:
    def shape(contract: Contract) -> list[tuple[object, ...]]:
        return [(each.name, each.type, each.unit, each.better) for each in contract.columns]

    assert shape(rule) == shape(RULES[0])
    assert rule.grain == ("run_id", "rank", "subject")


def test_severity_and_confidence_have_known_values(everything: Result) -> None:
    for row in everything.rows():
        assert row["severity"] in SEVERITIES
        assert row["confidence"] in CONFIDENCE
        assert (row["severity"] == "info") <= (row["rule"] == "low_gpu_use")
        assert row["steps"] > 0 or row["confidence"] == "low" or row["rule"] == "memory_pressure"


def test_evidence_has_rows_for_each_finding(wh: Warehouse, everything: Result) -> None:
    most_severe_last = reversed(list(everything.rows()))
    looked = {(row["evidence"], row["evidence_filter"]): row for row in most_severe_last}
    for (name, condition), row in looked.items():
        ranks = row["rank"] if is_of_one_rank(row) else None
        frame = wh.select(runs=row["run_id"], ranks=ranks).analyze(name).polars()
        kept = frame if condition is None else frame.filter(pl.sql_expr(condition))
        assert kept.height or row["severity"] == "none", f"no evidence of {row['rule']} in {name}"


def test_evidence_that_needs_several_ranks_is_shown_of_all() -> None:
    named = r"(?:evidence: |SELECT |  )'(\w+)'(?:,| AS evidence\b)"
    evidence = {name for each in RULES for name in re.findall(named, each.body) if name in ANALYSES}
    assert len(evidence) > 5
    several = {
        name for name in evidence if any(need.startswith("ranks>=") for need in CATALOG.get(name).needs)
    }
    assert several == OF_ALL_RANKS - {"stuck_collective"}


def test_no_saving_is_more_than_there_is(everything: Result) -> None:
    for row in everything.rows():
        assert row["saving_ns"] is None or row["saving_ns"] <= row["analyzed_ns"]
        assert row["saving_limit"] and row["advice"] and row["observation"].endswith(".")


def test_rules_find_injected_faults_and_nothing_else(everything: Result) -> None:
    for run, (_, _, wanted) in SIMULATED.items():
        assert severities(everything, run) == wanted, run


@pytest.mark.parametrize(
    ("run", "rule", "culprit"),
    [
        ("data", "input_bound", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
        ("small", "launch_bound", "aten::"),
        ("small", "low_gpu_use", "host"),
        ("float", "tensor_cores", "ampere_sgemm_128x64_nn under aten::"),
        ("slow-link", "exposed_comm", "all_reduce in process group "),
    ],
)
def test_findings_name_the_injected_culprit(everything: Result, run: str, rule: str, culprit: str) -> None:
    rows = [row for row in everything.rows() if (row["run_id"], row["rule"]) == (run, rule)]
    worst = max(rows, key=lambda row: row["share"])
    assert worst["culprit"].startswith(culprit)
    if rule != "low_gpu_use":
        assert worst["culprit"] in worst["observation"]
    assert worst["saving_step_ns"] == worst["saving_ns"] // worst["steps"]
    assert worst["saving_share"] == worst["saving_ns"] / worst["analyzed_ns"]
    assert f" per step ({worst['saving_share'] * 100:.1f} %)" in worst["observation"]


def test_the_most_severe_finding_is_first_then_the_most_time_that_is_certain(everything: Result) -> None:
    rows = everything.rows()
    weight = {"low": 1 / 3, "medium": 2 / 3, "high": 1}
    order = [
        (
            -SEVERITIES.index(row["severity"]),
            row["rule"] == "low_gpu_use",
            -weight[row["confidence"]]
            * (row["share"] if row["saving_ns"] is None else row["saving_ns"] / row["analyzed_ns"]),
        )
        for row in rows
    ]
    assert order == sorted(order) and len({row["confidence"] for row in rows}) == 3


def test_the_saving_of_input_bound_equals_the_breakdown(wh: Warehouse, everything: Result) -> None:
    rows = [row for row in everything.rows() if (row["run_id"], row["rule"]) == ("data", "input_bound")]
    assert len(rows) == 2
    for found in rows:
        one = wh.select("data", ranks=found["rank"])
        whole = {row["step"] for row in one.step_summary().rows() if not row["partial"]}
        waits = [row for row in one.step_account().rows() if row["category"] == "idle_dataloader"]
        assert found["steps"] == len(whole) == 4
        assert found["saving_ns"] == sum(row["category_ns"] for row in waits if row["step"] in whole) > 0


def analyzed_interval(wh: Warehouse, run: str) -> dict[int, tuple[int, int]]:
    """Rank → the analyzed interval of a simulated run: its complete steps."""
    rows = wh.query(f"SELECT * FROM steps WHERE run_id = '{run}' AND NOT partial AND period_ns > 0").rows()
    ends = {rank: [row for row in rows if row["rank"] == rank] for rank in {row["rank"] for row in rows}}
    return {
        rank: (
            min(row["period_start_ns"] for row in steps),
            max(row["period_start_ns"] + row["period_ns"] for row in steps),
        )
        for rank, steps in ends.items()
    }


def saved(everything: Result, run: str, rule: str) -> dict[int, tuple[int, int]]:
    """What the rule says of each rank: how often, and what could be saved."""
    rows = [row for row in everything.rows() if (row["run_id"], row["rule"]) == (run, rule)]
    return {row["rank"]: (row["count"], row["saving_ns"]) for row in rows}


def union_ns(spans: list[tuple[int, int]]) -> int:
    """Length of a union, nanosecond borders in order."""
    total, done = 0, 0
    for start, end in sorted(spans):
        total += max(end - max(start, done), 0)
        done = max(done, end)
    return total


def exposed_communication(wh: Warehouse, run: str) -> dict[int, int]:
    """Rank → time in its analyzed interval in which it communicates and does not compute."""
    found = {}
    for rank, (start, end) in analyzed_interval(wh, run).items():
        rows = wh.query(f"SELECT * FROM kernels WHERE run_id = '{run}' AND rank = {rank}").rows()
        spans = {
            kind: [
                (max(row["ts_ns"], start), min(row["ts_ns"] + row["dur_ns"], end))
                for row in rows
                if row["kind"] == kind and row["ts_ns"] < end and row["ts_ns"] + row["dur_ns"] > start
            ]
            for kind in ("computation", "communication")
        }
        found[rank] = union_ns([*spans["computation"], *spans["communication"]]) - union_ns(
            spans["computation"]
        )
    return found


def test_a_slow_rank_saves_what_it_works_longer_than_a_rank_that_waits(
    wh: Warehouse, everything: Result
) -> None:
    for run in ("quiet", "slow-rank"):
        spans, exposed = analyzed_interval(wh, run), exposed_communication(wh, run)
        waits: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for row in wh.query(f"SELECT * FROM collective_arrivals WHERE run_id = '{run}'").rows():
            start, end = spans[row["rank"]]
            if row["wait_ns"] is not None and start <= row["start_ns"] < end:
                pair = waits.setdefault((row["straggler_rank"], row["rank"]), [])
                pair.append((row["start_ns"], row["start_ns"] + row["wait_ns"]))
        found = {rank: saving for rank, (_, saving) in saved(everything, run, "slow_rank").items()}
        wanted = {
            rank: [
                min(union_ns(pair), max(exposed[waiter] - exposed[rank], 0))
                for (late, waiter), pair in waits.items()
                if late == rank
            ]
            for rank in spans
        }
        assert found == {rank: max(each, default=0) for rank, each in wanted.items()}
    assert found[1] > 10 * found[0]


def test_a_slow_rank_without_a_gpu_saves_the_waits_of_another(tmp_path: Path) -> None:
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(Path(__file__).parents[1] / "data" / "gloo-cpu", run="job", jobs=1)
    spans = analyzed_interval(warehouse, "job")
    waits: dict[int, list[tuple[int, int]]] = {rank: [] for rank in spans}
    for row in warehouse.query("SELECT * FROM collective_arrivals WHERE straggler_rank = 1").rows():
        start, end = spans[row["rank"]]
        if start <= row["start_ns"] < end:
            waits[row["rank"]].append((row["start_ns"], row["start_ns"] + row["wait_ns"]))
    saved = {row["rank"]: row["saving_ns"] for row in warehouse.slow_rank().rows()}
    assert saved == {0: 0, 1: max(map(union_ns, waits.values())), 2: 0, 3: 0} and saved[1] > 50_000_000


def test_memory_pressure_is_the_peak_as_a_share_of_gpu_memory(wh: Warehouse, everything: Result) -> None:
    (header,) = wh.query("SELECT header FROM ranks WHERE run_id = 'full'").rows()
    memory = json.loads(header["header"])["deviceProperties"][0]["totalGlobalMem"]
    (peak,) = wh.query(
        "SELECT max(total_allocated_bytes) AS peak FROM memory_events"
        " WHERE run_id = 'full' AND device_type <> 0"
    ).rows()
    (found,) = [
        row for row in everything.rows() if (row["run_id"], row["rule"]) == ("full", "memory_pressure")
    ]
    assert found["share"] == peak["peak"] / memory


def test_allocator_calls_save_their_own_time(wh: Warehouse, everything: Result) -> None:
    for run in ("quiet", "full"):
        steps = wh.query(
            f"SELECT * FROM steps WHERE run_id = '{run}' AND NOT partial AND period_ns > 0"
        ).rows()
        for rank, (count, saving) in saved(everything, run, "allocator_calls").items():
            own = sorted((row["host_start_ns"], row["step"]) for row in steps if row["rank"] == rank)
            later = [step for _, step in own[1:]]
            calls = wh.query(f"SELECT * FROM runtime WHERE run_id = '{run}' AND rank = {rank}").rows()
            spent = [
                (row["ts_ns"], row["ts_ns"] + row["dur_ns"])
                for row in calls
                if row["step"] in later and row["name"] in ("cudaMalloc", "cudaFree")
            ]
            assert (count, saving) == (len(spent), union_ns(spent))


def test_tensor_cores_save_kernels_without_tensor_cores(wh: Warehouse, everything: Result) -> None:
    for run in ("quiet", "float"):
        spans = analyzed_interval(wh, run)
        segments = wh.query(
            "SELECT segment.rank, segment.start_ns, segment.segment_ns, row.name"
            " FROM device_segments AS segment JOIN kernels AS row ON row.run_id = segment.run_id"
            f" AND row.rank = segment.rank AND row.event_id = segment.kernel_id WHERE row.run_id = '{run}'"
        ).rows()
        for rank, (_, saving) in saved(everything, run, "tensor_cores").items():
            start, end = spans[rank]
            inside = [row for row in segments if row["rank"] == rank and start <= row["start_ns"] < end]
            assert saving == sum(row["segment_ns"] for row in inside if "sgemm" in row["name"])
    assert saving > 0


def test_skipped_ranks_are_listed_with_their_rules(wh: Warehouse, tmp_path: Path) -> None:
    trace = tmp_path / "host.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    trace.write_text(json.dumps({"traceEvents": [event]}))
    host = tw.open(tmp_path / "warehouse")
    host.ingest(trace, run="host")
    found = host.check()
    assert [(row["rule"], row["severity"]) for row in found.rows()] == [("host_operators", "info")]
    silent = {rule for each in found.skipped for rule in each.reason.partition(": ")[2].split(", ")}
    assert {"input_bound", "low_gpu_use", "launch_bound"} <= silent
    shown = command("check", "-w", host.root, "-f", "table")
    assert shown.code == 0 and shown.out.startswith("recording: sound\n\n1 finding: 1 info\n")
    assert "skipped 1 of 1 rank: no GPU activities recorded: " in shown.err


@pytest.mark.deep
@pytest.mark.skipif(TRACES is None, reason="needs the real traces")
def test_input_bound_is_found_only_without_workers(tmp_path: Path) -> None:
    assert TRACES is not None
    real = tw.open(tmp_path / "warehouse")
    folder = TRACES / "before-after-resnet50-v100"
    for name in ("num_workers_0__worker0.1623143089861", "num_workers_4__worker0.1623212756351"):
        real.ingest(folder / f"{name}.pt.trace.json.gz", run=name[:13])
    found = real.check()
    assert severities(found, "num_workers_0")["input_bound"] == "critical"
    assert "input_bound" not in severities(found, "num_workers_4")


@pytest.mark.deep
@pytest.mark.skipif(TRACES is None, reason="needs the real traces")
def test_the_rank_that_sleeps_is_named(tmp_path: Path) -> None:
    assert TRACES is not None
    real = tw.open(tmp_path / "warehouse")
    real.ingest(*sorted((TRACES / "multirank-gloo-cpu-4r").glob("rank?.pt.trace.json.gz")), run="gloo")
    (row,) = real.check().rows()
    assert (row["rule"], row["rank"], row["severity"]) == ("slow_rank", 2, "critical")
    assert (row["culprit"], row["confidence"]) == ("## load_batch ##", "medium")  # of 3 steps
    why = "Rank 2 is late: the training thread loads data, or waits for it, for 30.3 ms per step"
    assert row["observation"].startswith(why)


@pytest.mark.deep
@pytest.mark.skipif(TRACES is None, reason="needs the real traces")
def test_the_steps_of_a_wait_are_those_of_the_rank_that_waits(tmp_path: Path) -> None:
    assert TRACES is not None
    real = tw.open(tmp_path / "warehouse")
    real.ingest(*sorted((TRACES / "pytorch-cpu").glob("ddp_slow_rank*")), run="ddp", jobs=1)
    spans = real.query("SELECT DISTINCT rank, steps, analyzed_ns FROM analyzed_intervals").rows()
    (row,) = real.check().rows()
    assert row["rule"] == "slow_rank" and row["culprit"] == "aten::mm"
    others = [(span["steps"], span["analyzed_ns"]) for span in spans if span["rank"] != row["rank"]]
    assert row["rank"] == 2 and (row["steps"], row["analyzed_ns"]) in others
    assert row["saving_step_ns"] == row["saving_ns"] // row["steps"]


# Kernel names from traces → whether they use tensor cores; None if unknown.
MATMULS: dict[str, bool | None] = {
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn": True,
    "ampere_fp16_s1688gemm_fp16_128x128_ldg8_relu_f2f_stages_32x1_tn": True,
    "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn": True,
    "volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_exp_small_nhwc_tn_v1": True,
    "turing_h1688gemm_128x128_nn": True,
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>": True,
    "void cutlass::Kernel<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_32x1_tn_align8>": True,
    "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16": True,
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_execute_segment_k_off_kernel__5x": True,
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT": True,
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4": False,
    "void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>": False,
    "ampere_sgemm_32x32_sliced1x4_tn": False,
    "volta_sgemm_128x64_nt": False,
    "cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1": False,
    "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>": False,
    "void cudnn::cnn::wgrad_alg0_engine<float, 512, 6, 5, 3, 3, 3, false, 512>": False,
    "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>": False,
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>": None,
    "void at::native::elementwise_kernel<128, 2, lambda(int)#1>": None,
    "Cijk_Ailk_Bljk_SB_MT128x64x16_MI32x32x2x1": None,
}


def test_kernel_names_identify_tensor_cores() -> None:
    from tracewarehouse.duck import engine

    body = CATALOG.get("matmul_rules").body
    with engine.connect(threads=1) as con:
        for name, wanted in MATMULS.items():
            found = con.execute(
                f"SELECT arg_min(uses_tensor_cores, rule_id) FROM ({body}) WHERE regexp_matches($1, pattern)",
                [name],
            ).fetchone()
            assert found == (wanted,), name


# The command


@pytest.mark.deep
def test_a_terminal_gets_lines_that_fit(wh: Warehouse) -> None:
    shown = on_terminal("check", "data", "-w", wh.root, columns=80)
    assert "critical: input_bound (data loader) in data ranks 0-1" in shown.out
    # Commands are not wrapped, so that they can be pasted.
    assert all(len(line) <= 80 for line in shown.out.splitlines() if "tw " not in line), shown.out


def test_findings_in_words(wh: Warehouse, same_text: Callable[[str, str], None]) -> None:
    done = command("check", "data", "-w", wh.root, "-f", "table")
    same_text("messages/check.table.txt", done.out)


@pytest.mark.deep
def test_findings_as_markdown_and_rows(wh: Warehouse, same_text: Callable[[str, str], None]) -> None:
    done = command("check", "data", "-w", wh.root, "-f", "md")
    same_text("messages/check.md.txt", done.out)
    rows = command("check", "data", "-w", wh.root, "-f", "csv").out.splitlines()
    assert rows[0].startswith("run_id,rank,severity,rule,subject,culprit,") and "advice" not in rows[0]
    assert len(rows) == 3 and "waits for the data loader" in rows[1]


def test_fail_on_a_severity(wh: Warehouse, only_rules: Callable[..., None]) -> None:
    only_rules("input_bound", "low_gpu_use")
    assert command("check", "quiet", "-w", wh.root, "--fail-on", "info").code == 0
    failed = command("check", "data", "-w", wh.root, "--fail-on", "warning", "--json")
    envelope = json.loads(failed.out)
    assert failed.code == 3 and not envelope["ok"] and len(envelope["result"]) == 2
    assert envelope["error"]["class"] == "FindingsFailed"
    assert failed.errors[-1] == "tw: 2 findings of severity warning or higher"


@pytest.mark.deep
def test_all_includes_passing_checks(wh: Warehouse) -> None:
    rows = json.loads(command("check", "quiet", "-w", wh.root, "--all", "-f", "json").out)
    assert {row["severity"] for row in rows} == {"none"}
    of_additions = {"snapshot", "flight_records", "kernel_metrics", "execution_nodes"}
    of_others = {"prefill_delays_decode", "slow_decode", "unbalanced_experts"}  # of serving and all-to-all
    assert {row["rule"] for row in rows} == {
        rule.name
        for rule in RULES
        if not rule.name.startswith("host_") and not of_additions.intersection(rule.needs)
    } - of_others | {"host_bound", "host_blocked"}


@pytest.mark.deep
def test_omitted_rows_are_reported(wh: Warehouse) -> None:
    cut = command("check", "data", "-w", wh.root, "-f", "table", "--limit", "1")
    assert "1 finding: 1 critical" in cut.out and "… 1 more row (use --limit N)" in cut.err
