"""Values and rows as text for terminals and Markdown."""

from __future__ import annotations

import pytest

from tracewarehouse.present.render.table import markdown, shortened, table
from tracewarehouse.present.render.text import for_terminal, one_line, show
from tracewarehouse.result import Field

FIELDS = [
    Field("run_id", "VARCHAR"),
    Field("rank", "INTEGER"),
    Field("name", "VARCHAR"),
    Field("sum_ns", "BIGINT", "ns"),
    Field("share", "DOUBLE", "ratio"),
]
KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >"
ROWS = [("train", rank, f"{KERNEL}{rank}", 12_345 * 10 ** (3 * rank), 0.25 * rank) for rank in range(3)]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "ns", "-"),
        (0, "ns", "0 ns"),
        (-999, "ns", "-999 ns"),
        (12.34, "ns", "12.3 ns"),
        (1_000, "ns", "1.000 µs"),
        (999_999, "ns", "999.999 µs"),
        (1_234_567, "ns", "1.235 ms"),
        (999_999_499, "ns", "999.999 ms"),
        (999_999_500, "ns", "1.000 s"),
        (3_600_000_000_000, "ns", "3600.000 s"),
        (-1_500, "ns", "-1.500 µs"),
        (1712195495521311104, "ts", "2024-04-04 01:51:35.521311104"),
        (1_500_000_001, "ts", "1.500000001 s"),
        (-1, "ts", "-0.000000001 s"),
        (0.773, "ratio", "77.3 %"),
        (1, "ratio", "100.0 %"),
        (0.0, "ratio", "0.0 %"),
        (0.99996, "ratio", "99.996 %"),
        (0.0001, "ratio", "0.01 %"),
        (1e-12, "ratio", "1e-10 %"),
        (1_234_567, "count", "1,234,567"),
        (1023, "bytes", "1023 B"),
        (1024, "bytes", "1.0 KiB"),
        (1024**2 - 1, "bytes", "1.0 MiB"),
        (5 * 1024**3, "bytes", "5.0 GiB"),
        (812.5, "bytes_per_ns", "812.50 GB/s"),
        (312_000.0, "flop_per_ns", "312.0 TFLOP/s"),
        (2e12, "flop", "2.0 TFLOP"),
        (7, "id", "7"),
        (True, None, "yes"),
        ({"commit": "3f2a"}, None, "commit=3f2a"),
        ([("a", 1), ("b", 2)], None, "a=1, b=2"),
        (["H100", "H100"], None, "H100, H100"),
        ("", None, ""),
        (0.1, None, "0.1"),
    ],
)
def test_values_are_printed_with_units(value: object, unit: str | None, text: str) -> None:
    assert show(value, unit) == text


def test_a_table_without_width_is_complete() -> None:
    lines = table(FIELDS, ROWS).lines()
    assert lines[0].split() == ["run_id", "rank", "name", "sum_ns", "share"]
    assert lines[1] == f"train      0  {KERNEL}0  12.345 µs   0.0 %"


@pytest.mark.parametrize("width", [120, 100, 80, 60, 53])
def test_a_table_fits_without_cutting_numbers(width: int) -> None:
    lines = table(FIELDS, ROWS, width=width, keys=("run_id", "rank", "name")).lines()
    assert all(len(line) <= width for line in lines)
    for number in ("12.345 µs", "12.345 ms", "12.345 s", "25.0 %", "50.0 %"):
        assert any(number in line for line in lines)


def test_constant_columns_are_printed_once() -> None:
    laid_out = table(FIELDS, ROWS, width=80)
    assert laid_out.constants == "same in all rows: run_id train"
    assert "run_id" not in laid_out.heading


def test_omitted_columns_are_listed() -> None:
    laid_out = table(FIELDS, ROWS, width=46, keys=("run_id", "rank", "name"))
    assert laid_out.omitted == ("share",)
    assert laid_out.lines()[-1].startswith("… 1 more column: share (")


def test_a_single_key_is_not_shortened() -> None:
    fields = [Field("run_id", "VARCHAR"), Field("state", "VARCHAR"), Field("labels", "VARCHAR")]
    rows = [(f"resnet50-v100-8-nodes.num_workers_{at}~1", "complete", f"commit={at}") for at in range(2)]
    laid_out = table(fields, rows, width=46, keys=("run_id",))
    assert [line.split()[0] for line in laid_out.body] == [run for run, _, _ in rows]
    assert laid_out.omitted == ("labels",)


def test_the_column_with_the_answer_stays_and_names_are_cut_for_it() -> None:
    fields = [*FIELDS[:3], Field("count", "BIGINT", "count"), *FIELDS[3:]]
    rows = [(f"resnet50-v100-8-nodes.num_workers_{at}", at, f"{KERNEL}{at}", 7, 9_000, 0.5) for at in (1, 2)]
    for width in (80, 56):
        laid_out = table(fields, rows, width=width, keys=("run_id", "rank", "name"), answer=("sum_ns",))
        assert "sum_ns" in (laid_out.heading + laid_out.constants)
        assert max(map(len, [laid_out.heading, *laid_out.body])) <= width
        assert len(set(laid_out.body)) == len(rows)


def test_less_important_answers_are_omitted_first() -> None:
    rows = [("train", rank, KERNEL, 9_000 + rank, 0.5 + rank) for rank in range(2)]
    keys = ("run_id", "rank", "name")
    assert table(FIELDS, rows, width=18, keys=keys, answer=("share", "sum_ns")).omitted == ("sum_ns",)
    assert table(FIELDS, rows, width=18, keys=keys, answer=("sum_ns", "share")).omitted == ("share",)


def test_omitted_columns_of_two_with_the_same_name_are_counted_one_by_one() -> None:
    fields = [Field("n", "BIGINT"), Field("n", "BIGINT")]
    laid_out = table(fields, [(10**12, 10**12), (1, 2 * 10**12)], width=16)
    assert laid_out.omitted == ("n",)
    assert laid_out.heading.split() == ["n"]


def test_one_row_is_printed_vertically() -> None:
    assert table(FIELDS, ROWS[:1], width=40).lines() == [
        "run_id  train",
        "rank    0",
        "name    void at::native::vect…<float> >0",
        "sum_ns  12.345 µs",
        "share   0.0 %",
    ]


def test_an_empty_table_has_a_heading() -> None:
    assert table(FIELDS, [], width=80).lines() == ["run_id  rank  name  sum_ns  share"]
    assert table(FIELDS, [], width=20).lines() == ["run_id  rank  name"]


def test_wide_characters_count_as_two_columns() -> None:
    lines = table([Field("name", "VARCHAR"), Field("n", "BIGINT")], [("核函数", 1), ("abc", 2)]).lines()
    assert lines == ["name    n", "核函数  1", "abc     2"]
    assert shortened("核函数核函数", 7) == "核函…数"


def test_shortened_sentences_keep_the_start_and_names_both_ends() -> None:
    assert shortened("How long each step took.", 12) == "How long ea…"
    assert shortened("void gemm<float, 128>", 12) == "void gem…28>"


HOSTILE = [
    "\x1b[31mred\x1b[0m\x9b2J",
    "[bold red]markup[/] [/nothing]",
    "<script>alert(1)</script>",
    "'; DROP TABLE kernels; --",
    "a\nb\r\tc\x00\x7f",
    "a\u202egnp.exe\u2028b",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_in_its_cell(name: str) -> None:
    (_, line) = table([Field("name", "VARCHAR"), Field("n", "BIGINT")], [(name, 1)]).lines()
    assert line.endswith("  1")
    assert line.isprintable()
    assert one_line(name).isprintable()
    assert for_terminal(name).replace("\n", "").replace("\t", "").isprintable()
    for plain in ("[bold red]", "<script>", "DROP TABLE"):
        assert (plain in name) == (plain in line)


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_escapes_hostile_names(name: str) -> None:
    text = markdown([Field("name", "VARCHAR"), Field("n", "BIGINT")], [(name, 1)])
    assert len(text.splitlines()) == 3
    assert "<script" not in text
    assert text.splitlines()[1] == "| --- | ---: |"


def test_markdown_escapes_cell_separators() -> None:
    text = markdown([Field("name", "VARCHAR")], [("a|b*c*[x](y)`z`\\",)])
    assert text.splitlines()[2] == r"| a\|b\*c\*\[x\](y)\`z\`\\ |"
    code = markdown([Field("gate", "VARCHAR")], [("step_time<=+3%",), ("a|b`c",)], code=("gate",))
    assert code.splitlines()[2:] == ["| `step_time<=+3%` |", r"| `` a\|b`c `` |"]


def test_of_a_replaced_kernel_both_names_are_shortened() -> None:
    text = shortened("cudnn::cnn::wgrad_alg0_engine → cask_cudnn::computeWgradBOffsetsKernel", 30)
    old, new = text.split(" → ")
    assert len(text) <= 30 and old.startswith("cudnn::") and new.endswith("nel") and "…" in old and "…" in new
