"""`warehouse.duckdb` in the DuckDB shell: every relation and macro has the same rows as in Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import cli_runner
import tracewarehouse as tw
from conftest import ROOT, deep
from small_warehouse import kernels, small_catalog, store_run
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Param
from tracewarehouse.contracts.sql_tokens import quote_name, quote_text
from tracewarehouse.duck.engine import execute
from tracewarehouse.query import shell_file
from tracewarehouse.query.connections import connection
from tracewarehouse.query.relations import dependencies, relation_names
from tracewarehouse.query.shell_file import NextFile, refresh, update, write
from tracewarehouse.runs.selection import select_runs
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse


def shell(path: Path, *statements: str, read_only: bool = True) -> str:
    """The output of the shell of duckdb-cli on PyPI."""
    command = [sys.executable, "-m", "duckdb_cli", *(["-readonly"] if read_only else []), "-csv", "-noheader"]
    script = "\n".join(f"{statement};" for statement in statements)
    done = subprocess.run(
        [*command, "-bail", "-no-init", str(path)], input=script, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def through_shell(path: Path, folder: Path, selects: dict[str, str]) -> dict[str, pa.Table]:
    """The rows of each SELECT in the shell with their types, through Parquet."""
    folder.mkdir()
    files = {name: folder / f"{number}.parquet" for number, name in enumerate(selects)}
    shell(path, *(f"COPY ({selects[name]}) TO {quote_text(str(files[name]))}" for name in selects))
    return {name: parquet.read_table(str(file)) for name, file in files.items()}


def other_value(param: Param) -> Any:
    """A value that is not the default."""
    if param.choices:
        return param.choices[-1]
    if param.type == "BOOLEAN":
        return not param.default
    if param.type == "VARCHAR":
        return "gemm"
    wanted = (param.default or 0) * 2 + 1  # type: ignore[operator]
    return wanted if param.max is None else type(wanted)(min(wanted, param.max))


def check_all(wh: Warehouse, path: Path, folder: Path, *, once: bool = False) -> int:
    """Compares every relation and macro of the file with the library; returns their number.

    `once`: only in `latest`, and each analysis only as a macro without arguments.
    """
    tables = [each for each in wh.catalog.all("table") if not (each.transient or each.is_recorded)]
    analyses = of_stored_tables(wh.catalog)
    below_all = dependencies(wh.catalog, (*tables, *wh.catalog.all("view"), *analyses))
    names = relation_names((*below_all, *analyses))
    latest = wh.select("@latest")
    selects, wanted = {}, {}
    for schema, part in (("main", wh), ("latest", latest)):
        for contract in () if once and part is wh else below_all:
            place = f"{schema}.{names[contract.ref]}"
            selects[place] = f"SELECT * FROM {place} ORDER BY ALL"
            wanted[place] = relation(part, contract)
        for contract in analyses:
            place = f"{schema}.{quote_name(names[contract.ref])}"
            rows: dict[str, pa.Table] = {}
            for key, call, values in calls(contract, place):
                if once and (part is wh or key != f"{place}()"):
                    continue
                selects[key] = f"FROM {call}"
                given = str(values)
                rows[given] = rows.get(given) or part.analyze(contract.name, contract.version, **values).table
                wanted[key] = rows[given]
    found = through_shell(path, folder, selects)
    for key in selects:
        table = found[key].cast(wanted[key].schema)
        assert table.replace_schema_metadata() == wanted[key].replace_schema_metadata(), key
    return len(selects)


def of_stored_tables(catalog: Catalog) -> list[Contract]:
    """The analyses without those of recorded results, which the file does not have."""
    return [each for each in catalog.all("analysis") if each.scope != "fleet"]


def calls(contract: Contract, place: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The view, the macro without arguments, and the macro with each argument once."""
    yield place, place, {}
    yield f"{place}()", f"{place}()", {}
    for param in contract.params:
        value = other_value(param)
        given = quote_text(value) if isinstance(value, str) else str(value)
        yield f"{place}({param.name})", f"{place}({param.name} := {given})", {param.name: value}


def relation(wh: Warehouse, contract: Contract) -> pa.Table:
    with connection(wh.store, wh.catalog, wh.selected(), [contract]) as con:
        sql = f"SELECT * FROM {contract.name} ORDER BY ALL"
        return con.sql(sql).to_arrow_table()


NAME = 'it\'s "a" ware=house[1]*?; DROP TABLE x'


@pytest.fixture
def wh(shared: Warehouse, tmp_path: Path) -> Warehouse:
    """A copy that a test may change."""
    return Warehouse(shutil.copytree(shared.root, tmp_path / NAME), catalog=shared.catalog)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Two versions of a table, skipped ranks, an incomplete run, and a path with special characters."""
    folder = tmp_path_factory.mktemp("shared")
    catalog = small_catalog(folder / "sql")
    store = Store.open_or_create(folder / NAME)
    both = ("kernels@1", "kernels@2")
    for run, ranks in {"a": (0, 1), "a'c": (0,), "b": (0, 1, 3)}.items():
        name = run.replace("'", "-")
        for rank in ranks:
            rows = [row | {"dur_ns": row["dur_ns"] * 2} for row in kernels(name, rank)]
            tables = dict(zip(both, (kernels(name, rank), rows), strict=True))
            store_run(store, catalog, name, (rank,), tables=tables, shapes=rank != 3, gpu=name != "a-c")
    return Warehouse(store.folder, catalog=catalog)


def test_every_relation_and_macro_has_the_same_rows(wh: Warehouse, tmp_path: Path) -> None:
    path = wh.refresh()
    assert path == wh.root / "warehouse.duckdb"
    assert check_all(wh, path, tmp_path / "out") == 2 * (7 + 1 + 6 * 2 + 2)


@pytest.fixture(scope="module")
def steps_wh(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Two runs of real tables, one of them with a part of the ranks."""
    wh = tw.open(tmp_path_factory.mktemp("steps") / "warehouse")
    steps = ROOT / "tests" / "data" / "first-steps"
    wh.ingest(steps, labels={"whole": "yes"}, jobs=1)
    wh.ingest(steps / "rank0.json.gz", steps / "rank2.json.gz", run="part", jobs=1)
    return wh


@pytest.mark.deep
def test_every_contract_has_the_same_rows(steps_wh: Warehouse, tmp_path: Path) -> None:
    checked = check_all(steps_wh, steps_wh.refresh(), tmp_path / "out", once=True)
    assert checked > len(steps_wh.catalog.all("view")) + len(steps_wh.catalog.all("analysis"))


@pytest.mark.deep
def test_every_contract_has_the_same_rows_however_called(steps_wh: Warehouse, tmp_path: Path) -> None:
    path = steps_wh.refresh()
    named = "FROM information_schema.tables WHERE table_schema = 'main' AND table_name[:3] <> 'tw_'"
    (relations,) = shell(path, f"SELECT count(*) {named}").split()
    analyses = of_stored_tables(steps_wh.catalog)
    calls_of_macros = len(analyses) + sum(len(each.params) for each in analyses)
    assert check_all(steps_wh, path, tmp_path / "out") == 2 * (int(relations) + calls_of_macros)


def test_an_empty_warehouse_has_a_file(tmp_path: Path) -> None:
    catalog = small_catalog(tmp_path / "sql")
    path = refresh(Store.open_or_create(tmp_path / "w"), catalog)
    assert (
        shell(path, "SELECT count(*) FROM kernels", "SELECT count(*) FROM latest.kernel_time()") == "0\n0\n"
    )


def test_a_selection_has_a_separate_file(wh: Warehouse, tmp_path: Path) -> None:
    with wh.select("b", [0, 3]).shell_file() as path:
        assert path != wh.root / "warehouse.duckdb"
        out = shell(path, "SELECT DISTINCT run_id, rank FROM kernels ORDER BY ALL", "FROM tw_skipped")
        assert out.splitlines()[:2] == ["b,0", "b,3"]
        assert "gemm_shapes,1,b,3,no input shapes recorded" in out
    assert not path.exists()
    with wh.shell_file() as path:
        assert path == wh.root / "warehouse.duckdb" and path.exists()


def test_a_shell_finds_the_file_up_to_date(wh: Warehouse) -> None:
    path = wh.refresh()
    written = path.stat().st_mtime_ns
    with wh.shell_file() as same:
        assert same == path and path.stat().st_mtime_ns == written
    wh.remove("a")
    assert path.stat().st_mtime_ns == written
    with wh.shell_file() as newer:
        assert newer == path and path.stat().st_mtime_ns > written
        assert shell(path, "SELECT count(*) FROM runs") == "2\n"
    path.write_bytes(b"not a database")
    with wh.shell_file() as repaired:
        assert shell(repaired, "SELECT count(*) FROM runs") == "2\n"


def test_only_shell_refresh_and_ingest_write_the_file(wh: Warehouse) -> None:
    path = wh.root / "warehouse.duckdb"
    wh.label("a", {"who": "x"})
    wh.remove("b")
    wh.analyze("kernel_time")
    wh.query("SELECT count(*) FROM kernels")
    assert not path.exists()
    with wh.shell_file() as made:
        assert made == path
        assert shell(path, "SELECT run_id, labels['who'] FROM runs ORDER BY ALL") == "a,x\na-c,NULL\n"


def test_a_library_ingest_leaves_the_file_stale_and_readable(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "warehouse")
    steps = ROOT / "tests" / "data" / "first-steps"
    wh.ingest(steps / "rank0.json.gz", run="one", jobs=1)
    path = wh.refresh()
    wh.ingest(steps / "rank0.json.gz", run="two", jobs=1)
    runs = "SELECT DISTINCT run_id FROM kernels ORDER BY 1"
    assert shell(path, runs) == "one\n"
    with wh.shell_file() as found:
        assert found == path
        assert shell(path, runs, "SELECT DISTINCT run_id FROM latest.kernels") == "one\ntwo\ntwo\n"
    report = wh.ingest(steps / "rank0.json.gz", run="three", jobs=1, shell_file=True)
    assert shell(path, runs) == "one\nthree\ntwo\n"
    assert report.notes == wh.ingest(steps / "rank0.json.gz", run="four", jobs=1).notes


def test_a_shell_on_a_read_only_warehouse_gets_a_temporary_file(wh: Warehouse) -> None:
    (wh.root / "warehouse.duckdb" / "in the way").mkdir(parents=True)
    with wh.shell_file() as path:
        assert path.parent != wh.root
        assert shell(path, "SELECT count(*) FROM runs") == "3\n"


def test_views_work_in_an_attached_database(wh: Warehouse) -> None:
    attach = f"ATTACH {quote_text(str(wh.refresh()))} AS house (READ_ONLY)"
    out = shell(
        Path(":memory:"),
        attach,
        "SELECT count(*) FROM house.kernels",
        "SELECT count(*) FROM house.runs",
        "SELECT sum(count) FROM house.kernel_time",
        "SELECT count(*) FROM house.latest.runs",
        "SELECT string_agg(DISTINCT run_id) FROM house.latest.kernel_time",
        read_only=False,
    )
    inside = shell(wh.root / "warehouse.duckdb", "SELECT sum(count) FROM kernel_time")
    assert out.split() == ["18", "3", inside.strip(), "1", "b"]


def test_tables_of_rows_are_stored_once(wh: Warehouse) -> None:
    tables = "SELECT DISTINCT schema_name FROM duckdb_tables()"
    rows = "SELECT count(DISTINCT run_id), min(run_id) FROM {}tw_skipped"
    path = wh.refresh()
    out = shell(path, tables, rows.format(""), rows.format("latest."), "SELECT run_id FROM latest.ranks")
    assert out.split() == ["main", "2,a-c", "1,b", "b", "b", "b"]
    wh.remove(["a", "a-c", "b"])
    assert shell(wh.refresh(), "SELECT count(*) FROM latest.runs", "FROM latest.kernel_time") == "0\n"


def test_a_replaced_rank_is_read_from_its_own_file(wh: Warehouse, tmp_path: Path) -> None:
    rows = [row | {"dur_ns": 1} for row in kernels("b", 1)]
    tables = {"kernels@1": rows, "kernels@2": rows}
    store_run(wh.store, wh.catalog, "b", (1,), tables=tables, content="z", replace=True)
    path = wh.refresh()
    found = shell(path, "SELECT rank, sum(dur_ns) FROM latest.kernels GROUP BY ALL ORDER BY 1")
    wanted = wh.select("b").query("SELECT rank, sum(dur_ns) AS ns FROM kernels GROUP BY ALL ORDER BY 1")
    assert found.split() == [f"{row['rank']},{row['ns']}" for row in wanted.rows()]
    assert found.split()[1] == f"1,{len(rows)}"


def test_one_run_of_a_table_reads_only_its_files(wh: Warehouse) -> None:
    rows = [row | {"dur_ns": 1} for row in kernels("b", 1)]
    tables = {"kernels@1": rows, "kernels@2": rows}
    store_run(wh.store, wh.catalog, "b", (1,), tables=tables, content="z", replace=True)
    path = wh.refresh()
    kept = "SELECT * FROM kernels WHERE run_id = 'b' ORDER BY ALL"
    issues = "SELECT rule, run_id FROM data_quality{} ORDER BY ALL"
    wanted = shell(path, kept, kept, issues.format(" WHERE run_id = 'b'"), "SELECT count(*) FROM kernels")
    of_b = "SELECT * FROM kernels_of({}) ORDER BY ALL"
    for row in wh.files("a", "kernels").rows():
        (wh.root / row["key"]).unlink()
    found = shell(path, of_b.format("'b'"), of_b.format("'@latest'"), issues.format("_of('b')"))
    assert found == wanted.rpartition("18")[0] and "b," in found
    none = "SELECT count(*), count(DISTINCT dur_ns), typeof(any_value(run_id)) FROM kernels_of({})"
    for run in ("'B'", "''", "'b/0'", "'it''s'", "run := 'c'"):
        assert shell(path, none.format(run)) == "0,0,VARCHAR\n"
    store_run(wh.store, wh.catalog, "a", (0, 1), tables=tables, content="y", replace=True)
    assert shell(wh.refresh(), "SELECT count(*) FROM kernels_of()") == "18\n"


def test_an_update_writes_only_what_changed(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    path = wh.refresh()
    monkeypatch.setattr(shell_file, "template", None)
    rows = {"kernels@1": kernels("new~0", 0), "kernels@2": kernels("new~0", 0)}
    store_run(wh.store, wh.catalog, "new~0", (0,), tables=rows)
    wh.remove("a")
    wh.label("b", {"who": "x"})
    update(wh.store, wh.catalog, pytest.fail)
    selects = [
        "SELECT run_id, rank, count(*) FROM kernels GROUP BY ALL ORDER BY ALL",
        "SELECT run_id, version, labels['who'] FROM runs ORDER BY ALL",
        "SELECT run_id, rank FROM ranks ORDER BY ALL",
        "SELECT DISTINCT run_id FROM latest.kernels",
        "SELECT 'only', run_id FROM kernels_of('new~0')",
        "SELECT run_id, * FROM tw_skipped ORDER BY ALL",
        "SELECT * FROM kernel_time ORDER BY ALL",
        "SELECT rule, run_id FROM data_quality ORDER BY ALL",
    ]
    updated = shell(path, *selects)
    assert (
        "new~0,0,3" in updated and "only,new~0" in updated and "\nb,4,x\n" in updated and "a,0" not in updated
    )
    monkeypatch.undo()
    assert shell(wh.refresh(), *selects) == updated
    path.write_bytes(path.read_bytes()[:-1000])
    update(wh.store, wh.catalog, pytest.fail)
    assert shell(path, *selects) == updated


def test_a_file_that_was_opened_early_gets_what_came_since(wh: Warehouse) -> None:
    """Runs that others published, and the file that they wrote, while this one was open."""
    path = wh.refresh()
    opened, unused = NextFile(wh.store, wh.catalog), NextFile(wh.store, wh.catalog)
    for run in ("theirs", "mine"):
        rows = {"kernels@1": kernels(run, 0), "kernels@2": kernels(run, 0)}
        store_run(wh.store, wh.catalog, run, (0,), tables=rows)
    wh.refresh()
    update(wh.store, wh.catalog, pytest.fail, opened)
    unused.close()
    assert (
        shell(path, "SELECT string_agg(DISTINCT run_id, ' ' ORDER BY run_id) FROM kernels")
        == "a a-c b mine theirs\n"
    )
    assert not list(wh.root.glob("_tw/staging/*"))


def test_an_update_over_too_many_runs_is_left_to_others(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = wh.refresh()
    monkeypatch.setattr(shell_file, "_MAX_UPDATED_RUNS", 2)
    before, notices = path.stat().st_mtime_ns, []
    update(wh.store, wh.catalog, notices.append)
    (line,) = notices
    assert path.stat().st_mtime_ns == before
    assert line.startswith("warehouse.duckdb does not have the new runs, as there are 3: ")


def test_another_process_sees_a_run_right_after_ingest(tmp_path: Path) -> None:
    steps = ROOT / "tests" / "data" / "first-steps" / "rank0.json.gz"
    code = (
        f"import duckdb; con = duckdb.connect({str(tmp_path / 'w' / 'warehouse.duckdb')!r}, read_only=True)"
    )
    select = "SELECT run_id, count(*) FROM kernels GROUP BY ALL ORDER BY ALL"
    seen = []
    for run in ("one", "two"):
        assert cli_runner.tw("ingest", steps, "--run", run, "-w", tmp_path / "w").code == 0
        shown = f"{code}; print(con.execute({select!r}).fetchall())"
        seen.append(subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True).stdout)
    assert seen == ["[('one', 63)]\n", "[('one', 63), ('two', 63)]\n"]


def test_a_macro_takes_its_parameters_typed_and_by_name(wh: Warehouse) -> None:
    path = wh.refresh()
    counts = shell(
        path,
        "SELECT sum(count) FROM kernel_time(least_ns := 20)",
        "SELECT sum(count) FROM kernel_time(word := 'gemm', least_ns := 0)",
        "SELECT count(*) FROM kernel_time(word := 'it''s {0} {} $tw_least_ns$', least_ns := 0)",
        "SELECT parameters, parameter_types FROM duckdb_functions() WHERE function_name = 'kernel_time'",
    )
    assert counts.splitlines() == ["5", "5", "0", *['"[least_ns, word]","[BIGINT, VARCHAR]"'] * 2]


def test_macros_read_their_own_schema(wh: Warehouse) -> None:
    path = wh.refresh()
    runs = "SELECT string_agg(DISTINCT run_id, ' ' ORDER BY run_id) FROM {}kernel_time()"
    out = shell(
        path, runs.format(""), runs.format("latest."), "USE latest", runs.format(""), runs.format("main.")
    )
    assert out.splitlines() == ["a b", "b", "b", "a b"]


def test_the_file_explains_itself(wh: Warehouse) -> None:
    out = shell(
        wh.refresh(),
        "SELECT column_name, type, unit, doc FROM tw_help WHERE name = 'kernel_time' AND part = 'parameter'",
        "SELECT DISTINCT name FROM tw_help WHERE kind = 'analysis' ORDER BY 1",
        "SELECT comment FROM duckdb_views() WHERE view_name = 'gemms'",
        "SELECT comment FROM duckdb_columns() WHERE schema_name = 'main' AND"
        " table_name = 'kernels' AND column_name = 'dur_ns'",
        "SELECT comment FROM duckdb_functions() WHERE function_name = 'findings'",
        "SELECT count(comment) FROM duckdb_columns() WHERE schema_name = 'latest'",
    )
    lines = out.splitlines()
    assert lines[0] == "least_ns,BIGINT,ns,Shorter ones are left out."
    analyses = ["doubled_time", "findings", "gemm_shapes", "kernel_time", "kernel_time_v1", "launch_time"]
    assert lines[2:8] == analyses
    in_both, once = ['"It\'s findings."', '"It\'s gemms."'], ["Length. [ns]"]
    assert sorted(set(lines[8:])) == [*in_both, "0", *once]


def test_a_read_only_shell_does_not_block_writers(wh: Warehouse, tmp_path: Path) -> None:
    path = wh.refresh()
    command = [sys.executable, "-m", "duckdb_cli", "-readonly", "-csv", "-noheader", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None and running.stdout is not None
        running.stdin.write("SELECT count(*) FROM runs;\n")
        running.stdin.flush()
        assert running.stdout.readline() == "3\n"
        wh.remove("a")
        assert wh.refresh() == path
        assert shell(path, "SELECT count(*) FROM runs") == "2\n"
        running.stdin.write("SELECT count(*) FROM kernels WHERE run_id = 'a';\n")
        running.stdin.close()
        assert running.stdout.read() == "6\n"


def test_the_file_is_rewritten_after_a_move(wh: Warehouse, tmp_path: Path) -> None:
    wh.refresh()
    moved = Warehouse(wh.root.rename(tmp_path / "moved"), catalog=wh.catalog)
    update(moved.store, moved.catalog, pytest.fail)
    assert shell(moved.root / "warehouse.duckdb", "SELECT count(*) FROM kernels") == "18\n"
    again = Warehouse(moved.root.rename(tmp_path / "again"), catalog=wh.catalog)
    assert shell(again.refresh(), "SELECT count(*) FROM kernels") == "18\n"


@pytest.mark.parametrize("write_file", [update, *deep(refresh)])
def test_the_last_writer_includes_the_newest_version(
    wh: Warehouse, write_file: Callable[..., object]
) -> None:
    names = [f"run{number}" for number in range(6)]

    def publish(name: str) -> None:
        store = Store.open(wh.root)
        store_run(
            store,
            wh.catalog,
            name,
            (0,),
            tables={"kernels@1": kernels(name, 0), "kernels@2": kernels(name, 0)},
        )
        write_file(store, wh.catalog, pytest.fail)

    threads = [threading.Thread(target=publish, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = shell(wh.root / "warehouse.duckdb", "SELECT run_id FROM runs WHERE run_id LIKE 'run%' ORDER BY 1")
    assert found.split() == names
    assert not list((wh.root / "_tw" / "staging").iterdir())


def test_a_file_over_many_ranks_reads_each_row_once(tmp_path: Path) -> None:
    catalog = small_catalog(
        tmp_path / "sql", without=["tables/kernels.v2.sql", "analyses/gpu/doubled_time.v1.sql"]
    )
    store = Store.open_or_create(tmp_path / "w")
    store_run(store, catalog, "a", range(70))
    selected = select_runs(store)
    write(tmp_path / "x.duckdb", store, catalog, selected)
    assert shell(tmp_path / "x.duckdb", "SELECT count(*), count(DISTINCT rank) FROM kernels") == "210,70\n"
    with connection(store, catalog, selected, [catalog.get("kernel_time")]) as con:
        assert execute(con, catalog.get("kernel_time"), {}).num_rows == 70


def test_the_catalog_names_every_contract(wh: Warehouse) -> None:
    assert isinstance(wh.catalog, Catalog)
    out = shell(wh.refresh(), "SELECT DISTINCT name FROM tw_help ORDER BY 1")
    assert set(out.split()) >= {
        "kernels",
        "kernels_v1",
        "runs",
        "ranks",
        "data_quality",
        "name_rules",
        "gemms",
    }
