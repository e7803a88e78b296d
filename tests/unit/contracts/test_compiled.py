"""The compiled contracts: equal to the parsed ones, and not used if they do not fit the `.sql` files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from cli_runner import tw
from conftest import ROOT
from tracewarehouse.contracts import catalog
from tracewarehouse.contracts.catalog import Catalog, CompiledContracts, own_hash

BUSY = "analyses/gpu/gpu_busy.v2.sql"
KINDS = (None, "table", "view", "analysis")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the compiled contracts are; nothing is there yet."""
    monkeypatch.setattr(catalog, "COMPILED_FILE", tmp_path / catalog.COMPILED_FILE.name)
    return catalog.COMPILED_FILE


def installed(sql: Path) -> Catalog:
    """The contracts of an installation with this folder, as a new process would load them."""
    return catalog._installed(sql)


def test_the_compiled_contracts_are_those_in_the_files(file: Path) -> None:
    parsed = Catalog.read(ROOT / "sql")
    file.write_bytes(parsed.compiled(dated=True))
    loaded = installed(ROOT / "sql")
    assert isinstance(loaded.contracts, CompiledContracts) and loaded.parsed_because is None
    assert [loaded.refs(kind) for kind in KINDS] == [parsed.refs(kind) for kind in KINDS]
    assert loaded.digest == parsed.digest and loaded.contracts == parsed.contracts
    for ref, contract in parsed.contracts.items():
        assert repr(loaded.contracts[ref]) == repr(contract)
        assert loaded.own_hash(loaded.contracts[ref]) == parsed.own_hash(contract)
        assert loaded.effective_hash(loaded.contracts[ref]) == parsed.effective_hash(contract)
        assert loaded.closure(loaded.contracts[ref]) == parsed.closure(contract)


def test_hashes_are_recorded_and_a_changed_contract_has_another(
    sql: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_bytes(Catalog.read(sql).compiled(dated=True))
    loaded = installed(sql)
    busy = loaded.get("gpu_busy")
    changed = replace(busy, body=busy.body + "-- \nLIMIT 1")
    assert loaded.own_hash(changed) == own_hash(changed) != loaded.own_hash(busy)
    monkeypatch.setattr(catalog, "own_hash", lambda _: pytest.fail("computed"))
    assert loaded.own_hash(busy) and loaded.effective_hash(busy)


def append(path: Path, text: str = "\n") -> None:
    path.write_text(path.read_text() + text)


def change(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


BREAK: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "missing": (lambda sql, file: file.unlink(), "No such file"),
    "truncated": (lambda sql, file: file.write_bytes(file.read_bytes()[:-1]), "damaged"),
    "empty": (lambda sql, file: file.write_bytes(b""), "damaged"),
    "corrupt": (lambda sql, file: change(file, b"SELECT", b"SELEKT"), "damaged"),
    "version": (lambda sql, file: change(file, b"warehouse ", b"warehouse 0"), "of another version"),
    "edited": (lambda sql, file: append(sql / BUSY), BUSY),
    "edited, same size": (lambda sql, file: change(sql / BUSY, b"How much", b"How MUCH"), BUSY),
    "added": (lambda sql, file: (sql / "bases/more.v1.sql").write_text(""), "bases/more.v1.sql"),
    "removed": (lambda sql, file: (sql / BUSY).unlink(), BUSY),
    "moved": (lambda sql, file: (sql / "analyses/gpu").rename(sql / "analyses/more"), BUSY),
}


@pytest.mark.parametrize(("break_", "reason"), BREAK.values(), ids=BREAK)
def test_without_a_usable_file_the_contracts_are_parsed(
    sql: Path, file: Path, break_: Callable[[Path, Path], object], reason: str
) -> None:
    (sql / "bases").mkdir(exist_ok=True)
    file.write_bytes(Catalog.read(sql).compiled(dated=True))
    assert installed(sql).parsed_because is None
    break_(sql, file)
    loaded = installed(sql)
    assert reason in (loaded.parsed_because or "") and str(file) in (loaded.parsed_because or "")
    assert loaded.contracts == Catalog.read(sql).contracts


def test_a_changed_module_of_the_parser_counts_too(
    sql: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_bytes(Catalog.read(sql).compiled(dated=True))
    modules = sql.parent / "modules"
    modules.mkdir()
    monkeypatch.setattr(catalog, "__file__", str(modules / "catalog.py"))
    assert "catalog.py" in str(installed(sql).parsed_because)


def test_another_time_of_the_same_content_changes_nothing(sql: Path, file: Path) -> None:
    file.write_bytes(Catalog.read(sql).compiled(dated=True))
    os.utime(sql / BUSY, (1, 1))
    assert installed(sql).parsed_because is None


def test_an_edited_file_is_seen_at_once(sql: Path, file: Path) -> None:
    file.write_bytes(Catalog.read(sql).compiled(dated=True))
    text = (sql / BUSY).read_text()
    (sql / BUSY).write_text(text.replace("How much", "How MUCH"))
    assert installed(sql).get("gpu_busy").summary.startswith("How MUCH")


def test_in_a_wheel_sizes_and_names_count(sql: Path, file: Path) -> None:
    file.write_bytes(Catalog.read(sql).compiled(dated=False))
    os.utime(sql / BUSY, (1, 1))
    assert installed(sql).parsed_because is None
    append(sql / BUSY)
    assert BUSY in str(installed(sql).parsed_because)


def test_other_folders_are_parsed(sql: Path, file: Path) -> None:
    file.write_bytes(Catalog.read(sql).compiled(dated=True))
    loaded = Catalog.load(sql)
    assert not isinstance(loaded.contracts, CompiledContracts) and loaded.parsed_because is None


def test_the_reason_for_parsing_is_printed_with_debug_only(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = replace(Catalog.load(), parsed_because="contracts.jsonl: gone")
    monkeypatch.setattr(Catalog, "load", lambda root=None: loaded)
    line = "tw: parsing the contracts: contracts.jsonl: gone\n"
    assert tw("describe", "kernels", "--debug").err == line == tw("--debug", "describe", "kernels").err
    assert tw("describe", "kernels").err == ""
    monkeypatch.setattr(Catalog, "load", lambda root=None: replace(loaded, parsed_because=None))
    assert tw("describe", "kernels", "--debug").err == ""
