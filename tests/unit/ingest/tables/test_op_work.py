"""Formulas of work against brute force, and the GPU activities of operators."""

from __future__ import annotations

import json
from itertools import product
from random import Random
from typing import Any

import pytest
from activity_rows import columns_of, gpu, slice_

from tracewarehouse.ingest.rules import Rules, WorkRule, rules_of
from tracewarehouse.ingest.tables import work_formulas
from tracewarehouse.ingest.tables.attribution import attribute_calls
from tracewarehouse.ingest.tables.kernels import classify
from tracewarehouse.ingest.tables.launches import find_calls, find_launches
from tracewarehouse.ingest.tables.nesting import nest
from tracewarehouse.ingest.tables.op_work import op_work
from tracewarehouse.ingest.tables.work_formulas import Inputs, Work, work_of

RULES = {rule.name: rule for rule in rules_of().work}


def work(
    name: str, shapes: object, values: object = None, types: object = None, strides: object = None
) -> Work:
    """The work of an operator with these inputs; all tensors are bfloat16 unless types say otherwise."""
    assert isinstance(shapes, list)
    types = types or ["c10::BFloat16" if shape else "Scalar" for shape in shapes]
    texts = [None if each is None else json.dumps(each) for each in (shapes, types, values, strides)]
    return work_of(Inputs(name, rules_of().element_bytes, *texts), RULES[name])


def plain_convolution(i: int, k: int, s: int, p: int, d: int) -> int:
    """Positions of the kernel along one dimension that fit."""
    return len(range(0, i + 2 * p - d * (k - 1), s)) if i + 2 * p >= d * (k - 1) + 1 else 0


def test_convolutions_of_all_settings() -> None:
    for i, k, s, p, d in product((7, 8), (1, 3), (1, 2, 3), (0, 1), (1, 2)):
        places = plain_convolution(i, k, s, p, d)
        values = ["", "", "", f"[{s}]", f"[{p}]", f"[{d}]", "False", "[0]", "1"]
        found = work("aten::convolution", [[2, 4, i], [6, 4, k], [], [], [], [], [], [], []], values)
        assert found.model_flop == 2 * 2 * places * 6 * 4 * k
        assert found.write_bytes == 2 * 2 * 6 * places


@pytest.mark.parametrize("alignment", ["top_left", "bottom_right"])
def test_visible_pairs_are_those_of_a_mask(alignment: str) -> None:
    for queries, keys, left, right in product((1, 3, 5), (1, 4, 5), (None, 0, 2), (None, 0, 1)):
        shift = keys - queries if alignment == "bottom_right" else 0
        mask = [
            (left is None or key >= query + shift - left) and (right is None or key <= query + shift + right)
            for query in range(queries)
            for key in range(keys)
        ]
        assert work_formulas._pairs(queries, keys, shift, left, right) == sum(mask)


def test_causal_attention_by_library() -> None:
    flash = work(
        "aten::_scaled_dot_product_flash_attention",
        [[1, 1, 2, 8], [1, 1, 4, 8], [1, 1, 4, 8], [], []],
        ["", "", "", "0.", "True"],
    )
    assert flash.model_flop == 2 * (1 + 2) * 16  # the first two keys at most
    library = work(
        "flash_attn::_flash_attn_forward",
        [[1, 2, 1, 8], [1, 4, 1, 8], [1, 4, 1, 8], [], [], [], [], []],
        ["", "", "", "0.", "1.", "True", "-1", "-1"],
    )
    assert library.model_flop == 2 * (3 + 4) * 16  # all keys for the last query
    assert (flash.bound, library.bound) == ("exact", "exact")


def test_what_is_not_recorded_is_a_bound_or_null() -> None:
    square = [[1, 2, 4, 8]] * 3
    unknown = work("aten::_scaled_dot_product_flash_attention", square)
    assert (unknown.model_flop, unknown.bound) == (2 * 2 * 16 * 16, "upper")
    assert (
        work("aten::convolution", [[1, 2, 5, 5], [3, 2, 3, 3], []]).reason
        == "stride and padding not recorded"
    )
    assert work("aten::mm", [[2, 3], [4, 5]]).reason == "shapes of the operands do not fit"
    assert work("aten::mm", [[], []]).reason == "no shapes recorded"
    assert work("aten::mm", [[2**31, 2**31], [2**31, 2**31]]).reason == "too large for 64 bits"
    assert work("aten::mm", [[2, 0], [0, 5]]).model_flop == 0
    lists = work("aten::cat", [[], []], types=["TensorList", "Scalar"])
    assert (lists.model_flop, lists.bound, lists.read_bytes) == (0, "lower", None)


def test_a_dimension_with_stride_0_counts_once() -> None:
    shapes, strides = [[4, 8], [4, 8], []], [[8, 1], [0, 1], []]
    assert work("aten::mul", shapes, strides=strides).read_bytes == 2 * (32 + 8)
    assert work("aten::mul", shapes).bound == "upper"
    scalar = work("aten::add_", [[], [], []], types=["long int", "Scalar", "Scalar"], strides=[[], [], []])
    assert (scalar.read_bytes, scalar.write_bytes, scalar.dtype) == (8, 8, "long int")


def test_every_rule_has_a_formula_and_a_family() -> None:
    families = {"gemm", "conv", "attention", "norm", "softmax", "elementwise", "embedding", "optimizer"}
    for rule in RULES.values():
        assert rule.formula in work_formulas._FORMULAS
        assert rule.family in families | {"copy", "triton"}


def built(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `op_work`."""
    columns, rules = columns_of(rows), rules_of()
    nesting = nest(columns, rules)
    calls = find_calls(columns, rules, nesting)
    launches = find_launches(columns, rules, nesting, calls)
    owners = attribute_calls(columns, nesting, calls, launches)
    table = op_work(columns, rules, nesting, launches, owners, classify(columns, rules, launches, owners))
    return [] if table is None else table.to_pylist()


def test_times_equal_those_of_brute_force() -> None:
    random = Random(3)
    rows: list[dict[str, Any]] = []
    wanted: dict[int, list[tuple[int, int, int]]] = {}
    for number in range(40):
        operator = len(rows)
        rows.append(slice_("aten::mm", 1000 * number, 900))
        for launch in range(random.randrange(4)):
            correlation = 10 * number + launch + 1
            rows.append(slice_("cudaLaunchKernel", 1000 * number + 10 * launch, 5, "cuda_runtime"))
            rows[-1]["correlation"] = correlation
            start, dur = random.randrange(100_000, 100_100), random.randrange(1, 60)
            wanted.setdefault(operator, []).append((start, dur, len(rows)))
            rows.append(gpu("gemm", start, dur, correlation))
    found = built(rows)
    assert len(found) == 40
    for row in found:
        spans = wanted.get(row["event_id"], [])
        covered = {ns for start, dur, _ in spans for ns in range(start, start + dur)}
        assert (row["kernel_count"], row["gpu_union_ns"]) == (len(spans), len(covered))
        assert row["gpu_union_ns"] + row["gpu_overlap_ns"] == sum(dur for _, dur, _ in spans)
        assert row["other_sum_ns"] == 0
        longest = max(spans, key=lambda span: (span[1], -span[2]), default=(0, 0, None))
        assert row["main_kernel_id"] == longest[2]


def test_prefixes_match_the_beginning_of_names() -> None:
    rows = [
        slice_("triton_poi_fused_add", 0, 5),
        slice_("not_triton_", 10, 5),
        slice_("aten::_foreach_mul_", 20, 5),
    ]
    assert [row["family"] for row in built(rows)] == ["triton", "optimizer"]
    assert isinstance(rules_of(), Rules) and isinstance(RULES["triton_"], WorkRule)
