"""Local copies of some columns of large Parquet files in an object store.

The metadata of a large file has the CRC-32 of each block before the footer, and the version has the SHA-256
of the footer. Blocks that were fetched are kept in a sparse file: one that is missing or changed has another
CRC-32. A query reads another sparse file, with the footer and the pages of its columns. Where those of other
columns begin, it has zeros, which no reader takes for a page.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

from tracewarehouse.storage.model import TableFile
from tracewarehouse.storage.objects import ColumnCopies, Objects

# Smaller files are downloaded whole, with one request, and so are those of which this share is needed.
LARGE_BYTES, _MOST = 8 << 20, 0.5
_CHECKSUMS = b"crc32_of_blocks"
_BLOCK_BYTES = 1 << 14
# Blocks per call: what is in memory at once.
_AT_ONCE = 512


def with_checksums(metadata: Mapping[Any, Any], path: Path) -> dict[Any, Any]:
    """The metadata of a file of which all but the footer is written: with checksums if it is large."""
    # Those of the files that it was made from are not its own.
    known = {key: value for key, value in metadata.items() if key != _CHECKSUMS}
    if path.stat().st_size > LARGE_BYTES:
        with path.open("rb") as file:
            blocks = iter(partial(file.read, _BLOCK_BYTES), b"")
            known[_CHECKSUMS] = b"".join(b"%08x" % crc32(block) for block in blocks)
    return known


def copy_columns(objects: Objects, file: TableFile, columns: ColumnCopies, cached: Path) -> bool:
    """Makes a copy of a file with only these columns; False if the whole file should be downloaded.

    Fetches what `cached` lacks, and checks all. Raises FileNotFoundError.
    """
    import pyarrow.parquet as pq

    cached.parent.mkdir(parents=True, exist_ok=True)
    target = columns.folder / file.path.replace("/", "-")
    cache = os.open(cached, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(cache, "r+b"), target.open("wb", buffering=0) as copy:
        os.truncate(cache, file.bytes)
        end = file.bytes - file.footer_bytes
        footer = os.pread(cache, file.footer_bytes, end)
        if hashlib.sha256(footer).hexdigest() != file.footer_sha256:
            footer = objects.get_range(file.path, end, file.bytes)
            if hashlib.sha256(footer).hexdigest() != file.footer_sha256:
                return False
            os.pwrite(cache, footer, end)
        os.pwrite(copy.fileno(), footer, end)
        metadata = pq.read_metadata(target)
        checksums = (metadata.metadata or {}).get(_CHECKSUMS, b"")
        chunks = list(_chunks(metadata, columns.names))
        numbers = {
            at for begin, stop in chunks for at in range(begin // _BLOCK_BYTES, -(-stop // _BLOCK_BYTES))
        }
        blocks = {at: (at * _BLOCK_BYTES, min((at + 1) * _BLOCK_BYTES, end)) for at in sorted(numbers)}
        is_most = len(blocks) * _BLOCK_BYTES > file.bytes * _MOST
        if is_most or not checksums or not _fetch(objects, file.path, blocks, checksums, cache):
            return False
        for begin, stop in chunks:
            os.pwrite(copy.fileno(), os.pread(cache, stop - begin, begin), begin)
    columns.copies[file.path] = target
    return True


def _chunks(metadata: Any, names: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Where the pages of these columns are: begin and end in each row group."""
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema.partition(".")[0] in names:
                begin = column.dictionary_page_offset or column.data_page_offset
                yield begin, begin + column.total_compressed_size


def _fetch(
    objects: Objects, key: str, blocks: Mapping[int, tuple[int, int]], checksums: bytes, cache: int
) -> bool:
    """Fetches the blocks that the cache lacks; False if one is not as it was written."""

    def is_intact(at: int, block: bytes) -> bool:
        return b"%08x" % crc32(block) == checksums[8 * at : 8 * at + 8]

    held = ((at, os.pread(cache, stop - begin, begin)) for at, (begin, stop) in blocks.items())
    missing = [at for at, block in held if not is_intact(at, block)]
    for first in range(0, len(missing), _AT_ONCE):
        some = missing[first : first + _AT_ONCE]
        for at, block in zip(some, objects.get_ranges(key, [blocks[at] for at in some]), strict=True):
            if not is_intact(at, block):
                return False
            os.pwrite(cache, block, blocks[at][0])
    return True
