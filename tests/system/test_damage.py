"""Damage stays local: other runs answer, `verify` names the object, `repair` restores it or names a loss."""

from __future__ import annotations

import os
import random
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from cli_runner import process, tw
from conftest import deep
from ingesting import take, write
from tracewarehouse.errors import DamagedRunError, PartlyDone, WarehouseError
from tracewarehouse.hints import repair as repair_hint
from tracewarehouse.storage import parquet_file
from tracewarehouse.storage.parquet_file import Level
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse

RUNS = ("a", "b")
SQL = "SELECT run_id, rank, name, dur_ns FROM kernels ORDER BY ALL"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs `a` (three versions, recorded results) and `b`, one pending rank of `c`; read-only."""
    folder = tmp_path_factory.mktemp("damage")
    for run in (*RUNS, "c"):
        write(folder / run, range(2), mark=run)
        options = {"expect_ranks": 3} if run == "c" else {}
        take(folder / "wh", folder / run, run=run, jobs=1, **options)
    wh = Warehouse(folder / "wh")
    wh.label("a", {"k": "1"})
    wh.label("a", {"k": "2"})
    wh.record(analyses="step_summary")
    wh.acknowledge("step_time", "a", "a new driver")
    return folder


@pytest.fixture
def root(base: Path, tmp_path: Path) -> Path:
    """A copy of the warehouse, old enough that nothing counts as being written."""
    copied = Path(shutil.copytree(base / "wh", tmp_path / "wh"))
    then = time.time() - 7200
    for path in copied.rglob("*"):
        os.utime(path, (then, then))
    return copied


@pytest.fixture(autouse=True)
def _nothing_checked() -> None:
    parquet_file._passed.clear()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "delete": Path.unlink,
    "truncate": truncate,
    "append": append,
    "empty": empty,
    "flip": flip,
}


def answers(root: Path, run: str) -> list[dict[str, Any]]:
    return Warehouse(root).select(runs=run).query(SQL).rows()


def tree(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def stored_bytes(root: Path) -> set[bytes]:
    return {path.read_bytes() for path in root.rglob("*") if path.is_file()}


def version(root: Path, number: int) -> Path:
    return root / "_tw" / "versions" / "a" / f"{number:06d}.json"


@pytest.mark.parametrize(
    ("number", "how"),
    [(1, "truncate"), (3, "delete"), (3, "flip")]
    + deep(
        *((1, how) for how in DAMAGE if how != "truncate"),
        *((3, how) for how in ("truncate", "append", "empty")),
    ),
)
def test_a_damaged_version_is_left_out_named_kept_and_restored(
    base: Path, root: Path, number: int, how: str
) -> None:
    DAMAGE[how](version(root, number))
    wh = Warehouse(root)
    assert answers(root, "b") == answers(base / "wh", "b")
    assert version(root, number).relative_to(root).as_posix() in {each.path for each in wh.verify()}
    kept = tree(root)
    assert wh.clean(-1).skipped == ("a",) and all("/c/" in key for key in kept - tree(root))
    if number == 3:
        found = wh.query(SQL)
        assert {row["run_id"] for row in found.rows()} == {"b"}
        assert "run a is damaged and left out" in found.notices[0] and 'wh.repair("a")' in found.notices[0]
        assert {row["run_id"]: row["state"] for row in wh.runs().rows()}["a"] == "damaged"
        with pytest.raises(DamagedRunError, match="run a is damaged"):
            wh.select(runs="a")
    before = stored_bytes(root)
    report = wh.repair("a")
    if number == 3:
        assert [step.what for step in report.steps] == ["version restored from its index entry and commits"]
    else:
        assert [step.what for step in report.steps] == ["version lost: no other object has what it held"]
    assert (report.exit_code, Warehouse(root).verify()) == (0 if number == 3 else 4, [])
    assert answers(root, "a") == answers(base / "wh", "a")
    newest = Warehouse(root).store.newest("a")
    assert newest is not None and newest.labels == {"k": "2"}
    assert Warehouse(root).repair().steps == ()
    # Damaged objects stay where they are, but for index entries, which repeat what others have.
    changed = before - stored_bytes(root)
    assert all(b'"sha256"' in data for data in changed) and len(changed) <= 1


def test_a_lost_label_or_removal_is_restored(root: Path) -> None:
    Warehouse(root).remove("b")
    for run, newest in (("a", 3), ("b", 2)):
        (root / "_tw" / "versions" / run / f"{newest:06d}.json").unlink()
    with pytest.raises(DamagedRunError, match="version missing"):
        answers(root, "b")
    states = {row["run_id"]: row["state"] for row in Warehouse(root).runs().rows()}
    assert states == {"a": "damaged", "b": "damaged", "c": "pending"}
    assert Warehouse(root).repair().exit_code == 0
    assert Warehouse(root).verify() == []
    assert [row["run_id"] for row in Warehouse(root).runs().rows()] == ["a", "c"]
    newest = Warehouse(root).store.newest("a")
    assert newest is not None and (newest.number, newest.labels) == (3, {"k": "2"})


def test_a_damaged_run_can_be_removed_and_ingested_again(base: Path, root: Path) -> None:
    version(root, 3).unlink()
    report = take(root, base / "a", run="a", jobs=1)
    assert {file.state for file in report.files} == {"refused"}
    assert "run a is damaged" in str(report.files[0].reason)
    Warehouse(root).remove("a")
    assert {file.state for file in take(root, base / "a", run="a", jobs=1).files} == {"intact"}
    assert answers(root, "a") == answers(base / "wh", "a")


def test_a_version_without_index_entry_is_published_as_it_was_before(root: Path) -> None:
    version(root, 3).write_bytes(b"")
    (root / "_tw" / "index" / "runs" / "a.json").write_bytes(b"")
    report = Warehouse(root).repair()
    assert report.exit_code == 4
    assert any("published as it was in v2; later changes are lost" in step.what for step in report.steps)
    newest = Warehouse(root).store.newest("a")
    assert newest is not None and newest.number == 4 and newest.labels == {"k": "1"}
    assert newest.taken_out == ("_tw/versions/a/000003.json",)
    assert Warehouse(root).verify() == []
    assert Warehouse(root).clean(-1).skipped == ("a",) and version(root, 3).exists()
    Warehouse(root).clean(taken_out=True)
    assert not version(root, 3).exists()
    assert Warehouse(root).clean(-1).skipped == () and Warehouse(root).verify() == []


def table_file(root: Path, table: str, run: str = "a") -> Path:
    return next((root / "data" / table / run).iterdir())


@pytest.mark.parametrize("how", ["delete", *deep("flip", "truncate", "append", "empty")])
@pytest.mark.parametrize(
    "table", ["kernels", *(pytest.param(each, marks=pytest.mark.deep) for each in ("runtime", "annotations"))]
)
def test_a_damaged_table_is_rebuilt_from_events(base: Path, root: Path, table: str, how: str) -> None:
    path = table_file(root, table)
    DAMAGE[how](path)
    key = path.relative_to(root).as_posix()
    assert key in {each.path for each in Warehouse(root).verify()}
    report = Warehouse(root).repair()
    assert any(step.key == key and "rebuilt from events" in step.what for step in report.steps)
    assert report.exit_code == 0
    assert Warehouse(root).verify() == []
    for run in RUNS:
        assert answers(root, run) == answers(base / "wh", run)
    newest = Warehouse(root).store.newest("a")
    assert newest is not None and newest.taken_out == (key,)
    assert path.exists() == (how != "delete")
    assert Warehouse(root).clean(-1).skipped == ("a",)
    assert Warehouse(root).clean(-1, taken_out=True).skipped == ()
    assert not path.exists() and Warehouse(root).verify() == []


def test_damaged_events_drop_the_ranks_unless_the_source_is_given(base: Path, root: Path) -> None:
    flip(table_file(root, "events"))
    other = Path(shutil.copytree(root, root.with_name("other")))
    report = Warehouse(root).repair("a")
    assert (
        report.exit_code == 4
        and len([step for step in report.steps if "its events are damaged" in step.what]) == 2
    )
    assert "rank0.json again (sha256 " in report.steps[0].what
    newest = Warehouse(root).store.newest("a")
    assert newest is not None and newest.ranks == () and newest.labels == {"k": "2"}
    report = Warehouse(other).repair("a", source=base / "a")
    assert report.exit_code == 0 and "ingested again from" in report.steps[0].what
    assert answers(other, "a") == answers(base / "wh", "a")
    assert Warehouse(root).verify() == Warehouse(other).verify() == []


@pytest.mark.parametrize("replace", [False, True])
def test_ingest_replaces_a_source_with_a_damaged_file(base: Path, root: Path, replace: bool) -> None:
    truncate(table_file(root, "kernels"))
    report = take(root, base / "a", run="a", jobs=1, replace=replace)
    assert {file.state for file in report.files} == {"intact"}
    assert answers(root, "a") == answers(base / "wh", "a")


def test_swapped_files_are_refused_and_other_runs_answer(base: Path, root: Path) -> None:
    one, other = (table_file(root, "kernels", run) for run in RUNS)
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    for run in RUNS:
        with pytest.raises(DamagedRunError, match=f"run {run} is damaged: data/kernels/{run}/"):
            answers(root, run)
    with pytest.raises(DamagedRunError):
        Warehouse(root).query(SQL)
    assert Warehouse(root).repair().exit_code == 0
    for run in RUNS:
        assert answers(root, run) == answers(base / "wh", run)


def test_a_damaged_file_leaves_out_its_run_with_a_notice(root: Path) -> None:
    truncate(table_file(root, "kernels"))
    found = Warehouse(root).kernel_summary()
    assert {row["run_id"] for row in found.rows()} == {"b"}
    assert found.provenance.runs == ("b@v1",)
    assert found.notices[0].startswith("run a is damaged and left out: data/kernels/a/")


def all_rows(wh: Warehouse, table: str, run: str = "a") -> list[dict[str, Any]]:
    return wh.select(runs=run).query(f"SELECT count(*), sum(hash(t)) FROM {table} t").rows()


@pytest.mark.parametrize(
    ("verify", "seed", "flips"),
    [(False, 5, 24), (True, 5, 8), *deep(*((False, seed, 180) for seed in (1, 2, 3)))],
)
def test_every_flipped_bit_is_named(root: Path, verify: bool, seed: int, flips: int) -> None:
    chance, wh = random.Random(seed), Warehouse(root, verify=verify)
    files = sorted((root / "data").glob("*/a/*.parquet"))
    for _ in range(flips):
        path = chance.choice(files)
        table, data = path.parts[-3], path.read_bytes()
        changed = bytearray(data)
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        wanted = all_rows(wh, table)
        path.write_bytes(bytes(changed))
        with pytest.raises(DamagedRunError) as failed:
            all_rows(wh, table)
        assert f"run a is damaged: {path.relative_to(root).as_posix()}: " in failed.value.message
        assert 'wh.repair("a")' in (failed.value.hint or "")
        path.write_bytes(data)
        assert all_rows(wh, table) == wanted


def test_damage_is_named_where_no_column_read_has_it(root: Path) -> None:
    """Only DuckDB knows which columns it reads: `hash(t)` reads all of them."""
    path = table_file(root, "kernels")
    place = pq.read_metadata(path).row_group(0).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[place + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedRunError, match="run a is damaged: data/kernels/a/"):
        Warehouse(root).select(runs="a").query("SELECT sum(dur_ns) FROM kernels")
    assert {row["run_id"] for row in Warehouse(root).kernel_summary().rows()} == {"b"}


def test_what_duckdb_cannot_decode_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for files of a version without CRC-32, or that change after the check."""
    monkeypatch.setattr("tracewarehouse.warehouse.default_level", lambda: Level.FOOTER)
    path = table_file(root, "events")
    data, names = path.read_bytes(), []
    wanted = all_rows(Warehouse(root), "events")
    columns = pq.read_metadata(path).row_group(0)
    for at in range(0, columns.num_columns, 3):
        changed = bytearray(data)
        changed[columns.column(at).data_page_offset] ^= 0x80
        path.write_bytes(changed)
        try:
            assert all_rows(Warehouse(root), "events") == wanted
        except DamagedRunError as error:
            names.append((error.message.partition(": checksum")[0], error.hint))
    assert set(names) == {(f"run a is damaged: {path.relative_to(root).as_posix()}", repair_hint("a"))}
    assert len(names) >= 5


def test_a_version_without_crc_is_read_as_before(root: Path) -> None:
    version = Warehouse(root).store.newest("a")
    assert version is not None
    (file,) = {file for source in version.sources for file in source.files if file.table == "kernels"}
    path, old = root / file.path, replace(file, crc32=0)
    data = path.read_bytes()
    for place, levels in ((40, {Level.FULL}), (-9, {Level.CRC, Level.FULL})):
        changed = bytearray(data)
        changed[place] ^= 1
        path.write_bytes(changed)
        parquet_file._passed.clear()
        assert {level for level in (Level.CRC, Level.FULL) if parquet_file.fault(path, old, level)} == levels
        assert parquet_file.fault(path, file, Level.CRC)
    path.write_bytes(data)
    assert [parquet_file.fault(path, each, Level.CRC) for each in (file, old)] == [None, None]


def test_verify_reads_the_files_that_a_command_only_lists(root: Path) -> None:
    path = next((root / "data").glob("kernels/a/*.parquet"))
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    wh = Warehouse(root)
    assert {row["state"] for row in wh.runs().rows()} == {"complete", "pending"}
    assert wh.info("a").run["run_id"] == "a"
    wh = Warehouse(root, verify=True)
    found = wh.runs()
    assert {row["run_id"]: row["state"] for row in found.rows()}["a"] == "damaged"
    assert "run a is damaged: data/kernels" in found.notices[0] and 'wh.repair("a")' in found.notices[0]
    with pytest.raises(DamagedRunError, match="checksum differs"):
        wh.info("a")
    assert wh.info("b").run["run_id"] == "b"
    assert tw("info", "a", "-w", root, "--verify").code == 1
    assert tw("export", "trace", "b", "-w", root, "--rank", "0", "--verify").code == 0


def test_a_gate_does_not_pass_over_a_damaged_run(root: Path, only_rules: Callable[..., None]) -> None:
    only_rules("low_gpu_use", "launch_bound")
    assert tw("check", "-w", root, "--fail-on", "info").code == 3
    version(root, 3).unlink()
    failed = tw("check", "-w", root, "--fail-on", "info")
    assert failed.code == 1 and "run a is damaged and cannot be checked" in failed.err


FILES = {
    "table": "data/kernels/a",
    "version": "_tw/versions/a",
}


@pytest.mark.parametrize(
    ("kind", "how"),
    [("table", "delete")]
    + deep(
        *(("table", how) for how in ("truncate", "append", "empty")), *(("version", how) for how in DAMAGE)
    ),
)
@pytest.mark.usefixtures("short_pages")
def test_commands_end_and_name_the_damaged_run(
    base: Path, root: Path, kind: str, how: str, only_rules: Callable[..., None]
) -> None:
    only_rules("low_gpu_use", "launch_bound")
    DAMAGE[how](max((root / FILES[kind]).iterdir()))
    write(root.parent / "new", range(2), mark="n")
    by_command = {
        ("ingest", root.parent / "new"): (0, True),
        ("refresh",): (0, True),
        ("record", "--all", "--analysis", "kernel_summary"): (4 if kind == "table" else 0, True),
        ("check",): (0, True),
        ("report", "a", "-o", root.parent / "a.html"): (1, True),
        ("report", "b", "-o", root.parent / "b.html"): (0, False),
    }
    for command, (code, named) in by_command.items():
        # As a process, it is ended after two minutes.
        done = (process if command == ("refresh",) else tw)(*command, "-w", root)
        assert done.code == code, (command, done.err)
        assert ("run a is damaged" in done.err and "tw repair a" in done.err) == named, (command, done.err)
    for run in ("b", "new"):
        assert len(answers(root, run)) == 6
    assert tw("repair", "-w", root).code == 0
    assert tw("refresh", "-w", root).err == ""
    assert answers(root, "a") == answers(base / "wh", "a")


OBJECTS = {
    "commit": "_tw/commits/a",
    "index entry": "_tw/index/runs/a.json",
    "waiting commit": "_tw/commits/c",
    "acknowledgement": "results/acknowledged",
    "list of results": "results/recorded",
    "result": "results/step_summary@1/a",
}
# What no other object repeats.
LOST = {"commit", "waiting commit", "acknowledgement"}


# One damage of each kind of object always, the others deep.
_ALWAYS = tuple(zip(OBJECTS, ("delete", "truncate", "flip") * 2, strict=True))
_DEEP = [
    (kind, how) for kind in OBJECTS for how in ("delete", "truncate", "flip") if (kind, how) not in _ALWAYS
]


@pytest.mark.parametrize(("kind", "how"), [*_ALWAYS, *deep(*_DEEP)])
def test_a_damaged_object_is_found_and_repaired(base: Path, root: Path, kind: str, how: str) -> None:
    place = root / OBJECTS[kind]
    # A roll-up, or the list of an acknowledgement, may be missing.
    paths = [path for path in place.rglob("*.*") if not path.name.endswith(".rollup.parquet")]
    if kind == "list of results":
        paths = [path for path in paths if b"step_summary" in path.read_bytes()]
    path = max(paths, default=place)
    DAMAGE[how](path)
    if (kind, how) not in (("waiting commit", "delete"), ("index entry", "delete")):
        assert Warehouse(root).verify() != []
    assert answers(root, "b") == answers(base / "wh", "b")
    before, contents = tree(root), stored_bytes(root)
    dry = Warehouse(root).repair(dry_run=True)
    assert tree(root) == before
    report = Warehouse(root).repair()
    assert len(dry.steps) == len(report.steps)
    assert Warehouse(root).verify() == []
    assert report.exit_code == (4 if kind in LOST and report.steps else 0)
    if kind != "index entry":
        index = {path.read_bytes() for path in (base / "wh/_tw/index").rglob("*.json")}
        assert contents - index <= stored_bytes(root)
    for run in RUNS:
        assert answers(root, run) == answers(base / "wh", run)
    assert len(Warehouse(root).store.pending("c")) == (0 if kind == "waiting commit" else 2)


def test_a_lost_identity_is_written_again(base: Path, root: Path) -> None:
    path, before = root / "_tw" / "warehouse.json", Store.open(root).identity
    path.unlink()
    with pytest.raises(WarehouseError, match="not a warehouse"):
        Warehouse(root).verify()
    assert Warehouse(root).repair().exit_code == 0
    after = Store.open(root).identity
    assert (after.id, after.salt) == (before.id, before.salt)
    path.write_text('{"format": 3}')
    assert Warehouse(root).repair().exit_code == 0
    assert Store.open(root).identity.salt == before.salt
    assert answers(root, "a") == answers(base / "wh", "a")


@pytest.mark.parametrize("what", ["removed", "replaced"])
def test_a_run_that_is_gone_is_not_damaged(base: Path, root: Path, what: str) -> None:
    held = Warehouse(root).select(runs=["a", "b"])
    assert held.selection.selected()
    Warehouse(root).remove("b")
    Warehouse(root).clean(0.0)
    if what == "replaced":
        take(root, base / "b", run="b", jobs=1)
    with pytest.raises(DamagedRunError, match=f"run b was {what}"):
        held.kernel_summary()


def test_a_damaged_shell_file_is_found_and_written_again(root: Path) -> None:
    path = Warehouse(root).refresh()
    truncate(path)
    assert [each.path for each in Warehouse(root).verify()] == ["warehouse.duckdb"]
    assert Warehouse(root).label("b", {"x": "y"}).version is not None
    assert tw("repair", "-w", root).code == 0
    assert Warehouse(root).verify() == []


@pytest.mark.deep
def test_a_shell_file_that_is_no_database_is_written_again(root: Path) -> None:
    path = Warehouse(root).refresh()
    path.write_bytes(b"no database")
    with Warehouse(root).shell_file() as found:
        assert found == path
    assert Warehouse(root).verify() == []


def test_a_removal_that_fails_in_the_middle_says_what_was_removed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh = Warehouse(root)
    remove = wh.store.remove

    def refuse(run: str, keep_results: bool = False) -> object:
        if run == "b":
            raise WarehouseError("no space left to write")
        return remove(run, keep_results)

    monkeypatch.setattr(wh.store, "remove", refuse)
    with pytest.raises(PartlyDone, match="removed a, but not b: no space left") as caught:
        wh.remove(RUNS)
    assert caught.value.exit_code == 4
    with pytest.raises(WarehouseError, match="no space left to write"):
        wh.remove("b")


@pytest.mark.parametrize("limit", [3000, *deep(0, 6_000)])
@pytest.mark.deep
def test_a_full_disk_stops_a_repair_that_can_be_repeated(base: Path, root: Path, limit: int) -> None:
    for path in ("data/kernels/a", "_tw/versions/a", "results"):
        flip(max(path for path in (root / path).rglob("*") if path.suffix in (".parquet", ".json")))
    before = {path: (root / path).read_bytes() for path in tree(root)}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        report = Warehouse(root).repair()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    failed = [step.what for step in report.steps if step.is_failure]
    assert failed and all("no space left to write" in what for what in failed)
    assert report.exit_code == 1 if len(failed) == len(report.steps) else 4
    kept = {path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert {path for path, data in before.items() if data not in kept} == set()
    assert Warehouse(root).repair().exit_code == 0 and Warehouse(root).verify() == []
    assert answers(root, "a") == answers(base / "wh", "a")


def test_repair_on_the_command_line(root: Path) -> None:
    version(root, 3).unlink()
    planned = tw("repair", "--dry-run", "-w", root)
    assert planned.code == 0 and planned.out.startswith(
        "would do: _tw/versions/a/000003.json: version restored"
    )
    done = tw("repair", "a", "-w", root)
    assert done.code == 0 and done.out.startswith("done: _tw/versions/a/000003.json: version restored")
    assert tw("repair", "-w", root).out == "nothing to repair\n"
    unknown = tw("repair", "nowhere", "-w", root)
    assert unknown.code == 1 and "unknown run: nowhere" in unknown.err
