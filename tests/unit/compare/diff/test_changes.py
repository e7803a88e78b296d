"""`tw diff BASE HEAD`: comparability, the verdict, the breakdown, gates and their exit codes."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path
from string import Template
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

import cli_runner
import sketch
import tracewarehouse as tw
from conftest import ROOT, deep, with_deep
from tracewarehouse.compare.diff.change import Change
from tracewarehouse.compare.diff.levels import OWN_WORK
from tracewarehouse.compare.stats.two_sample import MIN_EARLIER
from tracewarehouse.errors import ParamError
from tracewarehouse.present.answers import change_text, github_comment
from tracewarehouse.warehouse import Warehouse

SIZE = ("--layers", "2", "--no-stacks", "--no-memory")
RUNS: dict[str, tuple[str, ...]] = {
    "base": ("--ranks", "2", "--steps", "8"),
    "slow": ("--ranks", "2", "--steps", "8", "--inject", "slow-kernel:kernel=gemm,percent=40"),
    "batch": ("--ranks", "2", "--steps", "2", "--batch", "8"),
    "lacks": ("--ranks", "2", "--steps", "3", "--inject", "missing-rank:rank=1"),
}
DEEP_RUNS: dict[str, tuple[str, ...]] = {
    "wide": ("--ranks", "4", "--steps", "3"),
    "amd": ("--ranks", "2", "--steps", "3", "--gpu", "MI300X"),
    "tensor": ("--ranks", "4", "--steps", "3", "--tensor", "2"),
}


@pytest.fixture(scope="module")
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with these runs, and one without a GPU."""
    folder = tmp_path_factory.mktemp("changes")
    runs = {**RUNS, **(DEEP_RUNS if with_deep(request) else {})}
    for name, settings in runs.items():
        assert cli_runner.tw("simulate", folder / "traces" / name, *SIZE, *settings).code == 0
    sketch.write("host 0 op t1 aten::mm 0 10\n", folder / "traces")
    tw.open(folder / "warehouse").ingest(folder / "traces", jobs=1)
    return folder / "warehouse"


@pytest.fixture(scope="module")
def wh(house: Path) -> Warehouse:
    """The warehouse; comparisons share its connections."""
    return tw.open(house)


@cache
def changes(wh: Warehouse, base: str, head: str) -> Change:
    """The comparison with default options, computed once: several tests look at it."""
    return wh.diff(base, head).changes()


@pytest.mark.parametrize(
    ("head", "first"),
    [
        ("base", "the same run on both sides: base@v1"),
        *deep(
            ("amd", "GPU model: base NVIDIA H100 80GB HBM3, head AMD Instinct MI300X"),
            ("wide", "world size: base 2, head 4"),
            ("host", "head has no GPU activities, base has"),
        ),
    ],
)
def test_other_machines_are_compared_with_a_warning(wh: Warehouse, head: str, first: str) -> None:
    change = changes(wh, "base", head)
    assert change.differences[0].message == first and change.differences[0].is_warning
    assert f"\nwarning: {first}\n" in change_text(change, (), 5, None)


@pytest.mark.parametrize("head", ["base", *deep("amd", "wide")])
def test_commands_of_the_page_run_as_printed(house: Path, tmp_path: Path, head: str) -> None:
    page = tmp_path / "page.html"
    assert cli_runner.tw("report", "base", head, "-o", page, "-w", house).code == 0
    copied = set(re.findall(r'data-copy="(tw [^"]*)"', page.read_text()))
    whole = f"tw diff base {head}"
    assert whole in copied
    # The commands of the levels are one, which computes the comparison once.
    levels = {command.removeprefix(whole) for command in copied if command.startswith(f"{whole} --level ")}
    assert len(levels) > 4
    others = {command for command in copied if command.removeprefix(whole) not in levels}
    for command in (whole + "".join(sorted(levels)), *others):
        done = cli_runner.tw(*shlex.split(command)[1:], "-w", house)
        assert done.code == 0, (command, done.err)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("batch", "input shapes differ for "),
        ("lacks", "head: lacks lacks rank 1 of 2"),
        *deep(("batch", "complete steps per rank: base 8, head 2"), ("lacks", "only in base: rank 1")),
    ],
)
def test_other_configuration_differences_are_reported(wh: Warehouse, head: str, message: str) -> None:
    change = changes(wh, "base", head)
    assert any(each.message.startswith(message) and not each.is_warning for each in change.differences)


def test_the_note_on_shapes_has_the_flop_of_a_step(wh: Warehouse) -> None:
    (note,) = [each.message for each in changes(wh, "base", "batch").differences if each.what == "shapes"]
    assert note.endswith("; FLOP per step × 2")


def test_an_upgrade_of_torch_is_reported(tmp_path: Path) -> None:
    sketch.write("base 0 op t1 aten::mm 0 20\nhead 0 op t1 aten::mm 0 20", tmp_path / "t")
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(tmp_path / "t", jobs=1)
    for run, version in (("base", "2.6.0"), ("head", "2.13.0")):
        wh.label(run, {"torch": version, "python": "3.11.7"})
    messages = [each.message for each in wh.diff("base", "head").changes().differences]
    assert messages == ["torch: base 2.6.0, head 2.13.0"]


def test_waits_for_collectives_of_the_host_are_not_of_the_rank_itself(tmp_path: Path) -> None:
    lines = []
    for run, wait_ns in (("base", 10), ("head", 200)):
        for start in range(0, 4000, 1000):
            lines.append(f"{run} 0 step t1 {start // 1000} {start} 1000")
            lines.append(f"{run} 0 op t1 mm {start} 100")
            lines.append(f"{run} 0 ann t2 gloo:all_reduce {start + 100} {wait_ns}")
    sketch.write("\n".join(lines), tmp_path / "t")
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(tmp_path / "t", jobs=1)
    parts = wh.diff("base", "head").changes().breakdown
    assert parts is not None
    found = {row.part: (row.base, row.head) for row in parts.level("ranks").rows}
    assert found == {"rank 0 (own work)": (3960, 3200), "rank 0 waiting": (40, 800)}


def test_windows_of_different_numbers_of_steps_are_compared_per_step(tmp_path: Path) -> None:
    lines = []
    for run, steps, own_ns in (("base", 5, 400), ("head", 2, 600)):
        for start in range(0, 1000 * steps, 1000):
            lines.append(f"{run} 0 ann t1 ProfilerStep#{start // 1000} {start} 1000")
            lines.append(f"{run} 0 op t1 mm {start} {own_ns}")
    sketch.write("\n".join(lines), tmp_path / "t")
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(tmp_path / "t", jobs=1)
    change = wh.diff("base", "head").changes()
    assert change.line.startswith("mean window per step 1.000 → 1.000 µs")
    parts = change.breakdown
    assert parts is not None
    assert (parts.base_mean, parts.head_mean) == (1000, 1000)
    found = {row.part: (row.base, row.head) for row in parts.level("kernels").rows}
    assert found["operator: mm"] == (400, 600)
    assert parts.notices[-1] == "the windows have different numbers of steps: times are per recorded step"


def test_the_note_on_shapes_names_operators_and_ignores_the_data_loader(tmp_path: Path) -> None:
    def lines(run: str, mm: str, loaded: str) -> str:
        return "\n".join(
            f"{run} 0 op t1 {name} {start} {length} 'Input Dims={shapes}'"
            for name, start, length, shapes in (
                ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 100, "[]"),
                ("aten::to", 10, 20, loaded),
                ("aten::mm", 40, 20, loaded),
                ("aten::to", 200, 20, "[[8]]"),
                ("aten::mm", 300, 20, mm),
                ("profiler::_record_function_enter", 400, 20, loaded),
            )
        )

    sketch.write(
        lines("base", "[[64, 8]]", "[[3]]") + "\n" + lines("head", "[[32, 8]]", "[[4]]"), tmp_path / "t"
    )
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "t", jobs=1)
    differences = warehouse.diff("base", "head").changes().differences
    (note,) = [each.message for each in differences if each.what == "shapes"]
    assert note.startswith("input shapes differ for 50% of operator calls, most in aten::mm; batch size")


@pytest.mark.deep
def test_lines_of_a_narrow_terminal_wrap_and_the_reasons_of_gates_are_whole(wh: Warehouse) -> None:
    change = wh.diff("base", "slow").changes(gates=("step_time<=+3%",))
    for width in (60, 80):
        lines = change_text(change, ("breakdown", "kernels"), 5, width).splitlines()
        assert max(map(len, lines)) <= width, max(lines, key=len)
        assert "interval is 3 σ wider, σ between runs 3 % (assumed)" in " ".join(" ".join(lines).split())
        headings = [line.split() for line in lines if line.startswith("name ")]
        assert all({"delta_ns", "base_ns", "head_ns"} <= set(heading) for heading in headings)


def test_a_slower_kernel_is_the_first_row_of_a_breakdown_that_sums_to_the_change(wh: Warehouse) -> None:
    change = changes(wh, "base", "slow")
    assert (change.verdict.word, change.verdict.sample) == ("slower", "step")
    assert re.fullmatch(
        r"median step [\d.]+ → [\d.]+ ms, \+[\d.]+ % \[[\d.]+, [\d.]+\], mean \+[\d.]+ %:"
        r" this recording is slower; runs of one job vary by 1–3 %, less than this difference",
        change.line,
    )
    assert change.breakdown is not None
    wanted = {(round(change.breakdown.base_mean), round(change.breakdown.head_mean))}
    rows = change.rows().rows()
    levels = {row["level"] for row in rows}
    assert levels == {"breakdown", "kernels", "operators", "categories", "modules", "work", "ranks"}
    for level in levels:
        of_level = [row for row in rows if row["level"] == level]
        assert {(sum(row["base_ns"] for row in of_level), sum(row["head_ns"] for row in of_level))} == wanted
    first = next(row for row in rows if row["level"] == "kernels")
    assert "gemm" in first["name"] and first["change"] == "slower" and first["significant"]


@pytest.mark.deep
def test_only_selected_steps_are_compared(wh: Warehouse) -> None:
    diff = wh.diff("base", "slow")
    account, all_steps = diff.changes(steps=(2, 3, 4)).breakdown, diff.changes().breakdown
    assert account is not None and all_steps is not None
    assert (account.base_intervals, all_steps.base_intervals) == (2 * 3, 2 * 8)
    of_steps = "SELECT sum(period_ns) AS sum_ns FROM steps WHERE step BETWEEN 2 AND 4"
    (row,) = wh.select("base").query(of_steps).rows()
    assert account.base_mean * 6 == row["sum_ns"]


@pytest.mark.deep
def test_ranks_of_different_layouts_are_paired_by_role(wh: Warehouse) -> None:
    change = wh.diff("wide", "tensor").changes()
    layout = "layout: base mesh_data 4, head mesh_data 2 × mesh_tensor 2"
    assert layout in [each.message for each in change.differences]
    rows = {row["name"]: row for row in change.rows(["ranks"]).rows()}
    own = {part.removesuffix(OWN_WORK): row for part, row in rows.items() if part.endswith(OWN_WORK)}
    assert {role for role, row in own.items() if row["base_ns"] and row["head_ns"]} == {
        "rank mesh_data 0, mesh_tensor 0",
        "rank mesh_data 1, mesh_tensor 0",
    }
    assert {role for role, row in own.items() if not row["base_ns"]} == {
        "rank mesh_data 0, mesh_tensor 1",
        "rank mesh_data 1, mesh_tensor 1",
    }


def test_with_too_few_steps_windows_are_compared_without_a_verdict(wh: Warehouse) -> None:
    change = changes(wh, "base", "batch")
    assert change.breakdown is not None and change.breakdown.per == "window"
    assert (change.verdict.word, change.verdict.reason) == ("inconclusive", "one sample per side")
    with pytest.raises(ParamError, match="unknown interval 'weeks'"):
        wh.diff("base", "slow").changes(interval="weeks")


@pytest.mark.deep
def test_a_run_without_a_gpu_has_a_reason_instead_of_a_breakdown(house: Path, wh: Warehouse) -> None:
    change = wh.diff("host", "base").changes()
    assert change.breakdown is None and change.no_breakdown_reason
    done = cli_runner.tw("diff", "host", "base", "-w", house)
    assert done.code == 0 and f"no breakdown: {change.no_breakdown_reason}" in done.out


def test_steps_at_the_edge_of_what_was_recorded_are_left_out(tmp_path: Path) -> None:
    steps = [(run, step, 1000 * step) for run in ("base", "head") for step in range(6)]
    sketch.write(
        "\n".join(
            f"{run} 0 step t1 {step} {at} 1000\n{run} 0 call t1 cudaLaunchKernel {at + 10} 10 id={step + 1}\n"
            f"{run} 0 gpu s7 k {at + 100} 500 id={step + 1}"
            for run, step, at in steps
        ),
        tmp_path / "t",
    )
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(tmp_path / "t", jobs=1)
    printed = change_text(wh.diff("base", "head").changes(), ("breakdown",), 5, None)
    assert "note: compared 4 of 6 steps of base; steps 0 and 5 are incomplete" in printed


def test_failed_gates_exit_with_3(house: Path, tmp_path: Path) -> None:
    gates = tmp_path / "gates.txt"
    gates.write_text("# the step\nstep_time<=+3%\n\ntemporal_breakdown.compute_ns <= +1% # no more work\n")
    arguments = ("diff", "base", "slow", "-w", house, "--gate-file", gates, "--junit", tmp_path / "j.xml")
    failed = cli_runner.tw(*arguments)
    assert failed.code == 3 and "σ between runs 3 % (assumed)" in failed.out
    assert "are incomplete" not in failed.out, "the profiler says that it recorded them"
    assert " by kernel" in failed.out and " by operator" not in failed.out, "the answer, on a screen"
    assert failed.errors[0].startswith(
        "tw: 2 of 2 gates failed: step_time<=+3%, temporal_breakdown.compute_ns"
    )
    assert ElementTree.parse(tmp_path / "j.xml").getroot().get("failures") == "2"


@pytest.mark.deep
def test_a_gate_that_passes_is_in_the_envelope(house: Path) -> None:
    held = cli_runner.tw("diff", "base", "slow", "-w", house, "--gate", "step_time<=+90%", "--json")
    (said,) = json.loads(held.out)["result"]
    assert (held.code, said["gates"][0]["outcome"], said["verdict"]["word"]) == (0, "pass", "slower")
    assert sum(row["delta_ns"] for row in said["breakdown"] if row["level"] == "ranks") > 0


@pytest.mark.deep
def test_an_inconclusive_gate_exits_with_5_unless_that_is_allowed(house: Path) -> None:
    gate = ("--gate", "op_summary.count[name=no::such]<=+3%")
    assert cli_runner.tw("diff", "base", "slow", "-w", house, *gate).code == 1
    gate = ("--gate", "memory_peak.peak_bytes<=+3%")  # no allocations were recorded
    open_ = cli_runner.tw("diff", "base", "slow", "-w", house, *gate)
    assert open_.code == 5 and "warning: gate memory_peak.peak_bytes<=+3% is inconclusive" in open_.err
    allowed = cli_runner.tw("diff", "base", "slow", "-w", house, *gate, "--allow-inconclusive")
    assert allowed.code == 0 and "warning: gate memory_peak.peak_bytes<=+3% is inconclusive" in allowed.err


@pytest.mark.deep
def test_markdown_fits_a_comment(house: Path) -> None:
    done = cli_runner.tw("diff", "base", "slow", "-w", house, "-f", "md", "--top", "3")
    assert done.out.startswith("### median step ")
    assert done.out.count("<details") == 3 and done.out.count("</details>") == 3
    assert len(done.out) < 65_536


def test_a_comment_for_github_fits_and_is_the_job_summary(
    house: Path, wh: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    arguments = (
        "diff",
        "base",
        "slow",
        "-w",
        house,
        "-f",
        "github",
        "--gate",
        "step_time<=+3%",
    )
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    done = cli_runner.tw(*arguments)
    assert done.code == 3
    assert done.out.startswith("## ❌ tw diff: a gate failed\n\n### median step ")
    assert summary.read_text() == done.out
    change = changes(wh, "base", "slow")
    long = replace(change, base=tuple(f"{'x' * 30_000}-{at}" for at in range(3)))
    for levels in ((), ("breakdown", "kernels")):
        text = github_comment(long, levels, 10)
        assert len(text.encode()) <= 60_000 and text.startswith("## ⚠️ tw diff: this recording is slower\n")
    assert cli_runner.tw("diff", "base", "slow", "quality", "-f", "github", "-w", house).code == 2


def test_incompatible_options_are_refused(house: Path) -> None:
    assert cli_runner.tw("diff", "base", "slow", "--by-rank", "-w", house).code == 2
    assert cli_runner.tw("diff", "base", "slow", "kernel_summary", "--gate", "x", "-w", house).code == 2
    assert (
        cli_runner.tw("diff", "base", "slow", "kernel_summary", "quality", "-f", "csv", "-w", house).code == 2
    )


@pytest.mark.deep
def test_each_analysis_has_its_own_table(house: Path) -> None:
    done = cli_runner.tw("diff", "base", "slow", "temporal_breakdown", "kernel_summary", "-w", house)
    assert done.code == 0
    assert [line for line in done.out.splitlines() if "_" in line and " " not in line] == [
        "temporal_breakdown",
        "kernel_summary",
    ]


GUIDE = ROOT / "notebooks" / "guides" / "comparisons.md"
SETTINGS = {"SHA": "3f2a91c", "ATTEMPT": "1", "BRANCH": "feature/fp8", "PR": "7"}


def jobs_of_the_guide() -> tuple[list[str], list[str]]:
    """The commands of the job on main, and those of a pull request."""
    sample = re.search(r"^```yaml\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert sample
    main, pull = (re.findall(r"^- run: (.*)$", job, flags=re.M) for job in sample[1].split("\n\n"))
    assert sample[1].rstrip().endswith(f"- run: {pull[-1]}\n  if: always()")
    return main, pull


def run_job(folder: Path, traces: Path, commands: list[str], **settings: str) -> list[int]:
    """Exit codes of the steps of a job up to the first that fails, in a fresh checkout with its traces."""
    checkout = folder / "checkout"
    shutil.rmtree(checkout, ignore_errors=True)
    checkout.mkdir()
    (checkout / "traces").symlink_to(traces)
    path = {"PATH": f"{folder}:/usr/bin:/bin", **SETTINGS, "TW_WAREHOUSE": str(folder / "kept"), **settings}
    codes: list[int] = []
    for line in commands:
        shell = ["bash", "-euo", "pipefail", "-c", line]
        done = subprocess.run(shell, cwd=checkout, env=cli_runner.environment(path), capture_output=True)
        codes.append(done.returncode)
        if done.returncode:
            break
    return codes


@pytest.mark.deep
def test_the_jobs_of_the_guide_run_on_a_kept_warehouse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of main, then pull requests: a slow one, a good one twice, and one without a rank."""
    code = "from tracewarehouse.cli import main; main()"
    (tmp_path / "tw").write_text(f"#!/bin/sh\nexec '{cli_runner.TW[0]}' -W error -c '{code}' \"$@\"\n")
    (tmp_path / "tw").chmod(0o755)
    main, pull = jobs_of_the_guide()
    tested = pull[:-1]  # posting is for another tool

    def traces(at: int, *settings: str) -> Path:
        place = tmp_path / "jobs" / str(at) / "job"
        noise = ("--start", f"2026-05-04T{at:02}:00:00", "--seed", str(at), "--noise-run", "0.005")
        size = ("--ranks", "4", "--layers", "1", "--steps", "6", "--no-stacks", "--no-memory")
        assert cli_runner.tw("simulate", place, *size, *noise, *settings).code == 0
        return place

    monkeypatch.chdir(tmp_path)
    for at in range(MIN_EARLIER - 1):  # in this process, which is quicker
        traces(at).rename("traces")
        for line in main:
            words = Template(line).substitute({**SETTINGS, "SHA": f"main{at:02}"})
            assert cli_runner.tw(*shlex.split(words)[1:], "-w", "kept").code == 0
        shutil.rmtree("traces")
    assert run_job(tmp_path, traces(12), tested, PR="6") == [0, 5]  # inconclusive: one run is missing
    assert 'failures="2"' in (tmp_path / "checkout" / "gates.xml").read_text()
    assert run_job(tmp_path, traces(13), main) == [0, 0]
    slow = traces(20, "--inject", "slow-kernel:kernel=gemm,percent=40")
    assert run_job(tmp_path, slow, tested) == [0, 3]
    assert (tmp_path / "checkout" / "comment.md").read_text().startswith("### median step")
    assert ElementTree.parse(tmp_path / "checkout" / "gates.xml").getroot().get("failures") in ("1", "2")
    good = traces(21)
    assert run_job(tmp_path, good, tested, PR="8") == [0, 0]
    assert run_job(tmp_path, traces(22), tested, PR="8", ATTEMPT="2") == [0, 0]
    lacking = traces(23, "--inject", "missing-rank:rank=1")
    assert run_job(tmp_path, lacking, tested, PR="9") == [4]
    early = [line.replace("@baseline", "label:branch=main") for line in tested]
    assert run_job(tmp_path, traces(19), early, PR="5") in ([0, 0], [0, 5])  # the wait varies by more
    (of_step,) = ElementTree.parse(tmp_path / "checkout" / "gates.xml").findall(
        "testcase[@name='step_time<=+3%']"
    )
    assert len(of_step) == 0, "the step time holds"
