"""Whole comparisons of runs whose kernels were renamed, fused, split, re-typed, added, or had more work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

import sketch
import tracewarehouse as tw

STEPS = 8


@dataclass(frozen=True)
class Launch:
    """A kernel of a step: its operator with the rows of its first input, its module, and its time."""

    name: str
    op: str
    us: int
    module: str = "MLP_0"
    rows: int = 512
    dtype: str = "c10::BFloat16"

    def lines(self, rank: str, at: int, ns: int, number: int) -> Iterator[str]:
        modules = ["Net_0", *([self.module] if self.module != "Net_0" else [])]
        for depth, module in enumerate(modules):
            yield f"{rank} py t1 'nn.Module: {module}' {at + depth} {600 - 2 * depth}"
        inputs = 2 if "mm" in self.op else 1
        shapes = f"[[{self.rows},512]{',[512,512]' * (inputs - 1)}]"
        types = f"[{','.join([f'{chr(34)}{self.dtype}{chr(34)}'] * inputs)}]"
        yield f"{rank} op t1 {self.op} {at + 10} 500 'Input Dims={shapes}' 'Input type={types}'"
        yield f"{rank} call t1 cudaLaunchKernel {at + 20} 100 id={number}"
        yield f"{rank} gpu s7 '{self.name}' {at + 1_000} {ns} id={number}"


def lines(run: str, launches: list[Launch]) -> Iterator[str]:
    """Steps in which one kernel follows the other; their times vary by 0.4 %."""
    at, number = 0, 0
    for step in range(STEPS):
        start = at
        for launch in launches:
            number += 1
            ns = 1_000 * launch.us + launch.us * (step * 7_919 % 5)
            yield from launch.lines(f"{run} 0", at, ns, number)
            at += ns + 1_000
        yield f"{run} 0 step t1 {step} {start} {at - start}"


GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluFunctor<float> >(int)"
COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(int)"
GEMM = Launch("sm80_xmma_gemm_bf16_tn", "aten::mm", 100)
HEAD = replace(GEMM, module="Net_0")
ACT = Launch(GELU, "aten::gelu", 20, module="GELU_0")
MODEL = [GEMM, GEMM, ACT, HEAD]
FP8 = Launch("sm90_xmma_gemm_e4m3_tn", "aten::_scaled_mm", 60, dtype="c10::Float8_e4m3fn")
CAST = Launch(COPY, "aten::copy_", 25)
RUNS = {
    "base": MODEL,
    "renamed": [replace(each, name="sm90_xmma_gemm") if "gemm" in each.name else each for each in MODEL],
    "slower": [replace(each, name="nvjet_tst", us=125) if "gemm" in each.name else each for each in MODEL],
    "fused": [GEMM, replace(GEMM, name="cutlass_gemm_gelu", us=105), HEAD],
    "fp8": [CAST, FP8, CAST, FP8, ACT, HEAD],
    "copies": [GEMM, CAST, GEMM, CAST, ACT, HEAD],
    "batch": [replace(each, us=each.us * 97 // 50, rows=1_024) for each in MODEL],
    "tiled": [replace(each, us=each.us * 97 // 50, rows=1_024, name=f"{each.name}_2") for each in MODEL],
    "tokens": [replace(each, us=each.us * 2, op="fused_block") for each in MODEL],
    "opaque": [replace(each, op="fused_block") for each in MODEL],
    "calls": [*MODEL, GEMM, GEMM, GEMM],
}
LARGEST = "largest part by kernel:"
PRODUCT = "sm80_xmma_gemm_bf16_tn"
# Base, head, rows of the level kernels with their changes, and what the line below the verdict begins with.
CASES = {
    "renamed": ("base", "renamed", {f"{PRODUCT} → sm90_xmma_gemm": "replaced", GELU: "unchanged"}, None),
    "renamed and slower": (
        "base",
        "slower",
        {f"{PRODUCT} → nvjet_tst": "replaced, and 25 % slower per call"},
        f"{LARGEST} {PRODUCT} → nvjet_tst replaced, and 25 % slower per call, +75.175 µs of the +75.175",
    ),
    "fused": (
        "base",
        "fused",
        {f"{PRODUCT} + {GELU} → cutlass_gemm_gelu": "fused", PRODUCT: "unchanged"},
        f"{LARGEST} {PRODUCT} + vectorized_elementwise_kernel → cutlass_gemm_gelu fused, -15.035 µs of",
    ),
    "split": (
        "fused",
        "base",
        {f"cutlass_gemm_gelu → {PRODUCT} + {GELU}": "split", PRODUCT: "unchanged"},
        f"{LARGEST} cutlass_gemm_gelu → {PRODUCT} + vectorized_elementwise_kernel split, +15.035 µs of",
    ),
    "quantized": (
        "base",
        "fp8",
        {
            f"{PRODUCT} → sm90_xmma_gemm_e4m3_tn": "re-typed bf16 → fp8, and 40 % faster per call",
            COPY: "added",
            PRODUCT: "unchanged",
        },
        "parts cancel out: quantization (bf16 → fp8) gained 80.187 µs in matrix products and costs 50.117 µs",
    ),
    "copies": (
        "base",
        "copies",
        {COPY: "added", PRODUCT: "unchanged"},
        f"{LARGEST} unrolled_elementwise_kernel added, 2 calls per step, +50.117 µs of",
    ),
    "twice the batch": (
        "base",
        "batch",
        {
            PRODUCT: "more work, FLOP × 2.0, time per FLOP -3 %",
            GELU: "more work, bytes × 2.0, time per byte -5 %",
        },
        f"{LARGEST} {PRODUCT} more work, FLOP × 2.0, time per FLOP -3 %, +282.658 µs of",
    ),
    "twice the batch in other kernels": (
        "base",
        "tiled",
        {f"{PRODUCT} → {PRODUCT}_2": "replaced, FLOP × 2.0, time per FLOP -3 %"},
        f"{LARGEST} {PRODUCT} → {PRODUCT}_2 replaced, FLOP × 2.0",
    ),
    "twice the tokens": (
        "opaque",
        "tokens",
        {PRODUCT: "more work, tokens × 2.0, same time per token"},
        f"{LARGEST} {PRODUCT} more work, tokens × 2.0, same time per token, +300.7",
    ),
    "more calls": (
        "base",
        "calls",
        {PRODUCT: "more calls", GELU: "unchanged"},
        f"{LARGEST} {PRODUCT} more calls, +300.700 µs of",
    ),
}


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    folder = tmp_path_factory.mktemp("kernels")
    text = "\n".join(line for run, launches in RUNS.items() for line in lines(run, launches))
    sketch.write(text, folder / "traces")
    made = tw.open(folder / "warehouse")
    made.ingest(folder / "traces", jobs=1)
    for run, tokens in (("opaque", 4096), ("tokens", 8192)):
        made.label(run, {"tokens_per_step": str(tokens)})
    return made


@pytest.mark.parametrize("case", CASES)
def test_a_change_of_kernels_is_one_row_and_one_line(case: str, wh: tw.Warehouse) -> None:
    base, head, wanted, line = CASES[case]
    change = wh.diff(base, head).changes()
    parts = change.breakdown
    assert parts is not None and parts.per == "step"
    for level in parts.levels:
        assert (level.base, level.head) == (parts.base_mean, parts.head_mean)
    rows = {row["name"]: row for row in parts.level("kernels").result().rows()}
    assert {name: row["change"] for name, row in rows.items() if name in wanted} == wanted
    assert not [name for name, row in rows.items() if row["change"] == "removed"]
    assert all(
        row["calls_ns"] is None or row["calls_ns"] + row["speed_ns"] == row["delta_ns"]
        for row in rows.values()
    )
    assert line is None or change.causes[0].startswith(line), change.causes


def test_operators_have_their_work(wh: tw.Warehouse) -> None:
    parts = wh.diff("base", "batch").changes().breakdown
    assert parts is not None
    rows = {row.part: row.change for row in parts.level("operators").rows}
    assert rows["aten::mm"] == "more work, FLOP × 2.0, time per FLOP -3 %"
