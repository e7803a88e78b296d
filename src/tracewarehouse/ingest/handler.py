"""Trace handler for training scripts: spools each profiler trace to the inbox of a warehouse.

For a warehouse in an object store, the traces are spooled to a local folder, and other processes upload them.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from tracewarehouse.errors import ParamError, TwError
from tracewarehouse.formats.redact import Redactor, check_text, policy_of
from tracewarehouse.ingest.environment import labels_of_process
from tracewarehouse.ingest.inbox import inbox_folder, note_path
from tracewarehouse.location import is_url, store_url
from tracewarehouse.storage.layout import check_labels, run_name
from tracewarehouse.storage.remote import missing_package

_UPLOAD = "tracewarehouse.ingest.inbox"
_AT_EXIT_S = 60.0
# Environment variables of launchers, most reliable first: torchrun, Slurm, Open MPI, MPICH.
_RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_SIZE_VARIABLES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


class Profiler(Protocol):
    """The part of `torch.profiler.profile` that the handler uses."""

    def export_chrome_trace(self, path: str) -> None: ...


class ProcessRank(Struct, frozen=True):
    """Rank and world size of a process according to its launcher; None if unknown."""

    rank: int | None
    world_size: int | None


def trace_handler(
    warehouse: str | os.PathLike[str],
    *,
    run: str,
    labels: Mapping[str, str] | None = None,
    wait: bool = False,
    auto_labels: bool = True,
    spool: str | os.PathLike[str] | None = None,
) -> Callable[[Profiler], None]:
    """A function for `torch.profiler.profile(on_trace_ready=…)` that spools each trace to a warehouse.

    Each profiling window becomes one file in `WAREHOUSE/inbox/RUN/`, written atomically; `tw ingest --inbox`
    ingests it, and replaces what looks like a secret: until then, the file is as the profiler wrote it. With
    `wait=True` it is ingested before the handler returns. The first window is run `RUN`, window k is run
    `RUN~k`. A failure is a warning and never stops the training. With `auto_labels`, the run also gets labels
    from the environment, where known: git.commit and git.branch of the working directory, slurm.job,
    wandb.run, ci.sha, image, and host if the job runs on one machine (TW_AUTO_LABELS=0: none).

    The warehouse may be in an object store (`s3://`, `gs://`, `az://`): each trace is written to the folder
    `spool` (by default in the user's cache), and a separate process uploads it to `inbox/RUN/` and deletes
    it. With `wait=True` the handler waits for the upload; otherwise the process does at its end, for up to a
    minute. A trace that was not uploaded stays in the folder, and is uploaded with the next one.

    Raises ParamError for a run name or label that is invalid or looks like a secret, WarehouseError for a URL
    without a store.
    """
    url = _url_of_store(warehouse) if is_url(warehouse) else None
    folder = Path(warehouse) if url is None else spool_folder(url, spool)
    redactor = Redactor(b"", policy_of(folder))
    check_text(redactor, "the name of the run", {"run": run})
    for name, value in check_labels(labels or {}).items():
        check_text(redactor, "a label", {name: value})
    name, automatic = run_name(run)[0], redactor if auto_labels else None
    if url is None:
        return _Handler(folder, name, dict(labels or {}), wait, automatic)
    return _UploadingHandler(folder, name, dict(labels or {}), wait, automatic, url=url)


def _url_of_store(warehouse: str | os.PathLike[str]) -> str:
    """The URL, of a store that can be written to. Only other processes use the store itself."""
    place = store_url(os.fspath(warehouse))
    if place.is_web or place.scheme == "memory":
        raise ParamError(
            f"{place}: traces cannot be uploaded there", "name a folder, or an s3://, gs:// or az:// URL"
        )
    if find_spec("obstore") is None:
        raise missing_package(place)
    return place.url


def spool_folder(url: str, named: str | os.PathLike[str] | None = None) -> Path:
    """The local folder for traces that are to be uploaded to a URL."""
    if named is not None:
        return Path(named).absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    folder = Path(cache) if cache else Path.home() / ".cache"
    return folder / "tracewarehouse" / "spool" / sha256(url.encode()).hexdigest()[:16]


def process_rank(environment: Mapping[str, str]) -> ProcessRank:
    """Rank and world size from the launcher's variables; LOCAL_RANK counts only on a single machine."""
    rank = _first_number(environment, _RANK_VARIABLES)
    world_size = _first_number(environment, _SIZE_VARIABLES)
    if rank is None and world_size == _first_number(environment, ("LOCAL_WORLD_SIZE",)):
        rank = _first_number(environment, ("LOCAL_RANK",))
    return ProcessRank(rank, world_size)


def _first_number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    given = (environment.get(name, "") for name in names)
    return next((int(value) for value in given if value.isdecimal()), None)


class _Handler(Struct):
    warehouse: Path
    run: str
    labels: Mapping[str, str]
    wait: bool
    redactor: Redactor | None = None
    windows: int = 0

    def __call__(self, profiler: Profiler) -> None:
        self.windows += 1
        try:
            # Read late: the W&B run begins after the handler is made.
            found = labels_of_process(self.redactor) if self.redactor else {}
            path = spool_trace(profiler, self.warehouse, self.run, {**found, **self.labels}, self.windows)
            if self.wait:
                self._finish(path)
        except (OSError, TwError) as error:
            warnings.warn(
                f"trace of profiling window {self.windows} not stored: {error}", RuntimeWarning, stacklevel=2
            )

    def _finish(self, path: Path) -> None:
        """Ingests a trace."""
        from tracewarehouse.contracts.catalog import Catalog
        from tracewarehouse.ingest.outcome import Options
        from tracewarehouse.ingest.pipeline import ingest
        from tracewarehouse.storage import Store

        store = Store.open_or_create(self.warehouse)
        report = ingest(store, Catalog.load(), [path], Options(jobs=1, inbox=True))
        for file in report.files:
            if file.state == "refused":
                warnings.warn(f"{file.path}: {file.reason}", RuntimeWarning, stacklevel=3)


class _UploadingHandler(_Handler):
    """A handler whose traces are uploaded; `warehouse` is the local folder."""

    url: str = ""
    uploads: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        atexit.register(self._wait, _AT_EXIT_S, os.getpid())

    def __call__(self, profiler: Profiler) -> None:
        """Spools a trace, and starts its upload."""
        super().__call__(profiler)
        if not self.wait:
            self._start()

    def _finish(self, path: Path) -> None:
        """Waits for the upload of a trace."""
        self._start()
        self._wait(None, os.getpid())

    def _start(self) -> None:
        self._check()
        command = [sys.executable, "-m", _UPLOAD, self.url, str(self.warehouse), self.run]
        try:
            with (self.warehouse / "upload.log").open("ab") as log:
                self.uploads.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,  # Ctrl-C ends the training, not the upload
                        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                    )
                )
        except OSError as error:
            warnings.warn(f"traces in {self.warehouse} not uploaded: {error}", RuntimeWarning, stacklevel=3)

    def _check(self) -> None:
        """Warns if an earlier upload failed; the next one repeats it."""
        ended = [one for one in self.uploads if one.poll() is not None]
        self.uploads = [one for one in self.uploads if one.returncode is None]
        if any(one.returncode for one in ended):
            warnings.warn(
                f"traces in {self.warehouse} not uploaded to {self.url}: see upload.log there",
                RuntimeWarning,
                stacklevel=3,
            )

    def _wait(self, seconds: float | None, process: int) -> None:
        """Waits for running uploads, in the process that started them."""
        if process != os.getpid():
            return
        until = None if seconds is None else time.monotonic() + seconds
        for one in self.uploads:
            with suppress(subprocess.TimeoutExpired):
                one.wait(None if until is None else max(0.0, until - time.monotonic()))
        self._check()


def spool_trace(
    profiler: Profiler, warehouse: Path, run: str, labels: Mapping[str, str], window_number: int
) -> Path:
    """Writes a trace and its note into the inbox and returns the path of the trace.

    Both are renamed into process, the note first: a reader that sees the trace also sees its note.
    """
    folder = inbox_folder(warehouse) / run
    folder.mkdir(parents=True, exist_ok=True)
    process = process_rank(os.environ)
    name = f"{socket.gethostname()}_{os.getpid()}"
    if process.rank is not None:
        name = f"rank{process.rank}" + (f"of{process.world_size}" if process.world_size else "")
    name = f"{name}.span{window_number}.{time.time_ns()}.pt.trace.json.gz"
    temporary = folder / f".{uuid.uuid4().hex}.json.gz"
    try:
        profiler.export_chrome_trace(str(temporary))
        facts = {"span": window_number, "world_size": process.world_size, "labels": dict(labels)}
        note = folder / f".{uuid.uuid4().hex}.tw"
        note.write_text(json.dumps(facts), encoding="utf-8")
        note.replace(note_path(folder / name))
        temporary.replace(folder / name)
    finally:
        temporary.unlink(missing_ok=True)
    return folder / name
