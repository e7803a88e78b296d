"""Advice fits the program that was recorded, and `tw check` says what no rule explains."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest

import nsys_writer
import sketch
import tracewarehouse as tw
from cli_runner import tw as command
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.findings import UNEXPLAINED

CATALOG: Final = Catalog.load()
RULES: Final = {rule.name: rule for rule in CATALOG.rules()}
# Words of PyTorch, which programs of other frameworks do not have.
TORCH: Final = re.compile(
    r"torch|\.item\(|\.cpu\(|\.to\(|\.detach|DataLoader|num_workers|with_stack|non_blocking|pin_memory"
    r"|autocast|channels_last|is_nonzero|mixed precision",
    re.IGNORECASE,
)
H100: Final = {
    "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_045_477_376, "numSms": 132,
    "computeMajor": 9, "computeMinor": 0,
}  # fmt: skip


def solver() -> Iterator[str]:
    """A CUDA program: each of its 20 iterations of 10 ms has one of several problems."""
    yield f"r 0 header {json.dumps({'deviceProperties': [H100]})}"
    yield "r 0 call t1 cudaFree 0 30000000"
    number = 0

    def gpu(name: str, at: int, dur: int, call: str = "cudaLaunchKernel", more: str = "") -> Iterator[str]:
        nonlocal number
        number += 1
        yield f"r 0 call t1 {call} {at - 5000} 4000 id={number}"
        yield f"r 0 gpu s7 '{name}' {at} {dur} id={number} {more}"

    for iteration in range(20):
        at = 40_000_000 + iteration * 10_000_000
        yield f"r 0 ann t1 'solver iteration' {at} 9990000"
        yield f"r 0 call t1 cudaMalloc {at} 500000"
        pageable = "Memcpy HtoD (Pageable -> Device)"
        yield from gpu(pageable, at + 600_000, 900_000, "cudaMemcpyAsync", "bytes=900000")
        pinned = "Memcpy DtoH (Device -> Pinned)"
        yield from gpu(pinned, at + 1_500_000, 900_000, "cudaMemcpyAsync", "bytes=900000")
        yield from gpu("volta_sgemm_128x64_nn", at + 2_400_000, 900_000, more="grid=[8,1,1] block=[128,1,1]")
        yield from gpu("nchwToNhwcKernel", at + 3_300_000, 700_000)
        for part in range(3):
            yield from gpu("saxpy_elementwise", at + 4_000_000 + part * 565_000, 565_000)
        yield from gpu("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 5_700_000, 900_000)
        yield f"r 0 call t1 cudaDeviceSynchronize {at + 5_710_000} 900000"
        yield from gpu("after_sync", at + 7_600_000, 100_000)
        yield from gpu("late", at + 8_900_000, 100_000)


def launches() -> Iterator[str]:
    """A CUDA program whose kernels end before the next one is launched."""
    for number in range(200):
        at = number * 20_000
        yield f"r 0 call t1 cudaLaunchKernel {at} 4000 id={number + 1}"
        yield f"r 0 gpu s7 tiny {at + 5000} 5000 id={number + 1}"


def reader() -> Iterator[str]:
    """A program without GPU work, whose steps load input most of the time."""
    for number in range(5):
        at = number * 1_000_000
        yield f"r 0 ann t1 'solver iteration' {at} 990000"
        yield f"r 0 ann t1 load_batch {at} 500000"


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """Exports of Nsight Systems, of programs without PyTorch."""
    folder = tmp_path_factory.mktemp("cuda")
    made = tw.open(folder / "warehouse")
    for name, lines in (("solver", solver()), ("launches", launches()), ("reader", reader())):
        (trace,) = sketch.files("\n".join(lines) + "\n").values()
        writer = nsys_writer.Writer()
        assert isinstance(trace, str)
        writer.add(nsys_writer.read_trace(trace.encode()), pid=9)
        writer.write(folder / f"{name}.sqlite")
        made.ingest(folder / f"{name}.sqlite", run=name, jobs=1)
    return made


@pytest.fixture(scope="module")
def checked(wh: tw.Warehouse) -> Sequence[dict[str, Any]]:
    """The rows of all rules, also of checks that passed."""
    return wh.check(passed=True).rows()


def test_a_cuda_program_gets_no_advice_for_pytorch(checked: Sequence[dict[str, Any]]) -> None:
    rows = checked
    found = {row["rule"] for row in rows if row["severity"] in ("warning", "critical")}
    assert found >= {
        "allocator_calls", "blocking_syncs", "exposed_comm", "exposed_copies", "fusible_chain", "host_bound",
        "host_data_loading", "launch_bound", "layout_conversions", "low_roofline_hot_ops", "pageable_copies",
        "startup", "tensor_cores",
    }  # fmt: skip
    said = {(row["rule"], row["observation"], row["saving_limit"], row["advice"]) for row in rows}
    assert [texts for texts in said if any(map(TORCH.search, texts))] == []


def test_rules_that_a_cuda_program_can_trigger_have_advice_for_it(
    wh: tw.Warehouse, checked: Sequence[dict[str, Any]]
) -> None:
    """Also where other words of the same rule would be given: for another culprit."""
    advice = {(row["rule"], row["framework"]) for row in wh.query("SELECT * FROM advice_rules").rows()}
    answers = {row["rule"] for row in checked}
    of_torch = {name for name in answers if TORCH.search(words(RULES[name].body))}
    assert len(of_torch) > 8
    wanted = {(name, framework) for name in of_torch for framework in ("cuda", "hip")}
    assert wanted - advice == {("tensor_cores", "hip")}  # which is about NVIDIA's GPUs


def words(body: str) -> str:
    """The texts of a rule that have more than one word."""
    texts = re.findall(r"'((?:[^']|'')*)'", re.sub("--.*", "", body))
    return "\n".join(text for text in texts if text.count(" ") > 2)


def test_advice_rules_name_rules_and_frameworks(wh: tw.Warehouse) -> None:
    rows = wh.query("SELECT * FROM advice_rules").rows()
    assert {row["rule"] for row in rows} <= set(RULES)
    assert {row["framework"] for row in rows} == {"jax", "cuda", "hip"}
    assert len({(row["rule"], row["framework"]) for row in rows}) == len(rows)
    for row in rows:
        assert row["advice"].endswith(".") and "{" not in row["advice"], row
        assert not TORCH.search(row["advice"]), row
        foreign = {"cuda": r"\bhip[A-Z]|HIP_", "hip": r"\bcuda[A-Z]|CUDA_|nsys", "jax": r"\b(cuda|hip)[A-Z]"}
        assert not re.search(foreign[row["framework"]], row["advice"]), row


# Kernels run from 0 to 100,000 and from `start` to 250,000, or to the end of that time; launched at `launch`.
def idle(run: str, launch: int, start: int) -> str:
    return (
        f"{run} 0 call t1 cudaLaunchKernel 0 5 id=1\n{run} 0 gpu s7 k 0 100000 id=1\n"
        f"{run} 0 call t1 cudaLaunchKernel {launch} 5 id=2\n{run} 0 gpu s7 k {start} {250_000 - start} id=2\n"
    )


@pytest.fixture(scope="module")
def idling(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """A fifth of the time is idle: in `queued` behind a launch in time, in `late` before a late one."""
    folder = tmp_path_factory.mktemp("idle")
    drawn = [idle("queued", 100, 150_000), idle("late", 149_990, 150_000), idle("less", 100, 149_999)]
    sketch.write("".join(drawn), folder / "traces")
    made = tw.open(folder / "warehouse")
    made.ingest(folder / "traces", jobs=1)
    return made


SAID: Final = "20.0 % of the time of queued rank 0 is idle time of the GPU; no rule explains it"


def test_time_that_no_rule_explains_is_stated_before_findings(
    idling: tw.Warehouse, only_rules: Callable[..., None]
) -> None:
    done = command("check", "queued", "-w", idling.root, "-f", "table")
    recording, said, blank, headline, *_ = done.out.splitlines()
    assert (recording, said, blank) == ("recording: sound", SAID, "") and headline.startswith("0 findings")
    assert "explains" not in done.err
    only_rules("launch_bound")  # the other formats say the same
    shown = command("check", "queued", "-w", idling.root, "-f", "md").out
    assert shown.index(f"**{SAID}**") < shown.index("### ")
    envelope = json.loads(command("check", "queued", "-w", idling.root, "--json").out)
    assert f"{UNEXPLAINED}{SAID}" in envelope["quality"]


def test_time_that_a_rule_explains_is_not_stated(idling: tw.Warehouse) -> None:
    late = idling.select("late").check()
    assert [row["rule"] for row in late.rows()] == ["launch_bound"]
    assert not any(each.startswith(UNEXPLAINED) for each in late.notices)


def test_less_than_a_fifth_of_the_time_is_not_stated(
    idling: tw.Warehouse, only_rules: Callable[..., None]
) -> None:
    only_rules("launch_bound")
    found = idling.check()
    assert [each for each in found.notices if each.startswith(UNEXPLAINED)] == [f"{UNEXPLAINED}{SAID}"]
