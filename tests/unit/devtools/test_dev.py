"""`tw dev`: generated files, violations with locations, and the lock of released contracts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT
from tracewarehouse.contracts.catalog import COMPILED_FILE, Catalog, read_lock
from tracewarehouse.contracts.contract import Ref
from tracewarehouse.devtools import checkout as devtools
from tracewarehouse.devtools.checkout import analyses_pyi, reference_md
from tracewarehouse.errors import ContractError, UnknownName

BUSY = "sql/analyses/gpu/gpu_busy.v2.sql"
GOLDENS = ("analyses/gpu/gpu_busy.v2", "views/kernel_ends.v1", "tables/kernels.v1")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small checkout without problems."""
    shutil.copytree(ROOT / "tests" / "data" / "sql", tmp_path / "sql")
    (tmp_path / "src" / "tracewarehouse").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Mine\n\n<!-- analyses -->\n<!-- /analyses -->\n\nMore.\n")
    for stem in GOLDENS:
        path = tmp_path / "tests" / "goldens" / f"{stem}.golden"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    devtools.sync(tmp_path)
    return tmp_path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_sync_writes_only_stale_files(checkout: Path) -> None:
    assert devtools.sync(checkout) == [] and devtools.check_checkout(checkout) == []
    (checkout / "sql" / "README.md").write_text("old")
    (finding,) = devtools.check_checkout(checkout)
    assert (finding.location, finding.remedy) == ("sql/README.md", "run `tw dev sync`")
    assert devtools.sync(checkout) == [checkout / "sql" / "README.md"]
    assert devtools.check_checkout(checkout) == []


def test_sync_compiles_the_contracts(checkout: Path) -> None:
    folder = checkout / "src" / "tracewarehouse" / "contracts"
    folder.mkdir()
    change(checkout / BUSY, "on any stream", "on some stream")
    assert devtools.sync(checkout) == [checkout / "sql" / "README.md"]
    assert (folder / COMPILED_FILE.name).read_bytes() == Catalog.read(checkout / "sql").compiled(dated=True)
    (folder / COMPILED_FILE.name).unlink()
    (folder / COMPILED_FILE.name).mkdir()  # not writable
    assert devtools.sync(checkout) == []


def test_a_new_doc_makes_the_files_stale(checkout: Path) -> None:
    change(checkout / BUSY, "on any stream", "on some stream")
    assert [f.location for f in devtools.check_checkout(checkout)] == ["sql/README.md"]


def test_all_broken_contracts_are_reported_together(checkout: Path) -> None:
    change(checkout / BUSY, '"BIGINT"', '"BIG"')
    change(checkout / "sql/views/kernel_ends.v1.sql", '"id"', '"key"')
    assert [f.location for f in devtools.check_checkout(checkout)] == [
        "sql/analyses/gpu/gpu_busy.v2.sql:16",
        "sql/views/kernel_ends.v1.sql:12",
    ]


def test_every_version_has_a_golden_file(checkout: Path) -> None:
    golden = checkout / "tests/goldens/analyses/gpu/gpu_busy.v2.golden"
    golden.rename(golden.with_name("gpu_busy.v2.gaps.golden"))
    assert devtools.check_checkout(checkout) == []
    golden.with_name("gpu_busy.v2.gaps.golden").rename(golden.with_name("gpu_busy.v20.golden"))
    (finding,) = devtools.check_checkout(checkout)
    assert finding.location == "tests/goldens/analyses/gpu/gpu_busy.v2.golden"


def test_release_includes_dependencies(checkout: Path) -> None:
    new = devtools.release(checkout, ["gpu_busy"])
    assert [str(locked.ref) for locked in new] == ["gpu_busy@2", "kernels@1", "parsed@1"]
    assert devtools.release(checkout, ["gpu_busy"]) == []
    assert [str(locked.ref) for locked in devtools.release(checkout)] == ["kernel_ends@1"]
    assert len(read_lock(checkout / "sql")) == 4 and devtools.check_checkout(checkout) == []


def test_a_changed_release_is_refused(checkout: Path) -> None:
    devtools.release(checkout)
    change(checkout / "sql/tables/kernels.v1.sql", "'kernel'", "'gpu'")
    before = (checkout / "sql/released.lock").read_text()
    with pytest.raises(ContractError, match="is released, but"):
        devtools.release(checkout)
    assert (checkout / "sql/released.lock").read_text() == before


def test_a_version_is_retired_once_its_file_is_deleted(checkout: Path) -> None:
    devtools.release(checkout)
    with pytest.raises(ContractError, match="gpu_busy@2 still exists"):
        devtools.release(checkout, ["gpu_busy@2"], retire=True)
    with pytest.raises(UnknownName, match="unknown released version: gpu_bussy@2"):
        devtools.release(checkout, ["gpu_bussy@2"], retire=True)
    text = (checkout / BUSY).read_text()
    (checkout / BUSY).unlink()
    assert [f.location for f in devtools.check_checkout(checkout)][0] == "sql/released.lock"
    devtools.release(checkout, ["gpu_busy@2"], retire=True)
    assert read_lock(checkout / "sql")[Ref("gpu_busy", 2)].status == "retired"
    devtools.sync(checkout)
    assert devtools.check_checkout(checkout) == []
    (checkout / BUSY).write_text(text)
    assert "gpu_busy@2 is retired" in [f.message for f in devtools.check_checkout(checkout)]


def test_texts_do_not_depend_on_the_order_of_files(checkout: Path) -> None:
    catalog = Catalog.read(checkout / "sql")
    turned = Catalog(dict(reversed(catalog.contracts.items())), catalog.folder)
    for text in (analyses_pyi, reference_md):
        assert text(catalog) == text(turned)


@pytest.mark.deep
def test_methods_are_formatted_and_typed(checkout: Path) -> None:
    params = "".join(
        f'-- number_{n}_ns = {{ type = "BIGINT", default = {n}, unit = "ns", doc = "Number {n}." }}\n'
        for n in range(8)
    )
    params += '-- side = { type = "VARCHAR", default = "a\\"b", doc = "A \\\\ side." }\n'
    params += '-- peak = { type = "DOUBLE", doc = "No default." }\n'
    params += '-- all_of = { type = "BOOLEAN", default = true, doc = "All." }\n'
    used = " AND ".join([*(f"$number_{n}_ns = 0" for n in range(8)), "$side = '' AND $peak = 0 AND $all_of"])
    change(checkout / BUSY, "-- [params]\n", f"-- [params]\n{params}")
    change(checkout / BUSY, "FROM kernels\n", f"FROM kernels\n    WHERE {used}\n")
    devtools.sync(checkout)
    path = checkout / "src" / "tracewarehouse" / "analyses.pyi"
    ruff = ["ruff", "format", "--check", "--line-length", "110", "--isolated", str(path)]
    done = subprocess.run([sys.executable, "-m", *ruff], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + path.read_text()
    mypy = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(path)]
    done = subprocess.run(mypy, capture_output=True, text=True, cwd=checkout)
    assert done.returncode == 0, done.stdout


def test_only_a_checkout_has_files_to_write(tmp_path: Path) -> None:
    for call in (devtools.sync, devtools.check_checkout, devtools.release):
        with pytest.raises(ContractError, match="not a checkout, sql is missing"):
            call(tmp_path)


TIMED = """# A trace.
trace
  a 0 op t1 x 0 1
result
  run_id,rank
  a,0
"""


@pytest.fixture
def defined(checkout: Path) -> Path:
    """The checkout with a table filled by a builder and locked golden rows."""
    text = (checkout / "sql/tables/parsed.v1.sql").read_text()
    text = text.replace('"parsed"', '"timed"').replace("-- transient = true", "-- definition = 1")
    (checkout / "sql/tables/timed.v1.sql").write_text(text)
    (checkout / "tests/goldens/tables/timed.v1.golden").write_text(TIMED)
    devtools.sync(checkout)
    return checkout


def test_a_definition_is_part_of_the_hash_and_of_the_reference(defined: Path) -> None:
    before = Catalog.read(defined / "sql").get("timed")
    change(defined / "sql/tables/timed.v1.sql", "definition = 1", "definition = 2")
    catalog = Catalog.read(defined / "sql")
    assert catalog.own_hash(catalog.get("timed")) != catalog.own_hash(before)
    devtools.sync(defined)
    assert "filled by a builder, definition 2" in (defined / "sql/README.md").read_text()


def test_a_table_with_a_definition_needs_a_golden_file(defined: Path) -> None:
    (defined / "tests/goldens/tables/timed.v1.golden").unlink()
    places = [finding.location for finding in devtools.check_checkout(defined)]
    assert places == ["tests/goldens/tables/timed.v1.golden", "sql/definitions.lock"]


def test_golden_rows_change_with_the_definition_alone(defined: Path) -> None:
    golden, lock = defined / "tests/goldens/tables/timed.v1.golden", defined / "sql/definitions.lock"
    before = lock.read_text()
    assert '"timed.v1.golden" = { definition = 1' in before and devtools.check_checkout(defined) == []
    change(golden, "a,0", "a,1")
    (finding,) = devtools.check_checkout(defined)
    assert finding.message == "the rows changed, but not definition 1"
    assert devtools.sync(defined) == [] and lock.read_text() == before
    change(defined / "sql/tables/timed.v1.sql", "definition = 1", "definition = 2")
    assert lock in devtools.sync(defined) and devtools.check_checkout(defined) == []


def test_another_trace_may_give_other_rows(defined: Path) -> None:
    golden = defined / "tests/goldens/tables/timed.v1.golden"
    change(golden, "# A trace.", "# Another trace.")
    assert devtools.check_checkout(defined) == []
    change(golden, "op t1 x 0 1", "op t1 x 0 2")
    change(golden, "a,0", "a,1")
    (finding,) = devtools.check_checkout(defined)
    assert finding.remedy == "run `tw dev sync`"
    devtools.sync(defined)
    assert devtools.check_checkout(defined) == []


def test_an_unreadable_lock_is_reported(defined: Path) -> None:
    (defined / "sql/definitions.lock").write_text("not toml")
    with pytest.raises(ContractError, match="sql/definitions.lock: not readable"):
        devtools.check_checkout(defined)
