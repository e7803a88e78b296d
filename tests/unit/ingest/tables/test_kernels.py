"""Kind and columns of GPU activities."""

from __future__ import annotations

from typing import Any

import activity_rows
import pytest
from activity_rows import build, call, columns_of, gpu, slice_

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.duck.arrow import schema_of
from tracewarehouse.ingest.tables import kernels

LAUNCH = "cudaLaunchKernel"
MESSAGE = {
    "has_collective": True, "collective": "allreduce", "process_group": "0", "group_size": 8,
    "group_ranks": "[0, 1]", "collective_dtype": "Float", "in_elements": 64, "out_elements": 65,
    "collective_sequence": 9,
}  # fmt: skip
MESSAGE_COLUMNS = (
    "collective",
    "process_group",
    "group_size",
    "group_ranks",
    "dtype",
    "in_elements",
    "out_elements",
    "sequence",
)
SAID = ("allreduce", "0", 8, "[0, 1]", "Float", 64, 65, 9)
SILENT = (None,) * 8


@pytest.mark.parametrize(
    ("name", "short", "kind"),
    [
        (
            "void at::native::vectorized<4, F<c10::Half> >(int, F<c10::Half>)",
            "at::native::vectorized",
            "computation",
        ),
        (
            "void at::(anonymous namespace)::fill<float>(float*)",
            "at::(anonymous namespace)::fill",
            "computation",
        ),
        ("Cijk_Alik_MT64.kd", "Cijk_Alik_MT64", "computation"),
        ("ncclDevKernel_AllReduce(args)", "ncclDevKernel_AllReduce", "communication"),
        ("rocclr_fill", "rocclr_fill", "computation"),
        ("", "", "computation"),
        (None, None, "computation"),
    ],
)
def test_short_names_and_kinds(name: str | None, short: str | None, kind: str) -> None:
    found = build([gpu(name, 1, 1)]).rows("kernels", "name", "short_name", "kind", "activity")
    assert found == [(name, short, kind, "kernel")]


@pytest.mark.parametrize(
    ("category", "name", "activity", "kind"),
    [
        ("gpu_memcpy", "Memcpy DtoD", "memcpy", "memory"),
        ("gpu_memset", "nccl", "memset", "memory"),
        ("mtia_ccp_events", "dma_request", "memcpy", "memory"),
        ("mtia_ccp_events", "event_wait", "other", "other"),
        ("mtia_ccp_events", "nccl", "kernel", "computation"),
    ],
)
def test_the_category_decides_first(category: str, name: str, activity: str, kind: str) -> None:
    assert build([gpu(name, 1, 1, category=category)]).rows("kernels", "activity", "kind") == [
        (activity, kind)
    ]


def test_one_name_in_two_categories_is_two_things() -> None:
    rows = [gpu("x", 1, 1), gpu("x", 2, 1, category="gpu_memcpy"), gpu("y", 3, 1), gpu("x", 4, 1)]
    assert build(rows).rows("kernels", "activity", "short_name") == [
        ("kernel", "x"), ("memcpy", "x"), ("kernel", "y"), ("kernel", "x"),
    ]  # fmt: skip


def test_a_row_with_arguments_of_a_collective_is_communication() -> None:
    rows = [
        gpu("plain", 1, 1, **MESSAGE),
        gpu("plain", 2, 1),
        gpu("copy", 3, 1, category="gpu_memcpy", **MESSAGE),
    ]
    assert build(rows).rows("kernels", "kind", *MESSAGE_COLUMNS) == [
        ("communication", *SAID), ("computation", *SILENT), ("memory", *SILENT),
    ]  # fmt: skip


def test_a_collective_takes_its_arguments_from_the_operator_where_it_has_none() -> None:
    outer = slice_("record_param_comms", 0, 50) | MESSAGE
    rows = [outer, slice_("inner", 1, 40), call(LAUNCH, 5, 1, 1), gpu("ncclDevKernel(args)", 10, 5, 1)]
    assert build(rows).rows("kernels", "op_id", *MESSAGE_COLUMNS) == [(1, *SAID)]
    rows[3] = gpu("gemm", 10, 5, 1)
    assert build(rows).rows("kernels", "kind", *MESSAGE_COLUMNS) == [("computation", *SILENT)]
    rows[3] = gpu("ncclDevKernel(args)", 10, 5, 1, has_collective=True, collective="mine")
    assert build(rows).rows("kernels", *MESSAGE_COLUMNS) == [("mine", *SILENT[1:])]


@pytest.mark.parametrize(
    "change", [{"category": "python_function"}, {"dur_ns": 5}, {"has_collective": False}]
)
def test_which_operator_has_the_arguments_of_a_collective(change: dict[str, Any]) -> None:
    rows = [slice_("nn.Module: A_0", 0, 50) | MESSAGE | change, call(LAUNCH, 5, 1, 1), gpu("nccl", 10, 5, 1)]
    assert build(rows).rows("kernels", *MESSAGE_COLUMNS) == [SILENT]


def test_the_innermost_operator_with_arguments_counts() -> None:
    inner = slice_("b", 1, 40) | MESSAGE | {"collective": "inner"}
    rows = [slice_("a", 0, 50) | MESSAGE, inner, call(LAUNCH, 5, 1, 1), gpu("nccl", 10, 5, 1)]
    assert build(rows).rows("kernels", "collective") == ["inner"]


def test_sizes_are_those_of_the_row() -> None:
    sizes = {
        "external_id": 5, "grid_x": 1, "grid_y": 2, "grid_z": 3, "block_x": 4, "block_y": 5, "block_z": 6,
        "registers_per_thread": 7, "shared_memory_bytes": 8, "occupancy": 0.25, "blocks_per_sm": 1.5,
        "warps_per_sm": 2.5, "bytes": 9, "bandwidth_bytes_per_ns": 3.5, "graph_id": 0, "graph_node_id": 11,
    }  # fmt: skip
    rows = build([gpu("a", 1, 2, 3, **sizes), gpu("b", 4, 5, device=None, stream=None)]).rows("kernels")
    assert {name: rows[0][name] for name in sizes} == sizes
    assert (rows[0]["ts_ns"], rows[0]["dur_ns"], rows[0]["correlation"]) == (1, 2, 3)
    assert (rows[1]["device"], rows[1]["stream"]) == (-1, -1)
    assert {rows[1][name] for name in sizes} == {None}


@pytest.mark.parametrize("change", [{"dur_ns": None}, {"ph": "i"}, {"category": "cuda_event"}])
def test_other_rows_are_not_kernels(change: dict[str, Any]) -> None:
    assert build([gpu("a", 1, 2) | change]).rows("kernels") == []


def test_slabs_do_not_change_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = activity_rows.random_rows(13)
    whole = build(rows).rows("kernels")
    monkeypatch.setattr(kernels, "_SLAB_ROWS", 7)
    assert build(rows).rows("kernels") == whole
    monkeypatch.setattr(kernels, "_SLAB_ROWS", 1000)
    monkeypatch.setattr(kernels, "_SLAB_NAMES", 2)
    assert build(rows).rows("kernels") == whole and len(whole) > 20


def test_slabs_are_no_larger_than_they_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = activity_rows.random_rows(13)
    whole = build(rows).rows("kernels")
    parts: list[slice] = []
    slab = kernels._slab

    def noted(*given: Any) -> Any:
        parts.append(given[-1])
        return slab(*given)

    monkeypatch.setattr(kernels, "_slab", noted)
    monkeypatch.setattr(kernels, "_SLAB_ROWS", 7)
    monkeypatch.setattr(kernels, "_SLAB_NAMES", 9)
    assert build(rows).rows("kernels") == whole
    assert 1 < max(part.stop - part.start for part in parts) <= 7
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert parts[-1].stop == len(whole)


@pytest.mark.parametrize("seed", [None, 13, 17])
def test_tables_have_the_columns_and_types_of_their_contracts(seed: int | None) -> None:
    rows = [] if seed is None else activity_rows.random_rows(seed)
    for name, table in build(rows).tables.items():
        schema = schema_of(Catalog.load().get(name, kind="table"))
        wanted = [(field.name, field.type) for field in schema if field.name not in ("run_id", "rank")]
        found = [(f.name, getattr(f.type, "value_type", f.type)) for f in table.schema]
        assert found == wanted, name


def test_the_same_rows_give_the_same_bytes() -> None:
    rows = activity_rows.random_rows(13)
    assert build(rows).tables == build(rows).tables
    assert columns_of(rows).rows == len(rows)
