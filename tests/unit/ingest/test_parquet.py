"""Stored Parquet files: types and values as in files of DuckDB, encodings, packing, streaming."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from msgspec.structs import asdict

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, has_template
from tracewarehouse.duck.arrow import type_of
from tracewarehouse.errors import TwError
from tracewarehouse.ingest.parquet import TableWriter, WrittenTable
from tracewarehouse.storage.model import Staged, StagedTable, TableFile
from tracewarehouse.storage.pack import ROW_GROUP_ROWS, Encoding, encoding_of
from tracewarehouse.storage.parquet_file import Level, _passed, fault, file_facts
from tracewarehouse.storage.store import Store

CATALOG = Catalog.load()
STORED = [
    contract
    for contract in CATALOG.all("table")
    if not contract.transient and not contract.is_constant and contract.name not in ("runs", "ranks")
]
KEYS = ("run_id", "rank")


@pytest.fixture
def writer() -> TableWriter:
    return TableWriter(CATALOG)


def contract(name: str) -> Contract:
    return CATALOG.get(name, kind="table")


def value(type_: str, row: int) -> object:
    """A value of a type that differs by row and includes edge cases."""
    if type_.endswith("[]"):
        return [value(type_[:-2], row)]
    if type_ == "VARCHAR":
        return f"näme {row % 7}"
    if type_ == "JSON":
        return f'{{"a": {row}.50, "b": [1e400, "x"]}}'
    if type_ == "DOUBLE":
        return row / 3
    if type_ == "BOOLEAN":
        return row % 2 == 0
    return (-1) ** row * (row + 2**40 * (type_ == "BIGINT"))


def table(of: Contract, rows: int, seed: int = 0) -> pa.Table:
    """Rows of a contract without its keys, with nulls where allowed."""
    columns = {}
    for column in of.columns:
        if column.name not in KEYS:
            known = [value(column.type, row + seed) for row in range(rows)]
            values = [None if column.null and row % 3 == 0 else one for row, one in enumerate(known)]
            columns[column.name] = pa.array(values, type_of(column.type))
    return pa.table(columns)


def coded(rows: pa.Table) -> pa.Table:
    """The same rows with every text dictionary-encoded."""
    texts = [name for name in rows.column_names if pa.types.is_string(rows.schema.field(name).type)]
    for name in texts:
        rows = rows.set_column(rows.column_names.index(name), name, rows[name].dictionary_encode())
    return rows


def copied(of: Contract, rows: pa.Table, rank: int, path: Path) -> Path:
    """The rows in a file written by DuckDB."""
    with duckdb.connect() as con:
        con.register("given", rows)
        con.execute(f"CREATE TABLE whole AS SELECT 'run' AS run_id, {rank} AS rank, * FROM given")
        columns = [f'CAST("{column.name}" AS {column.type}) AS "{column.name}"' for column in of.columns]
        con.execute(
            f"COPY (SELECT {', '.join(columns)} FROM whole) TO '{path}' (FORMAT parquet, COMPRESSION zstd, "
            "COMPRESSION_LEVEL 9, PARQUET_VERSION v2, DICTIONARY_SIZE_LIMIT 1500, "
            f"KV_METADATA {{contract: '{of.ref}', contract_hash: '{CATALOG.effective_hash(of)}'}})"
        )
    return path


def written(found: WrittenTable | None) -> WrittenTable:
    assert found is not None
    return found


def column_types(path: Path) -> dict[str, tuple[str, str]]:
    """Physical and logical type of each column; the annotation of signed integers is optional."""
    schema = pq.ParquetFile(path).schema
    columns = [schema.column(index) for index in range(len(schema))]
    own = {("INT32", "Int(bitWidth=32, isSigned=true)"), ("INT64", "Int(bitWidth=64, isSigned=true)")}
    types = {one.name: (one.physical_type, str(one.logical_type)) for one in columns}
    return {name: (type_[0], "None") if type_ in own else type_ for name, type_ in types.items()}


def read(*paths: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect() as con:
        files = [str(path) for path in paths]
        rows = con.execute("FROM read_parquet($1, hive_partitioning = false) ORDER BY ALL", [files])
        return rows.fetchall()


# Between them they have every type of column.
EVERY_TYPE = ("annotations", "wait_attribution_basis", "execution_nodes", "flight_records", "rank_sources")


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(of, id=of.name, marks=[] if of.name in EVERY_TYPE else pytest.mark.deep)
        for of in STORED
        if not has_template(of)  # DuckDB does not split arguments
    ],
)
def test_old_and_new_files_are_read_together(of: Contract, writer: TableWriter, tmp_path: Path) -> None:
    rows = table(of, 40)
    old = copied(of, rows, 0, tmp_path / "old.parquet")
    new = tmp_path / "new.parquet"
    writer.write(of, coded(rows), run_id="run", rank=0, path=new)
    assert column_types(new) == column_types(old)
    assert read(new) == read(old)
    assert read(old, new) == sorted(read(old) * 2, key=read(old).index)
    with duckdb.connect() as con:
        assert con.sql(f"FROM read_parquet('{new}')").types == con.sql(f"FROM read_parquet('{old}')").types
    frames = [pl.scan_parquet(path).collect() for path in (old, new)]
    assert frames[0].schema == frames[1].schema
    assert pl.scan_parquet([old, new]).collect().height == 80
    assert frames[0].equals(frames[1])
    alone = ds.dataset(old).to_table().to_pylist()
    assert ds.dataset([old, new]).to_table().to_pylist() == alone * 2
    assert ds.dataset([new, old]).to_table().to_pylist() == alone * 2


def test_the_footer_has_the_contract_and_no_arrow_schema(writer: TableWriter, tmp_path: Path) -> None:
    of, path = contract("events"), tmp_path / "a.parquet"
    writer.write(of, table(of, 5), run_id="run", rank=3, path=path)
    footer = pq.ParquetFile(path).metadata
    hash_ = CATALOG.effective_hash(of).encode()
    assert footer.metadata == {b"contract": b"events@1", b"contract_hash": hash_}
    rank = footer.row_group(0).column(1).statistics
    assert (rank.min, rank.max, rank.null_count) == (3, 3, 0)
    run = footer.row_group(0).column(0).statistics
    assert (run.min, run.max) == ("run", "run")


def test_the_file_is_identified_by_size_and_hashes(writer: TableWriter, tmp_path: Path) -> None:
    of, path = contract("kernels"), tmp_path / "a.parquet"
    found = written(writer.write(of, table(of, 300), run_id="run", rank=3, path=path))
    data = path.read_bytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") :]
    facts = file_facts(path)
    assert (facts.bytes, facts.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert (facts.footer_bytes, facts.footer_sha256) == (len(footer), hashlib.sha256(footer).hexdigest())
    assert facts.crc32 == zlib.crc32(data)
    assert (found.table, found.version, found.ranks, found.rows) == ("kernels", of.version, (3,), (300,))


def test_a_flipped_bit_of_a_large_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": np.random.default_rng(5).integers(0, 2**62, 800_000)}), path)
    facts = file_facts(path)
    file = TableFile("kernels", 1, "a", 1, **asdict(facts), file_rows=1, first_rank=0, last_rank=0)
    assert facts.bytes > 5_000_000 and fault(path, file, Level.CRC) is None
    for place in (0, 1 << 16, facts.bytes // 2, facts.bytes - 1):
        data = bytearray(path.read_bytes())
        data[place] ^= 4
        path.write_bytes(data)
        _passed.clear()
        assert "checksum differs" in str(fault(path, file, Level.CRC))
        data[place] ^= 4
        path.write_bytes(data)


def test_a_flipped_bit_in_a_page_is_noticed(writer: TableWriter, tmp_path: Path) -> None:
    of, path = contract("events"), tmp_path / "a.parquet"
    writer.write(of, table(of, 400), run_id="run", rank=3, path=path)
    column = pq.ParquetFile(path).metadata.row_group(0).column(of.columns.index(_column(of, "ts_ns")))
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(OSError, match="(?i)crc"):
        pq.ParquetFile(path, page_checksum_verification=True).read(use_threads=False)


def _column(of: Contract, name: str) -> Any:
    return next(column for column in of.columns if column.name == name)


def encodings(path: Path) -> dict[str, str]:
    """The encoding of each column in its first row group."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    plain = {"PLAIN", "RLE"}
    return {one.path_in_schema: ", ".join(set(one.encodings) - plain) or "PLAIN" for one in columns}


def args(numbers: list[int]) -> pa.Array:
    """Arguments that differ in their last value."""
    return pa.array([f'{{"Device Id": 0, "Device Type": 1, "Addr": 14003{number:06}}}' for number in numbers])


def events(rows: int, **columns: pa.Array) -> pa.Table:
    """Rows of `events` that are null except for ids and some columns."""
    of = contract("events")
    empty = {one.name: pa.nulls(rows, type_of(one.type)) for one in of.columns if one.name not in KEYS}
    return pa.table(empty | {"event_id": pa.array(range(rows), pa.int64())} | columns)


def scattered(rows: int) -> list[int]:
    """Numbers below 100,003, unordered."""
    return [int.from_bytes(hashlib.sha256(b"%d" % row).digest()[:8]) % 100_003 for row in range(rows)]


def test_encodings_depend_on_values(writer: TableWriter, tmp_path: Path) -> None:
    rows, path = 20_000, tmp_path / "a.parquet"
    given = events(
        rows,
        name=pa.array([f"op {row % 50}" for row in range(rows)]).dictionary_encode(),
        extra=pa.array([f'{{"k": "{row * 7919}"}}' for row in range(rows)]),
        dur_ns=pa.array([1_000 * (row % 30) for row in range(rows)], pa.int64()),
        parent_id=pa.array([row // 2 for row in range(rows)], pa.int64()),
        args=args(scattered(rows)),
    )
    writer.write(contract("events"), given, run_id="run", rank=0, path=path)
    found = encodings(path)
    assert {found[name] for name in ("run_id", "rank", "name", "dur_ns")} == {"RLE_DICTIONARY"}
    assert {found[name] for name in ("event_id", "ts_ns", "pre", "parent_id")} == {"DELTA_BINARY_PACKED"}
    assert {found[name] for name in ("extra", "flow_id")} == {"DELTA_BYTE_ARRAY"}
    assert (found["args_template"], found["args_1"]) == ("RLE_DICTIONARY", "DELTA_BINARY_PACKED")
    assert pq.read_table(path, use_threads=False).num_rows == rows


def test_values_that_rarely_repeat_get_no_dictionary(writer: TableWriter, tmp_path: Path) -> None:
    rows, path = 20_000, tmp_path / "a.parquet"
    jumps = scattered(rows)
    given = events(rows, dur_ns=pa.array(jumps, pa.int64()), parent_id=pa.array(jumps, pa.int64()))
    writer.write(contract("events"), given, run_id="run", rank=0, path=path)
    found = encodings(path)
    assert (found["dur_ns"], found["parent_id"]) == ("PLAIN", "DELTA_BINARY_PACKED")


def test_delays_are_stored_as_differences_where_that_is_smaller() -> None:
    column, rows = _column(contract("correlations"), "call_to_start_ns"), scattered(20_000)
    full_queue = [10**9 + 1_000 * row + jump % 16 for row, jump in enumerate(rows)]
    two_sizes = [jump if jump % 3 else jump * 10**9 for jump in rows]
    assert encoding_of(column, pa.chunked_array([full_queue])) is Encoding.DELTA
    assert encoding_of(column, pa.chunked_array([two_sizes])) is Encoding.PLAIN
    assert encoding_of(column, pa.chunked_array([[jump % 9 for jump in rows]])) is Encoding.DICTIONARY


def batches(sizes: tuple[int, ...]) -> Iterator[pa.RecordBatch]:
    """Batches of `events` with separate dictionaries."""
    at = 0
    for number, size in enumerate(sizes):
        names = pa.array([f"batch {number} row {row % 900}" for row in range(size)], pa.string())
        names = names.dictionary_encode()
        whole = events(size, name=names, event_id=pa.array(range(at, at + size), pa.int64()))
        yield whole.to_batches()[0] if size else pa.RecordBatch.from_pylist([], whole.schema)
        at += size


def test_batches_become_equal_row_groups(writer: TableWriter, tmp_path: Path) -> None:
    sizes, path = (100_000, 1, 0, 60_000, 122_880, 5), tmp_path / "a.parquet"
    of = contract("events")
    found = written(writer.write(of, batches(sizes), run_id="run", rank=0, path=path))
    footer = pq.ParquetFile(path).metadata
    groups = [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]
    assert groups == [ROW_GROUP_ROWS, ROW_GROUP_ROWS, sum(sizes) - 2 * ROW_GROUP_ROWS]
    assert found.rows == (sum(sizes),)
    with duckdb.connect() as con:
        rows = con.execute(f"SELECT name, event_id FROM '{path}' ORDER BY event_id").fetchall()
    wanted = [f"batch {at} row {row % 900}" for at, size in enumerate(sizes) for row in range(size)]
    assert rows == [(name, row) for row, name in enumerate(wanted)]


def test_a_row_group_is_written_before_the_next_is_read(writer: TableWriter, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    sizes: list[int] = []

    def watched() -> Iterator[pa.RecordBatch]:
        long = pa.array(scattered(ROW_GROUP_ROWS), pa.int64())
        for _ in range(3):
            sizes.append(path.stat().st_size if path.exists() else 0)
            yield events(ROW_GROUP_ROWS, dur_ns=long, ts_ns=long).to_batches()[0]

    writer.write(contract("events"), watched(), run_id="run", rank=0, path=path)
    assert 0 == sizes[0] < sizes[1] < sizes[2]


def test_a_dictionary_larger_than_its_rows_is_not_stored_entirely(
    writer: TableWriter, tmp_path: Path
) -> None:
    texts = pa.array([f"{row:0200}" for row in range(50_000)])
    codes = pa.array([row % 10 for row in range(1_000)], pa.int32())
    given = events(1_000, name=pa.DictionaryArray.from_arrays(codes, texts))
    path = tmp_path / "a.parquet"
    written(writer.write(contract("events"), given, run_id="run", rank=0, path=path))
    assert path.stat().st_size < 50_000
    assert encodings(path)["name"] == "RLE_DICTIONARY"
    assert pq.read_table(path, columns=["name"])["name"].unique().to_pylist() == texts[:10].to_pylist()


def each_alone(ranks: dict[int, pa.Table]) -> list[tuple[tuple[int, ...], pa.Table]]:
    return [((rank,), rows) for rank, rows in ranks.items()]


def test_a_table_of_several_ranks_is_packed_with_others(writer: TableWriter, tmp_path: Path) -> None:
    of = contract("syncs")
    ranks = {rank: coded(table(of, 10 * rank, seed=rank)) for rank in (2, 3, 5)}
    ids = pa.array([2] * 20 + [5] * 50, pa.int32())
    both = pa.concat_tables([ranks[2], ranks[5]]).append_column("rank", ids)
    paths = [tmp_path / name for name in ("joined.parquet", "alone.parquet")]
    found = written(
        writer.write_packed(of, [((7,), ranks[3]), ((2, 4, 5), both)], run_id="run", path=paths[0])
    )
    assert (found.ranks, found.rows) == ((2, 5, 7), (20, 50, 30))
    writer.write_packed(of, each_alone({2: ranks[2], 5: ranks[5], 7: ranks[3]}), run_id="run", path=paths[1])
    assert read(paths[0]) == read(paths[1])


def test_small_ranks_share_a_row_group(writer: TableWriter, tmp_path: Path) -> None:
    of, path = contract("kernels"), tmp_path / "packed.parquet"
    ranks = {rank: coded(table(of, 10 * rank, seed=rank)) for rank in (5, 0, 2, 9)}
    found = written(writer.write_packed(of, each_alone(ranks), run_id="run", path=path))
    assert (found.ranks, found.rows) == ((2, 5, 9), (20, 50, 90))
    footer = pq.ParquetFile(path).metadata
    spans = [footer.row_group(index).column(1).statistics for index in range(footer.num_row_groups)]
    assert [(one.min, one.max) for one in spans] == [(2, 9)]
    alone = []
    for rank in found.ranks:
        one = tmp_path / f"{rank}.parquet"
        writer.write(of, ranks[rank], run_id="run", rank=rank, path=one)
        alone.append(one)
    assert read(path) == read(*alone)
    assert column_types(path) == column_types(alone[0])
    assert path.stat().st_size < 0.6 * sum(one.stat().st_size for one in alone)


def test_a_large_rank_has_row_groups_of_its_own(writer: TableWriter, tmp_path: Path) -> None:
    of, path, rows = contract("events"), tmp_path / "packed.parquet", (40_000, 30_000, 100_000, 70_000, 9)
    tables = {rank: events(count) for rank, count in enumerate(rows)}
    writer.write_packed(of, each_alone(tables), run_id="r", path=path)
    footer = pq.ParquetFile(path).metadata
    spans = [footer.row_group(index).column(1).statistics for index in range(footer.num_row_groups)]
    assert [(one.min, one.max) for one in spans] == [(0, 1), (2, 2), (3, 4)]
    assert [footer.row_group(at).num_rows for at in range(3)] == [70_000, 100_000, 70_009]


def test_packed_ranks_are_encoded_as_the_largest_alone(writer: TableWriter, tmp_path: Path) -> None:
    rows, of = 20_000, contract("events")
    jumps = scattered(rows)
    large = events(rows, dur_ns=pa.array(jumps, pa.int64()), args=args(jumps))
    small = events(200, dur_ns=pa.array([7] * 200, pa.int64()), args=pa.array(["{}"] * 200))
    writer.write(of, large, run_id="run", rank=1, path=tmp_path / "alone.parquet")
    ranks = {0: small, 1: large, 2: small}
    writer.write_packed(of, each_alone(ranks), run_id="run", path=tmp_path / "packed.parquet")
    assert encodings(tmp_path / "packed.parquet") == encodings(tmp_path / "alone.parquet")


def test_ranks_with_different_dictionaries_are_packed(writer: TableWriter, tmp_path: Path) -> None:
    of, path = contract("syncs"), tmp_path / "packed.parquet"
    plain = table(of, 30)
    ranks = {0: coded(plain), 1: plain, 2: coded(plain)}
    writer.write_packed(of, each_alone(ranks), run_id="run", path=path)
    by_rank = [[row[2:] for row in read(path) if row[1] == rank] for rank in range(3)]
    assert by_rank[0] == by_rank[1] == by_rank[2]
    assert len(by_rank[0]) == 30


def test_no_rows_give_no_file(writer: TableWriter, tmp_path: Path) -> None:
    of, path = contract("syncs"), tmp_path / "a.parquet"
    assert writer.write(of, table(of, 0), run_id="run", rank=0, path=path) is None
    assert writer.write(of, iter(()), run_id="run", rank=0, path=path) is None
    assert writer.write_packed(of, [((0,), table(of, 0))], run_id="run", path=path) is None
    assert not path.exists()


def test_a_missing_column_is_an_error(writer: TableWriter, tmp_path: Path) -> None:
    of = contract("syncs")
    with pytest.raises(TwError, match="syncs@1: .*: kind"):
        rows = table(of, 3).drop_columns(["kind"])
        writer.write(of, rows, run_id="run", rank=0, path=tmp_path / "a.parquet")


def test_keys_that_the_table_has_are_kept(writer: TableWriter, tmp_path: Path) -> None:
    of, path = contract("data_quality"), tmp_path / "a.parquet"
    ranks = pa.array([None, 4, 4], pa.int32())
    writer.write(of, table(of, 3).append_column("rank", ranks), run_id="run", rank=4, path=path)
    assert [row[:2] for row in read(path)] == [("run", 4), ("run", 4), ("run", None)]


def test_the_store_packs_new_files_with_their_encodings(writer: TableWriter, tmp_path: Path) -> None:
    store, of = Store.open_or_create(tmp_path / "warehouse"), contract("events")
    with store.staging() as folder:
        alone = [folder / f"{rank}.parquet" for rank in range(2)]
        for rank, path in enumerate(alone):
            rows = events(3_000, args=args(scattered(3_000)))
            writer.write(of, rows, run_id="run", rank=rank, path=path)
        wanted = encodings(alone[0]), column_types(alone[0]), read(*alone)
        sources = store.commit([
            Staged(run="run", rank=rank, uid=f"{rank:016x}", digest=f"d{rank}", text_bytes=1, format="kineto",
                   format_version=1, definitions={}, status="intact",
                   tables=(StagedTable("events", 1, path, 3_000),)) for rank, path in enumerate(alone)
        ])  # fmt: skip
    packed = store.path(sources[0].files[0].path)
    assert sources[0].files[0].file_ranks == 2
    assert (encodings(packed), column_types(packed), read(packed)) == wanted
