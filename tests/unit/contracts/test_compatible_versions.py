"""Compatible versions: their check, and which hashes an added column changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from conftest import ROOT, deep
from later_release import ADDED, COMPATIBLE, add_kernels_2, edit
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Change, Ref
from tracewarehouse.devtools.contract_checks import check_compatible
from tracewarehouse.duck import engine
from tracewarehouse.errors import ContractError

SUMMARY = "analyses/gpu/kernel_summary.v1.sql"


@pytest.fixture
def every(tmp_path: Path) -> Path:
    """The contracts of the checkout, to be edited."""
    return Path(shutil.copytree(ROOT / "sql", tmp_path / "sql"))


@pytest.fixture
def sql(every: Path) -> Path:
    """The same with one analysis and the views of tables: each reader of `kernels` is planned often."""
    catalog = Catalog.load(ROOT / "sql")
    read = {ref for each in catalog.contracts.values() if each.kind == "table" for ref in each.requires}
    while more := {ref for each in read for ref in catalog.contracts[each].requires} - read:
        read |= more
    for each in catalog.contracts.values():
        if each.kind != "table" and each.ref not in read and each.name != "kernel_summary":
            (every.parent / each.source).unlink()
    return every


def messages(folder: Path) -> list[str]:
    with engine.connect(threads=1) as con:
        return [finding.message for finding in check_compatible(con, Catalog.read(folder))]


@pytest.mark.deep
def test_an_added_column_moves_no_hash_but_of_those_that_name_it(every: Path) -> None:
    before = Catalog.read(every)
    add_kernels_2(every)
    after = Catalog.read(every)
    assert messages(every) == []
    kernels = after.get("kernels")
    assert kernels.changes[0] == Change(2, "Adds wave.", compatible=True) and kernels.compatible_since == 1
    assert [str(each.ref) for each in after.compatible(after.get("kernels@1"))] == [
        "kernels@2",
        "kernels@1",
    ]
    for contract in before.contracts.values():
        assert before.effective_hash(contract) == after.effective_hash(after.contracts[contract.ref])


@pytest.mark.deep
def test_in_place_an_unnamed_column_moves_no_consumer_either(every: Path) -> None:
    before = Catalog.read(every)
    edit(every / "tables/kernels.v1.sql", "--\n-- [changes]\n", f"{ADDED}--\n-- [changes]\n")
    edit(every / SUMMARY, "max(dur_ns) AS max_ns", "max(coalesce(wave, dur_ns)) AS max_ns")
    after = Catalog.read(every)
    moved = {
        str(each.ref)
        for each in after.contracts.values()
        if before.effective_hash(before.contracts[each.ref]) != after.effective_hash(each)
    }
    assert moved == {"kernels@1", "kernel_summary@1"}


def test_a_new_definition_moves_all_consumers(every: Path) -> None:
    before = Catalog.read(every)
    edit(every / "tables/kernels.v1.sql", "definition = 1", "definition = 2")
    after = Catalog.read(every)
    for name in ("kernel_summary", "kernel_operators"):
        assert after.effective_hash(after.get(name)) != before.effective_hash(before.get(name))


@pytest.mark.parametrize(
    ("old", "new", "added", "message"),
    [
        ("", "", ADDED.replace("null = true, ", ""), "the added column wave is not nullable"),
        *deep(
            ("-- pass      ", "-- phase     ", ADDED, "columns are missing or in another order"),
            ("definition = 1", "definition = 2", ADDED, "definition is 2, was 1"),
            ('"event_id"]\n-- order', '"event_id", "name"]\n-- order', ADDED, "grain is"),
            ('unit = "id", doc = "The GPU', 'doc = "The GPU', ADDED, "column event_id is declared"),
        ),
    ],
)
def test_what_is_not_compatible_is_refused(sql: Path, old: str, new: str, added: str, message: str) -> None:
    add_kernels_2(sql, old, new, added)
    assert any(message in found for found in messages(sql))


@pytest.mark.deep
def test_a_consumer_may_not_name_the_new_column_by_chance(sql: Path) -> None:
    add_kernels_2(sql, added=ADDED.replace("wave", "quantiles"))
    assert messages(sql) == ["names quantiles, added by kernels@2, but requires kernels@1"]
    edit(sql / SUMMARY, "kernels@1", "kernels@2")
    assert messages(sql) == []


def test_a_consumer_may_not_read_rows_as_a_whole(sql: Path) -> None:
    add_kernels_2(sql)
    edit(sql / SUMMARY, "count(*) AS count,", "count(hash(kernels)) AS count,")
    assert messages(sql) == ["has different plans for kernels@2 and kernels@1"]


def test_requires_names_the_lowest_version(sql: Path) -> None:
    add_kernels_2(sql)
    edit(sql / SUMMARY, "kernels@1", "kernels@2")
    assert messages(sql) == ["requires kernels@2, but names only columns of kernels@1"]
    edit(sql / SUMMARY, "max(dur_ns) AS max_ns", "max(coalesce(wave, dur_ns)) AS max_ns")
    assert messages(sql) == []


def test_a_table_with_a_select_is_never_compatible(sql: Path) -> None:
    path = sql / "derived/critical_path.v1.sql"
    text = path.read_text().replace("-- [changes]\n", COMPATIBLE)
    text = "\n".join(
        line.replace("1", "2") if line.startswith("-- version") else line for line in text.split("\n")
    )
    path.with_name("critical_path.v2.sql").write_text(text)
    assert "critical_path@2 cannot be declared compatible" in messages(sql)


@pytest.mark.deep
def test_the_version_before_must_have_a_file(sql: Path) -> None:
    path = add_kernels_2(sql)
    text = path.read_text().replace("version    = 2", "version    = 3")
    path.with_name("kernels.v3.sql").write_text(
        text.replace("2 = {", '3 = { text = "More.", compatible = true }\n-- 2 = {')
    )
    path.unlink()
    assert messages(sql) == ["kernels@3 is compatible with kernels@2, which has no file"]


@pytest.mark.parametrize(
    ("old", "message"),
    [
        ('{ text = "Adds wave.", compatible = "yes" }', "`changes.2.compatible`: Expected `bool`, got `str`"),
        ('{ text = "", compatible = true }', "`changes.2.text`: Expected a text"),
        ('{ text = "Adds wave.", compatibel = true }', "unknown key `changes.2.compatibel`"),
    ],
)
def test_a_change_is_a_text_or_a_table(sql: Path, old: str, message: str) -> None:
    path = add_kernels_2(sql)
    edit(path, '{ text = "Adds wave.", compatible = true }', old)
    with pytest.raises(ContractError, match=message) as error:
        Catalog.read(sql)
    assert error.value.message.startswith("sql/tables/kernels.v2.sql:")


def test_a_first_version_is_compatible_with_none(sql: Path) -> None:
    edit(sql / SUMMARY, '-- 1 = "First version."', '-- 1 = { text = "First.", compatible = true }')
    with pytest.raises(ContractError, match="change 1 cannot be compatible"):
        Catalog.read(sql)


def test_compatible_versions_chain(sql: Path) -> None:
    path = add_kernels_2(sql)
    text = path.read_text().replace("version    = 2", "version    = 3")
    text = text.replace("2 = {", '3 = "Another definition."\n-- 2 = {').replace(
        "definition = 1", "definition = 2"
    )
    path.with_name("kernels.v3.sql").write_text(text)
    catalog = Catalog.read(sql)
    assert catalog.contracts[Ref("kernels", 3)].compatible_since == 3
    assert [each.version for each in catalog.compatible(catalog.get("kernels@2"))] == [2, 1]
