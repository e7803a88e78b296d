"""Nsight Systems reports (.nsys-rep), which only `nsys` can read: exported to SQLite if it is installed."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.file_text import digest_of
from tracewarehouse.formats.nsys.format import NsysFile, NsysSource
from tracewarehouse.temp_folders import new_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from tracewarehouse.formats.base import Outcome, Part, Request

NAME: Final = "nsys_report"
VERSION: Final = 1
SUFFIXES: Final = (".nsys-rep", ".qdrep")
EXPORT_SECONDS: Final = 600
_MESSAGE_LENGTH: Final = 300


class NsysReportFormat:
    """A Format."""

    name = NAME
    version = VERSION

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether the file is named like a report; its content has no published signature."""
        return path.suffix.lower() in SUFFIXES and not path.is_dir()

    def open(self, path: Path) -> NsysReportFile:
        """The exported report. Raises TraceFormatError if nsys is missing, fails or takes too long."""
        return NsysReportFile(path, _exported(path, path.stat().st_mtime_ns, path.stat().st_size))


class NsysReportFile:
    """A TraceFile that reads the exported database."""

    def __init__(self, path: Path, database: Path) -> None:
        self.path = path
        self._file = NsysFile(database)

    def parts(self) -> tuple[Part, ...]:
        """The processes of the report."""
        return self._file.parts()

    def read(self, part: Part, request: Request) -> NsysReportSource:
        """Reads the activities of a process."""
        return NsysReportSource(self.path, self._file, part, request)


class NsysReportSource:
    """A Source whose digest is that of the report: exports of several nsys versions differ."""

    def __init__(self, path: Path, file: NsysFile, part: Part, request: Request) -> None:
        found = digest_of(path)
        self._digest, self._size = found.digest, found.stored_bytes
        self._source: NsysSource | None = None
        if request.known_digest != found.digest:
            self._source = file.read(part, replace(request, known_digest=None))

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """The activities. They can be read once."""
        return {} if self._source is None else self._source.tables

    def outcome(self) -> Outcome:
        """The facts about the process and the report."""
        from tracewarehouse.formats.base import Outcome

        if self._source is None:
            return Outcome(self._digest, "{}", self._size, self._size)
        outcome = self._source.outcome()
        return replace(outcome, digest=self._digest, text_bytes=self._size, stored_bytes=self._size)


@lru_cache(maxsize=4)
def _exported(path: Path, modified_ns: int, size: int) -> Path:
    """The report as an SQLite database in a temporary folder, which is removed when the process ends."""
    nsys = shutil.which("nsys")
    manual = f"run: nsys export --type sqlite {path.name}, then ingest the .sqlite file"
    if nsys is None:
        raise TraceFormatError(path, "only nsys can read this report, and it is not on the PATH", hint=manual)
    database = new_folder() / "report.sqlite"
    command = [nsys, "export", "--type", "sqlite", "--output", str(database), str(path.absolute())]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=EXPORT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise TraceFormatError(path, f"nsys export took more than {EXPORT_SECONDS} s", hint=manual) from error
    except OSError as error:
        raise TraceFormatError(path, f"nsys cannot be started: {error.strerror}", hint=manual) from error
    if done.returncode or not database.is_file():
        said = (done.stderr.strip() or done.stdout.strip())[-_MESSAGE_LENGTH:]
        hint = "the report may be damaged or of a newer nsys: export it where it was recorded"
        raise TraceFormatError(path, f"nsys export failed: {said or done.returncode}", hint=hint)
    return database
