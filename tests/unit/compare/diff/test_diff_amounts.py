"""`diff_amounts`: the rows of an interval on every level; each level sums to the interval."""

from __future__ import annotations

from collections import Counter

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.duck import engine

# category, the rank that it waits for, ns
SEGMENTS = [
    ("compute", None, 60),
    ("exposed_wait", "0", 20),
    ("exposed_wait", None, 5),
    ("idle_host", None, 15),
]
# kind, label, pass, op, is_graph, count, sum_ns, exclusive_ns, module_path, family, work_unit, work
KERNELS = [
    ("computation", "gemm", "forward", "aten::mm", False, 2, 40, 30, "Net_0", "gemm", "flop", 7),
    ("computation", "gemm", "backward", "aten::mm", True, 1, 30, 20, "Net_0", "gemm", "flop", 2 * 10**19),
    ("computation", None, "forward", None, False, 1, 10, 10, "(outside any module)", None, None, None),
    ("communication", "nccl", "other", None, False, 1, 50, 25, "(communication)", None, None, None),
]


def amounts() -> list[tuple[str, str, int, int | None, int | None, int | None]]:
    catalog = Catalog.load()
    key = {"run_id": "a", "rank": 1, "side": "base", "interval_id": 7}
    segments = [
        {**key, "rank_label": "1 → 0", "category": category, "waits_for": rank, "category_ns": ns}
        for category, rank, ns in SEGMENTS
    ]
    names = ("kind", "label", "pass", "op", "is_graph", "count", "sum_ns", "exclusive_ns")
    names += ("module_path", "family", "work_unit", "work")
    empty = {"name": None, "op_sig": None, "path_sig": None}
    kernels = [{**key, **empty, **dict(zip(names, row, strict=True))} for row in KERNELS]
    with engine.connect() as con:
        for name, rows in (("diff_segments", segments), ("diff_kernels", kernels)):
            types = {column.name: column.type for column in catalog.get(name).columns}
            engine.create_from_rows(con, name, types, rows)
        contract = catalog.get("diff_amounts", kind="table")
        engine.create_table(con, contract, contract.body)
        columns = "level, name, exclusive_ns, count, sum_ns, work::HUGEINT"
        return con.execute(f"SELECT {columns} FROM diff_amounts ORDER BY level, name").fetchall()


def test_every_level_sums_to_the_interval() -> None:
    totals: Counter[str] = Counter()
    for level, _, ns, *_ in amounts():
        totals[level] += ns
    levels = ("breakdown", "kernels", "operators", "categories", "modules", "work", "ranks")
    assert totals == dict.fromkeys(levels, 100)


def test_rows_of_each_level() -> None:
    of_work = [row for row in amounts() if row[0] == "work"]
    assert of_work == [
        ("work", "communication", 25, 1, 50, None),
        ("work", "computation (no rule)", 10, 1, 10, None),
        ("work", "gemm (flop)", 50, 3, 70, 2 * 10**19 + 7),
        ("work", "idle_host", 15, None, None, None),
    ]
    others = [row for row in amounts() if row[0] != "work"]
    flop = {(level, name): work for level, name, *_, work in others if work is not None}
    # Of kernels and operators, too, where it is known of all of their calls.
    assert flop == {
        ("kernels", "gemm"): 2 * 10**19 + 7,
        ("operators", "aten::mm"): 7,
        ("operators", "aten::mm (graph launch)"): 2 * 10**19,
    }
    assert [row[:5] for row in others] == [
        ("breakdown", "compute", 60, None, None),
        ("breakdown", "exposed_wait", 5, None, None),
        ("breakdown", "exposed_wait for rank 0", 20, None, None),
        ("breakdown", "idle_host", 15, None, None),
        ("categories", "backward computation", 20, 1, 30),
        ("categories", "forward computation", 40, 3, 50),
        ("categories", "idle_host", 15, None, None),
        ("categories", "other communication", 25, 1, 50),
        ("kernels", "(no name)", 10, 1, 10),
        ("kernels", "gemm", 50, 3, 70),
        ("kernels", "idle_host", 15, None, None),
        ("kernels", "nccl", 25, 1, 50),
        ("modules", "(communication)", 25, 1, 50),
        ("modules", "(outside any module)", 10, 1, 10),
        ("modules", "Net_0", 50, 3, 70),
        ("modules", "idle_host", 15, None, None),
        ("operators", "(no operator)", 35, 2, 60),
        ("operators", "aten::mm", 30, 2, 40),
        ("operators", "aten::mm (graph launch)", 20, 1, 30),
        ("operators", "idle_host", 15, None, None),
        ("ranks", "rank 1 → 0 (own work)", 75, None, None),
        ("ranks", "rank 1 → 0 exposed_wait", 25, None, None),
    ]
