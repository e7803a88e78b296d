"""The catalog: lookup by name, and which edits change which hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracewarehouse.contracts.catalog import NSYS_REPORTS, Catalog, Locked, own_hash, read_lock, write_lock
from tracewarehouse.contracts.contract import Ref
from tracewarehouse.errors import ContractError, UnknownName

KERNELS = "tables/kernels.v1.sql"
BUSY = "analyses/gpu/gpu_busy.v2.sql"


def edit(folder: Path, file: str, old: str, new: str) -> Catalog:
    path = folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return Catalog.read(folder)


def test_finds_each_kind(sql: Path) -> None:
    catalog = Catalog.read(sql)
    assert [c.name for c in catalog.tables()] == ["kernels", "parsed"]
    assert [c.name for c in catalog.views()] == ["kernel_ends"]
    assert [(c.name, c.group) for c in catalog.analyses()] == [("gpu_busy", "gpu")]


def test_newest_is_the_default(sql: Path) -> None:
    old = (sql / BUSY).read_text()
    new = old.replace("version  = 2", "version  = 3").replace("[changes]", '[changes]\n-- 3 = "Third."')
    (sql / BUSY.replace("v2", "v3")).write_text(new)
    catalog = Catalog.read(sql)
    assert catalog.get("gpu_busy").version == 3
    assert catalog.get("gpu_busy", 2) is catalog.get("gpu_busy@2")
    assert [c.version for c in catalog.all("analysis")] == [2, 3]
    assert [c.version for c in catalog.analyses()] == [3]


def test_unknown_names_come_with_close_ones(sql: Path) -> None:
    catalog = Catalog.read(sql)
    with pytest.raises(UnknownName) as error:
        catalog.get("gpu_bussy", kind="analysis")
    assert (error.value.message, error.value.hint) == (
        "unknown analysis: gpu_bussy",
        "did you mean gpu_busy?",
    )
    assert error.value.__notes__ == ["hint: did you mean gpu_busy?"]  # a traceback shows it too
    with pytest.raises(UnknownName, match="unknown version: gpu_busy@9"):
        catalog.get("gpu_busy@9")
    with pytest.raises(UnknownName, match="unknown version: gpu_busy@new"):
        catalog.get("gpu_busy@new")


def test_the_error_for_a_table_requested_as_an_analysis_says_so() -> None:
    for name, kind in (("kernels", "table"), ("device_gaps", "view")):
        with pytest.raises(UnknownName, match=f"unknown analysis: {name}") as error:
            Catalog.load().get(name, kind="analysis")
        assert error.value.hint == f'it is a {kind}: wh.query("FROM {name}")'


def test_names_are_sorted(sql: Path) -> None:
    catalog = Catalog.load(sql)
    assert [str(ref) for ref in catalog.refs()] == ["gpu_busy@2", "kernel_ends@1", "kernels@1", "parsed@1"]
    assert [ref.name for ref in catalog.refs("view")] == ["kernel_ends"]
    assert catalog.get("gpu_busy").version == 2


def test_loading_refuses_an_invalid_file(sql: Path) -> None:
    (sql / "views/kernel_ends.v1.sql").write_text("no contract at all")
    with pytest.raises(ContractError, match=r"sql/views/kernel_ends\.v1\.sql:1: no contract"):
        Catalog.load(sql)


def test_loading_refuses_an_invalid_file_name(sql: Path) -> None:
    (sql / KERNELS).rename(sql / "tables/Kernels.sql")
    with pytest.raises(ContractError, match="path and kind `table` disagree"):
        Catalog.load(sql)


def test_loaded_contracts_are_checked(sql: Path) -> None:
    text = (sql / BUSY).read_text()
    (sql / BUSY).write_text(text.replace("kernels@1", "kernals@1"))
    for _ in range(2):
        with pytest.raises(ContractError, match="requires kernals@1, which does not exist"):
            Catalog.load(sql)


def test_closure_is_in_order(sql: Path) -> None:
    catalog = Catalog.read(sql)
    assert [c.name for c in catalog.closure(catalog.get("gpu_busy"))] == ["parsed", "kernels"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("-- The latest end", "-- latest end"),
        ("FROM kernels\n", "FROM   kernels -- all of them\n\n"),
        ("The run.", "The run's name."),
        ('order    = ["run_id", "rank"]', 'order    = ["-busy_ns"]'),
        ('summary  = "How much', 'summary  = "Just how much'),
        ('-- grain    = ["run_id"', '-- deprecated = "Use another."\n-- grain    = ["run_id"'),
    ],
)
def test_wording_keeps_the_hash(sql: Path, old: str, new: str) -> None:
    before = Catalog.read(sql)
    after = edit(sql, BUSY, old, new)
    assert before.own_hash(before.get("gpu_busy")) == after.own_hash(after.get("gpu_busy"))
    assert before.effective_hash(before.get("gpu_busy")) == after.effective_hash(after.get("gpu_busy"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nullif(span_ns, 0)", "nullif(span_ns, 1)"),
        ("ts_ns AS start_ns", "dur_ns AS start_ns"),
        ("default = 0", "default = 1"),
        ('unit = "ratio"', 'unit = "count"'),
        ('"DOUBLE"', '"BIGINT"'),
        ('better = "higher"', 'better = "lower"'),
        ('-- grain    = ["run_id", "rank"]', '-- needs = ["gpu"]\n-- grain    = ["run_id", "rank"]'),
        ('-- grain    = ["run_id", "rank"]', '-- grain    = ["run_id", "rank", "span_ns"]'),
        ('unit = "ns", doc = "Idle', 'unit = "ns", min = 0, doc = "Idle'),
        ('null = true, doc = "busy_ns over', 'doc = "busy_ns over'),
        ('unit = "ns", better', 'unit = "ns", signed = true, better'),
        ('doc = "Time with a', 'aggregate = "sum", doc = "Time with a'),
    ],
)
def test_meaning_moves_the_hash(sql: Path, old: str, new: str) -> None:
    before = Catalog.read(sql)
    after = edit(sql, BUSY, old, new)
    assert before.own_hash(before.get("gpu_busy")) != after.own_hash(after.get("gpu_busy"))


def test_a_literal_is_not_spacing(sql: Path) -> None:
    before = Catalog.read(sql).get("kernels")
    after = edit(sql, KERNELS, "'kernel'", "'kernel '").get("kernels")
    assert own_hash(before) != own_hash(after)


def test_a_changed_table_changes_the_hashes_of_its_consumers(sql: Path) -> None:
    before = Catalog.read(sql)
    after = edit(sql, "tables/parsed.v1.sql", 'unit = "id", ', "")
    for name in ("kernels", "kernel_ends", "gpu_busy"):
        assert before.own_hash(before.get(name)) == after.own_hash(after.get(name))
        assert before.effective_hash(before.get(name)) != after.effective_hash(after.get(name))


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (KERNELS, "parsed@1", "parsed@2", "requires parsed@2, which does not exist"),
        (KERNELS, "parsed@1", "gpu_busy@2", "may not require the analysis gpu_busy@2"),
        (KERNELS, "parsed@1", "kernel_ends@1", "may not require the view kernel_ends@1"),
        (BUSY, "kernels@1", "parsed@1", "may not require the table parsed@1"),
        (
            BUSY,
            "-- grain ",
            '-- optional = ["steps"]\n-- grain ',
            "optional names steps, which it does not read",
        ),
        (BUSY, "-- name     =", '-- scope = "run"\n-- name     =', "may not require the table kernels@1"),
    ],
)
def test_invalid_requires(sql: Path, file: str, old: str, new: str, message: str) -> None:
    with pytest.raises(ContractError, match=message) as error:
        edit(sql, file, old, new)
    with pytest.raises(ContractError, match=f"{message}|requires itself"):
        Catalog.load(sql).get(Path(file).name.partition(".")[0])
    assert error.value.message.startswith(f"sql/{file}:1: ") and error.value.hint


def test_relations_of_run_scope_are_read_by_run_scope_only(sql: Path) -> None:
    text = (sql / "views/kernel_ends.v1.sql").read_text()
    text = text.replace("kernel_ends", "last_ends").replace("kernels@1", "kernel_ends@1")
    text = text.replace("-- name     =", '-- scope    = "run"\n-- name     =').replace(
        '"rank", "event_id"]', '"event_id"]'
    )
    (sql / "views/last_ends.v1.sql").write_text(text)
    assert Catalog.read(sql).get("last_ends").scope == "run"
    with pytest.raises(ContractError, match="may not require the view last_ends@1"):
        edit(sql, BUSY, "kernels@1", "last_ends@1")
    edit(sql, BUSY, "-- name     =", '-- scope = "run"\n-- name     =')
    with pytest.raises(ContractError, match="may not require the table kernels@1"):
        edit(sql, "views/last_ends.v1.sql", "kernel_ends@1", "kernels@1")


def test_a_cycle_is_named(sql: Path) -> None:
    text = (sql / KERNELS).read_text()
    other = text.replace('"kernels"', '"rows"').replace("parsed", "kernels")
    (sql / "tables/rows.v1.sql").write_text(other)
    (sql / KERNELS).write_text(text.replace("parsed@1", "rows@1"))
    with pytest.raises(ContractError, match="requires itself: kernels@1 → rows@1 → kernels@1"):
        Catalog.read(sql)
    with pytest.raises(ContractError, match="requires itself: kernels@1 → rows@1 → kernels@1"):
        Catalog.load(sql).get("kernels")


def test_a_cycle_of_views_is_named(sql: Path) -> None:
    text = (sql / "views/kernel_ends.v1.sql").read_text().replace("kernels@1", "last_ends@1")
    (sql / "views/kernel_ends.v1.sql").write_text(text)
    swapped = text.replace("last_ends", "other").replace("kernel_ends", "last_ends")
    (sql / "views/last_ends.v1.sql").write_text(swapped.replace("other@1", "kernel_ends@1"))
    busy = (sql / BUSY).read_text().replace('requires = ["', 'requires = ["kernel_ends@1", "')
    (sql / BUSY).write_text(busy.replace("-- grain ", '-- optional = ["kernels"]\n-- grain '))
    with pytest.raises(ContractError, match="requires itself: kernel_ends@1 → last_ends@1 → kernel_ends@1"):
        Catalog.read(sql)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (KERNELS, "views/kernels.v2.sql", "kernels is a table too"),
        (BUSY, "analyses/gpu/query.v2.sql", "query is a method of Warehouse"),
        (BUSY, "analyses/kernel_ends/idle.v2.sql", "group kernel_ends is already in use"),
    ],
)
def test_one_namespace(sql: Path, source: str, target: str, message: str) -> None:
    name, version = Path(target).name.removesuffix(".sql").split(".v")
    text = (sql / source).read_text().replace('name     = "gpu_busy"', f'name     = "{name}"')
    if target.startswith("views"):
        text = text.replace('"table"', '"view"').replace("version  = 1", f"version  = {version}")
        text = text.replace("[changes]", '[changes]\n-- 2 = "Second."').replace("parsed", "kernel_ends")
    (sql / target).parent.mkdir(exist_ok=True)
    (sql / target).write_text(text)
    with pytest.raises(ContractError, match=message):
        Catalog.read(sql)


def test_the_lock_is_read_back(tmp_path: Path) -> None:
    entries = {
        Ref("b", 1): Locked(Ref("b", 1), "released", "c" * 64, "d" * 64),
        Ref("a", 2): Locked(Ref("a", 2), "retired", "a" * 64, "b" * 64),
    }
    (tmp_path / "released.lock").write_text(write_lock(entries))
    assert read_lock(tmp_path) == entries
    assert read_lock(tmp_path / "nowhere") == {}
    (tmp_path / "released.lock").write_text("what")
    with pytest.raises(ContractError, match=r"sql/released\.lock: cannot be read"):
        read_lock(tmp_path)


def test_a_report_of_nsys_stats_is_answered_with_an_analysis() -> None:
    catalog = Catalog.read(Path(__file__).parents[3] / "sql")
    assert set(NSYS_REPORTS.values()) <= {each.name for each in catalog.analyses()}
    with pytest.raises(UnknownName) as error:
        catalog.get("nvtx_sum", kind="analysis")
    assert "annotation_breakdown" in str(error.value.hint)
