"""Starts the child process that loads pickles, and turns its results into tables or errors.

A pickle is a program: loading one can call any function. The child refuses every name that a pickle requests,
may use a limited amount of memory and CPU time, and returns Arrow tables. This process never unpickles.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

import pyarrow as pa
from msgspec import Struct

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.file_text import TextStream, UnsupportedFormatError
from tracewarehouse.formats.pickles.values import Tables
from tracewarehouse.formats.source_tables import RecordSource

PICKLE: Final = "pickle"
_ROOT: Final = Path(__file__).resolve().parents[3]
_START: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " from tracewarehouse.formats.pickles.child import main; main()"
)
# A snapshot takes about four times its size once loaded; the rest is for columns and small files.
_MEMORY_PER_BYTE: Final = 8
_MEMORY_BYTES: Final = 256 << 20
_MOST_MEMORY_BYTES: Final = 4 << 30
_CPU_S: Final = 10
_BYTES_PER_CPU_S: Final = 5 << 20
# A value takes at least a byte, unless it is shared.
_FEWEST_VALUES: Final = 10_000


class PlainFile(Struct, frozen=True):
    """An open file with decompressed content, the format to read it as, and its path for messages."""

    path: Path
    content: IO[bytes]
    size: int
    walk: str
    is_json: bool = False

    @property
    def memory_bytes(self) -> int:
        """The memory that reading it may use."""
        return min(_MEMORY_PER_BYTE * self.size + _MEMORY_BYTES, _MOST_MEMORY_BYTES)

    @property
    def cpu_s(self) -> int:
        """The CPU time that reading it may take."""
        return _CPU_S + self.size // _BYTES_PER_CPU_S


def read_plain(file: PlainFile, spill: Path, what: str) -> Tables:
    """The tables of a file. Raises TraceFormatError if it is not `what`."""
    with TemporaryFile(dir=spill) as output:
        answer = _run(file, output)
        if "tables" not in answer:
            raise _error(file, answer, what)
        os.lseek(output.fileno(), 0, os.SEEK_SET)
        tables = {name: pa.ipc.open_stream(output).read_all() for name in answer["tables"]}
    return Tables(**answer | {"tables": tables})


def _run(file: PlainFile, output: IO[bytes]) -> dict[str, Any]:
    """What the child process answers; the signal that ended it if it did not."""
    job: dict[str, Any] = {
        "input": file.content.fileno(),
        "output": output.fileno(),
        "walk": file.walk,
        "json": file.is_json,
        "memory_bytes": file.memory_bytes,
        "cpu_s": file.cpu_s,
        "values": max(file.size, _FEWEST_VALUES),
    }
    os.lseek(file.content.fileno(), 0, os.SEEK_SET)  # the child shares the position
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _START, str(_ROOT), json.dumps(job)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=(job["input"], job["output"]),
            timeout=10 * file.cpu_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {}
    answer: dict[str, Any] = {"signal": -done.returncode} if done.returncode else json.loads(done.stdout)
    return answer


def _error(file: PlainFile, answer: Mapping[str, Any], what: str) -> TraceFormatError:
    kind = "JSON file" if file.is_json else "pickle"
    if "refused" in answer:
        message = f"the {kind} {answer['refused']}: not {what}; nothing was run"
        return UnsupportedFormatError(file.path, PICKLE, message)
    if "damaged" in answer:
        message = f"the {kind} is truncated or damaged ({answer['damaged']})"
        return TraceFormatError(file.path, message, hint="copy or record the file again")
    if answer.get("memory"):
        limit = f"{file.memory_bytes / 2**30:.1f} GiB"
        message = f"the {kind} needs more than {limit} of memory: it is damaged or too large"
        return TraceFormatError(
            file.path, message, hint="copy it again, or record fewer entries (max_entries)"
        )
    if answer.get("signal") in (signal.SIGXCPU, signal.SIGKILL):
        message = f"the {kind} took more than {file.cpu_s} s of CPU time: it is damaged or too large"
    else:
        message = f"the process that read the {kind} ended without a result"
    return TraceFormatError(file.path, message, hint="copy or record the file again")


class PlainSource(RecordSource):
    """A Source that a child process reads. `walk` names the tables to make, `what` the file in messages."""

    most_bytes = (4 << 30, "it holds more than 4 GiB", "record fewer entries (max_entries)")
    walk: str
    what: str

    def check(self, tables: Mapping[str, pa.Table]) -> None:
        """Adds findings on inconsistent tables to `_notes`."""

    def _walk(self, content: IO[bytes]) -> Iterable[tuple[str, pa.Table]]:
        is_json = content.read(1) in b"{[ \r\n\t"
        plain = PlainFile(self._path, content, self._content.size, self.walk, is_json)
        self._found = read_plain(plain, self._request.spill, self.what)
        for column, count in sorted(self._found.unusable.items()):
            self._notes.add("unusable_value", count, column)
        self.check(self._found.tables)
        return self._found.tables.items()

    def _header(self) -> Mapping[str, Any]:
        return self._found.header

    def _facts(self) -> Mapping[str, object]:
        return {"clock": "utc", **self._found.facts}

    @contextmanager
    def _opened(self) -> Iterator[tuple[TextStream, IO[bytes]]]:
        """Digest and sizes of the content, and an open file that holds it decompressed."""
        stream = TextStream(self._path)
        with TemporaryFile(dir=self._request.spill) as unpacked:
            unpacked.writelines(stream.within(*self.most_bytes))
            unpacked.flush()
            unpacked.seek(0)
            yield stream, unpacked
