"""The decompressed text of a trace file with its digest, and what a file is that no format reads.

Truncated and corrupt files are read as far as possible.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import zlib
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, TypeAlias, cast

from isal import isal_zlib
from isal.igzip_lib import IsalError
from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.late_regex import late_regex

Buffer: TypeAlias = bytes | bytearray | mmap.mmap
_File: TypeAlias = "BufferedReader[FileIO]"

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SQLITE_MAGIC = b"SQLite format 3\0"
# A database that is larger than the first, and than its file by the second factor, is not unpacked.
_DATABASE_BYTES = 4 << 30
_DATABASE_RATIO = 100
# Its type stub names no exception class.
_ISAL_ERROR = cast(type[Exception], IsalError)
# Traces compress about 20:1: larger pieces would not fit in the CPU caches once decompressed, and each would
# need a new memory mapping.
_PIECE_BYTES = 64 << 10
# Enough for a few bytes of text: the piece of a longer head is as usual.
_SMALL_PIECE_BYTES = 512
# Of blanks, a thousand times as many come out: they are decompressed in parts.
_MOST_PIECE_BYTES = 4 << 20
# Longer text goes to a memory-mapped temporary file, which bounds memory.
SPILL_BYTES = 64 << 20
# Longer text that is larger than its file by this factor is not read: traces compress 20:1, blanks 1,000:1.
_MOST_BYTES = 256 << 20
_MOST_RATIO = 200


def read_text(path: Path, spill: Path | None = None, *, keep: bool = False) -> Text:
    """The complete decompressed content. Raises TraceFormatError if the file cannot be read.

    Long text is memory-mapped from an unlinked temporary file in the folder `spill`. With `keep`, the next
    call for the unchanged file need not read it.
    """
    stat = path.stat()
    key = path, stat.st_mtime_ns, stat.st_size
    text = _KEPT.pop(key, None) or _read_text(path, spill)
    if keep:
        _KEPT.clear()
        _KEPT[key] = text
    return text


def _read_text(path: Path, spill: Path | None) -> Text:
    """The content, in memory, or in a memory-mapped temporary file if it is large."""
    text, memory, file = Text(path), bytearray(), None
    for piece in text:
        if file is None and len(memory) + len(piece) > SPILL_BYTES:
            file = TemporaryFile(dir=spill)  # noqa: SIM115  closed with the mapping
            file.write(memory)
            memory = bytearray()
        if file is None:
            memory += piece
        else:
            file.write(piece)
    text.buffer = memory
    if file is not None:
        file.flush()
        with file:
            text.buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return text


class _CutError(Exception):
    """The file is truncated or corrupt behind what was decompressed; the message is the reason."""


def _decompress(file: _File) -> Iterator[bytes]:
    """The decompressed content. Raises _CutError at the end of what can be decompressed."""
    magic = file.peek()[:4]
    if magic[:2] == GZIP_MAGIC:
        return _gunzip(file)
    return _unzstd(file) if magic == ZSTD_MAGIC else iter(file.read1, b"")


class Text(Struct):
    """The decompressed text of a file in pieces; a thread decompresses the next while one is in use.

    After the iteration ends, `digest`, `size` and the size of the file are valid, and `cut` is the reason if
    the file is truncated or corrupt. `read_text` returns the complete `buffer`. Raises TraceFormatError if
    the file cannot be read.
    """

    path: Path
    digest: str = ""
    size: int = 0
    stored_bytes: int = 0
    cut: str | None = None
    buffer: Buffer = b""

    def __iter__(self) -> Generator[bytes]:
        from concurrent.futures import ThreadPoolExecutor

        pieces = self.pieces()
        with ThreadPoolExecutor(1) as pool:
            following = pool.submit(next, pieces, None)
            while (piece := following.result()) is not None:
                following = pool.submit(next, pieces, None)
                yield piece

    def pieces(self, piece_bytes: int = _PIECE_BYTES) -> Generator[bytes]:
        """The text, decompressed from pieces of this size."""
        sha = hashlib.sha256()
        small = bytearray()  # of gzip members of a few bytes, each of which would need a separate search
        with _opened(self.path, piece_bytes) as file:
            most = max(_MOST_BYTES, _MOST_RATIO * os.fstat(file.fileno()).st_size)
            try:
                for piece in _decompress(file):
                    sha.update(piece)
                    self.size += len(piece)
                    if self.size > most:
                        reason = f"unpacks to more than {_MOST_RATIO} times its size"
                        raise TraceFormatError(self.path, reason, hint="unpack it, and name the file inside")
                    if len(small) + len(piece) < piece_bytes:
                        small.extend(piece)
                    else:
                        yield bytes(small) + piece if small else piece
                        small.clear()
            except _CutError as error:
                self.cut = str(error)
            if small:
                yield bytes(small)
            self.stored_bytes = os.fstat(file.fileno()).st_size
        self.digest = sha.hexdigest()

    def within(self, most_bytes: int, too_long: str, hint: str) -> Iterator[bytes]:
        """The pieces. Raises TraceFormatError beyond `most_bytes`."""
        for piece in self:
            yield piece
            if self.size > most_bytes:
                raise TraceFormatError(self.path, too_long, hint=hint)


# The text of the last file that is read again soon.
_KEPT: dict[tuple[Path, int, int], Text] = {}


def prefix_digest(path: Path, length: int) -> str | None:
    """SHA-256 of the first `length` bytes of the decompressed text; None if the text is shorter."""
    text = read_text(path)
    if text.size < length:
        return None
    return hashlib.sha256(memoryview(text.buffer)[:length]).hexdigest()


def digest_of(path: Path) -> Text:
    """Digest and sizes of the complete file. Raises TraceFormatError if it cannot be read."""
    text = Text(path)
    for _ in text.pieces():  # without a thread, as nothing is done with them
        pass
    return text


# The tables that rocprofv3 writes as CSV: PREFIX_TABLE.csv, with one prefix for all files of a process. The
# first file that exists is the path of the trace.
CSV_TRACES: Final = tuple(
    f"{name}_trace" for name in ("kernel", "hip_api", "hsa_api", "memory_copy", "marker_api", "rccl_api")
)
_CSV_TABLES: Final = (
    *CSV_TRACES, "agent_info", "counter_collection", "memory_allocation", "memory_allocation_trace",
    "scratch_memory_trace", "rocdecode_api_trace", "rocjpeg_api_trace", "pc_sampling_host_trap",
    "pc_sampling_stochastic",
)  # fmt: skip
_CSV_NAME: Final = late_regex(r"((?:.*_)?)(?:" + "|".join(_CSV_TABLES) + r")(\.csv(?:\.gz|\.zst)?)")
_PERFETTO_NAME: Final = late_regex(r"((?:.*_)?)results\.pftrace")


def csv_tables(path: Path) -> dict[str, Path]:
    """The files of the process to which a CSV file of rocprofv3 belongs, by table; none for other files."""
    if not (named := _CSV_NAME.fullmatch(path.name)):
        return {}
    prefix, ending = named.groups()
    files = {table: path.with_name(f"{prefix}{table}{ending}") for table in _CSV_TABLES}
    found = {table: file for table, file in files.items() if os.path.isfile(file)}  # noqa: PTH113
    return found if any(table in found for table in CSV_TRACES) else {}


def same_recording(path: Path) -> str | None:
    """The name of a file with the records that a CSV file or a Perfetto trace of rocprofv3 also has."""
    is_csv = _CSV_NAME.fullmatch(path.name)
    if not (named := is_csv or _PERFETTO_NAME.fullmatch(path.name)):
        return None
    names = [f"{named[1]}results{ending}" for ending in (".json", ".json.gz", ".db")]
    names += [] if is_csv else [f"{named[1]}{table}.csv" for table in CSV_TRACES]
    return next((name for name in names if path.with_name(name).is_file()), None)


def files_of(path: Path) -> list[Path]:
    """The files of a trace: those in a folder, the CSV files of a process, else the file itself."""
    if path.is_dir():
        return sorted(each for each in path.iterdir() if each.is_file())
    return list(csv_tables(path).values()) or [path]


def digest_of_files(path: Path, files: Iterable[Path]) -> Text:
    """The digest of the names and digests of the files of a trace, in their order."""
    total, size = hashlib.sha256(), 0
    for file in files:
        found = digest_of(file)
        total.update(f"{file.name}\0{found.digest}\n".encode(errors="surrogateescape"))
        size += found.stored_bytes
    return Text(path, total.hexdigest(), size, size)


def head_of(path: Path, length: int) -> bytes:
    """The first bytes of the decompressed text, as far as they can be read.

    Raises TraceFormatError if nothing can be read.
    """
    head = bytearray()
    with _opened(path, min(max(length, _SMALL_PIECE_BYTES), _PIECE_BYTES)) as file, suppress(_CutError):
        for piece in _decompress(file):
            head += piece
            if len(head) >= length:
                break
    return bytes(head[:length])


def _gunzip(file: _File) -> Iterator[bytes]:
    """The content of all members of a gzip file."""
    while True:
        yield from _member(file)
        while (rest := file.peek())[:1] == b"\0":  # padding
            file.read(len(rest) - len(rest.lstrip(b"\0")))
        if not rest:
            return
        if rest[:1] != GZIP_MAGIC[:1]:
            raise _CutError("bytes that are not gzip follow the compressed data")


def _unzstd(file: _File) -> Iterator[bytes]:
    """The content of all frames of a zstd file."""
    import pyarrow as pa

    stream = pa.input_stream(file.name, compression="zstd")
    try:
        while piece := stream.read(_PIECE_BYTES):
            yield piece
    except OSError as error:
        reason = f"the zstd stream is {'cut short' if 'Truncated' in str(error) else 'corrupt'}"
        raise _CutError(reason) from error


def is_compressed_database(path: Path) -> bool:
    """Whether a file is a compressed SQLite database, which is read from a copy (`unpack_database`)."""
    try:
        with path.open("rb") as file:
            return file.read(16) != SQLITE_MAGIC == head_of(path, 16)
    except (OSError, TraceFormatError):
        return False


def unpack_database(path: Path, copy: Path) -> None:
    """Decompresses a database to a new file. Raises TraceFormatError if it is cut short or corrupt."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    unfinished = copy.with_name(f"{copy.name}.{os.getpid()}")
    most = max(_DATABASE_BYTES, _DATABASE_RATIO * path.stat().st_size)
    try:
        with _opened(path) as file, unfinished.open("wb") as out:
            for piece in _decompress(file):
                if out.tell() + len(piece) > most:
                    reason = f"unpacks to more than {most >> 30} GiB"
                    raise TraceFormatError(path, reason, hint="unpack it and name the file inside")
                out.write(piece)
        unfinished.replace(copy)
    except _CutError as error:
        raise TraceFormatError(path, str(error), hint="copy the file again") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _member(file: _File) -> Iterator[bytes]:
    """The content of a member, of a corrupt one up to the corrupt position."""
    member, start, size = isal_zlib.decompressobj(wbits=31), file.tell(), 0
    while not member.eof:
        stored = file.peek()
        try:
            text = member.decompress(stored, _MOST_PIECE_BYTES)
        except _ISAL_ERROR as error:
            yield from _recovered(file, start, size)
            raise _CutError("the gzip stream is corrupt") from error
        if not (stored or text or member.eof):
            yield from _recovered(file, start, size)
            raise _CutError("the gzip stream is cut short")
        file.read(len(stored) - len(member.unconsumed_tail) - len(member.unused_data))
        yield text
        size += len(text)


def _recovered(file: _File, start: int, skip: int) -> Iterator[bytes]:
    """The rest of the member at `start` up to a corrupt position, found by bisection to the last valid byte.

    The first `skip` bytes of the text are known.
    """
    file.seek(start)
    member, size = zlib.decompressobj(wbits=31), _PIECE_BYTES
    while not member.eof and (piece := file.peek()[:size]):
        trial = member.copy()
        try:
            text = trial.decompress(piece)
        except zlib.error:
            if not (size := min(size, len(piece)) // 2):
                return
            continue
        member = trial
        file.read(len(piece))
        yield text[skip:]
        skip = max(skip - len(text), 0)


@contextmanager
def _opened(path: Path, piece_bytes: int = _PIECE_BYTES) -> Iterator[_File]:
    """The open file, which is read in pieces of this size; errors of reading it become TraceFormatError."""
    if path.is_dir():
        hint = hints.fill("name a trace file; {} reads folders", hints.ingest())
        raise TraceFormatError(path, "this is a folder, not a file", hint=hint)
    try:
        with BufferedReader(FileIO(path), piece_bytes) as file:
            yield file
    except FileNotFoundError as error:
        raise TraceFormatError(path, "no such file", hint="check the path") from error
    except PermissionError as error:
        raise TraceFormatError(path, "permission denied", hint="check the file's permissions") from error
    except OSError as error:
        reason = f"the file cannot be read: {error.strerror or error}"
        raise TraceFormatError(path, reason, hint="check the disk and the path") from error


NO_EVENTS: Final = "no_events"
EXPECTED_RESULTS: Final = "expected_results"

# Names of the formats in messages.
DESCRIPTIONS: Final = {
    "execution_trace": "a PyTorch execution trace",
    "memory_timeline": "a PyTorch memory timeline",
    "memory_snapshot": "a CUDA memory snapshot",
    "pickle": "a pickle that is neither a memory snapshot nor a flight recorder dump",
    "nsys_sqlite": "an Nsight Systems export",
    "rpd_sqlite": "an rpd database",
    "rocpd_sqlite": "a rocpd database of rocprofv3",
    "sqlite": "an SQLite database without profiler tables",
    "rocprofv3": "a rocprofv3 result",
    "perfetto": "a Perfetto trace that is not from rocprofv3",
    EXPECTED_RESULTS: "the truth.json of a simulated job",
    NO_EVENTS: "JSON without trace events",
}

REMEDIES: Final = {
    "pickle": "name a snapshot of torch.cuda.memory._dump_snapshot, a flight recorder dump, or a trace",
}

# Magic bytes, description, hint.
_MAGIC_BYTES: Final = (
    (b"PK\x03\x04", "a zip archive", "unpack it and name the trace inside"),
    (b"BZh", "bzip2 data", "unpack it with bunzip2; plain, gzip and zstd files are read"),
    (b"\xfd7zXZ\0", "xz data", "unpack it with unxz; plain, gzip and zstd files are read"),
    (ZSTD_MAGIC, "zstd data", "unpack it with zstd -d"),
    (b"\x7fELF", "a program", "name a trace file"),
    (b"PAR1", "a Parquet file", "name a trace file"),
)
# A JSON object with all keys of a row has that format.
_BY_KEYS: Final = (
    (("schema", "nodes"), "execution_trace"),
    (("rocprofiler-sdk-tool",), "rocprofv3"),
    (("segments", "device_traces"), "memory_snapshot"),
    (("truth", "job"), EXPECTED_RESULTS),
)
_PICKLE_NAME: Final = late_regex(r"\.(?:pickle|pkl)(?:\.gz|\.zst)?$", re.IGNORECASE)
# Headers of tables that nsys stats prints.
_STATISTICS: Final = (b"time (%)", b"start (ns)", b"total time", b"duration (ns)")
_CSV_STATISTICS: Final = b'"name","calls","totaldurationns"'
_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"
_DATABASES: Final = (".sqlite", ".sqlite3", ".db", ".rpd")
# An unclosed string is also one token; otherwise matching would restart at each quote inside it.
_TOKEN: Final = late_regex(rb'"(?:[^"\\]++|\\.)*+\\?(?:"|\Z)|[{}\[\],:]|[^ \t\r\n{}\[\],:"]+', re.DOTALL)


def binary_format(buffer: Buffer) -> str | None:
    """The name of a binary format; None if the content may be JSON."""
    return "pickle" if buffer[:1] == b"\x80" and buffer[1:2] <= b"\x05" else None


def is_pickle(path: Path, head: bytes) -> bool:
    """Whether this is a pickle by its first bytes, or by its name where those do not show it (protocol 0)."""
    if binary_format(head) is not None:
        return True
    is_other = head.startswith((b"{", *(magic for magic, _, _ in _MAGIC_BYTES)))
    return not is_other and bool(head.strip(b"\0 \t\r\n")) and _PICKLE_NAME.search(path.name) is not None


def sqlite_format(tables: Collection[str]) -> str:
    """The name of the format of an SQLite database, by its tables."""
    if "rocpd_op" in tables and "rocpd_api" in tables:
        return "rpd_sqlite"
    if any(name.startswith("rocpd_kernel_dispatch_") for name in tables):
        return "rocpd_sqlite"
    return "nsys_sqlite" if "StringIds" in tables else "sqlite"


def object_format(keys: Collection[str]) -> str:
    """The format of a JSON object without events, by its keys."""
    return next((name for wanted, name in _BY_KEYS if all(key in keys for key in wanted)), NO_EVENTS)


def list_format(first: object) -> str:
    """The format of a JSON list without objects, by its first element."""
    return "memory_timeline" if isinstance(first, list) and len(first) == 4 else NO_EVENTS


def json_tokens(text: Buffer) -> Iterator[tuple[bytes, int]]:
    """Each token of JSON that may end anywhere, and how many brackets are around it."""
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        depth -= token in (b"}", b"]")
        yield token, depth
        depth += token in (b"{", b"[")


def top_keys(head: bytes) -> list[str]:
    """The top-level keys of a JSON object in `head`, which may end anywhere."""
    keys, before = [], b""
    for token, depth in json_tokens(head):
        if depth == 1 and token == b":":
            keys.append(before[1:-1].decode(errors="replace"))
        before = token
    return keys


def holds_objects(head: bytes) -> bool:
    """Whether a JSON list in `head`, which may end anywhere, has an element that is an object."""
    return b"{" in head and (b"{", 1) in json_tokens(head)


def is_container(head: bytes) -> bool:
    """Whether a file begins with the magic bytes of an archive, database, pickle or other binary format."""
    magics = tuple(magic for magic, _, _ in _MAGIC_BYTES)
    return head.startswith((*magics, SQLITE_MAGIC, b"\x80")) or head[257:262] == b"ustar"


def check_readable(path: Path, buffer: Buffer) -> None:
    """Raises TraceFormatError for an empty file, an archive or another binary file that is not a trace."""
    head = bytes(buffer[:4096])
    if not buffer[:1] or not head.strip(b"\0 \t\r\n"):
        with path.open("rb") as file:
            is_cut = file.read(4) == ZSTD_MAGIC
        reason = "the zstd stream is cut short or corrupt" if is_cut else "the file is empty"
        raise TraceFormatError(path, reason, offset=0, hint="record or copy the trace again")
    for magic, what, hint in _MAGIC_BYTES:
        if head.startswith(magic):
            raise TraceFormatError(path, f"this is {what}, not a trace", offset=0, hint=hint)
    if head[257:262] == b"ustar":
        hint = "unpack it and name the folder"
        raise TraceFormatError(path, "a tar archive, not a trace", offset=0, hint=hint)


class UnsupportedFormatError(TraceFormatError):
    """The file has a known format without a reader, or contains no events; `format` names it.

    `reason` says more than the name of the format.
    """

    def __init__(self, path: Path | str, format: str, reason: str | None = None) -> None:
        self.format, self.details = format, reason
        self.description = DESCRIPTIONS.get(format, f"a file of format {format}")
        hint = REMEDIES.get(format, "name the Kineto trace instead")
        if reason is None and format == NO_EVENTS:
            reason, hint = "it contains no events", "the profiler recorded no events; record again"
        super().__init__(path, reason or f"this is {self.description}, not a trace", hint=hint)


def not_json(path: Path, buffer: Buffer, at: int) -> TraceFormatError:
    """The error for a file whose content does not begin like JSON."""
    head = bytes(buffer[at : at + 4096]).lstrip().lower()
    reason = "not a JSON object or array"
    hint = "a trace is a JSON object with traceEvents, or an array of events"
    if head.startswith(_LFS_POINTER):
        reason, hint = "a Git LFS pointer, not the file itself", "fetch the content: git lfs pull"
    elif path.suffix.lower() in _DATABASES:
        reason, hint = "not an SQLite database", "export or copy the file again"
    elif head.startswith(b"<"):
        is_html = b"<html" in head or b"<!doctype html" in head
        reason = f"this is {'an HTML page' if is_html else 'markup (XML or HTML)'}, not JSON"
        hint = "an error page was saved in place of the trace: download it again"
    elif head.startswith(_STATISTICS):
        reason = "a table of nsys stats, which has no events"
        hint = "export the report itself: nsys export --type sqlite FILE"
    elif head.startswith(_CSV_STATISTICS):
        reason = "statistics of rocprofv3, which have no events"
        hint = "name the trace beside it, as in 1234_kernel_trace.csv"
    return TraceFormatError(path, reason, offset=at, hint=hint)
