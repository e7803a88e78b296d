"""Rewriting: rows of several stored Parquet files as one file, sorted by rank, in large row groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage.encoding import ROW_GROUP_ROWS, encodings_of, writer_options
from tracewarehouse.storage.model import TableFile
from tracewarehouse.storage.pack import common_metadata, common_schema, footer_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Share:
    """The rows of one rank in a stored file."""

    rank: int
    file: TableFile


def rewrite(shares: Sequence[Share], paths: Mapping[str, Path], path: Path) -> None:
    """Writes the rows of the shares, which are in order of rank, to one Parquet file.

    `paths`: key → local path of each stored file. Small ranks share a row group. Raises WarehouseError if a
    file does not hold what its version says.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = {share.file.path: share.file for share in shares}
    footers = [footer_of(paths[key], file.file_rows) for key, file in files.items()]
    schema = common_schema(shares[0].file.table, [share.rank for share in shares], footers)
    options = writer_options(encodings_of(max((each.metadata for each in footers), key=_rows)))
    reader = _Reader(paths)
    with pa.OSFile(str(path), "wb") as sink, pq.ParquetWriter(sink, schema, **options) as writer:
        for rows in _row_groups(reader.rows(share).cast(schema) for share in shares):
            writer.write_table(rows, row_group_size=len(rows))
        writer.add_key_value_metadata(common_metadata(footers))


def _rows(footer: Any) -> int:
    return int(footer.num_rows)


def _row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The rows of the tables in groups of `ROW_GROUP_ROWS`."""
    import pyarrow as pa

    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        while sum(map(len, held)) >= ROW_GROUP_ROWS:
            rows = pa.concat_tables(held)
            yield rows.slice(0, ROW_GROUP_ROWS).combine_chunks()
            held = [rows.slice(ROW_GROUP_ROWS)]
    if rest := [each for each in held if len(each)]:
        yield pa.concat_tables(rest).combine_chunks()


@dataclass
class _Reader:
    """Reads the rows of single ranks; one file is open at a time."""

    paths: Mapping[str, Path]
    # Key → number and rows of the row group that was read last: it may hold the next rank, too.
    _last: dict[str, tuple[int, pa.Table]] = field(default_factory=dict)

    def rows(self, share: Share) -> pa.Table:
        """The rows of a rank, in the order of the file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        key, wanted = share.file.path, share.file.rows
        with pq.ParquetFile(self.paths[key], page_checksum_verification=True) as file:
            found = [self._of_rank(key, file, group, share.rank) for group in _groups(file, share.rank)]
        rows = pa.concat_tables(found) if found else None
        if rows is None or len(rows) != wanted:
            held = 0 if rows is None else len(rows)
            raise WarehouseError(f"{self.paths[key]}: {held} rows of rank {share.rank}, expected {wanted}")
        return rows

    def _of_rank(self, key: str, file: Any, group: int, rank: int) -> pa.Table:
        import pyarrow.compute as pc

        number, rows = self._last.get(key, (-1, None))
        if number != group or rows is None:
            rows = file.read_row_group(group, use_threads=False)
            self._last[key] = group, rows
        return rows.filter(pc.equal(rows.column("rank"), rank))


def _groups(file: Any, rank: int) -> Iterator[int]:
    """The row groups that may hold a rank."""
    at = file.schema_arrow.get_field_index("rank")
    for group in range(file.metadata.num_row_groups):
        found = file.metadata.row_group(group).column(at).statistics
        if found is None or not found.has_min_max or found.min <= rank <= found.max:
            yield group
