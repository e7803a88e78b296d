"""Small neighboring ranks share files; readers still see the rows of the selected ranks only."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from storage_sources import seen, staged
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage.clean import clean
from tracewarehouse.storage.model import Changes, RankSource, Scan, Staged, StagedTable
from tracewarehouse.storage.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open_or_create(tmp_path / "warehouse")


def publish(store: Store, sources: tuple[RankSource, ...], **said: bool) -> None:
    assert store.publish("run", Changes(sources=sources, **said)).version is not None


def many(store: Store, ranks: range, content: str = "a") -> tuple[RankSource, ...]:
    with store.staging() as folder:
        return store.commit([staged(folder, rank, content=content) for rank in ranks])


def plan(store: Store, ranks: tuple[int, ...] | None = None) -> tuple[Scan, ...]:
    version = store.newest("run")
    assert version is not None
    return version.scan_plan("events", ranks=ranks)


def test_seventy_ranks_share_two_files_and_a_row_group_in_each(store: Store) -> None:
    publish(store, many(store, range(70)))
    paths = [store.path(scan.path) for scan in plan(store)]
    groups = [pq.ParquetFile(path).metadata.num_row_groups for path in paths]
    assert (groups, [scan.ranks for scan in plan(store)]) == ([1, 1], [None, None])
    statistics = pq.ParquetFile(paths[1]).metadata.row_group(0).column(1).statistics
    assert (statistics.min, statistics.max) == (64, 69)
    assert seen(store) == {rank: ["a"] * 40 for rank in range(70)}
    assert len(list((store.folder / "data").rglob("*.parquet"))) == 4
    assert store.verify() == []


def test_a_shared_file_is_read_for_selected_ranks_only(store: Store) -> None:
    publish(store, many(store, range(4)))
    (whole,) = plan(store)
    assert plan(store, ranks=(1, 3, 9)) == (Scan(whole.path, (1, 3), 1),)
    assert plan(store, ranks=(0, 1, 2, 3)) == (Scan(whole.path, None, 1),)
    assert plan(store, ranks=()) == ()


def test_replaced_and_dropped_ranks_leave_the_shared_file_to_the_others(store: Store) -> None:
    publish(store, many(store, range(4)))
    (whole,) = plan(store)
    publish(store, many(store, range(1, 2), content="b"), replace=True)
    assert Scan(whole.path, (0, 2, 3), 1) in plan(store)
    assert seen(store) == {rank: ["b" if rank == 1 else "a"] * 40 for rank in range(4)}
    store.publish("run", Changes(drop_ranks=(0, 3)))
    assert set(seen(store)) == {1, 2}
    clean(store, -1)
    assert store.verify() == []
    assert set(seen(store)) == {1, 2}


def test_a_shared_file_counts_once_in_bytes(store: Store) -> None:
    publish(store, many(store, range(4)))
    stored = sum(path.stat().st_size for path in (store.folder / "data").rglob("*.parquet"))
    version = store.newest("run")
    assert version is not None and version.bytes == stored


def duck_rank(folder: Path, rank: int, select: str) -> Staged:
    path = folder / f"{rank}.parquet"
    with duckdb.connect() as con:
        con.execute(
            f"COPY ({select}) TO '{path}' (FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2, "
            f"KV_METADATA {{contract: 'events@1', rank: '{rank}'}})"
        )
        (rows,) = con.execute(f"SELECT count(*) FROM '{path}'").fetchone() or (0,)
    made = StagedTable("events", 1, path, rows)
    return Staged("run", rank, f"{rank:016x}", f"d{rank}", 1, "kineto", 1, {}, "intact", (made,))


VALUES = """SELECT 'run' AS run_id, {rank}::INTEGER AS rank, i AS event_id,
  '{{"a": 1.50, "b": [1e400]}}'::JSON AS args,
  [i, 1] AS shapes, MAP {{'k': i}} AS tags, 1.5::DECIMAL(28, 9) AS ts, {{'x': 1, 'y': '1'::JSON}} AS both,
  NULL::INTEGER AS step, i % 2 = 0 AS flag, 'naïve' AS name FROM range({rows}) t(i)"""
NULLS = """SELECT 'run' AS run_id, {rank}::INTEGER AS rank, NULL::BIGINT AS event_id, NULL::JSON AS args,
  NULL::BIGINT[] AS shapes, NULL::MAP(VARCHAR, BIGINT) AS tags, NULL::DECIMAL(28, 9) AS ts,
  NULL::STRUCT(x INTEGER, y JSON) AS both, 7::INTEGER AS step, NULL::BOOLEAN AS flag, NULL::VARCHAR AS name
  FROM range({rows}) t(i)"""


def test_packing_changes_neither_types_nor_values(store: Store) -> None:
    with store.staging() as folder:
        ranks = [
            duck_rank(folder, rank, (NULLS if rank % 2 else VALUES).format(rank=rank, rows=5))
            for rank in range(4)
        ]
        before = [path.read_bytes() for path in sorted(folder.glob("*.parquet"))]
        sources = store.commit(ranks)
    alone = [store.folder / f"alone{rank}.parquet" for rank in range(4)]
    for path, data in zip(alone, before, strict=True):
        path.write_bytes(data)
    packed = store.path(sources[0].files[0].path)
    assert {source.files[0].path for source in sources} == {sources[0].files[0].path}
    with duckdb.connect() as con:
        wanted = con.sql(f"FROM read_parquet({[str(path) for path in alone]})")
        found = con.sql(f"FROM read_parquet('{packed}')")
        assert (found.columns, found.types) == (wanted.columns, wanted.types)
        reported = con.execute(f"SELECT key, value FROM parquet_kv_metadata('{packed}')").fetchall()
        assert reported == [(b"contract", b"events@1")]
        assert sorted(map(repr, found.fetchall())) == sorted(map(repr, wanted.fetchall()))


def test_a_large_rank_keeps_its_own_file_untouched(store: Store) -> None:
    noise = "SELECT 'run' AS run_id, {rank}::INTEGER AS rank, md5(i::VARCHAR) AS name FROM range({rows}) t(i)"
    with store.staging() as folder:
        rows = [10, 10, 300_000, 10, 10]
        ranks = [duck_rank(folder, rank, noise.format(rank=rank, rows=rows[rank])) for rank in range(5)]
        large = (folder / "2.parquet").read_bytes()
        sources = store.commit(ranks)
    files = [source.files[0] for source in sources]
    assert [file.file_ranks for file in files] == [2, 2, 1, 2, 2]
    assert len({file.path for file in files}) == 3
    assert store.path(files[2].path).read_bytes() == large


def test_packing_needs_no_more_bytes_than_the_files(store: Store) -> None:
    select = """SELECT 'run' AS run_id, {rank}::INTEGER AS rank, i AS event_id,
      1000 * i + (hash(i) % 997)::BIGINT AS ts_ns, md5((i % 50)::VARCHAR) AS name,
      '{{"correlation": %1$d}}' AS args_template, i AS correlation FROM range(20000) t(i)"""
    with store.staging() as folder:
        ranks = [duck_rank(folder, rank, select.format(rank=rank)) for rank in range(4)]
        before = sum(path.stat().st_size for path in folder.glob("*.parquet"))
        (file,) = {source.files[0] for source in store.commit(ranks)}
    assert file.file_ranks == 4
    assert file.bytes < 1.05 * before


def test_ranks_that_differ_in_columns_are_refused(store: Store) -> None:
    with store.staging() as folder:
        one = duck_rank(folder, 0, "SELECT 'run' AS run_id, 0::INTEGER AS rank, 1::BIGINT AS x")
        other = duck_rank(folder, 1, "SELECT 'run' AS run_id, 1::INTEGER AS rank, 'a' AS x")
        with pytest.raises(WarehouseError, match="ranks 0-1 differ in columns"):
            store.commit([one, other])
    assert not (store.folder / "data").exists()


def test_a_wrong_row_count_is_refused(store: Store) -> None:
    with store.staging() as folder:
        made = staged(folder, 0)
        lie = StagedTable("events", 1, made.tables[0].path, 39)
        with pytest.raises(WarehouseError, match="holds 40 rows, expected 39"):
            store.commit([replace(made, tables=(lie,))])
        lie.path.write_bytes(b"no Parquet")
        with pytest.raises(WarehouseError, match="not a Parquet file"):
            store.commit([replace(made, tables=(lie,))])
