"""Rules that classify names, once per distinct text, as DuckDB would."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.sql_tokens import quote_text, values_list
from tracewarehouse.duck.engine import shared
from tracewarehouse.ingest import rules as module
from tracewarehouse.ingest.rules import Rules, WorkRule, rules_of


@pytest.fixture
def rules() -> Rules:
    """Rules without cached results."""
    return Rules(Catalog.load())


def test_categories_have_the_current_spelling_and_a_role(rules: Rules) -> None:
    assert rules.categories["Kernel"] == ("kernel", "device")
    assert rules.categories["async_gpu"] == ("ac2g", "flow")
    assert "musa_runtime" not in rules.categories
    assert rules.roles["cuda_runtime"] == "runtime"
    assert (rules.roles["cpu_op"], rules.roles["python_function"]) == ("operator", "frame")


def test_the_first_rule_of_a_category_wins(rules: Rules) -> None:
    pairs: list[tuple[str, str | None]] = [
        ("kernel", "ncclDevKernel_AllReduce_Sum_f32"),
        ("kernel", "void gemm<float>(float*)"),
        ("kernel", "carccl_thing"),
        ("kernel", "socclusion"),
        ("gpu_memcpy", "Memcpy HtoD"),
        ("uncategorized", "CopyHostToDevice"),
        ("uncategorized", "FillBuffer"),
        ("mtia_ccp_events", "dma_request"),
        ("kernel", None),
    ]
    assert rules.device_kinds(pairs) == [
        ("kernel", "communication", "ncclDevKernel_AllReduce_Sum_f32"),
        (None, None, "gemm"),
        ("kernel", "communication", "carccl_thing"),
        (None, None, "socclusion"),
        (None, None, "Memcpy HtoD"),
        ("memcpy", "memory", "CopyHostToDevice"),
        ("memset", "memory", "FillBuffer"),
        ("memcpy", "memory", "dma_request"),
        (None, None, ""),
    ]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::foo<int, 4>(int*)", "at::native::foo"),
        ("static __global__ foo(int)", "foo"),
        ("(anonymous namespace)::foo<int>", "(anonymous namespace)::foo"),
        ("void at::native::<unnamed>::foo<float>(float*)", "at::native::<unnamed>::foo"),
        ("foo [clone .kd].kd", "foo"),
        ("Cijk_Ailk.kd ", "Cijk_Ailk"),
        ("<lambda>", ""),
    ],
)
def test_short_names(name: str, short: str, rules: Rules) -> None:
    assert rules.device_kinds([("kernel", name)])[0][2] == short


def test_calls_launch_or_wait(rules: Rules) -> None:
    names = ["cudaLaunchKernel", "hipMemcpyAsync", "cudaStreamSynchronize", "cuMemcpySynchronize", "x", None]
    assert rules.calls(names) == [
        (True, False), (True, False), (False, True), (True, True), (False, False), (False, False)
    ]  # fmt: skip


def test_patterns_are_those_of_re2(rules: Rules) -> None:
    texts = ["gloo:é", "gloo:a", "GLOO:a", "mpi:9\n", None]
    assert rules.matches(r"^(gloo|mpi):\w", texts) == [False, True, False, True, False]
    with pytest.raises(Exception, match=r"(?i)invalid perl operator"):
        rules.matches(r"(?<!a)b", ["b"])


def test_parts_and_numbers_of_texts(rules: Rules) -> None:
    texts = ["ProfilerStep#12", "ProfilerStep#", "a", None]
    assert rules.extracted("^ProfilerStep#([0-9]+)", texts) == ["12", "", "", None]
    assert rules.numbers(["12", str(2**63), "", None], "BIGINT") == [12, None, None, None]
    assert rules.numbers(["0.0", "-1e3", "N/A", None], "DOUBLE") == [0.0, -1000.0, None, None]


def test_a_text_is_evaluated_once(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[list[str]] = []
    real = module._kinds
    monkeypatch.setattr(
        module, "_kinds", lambda rows, names: (requested.append(names.to_pylist()), real(rows, names))[1]
    )
    first = rules.device_kinds([("kernel", "a"), ("kernel", "nccl"), ("kernel", "a")])
    again = rules.device_kinds([("kernel", "nccl"), ("kernel", "b"), ("kernel", "a")])
    assert again == [first[1], (None, None, "b"), first[0]]
    assert requested == [["a", "nccl"], ["b"]]


def test_the_cache_is_bounded(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 3)
    names = [f"k{number}" for number in range(9)]
    assert rules.calls([*names, "cudaLaunchKernel"])[-1] == (True, False)
    assert all(len(known) <= 3 for known in rules._known.values())
    assert rules.calls(names) == [(False, False)] * 9


def test_texts_of_any_characters(rules: Rules) -> None:
    texts: list[Any] = ["a\0b", "\U0001f600", "'; DROP", ""]
    assert rules.matches("b|D", texts) == [True, False, True, False]


def test_a_query_over_rows(rules: Rules) -> None:
    rows = pa.table({"args": ['{"a": 1.5}', "[2]"]})
    found = rules.query("SELECT json_type(args) AS kind FROM given", rows)
    assert found.column("kind").to_pylist() == ["OBJECT", "ARRAY"]


def test_quality_rules_have_a_severity(rules: Rules) -> None:
    assert rules.quality["lost_events"] == ("error", "file")
    assert rules.quality["sentinel_id"] == ("info", "events")


def test_one_object_per_process() -> None:
    assert rules_of() is rules_of()


@pytest.mark.parametrize("kind", ["call", "gpu_metric", "kernel", "matmul", "quality", "step"])
def test_lists_are_read_as_duckdb_reads_them(kind: str) -> None:
    contract = Catalog.load().get(f"{kind}_rules", kind="table")
    with shared(1) as con:
        rows = con.execute(f"FROM ({contract.body})").fetchall()
    assert [tuple(row.values()) for row in values_list(contract.body)] == rows
    if contract.grain == ("rule_id",):
        assert rows == sorted(rows)


def test_work_rules_are_those_of_the_table(rules: Rules) -> None:
    body = Catalog.load().get("flop_rules", kind="table").body
    with shared(1) as con:
        rows = con.execute(f"SELECT {', '.join(WorkRule._fields)} FROM ({body}) ORDER BY name").fetchall()
    assert rules.work == tuple(rows)


def test_elements_have_the_sizes_of_the_table(rules: Rules) -> None:
    with shared(1) as con:
        rows = con.execute(f"FROM ({Catalog.load().get('dtypes', kind='table').body})").fetchall()
    assert rules.element_bytes == dict(rows)


# Texts in which engines of regular expressions may differ: ends of lines, characters beyond ASCII, NUL.
ODD = (
    "",
    "\n",
    "a\n",
    "\na",
    "nccl\n",
    "é",
    "ß",
    "ſend",
    "K",
    "\0nccl",
    "send_recv\u2028",
    "Memcpy\tHtoD",
    "i\u0307send",
    "dma_request\n",
    "CUDA graph 12\n",
    "CUDA graph ٣",
    "step ٣",
    "Iteration 7\r\n",
    "SM Active\u00a0x",
    "a" * 5_000 + "nccl",
)
WORDS = (
    "ncclDevKernel_AllReduce_Sum_f32",
    "void at::native::foo<int, 4>(int*) [clone .kd].kd",
    "cudaLaunchKernelExC",
    "sm80_xmma_gemm_f16f16_f16f32_tensorop",
    "ampere_sgemm_128x64_nn",
    "ProfilerStep#12",
    "train step 7",
    "rccl",
    "SMs Active [Throughput %]",
    "DRAM Read Bandwidth",
    "FillBuffer",
    "event_wait",
    "(anonymous namespace)::f<x>",
)


@pytest.mark.parametrize("kind", ["call", "gpu_metric", "kernel", "matmul", "step"])
def test_patterns_find_what_duckdb_finds(kind: str, rules: Rules) -> None:
    patterns = [str(row["pattern"]) for row in rules.rows(f"{kind}_rules")]
    texts = [*ODD, *WORDS, *(f"{odd}{word}{odd}"[:600] for odd in ODD for word in WORDS)]
    for pattern in patterns:
        assert rules.matches(pattern, texts) == rules._computed(
            f"regexp_matches(text, {quote_text(pattern)})", texts
        )


def test_short_names_are_those_of_duckdb(rules: Rules) -> None:
    texts = [*ODD, *WORDS, *(f"{odd}{word}{odd}" for odd in ODD for word in WORDS)]
    pattern = module._SHORT_NAME.replace("(?P<name>", "(")
    extracted = f"regexp_extract(text, {quote_text(pattern)}, 1)"
    term = f"regexp_replace({extracted}, {quote_text(module._COMPILER_SUFFIX)}, '')"
    found = [short for _, _, short in rules.device_kinds([("kernel", text) for text in texts])]
    assert found == rules._computed(term, texts)
