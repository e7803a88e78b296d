"""FLOP against figures computed by hand: recorded operators on the CPU, and real traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import ROOT, real_traces

DATA = ROOT / "tests" / "data"
TRACES = real_traces()
ATTENTION = 2 * 2 * 8 * 64 * 64 * (32 + 32)  # batch 2, 8 heads, 64 queries and keys of depth 32
CAUSAL = 2 * 2 * 8 * (64 * 65 // 2) * (32 + 32)
# Case → model FLOP and hardware FLOP of forward and backward together.
CASES = {
    "linear": (98_304, 98_304),
    "linear_batched": (393_216, 393_216),
    "bmm": (1_440, 1_440),
    "conv2d": (884_736, 884_736),
    "conv2d_dilated": (3_110_400, 3_110_400),
    "conv2d_groups": (777_600, 777_600),
    "conv2d_depthwise": (194_400, 194_400),
    "conv2d_transposed": (3_110_400, 3_110_400),
    "conv1d": (353_280, 353_280),
    "conv2d_first": (4_816_896, 4_816_896),
    "attention": (ATTENTION * 3, ATTENTION + ATTENTION * 5 // 2),
    "attention_causal": (CAUSAL * 3, CAUSAL + CAUSAL * 5 // 2),
    "attention_causal_longer": (CAUSAL * 3, CAUSAL + CAUSAL * 5 // 2),
    "attention_grouped": (ATTENTION * 3, ATTENTION + ATTENTION * 5 // 2),
    "lstm": (0, 0),
    "einsum": (720, 720),
    "mv": (0, 0),
    "addbmm": (720, 720),
}
# What PyTorch's counter gets wrong: gradients of grouped convolutions in full, attention on the CPU, addbmm.
COUNTER_ERRORS = {
    "conv2d_groups": 1_555_200,
    "conv2d_depthwise": 648_000,
    "attention": 0,
    "attention_causal": 0,
    "attention_causal_longer": 0,
    "attention_grouped": 0,
    "addbmm": 0,
}
HF = "h100-vs-mi300-hf"
BERT: dict[str, tuple[int | None, int]] = {
    "aten::addmm": (8_029_194_240, 26),
    "aten::_scaled_dot_product_flash_attention": (162_865_152, 4),
}
QWEN: dict[str, tuple[int | None, int]] = {
    "aten::mm": (4_164_037_902_336, 96),
    "aten::addmm": (1_350_498_779_136, 72),
    "aten::bmm": (35_776, 1),
    "aten::_scaled_dot_product_flash_attention": (246_184_673_280, 24),
}
# Trace → operator → FLOP of all ranks and number of operators.
FIGURES: dict[str, dict[str, tuple[int | None, int]]] = {
    f"{HF}/h100_bert-small.json.gz": BERT,
    f"{HF}/mi300_bert-small.json.gz": BERT,
    f"{HF}/h100_qwen1.5-0.5b-chat.json.gz": QWEN,
    f"{HF}/mi300_qwen1.5-0.5b-chat.json.gz": QWEN,
    "amd-misc/mi300_ddp_resnet18_no_pool.json.gz": {
        "aten::convolution": (9_285_434_081_280, 100),
        "aten::convolution_backward": (17_966_636_728_320, 100),
        "aten::mm": (5_242_880_000, 10),
        "aten::addmm": (2_621_440_000, 5),
    },
    "amd-misc/mi300_torch_compile_triton.json.gz": {
        "aten::mm": (4_398_046_511_104, 7),
        "aten::_scaled_dot_product_flash_attention": (1_099_511_627_776, 1),
        "triton_poi_fused__unsafe_view_mul_silu_2": (None, 1),
    },
    "multirank-dlrm-v100-8r/*.gz": {
        "aten::mm": (316_342_272, 104),
        "aten::addmm": (158_597_120, 56),
        "aten::bmm": (8_957_952, 24),
    },
    # 20 of each product are recorded; under autocast each encloses its repetition in half precision.
    "batchsize-sweep-a100/bs16__hmoss-6a49xb_1984753.1733768790785663393.pt.trace.json.gz": {
        "aten::addmm": (7_269_294_080, 46),
        "aten::convolution": (2_367_160_320, 4),
        "aten::bmm": (537_927_680, 10),
        "aten::baddbmm": (537_927_680, 10),
    },
    "linear-2080ti/linear_kineto.json.gz": {"aten::mm": (None, 1640), "aten::addmm": (None, 840)},
}
DEEP = ("linear-2080ti", "batchsize-sweep", "multirank", "resnet18", "qwen", "mi300_bert")
BY_NAME = """
SELECT name, sum(model_flop)::HUGEINT AS flop, count(*) AS operators
FROM op_work WHERE family IN ('gemm', 'conv', 'attention', 'triton') GROUP BY name"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Case → the sums of its recording."""
    warehouse = tw.open(tmp_path_factory.mktemp("ops"))
    warehouse.ingest(DATA / "ops-cpu", jobs=1)
    rows = warehouse.select().query(
        """
        SELECT
          run_id, sum(model_flop)::BIGINT AS model_flop, sum(hardware_flop)::BIGINT AS hardware_flop,
          coalesce(sum(model_flop) FILTER (pass = 'backward'), 0)::BIGINT AS backward,
          bool_and(bound = 'exact') FILTER (model_flop > 0) AS is_exact,
          count(*) FILTER (model_flop IS NULL) AS unknown
        FROM op_work GROUP BY run_id""",
        limits=None,
    )
    return {row["run_id"]: row for row in rows.rows()}


def test_every_case_is_recorded(recorded: dict[str, Any]) -> None:
    assert set(recorded) <= set(CASES) and set(CASES) - set(recorded) <= {"mv", "lstm"}


@pytest.mark.parametrize("case", CASES)
def test_recorded_operators(recorded: dict[str, dict[str, Any]], case: str) -> None:
    model, hardware = CASES[case]
    row = recorded.get(case, {"model_flop": 0, "hardware_flop": 0, "unknown": 0, "is_exact": None})
    assert (row["model_flop"], row["hardware_flop"], row["unknown"]) == (model, hardware, 0)
    assert row["is_exact"] is (True if model else None)


@pytest.mark.parametrize("case", CASES)
def test_equals_the_counter_of_pytorch_except_where_that_is_wrong(case: str) -> None:
    counted = json.loads((DATA / "ops-cpu.flop_counter.json").read_text())[case]
    assert counted == COUNTER_ERRORS.get(case, CASES[case][0])


def test_backward_is_found_by_pass(recorded: dict[str, dict[str, Any]]) -> None:
    assert recorded["linear"]["backward"] == 98_304 * 2 // 3
    assert recorded["conv2d_first"]["backward"] == 4_816_896 // 2
    assert recorded["attention"]["backward"] == 2 * ATTENTION


@pytest.mark.skipif(TRACES is None, reason="no real traces here")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.deep] if any(d in n for d in DEEP) else []) for n in FIGURES]
)
def test_real_traces(name: str, tmp_path: Path) -> None:
    assert TRACES is not None
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(*sorted(TRACES.glob(name)), run="real", jobs=1)
    rows = warehouse.select().query(BY_NAME, limits=None).rows()
    found = {row["name"]: (row["flop"], row["operators"]) for row in rows}
    assert {key: found.get(key) for key in FIGURES[name]} == FIGURES[name]
    others = {key: flop for key, (flop, _) in found.items() if key not in FIGURES[name] and flop}
    assert not others
