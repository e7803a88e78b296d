"""Kernel names in tables: short, and different where the names differ."""

from __future__ import annotations

import pytest

from tracewarehouse.present.render.table import distinguished, table
from tracewarehouse.present.render.text import short_name, short_names
from tracewarehouse.result import Field

FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int, float)"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (FILL, "vectorized_elementwise_kernel"),
        ("ncclDevKernel_AllReduce(ncclArgs<4096ul>)", "ncclDevKernel_AllReduce"),
        ("void (anonymous namespace)::index_kernel<int>(int*)", "index_kernel"),
        ("void at::native::<unnamed>::index_kernel<int>(int*)", "index_kernel"),
        ("Memcpy DtoH (Device -> Pinned)", "Memcpy DtoH (Device -> Pinned)"),
        ("torch/nn/module.py(12): forward", "torch/nn/module.py(12): forward"),
        ("<built-in method append>", "<built-in method append>"),
        ("iteration(5)", "iteration(5)"),
        ("aten::add_", "aten::add_"),
        (
            f"{FILL} → void (anonymous namespace)::index_kernel<int>(int*)",
            "vectorized_elementwise_kernel → index_kernel",
        ),
        (f"nvjet_tst + {FILL} → gemm_fill", "nvjet_tst + vectorized_elementwise_kernel → gemm_fill"),
    ],
)
def test_a_kernel_name_loses_its_boilerplate(name: str, short: str) -> None:
    assert short_name(name) == short


def test_names_that_would_collide_keep_what_differs() -> None:
    names = [FILL, FILL.replace("Fill", "Add"), "gemm<1>(int)"]
    assert list(short_names(names).values()) == [
        "vectorized_elementwise_kernel<FillFunctor>",
        "vectorized_elementwise_kernel<AddFunctor>",
        "gemm",
    ]


def test_names_that_differ_in_no_word_are_printed_entirely() -> None:
    names = ["void k<1, 2>(int)", "void k<2, 1>(int)"]
    assert list(short_names(names).values()) == names


def test_cut_names_show_where_they_begin_to_differ() -> None:
    names = [f"a_rather_long_prefix_{middle}_and_a_long_suffix_of_the_name" for middle in ("one", "two")]
    cut = distinguished(names, 28)
    assert len(set(cut)) == 2 and all(len(each) <= 28 for each in cut)
    assert "one" in cut[0] and "two" in cut[1]


def test_empty_columns_are_dropped_unless_there_is_one_row() -> None:
    fields = [Field("name", "VARCHAR"), Field("path", "VARCHAR"), Field("n", "BIGINT")]
    rows = [("a", None, 1), ("b", None, 2)]
    assert table(fields, rows, 80).heading == "name  n"
    assert "path" in "\n".join(table(fields, rows[:1], 80).lines())


def test_the_line_of_constants_is_wrapped_and_never_cut() -> None:
    fields = [Field(f"column_{at}", "VARCHAR") for at in range(9)] + [Field("n", "BIGINT")]
    rows = [(*(f"value-{at}" for at in range(9)), n) for n in range(2)]
    lines = table(fields, rows, 60).constants.splitlines()
    assert len(lines) > 1 and all(len(line) <= 60 for line in lines)
    assert " ".join(lines).count("value-") == 9
