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
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

import msgspec
import pyarrow as pa

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.file_text import UnsupportedFormatError
from tracewarehouse.formats.pickles.values import Job, Tables
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


def read_plain(path: Path, content: IO[bytes], walk: str, what: str, spill: Path) -> Tables:
    """The tables that a walk makes of the content of a file. Raises TraceFormatError if it is not `what`."""
    size, is_json = os.fstat(content.fileno()).st_size, content.read(1) in b"{[ \r\n\t"
    os.lseek(content.fileno(), 0, os.SEEK_SET)  # the child shares the position
    with TemporaryFile(dir=spill) as output:
        job = Job(
            input=content.fileno(),
            output=output.fileno(),
            walk=walk,
            is_json=is_json,
            memory_bytes=min(_MEMORY_PER_BYTE * size + _MEMORY_BYTES, _MOST_MEMORY_BYTES),
            cpu_s=_CPU_S + size // _BYTES_PER_CPU_S,
            values=max(size, _FEWEST_VALUES),
        )
        answer = _run(job)
        if "tables" not in answer:
            raise _error(path, job, answer, what)
        os.lseek(output.fileno(), 0, os.SEEK_SET)
        tables = {name: pa.ipc.open_stream(output).read_all() for name in answer["tables"]}
    return Tables(**answer | {"tables": tables})


def _run(job: Job) -> dict[str, Any]:
    """What the child process answers; the signal that ended it if it did not."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _START, str(_ROOT), msgspec.json.encode(job)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=(job.input, job.output),
            timeout=10 * job.cpu_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {}
    answer: dict[str, Any] = {"signal": -done.returncode} if done.returncode else json.loads(done.stdout)
    return answer


def _error(path: Path, job: Job, answer: Mapping[str, Any], what: str) -> TraceFormatError:
    kind, hint = "JSON file" if job.is_json else "pickle", "copy or record the file again"
    if "refused" in answer:
        message = f"the {kind} {answer['refused']}: not {what}; nothing was run"
        return UnsupportedFormatError(path, PICKLE, message)
    if "damaged" in answer:
        message = f"the {kind} is truncated or damaged ({answer['damaged']})"
    elif "memory" in answer:
        limit = f"{job.memory_bytes / 2**30:.1f} GiB"
        message = f"the {kind} needs more than {limit} of memory: it is damaged or too large"
        hint = "copy it again, or record fewer entries (max_entries)"
    elif answer.get("signal") in (signal.SIGXCPU, signal.SIGKILL):
        message = f"the {kind} took more than {job.cpu_s} s of CPU time: it is damaged or too large"
    else:
        message = f"the process that read the {kind} ended without a result"
    return TraceFormatError(path, message, hint=hint)


class PlainSource(RecordSource):
    """A Source that a child process reads. `walk` names the tables to make, `what` the file in messages."""

    most_bytes = (4 << 30, "it holds more than 4 GiB", "record fewer entries (max_entries)")
    walk: str
    what: str

    def check(self, tables: Mapping[str, pa.Table]) -> None:
        """Adds findings on inconsistent tables to `_notes`."""

    def _walk(self, content: IO[bytes]) -> Iterable[tuple[str, pa.Table]]:
        self._found = read_plain(self._path, content, self.walk, self.what, self._request.spill)
        for column, count in sorted(self._found.unusable.items()):
            self._notes.add("unusable_value", count, column)
        self.check(self._found.tables)
        return self._found.tables.items()

    def _header(self) -> Mapping[str, Any]:
        return self._found.header

    def _facts(self) -> Mapping[str, object]:
        return {"clock": "utc", **self._found.facts}
