"""Trace handler for training scripts: spools each profiler trace to the inbox of a warehouse.

For a warehouse in an object store, the traces are spooled to a local folder, and other processes upload them.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field

from tracewarehouse import training_log
from tracewarehouse.errors import ParamError
from tracewarehouse.formats.redact.rules import policy_of
from tracewarehouse.formats.redact.text import Redactor, check_text
from tracewarehouse.ingest.environment import labels_of_process
from tracewarehouse.ingest.inbox import NOTE_SUFFIX, inbox_folder, note_path
from tracewarehouse.location import is_url, store_url
from tracewarehouse.storage.layout import check_labels, run_name
from tracewarehouse.storage.remote import missing_package
from tracewarehouse.temp_folders import cache_folder
from tracewarehouse.version import __version__

_UPLOAD = "tracewarehouse.ingest.inbox"
_AT_EXIT_S = 60.0
# Environment variables of launchers, most reliable first: torchrun, Slurm, Open MPI, MPICH.
_RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_SIZE_VARIABLES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
# The key in the store of torch.distributed whose value all ranks of a start of a job have in common.
_SHARED_KEY = "tracewarehouse/attempt"
_PROCESS = uuid.uuid4().hex
_SAVED = "another handler has exported the trace, which torch does once: name its folder with also="


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
    also: str | os.PathLike[str] | None = None,
    auto_labels: bool = True,
    spool: str | os.PathLike[str] | None = None,
    log: bool = False,
) -> Callable[[Profiler], None]:
    """Makes a function for `torch.profiler.profile(on_trace_ready=…)` that stores each trace in a warehouse.

    Each profiling window becomes one file in `WAREHOUSE/inbox/RUN/`, as the profiler wrote it, secrets
    included. `tw ingest --inbox` ingests it and replaces what looks like a secret. Window k is run `RUN~k`,
    from k = 2. When the job starts again, its runs are `RUN+1`, then `RUN+2`. A failure is a warning and
    never stops the training.

    The warehouse may be at a URL (`s3://`, `gs://`, `az://`): a separate process uploads each trace from the
    folder `spool` and deletes it there. At its end, the training process waits up to a minute for uploads. A
    trace that was not uploaded is uploaded with the next one.

    Args:
        run: Name of the run.
        labels: Labels of the run.
        wait: Ingests (or uploads) each trace before the handler returns.
        also: Folder for TensorBoard that gets the same file: torch exports a trace only once.
        auto_labels: Adds labels from the environment: git.commit, git.branch, slurm.job, wandb.run, ci.sha,
            image, python, torch, cuda or rocm, gpu, host (TW_AUTO_LABELS=0: none).
        spool: Folder for traces to upload (default: in the user's cache).
        log: Writes the verdict on each trace of rank 0 to stderr, as `tw.verdict` returns it. A separate
            process computes it at low priority; the training never waits for it.

    Raises:
        ParamError: The name or a label is invalid or looks like a secret.
        WarehouseError: The URL does not name a store.

    Example:
        >>> handler = tw.trace_handler("warehouse", run="nightly")
        >>> with torch.profiler.profile(on_trace_ready=handler):
        ...     train()
    """
    url = _url_of_store(warehouse) if is_url(warehouse) else None
    folder = Path(warehouse) if url is None else spool_folder(url, spool)
    redactor = Redactor(b"", policy_of(folder))
    check_text(redactor, "the name of the run", {"run": run})
    for name, value in check_labels(labels or {}).items():
        check_text(redactor, "a label", {name: value})
    name, is_changed = run_name(run)
    if is_changed:
        message = f"run {run} is stored as {name}: run names may contain A-Z a-z 0-9 . _ + = ~ -"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    automatic, beside = redactor if auto_labels else None, None if also is None else Path(also)
    if url is None:
        return _Handler(folder, name, dict(labels or {}), wait, beside, automatic, log)
    return _UploadingHandler(folder, name, dict(labels or {}), wait, beside, automatic, log, url=url)


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
    return cache_folder() / "spool" / sha256(url.encode()).hexdigest()[:16]


def process_rank(environment: Mapping[str, str]) -> ProcessRank:
    """Rank and world size from the launcher's variables; LOCAL_RANK counts only on a single machine."""
    rank = _first_number(environment, _RANK_VARIABLES)
    world_size = _first_number(environment, _SIZE_VARIABLES)
    if rank is None and world_size == _first_number(environment, ("LOCAL_WORLD_SIZE",)):
        rank = _first_number(environment, ("LOCAL_RANK",))
    return ProcessRank(rank, world_size)


def _distributed() -> Any:
    """torch.distributed, if the process has initialized it."""
    module = sys.modules.get("torch.distributed")
    return module if module is not None and module.is_available() and module.is_initialized() else None


def attempt_keys(environment: Mapping[str, str], shared: str | None = None) -> dict[str, str]:
    """What sets this start of a job apart from others: hashes by kind, the most reliable first.

    `shared` is a value that all ranks have in common. A restart of torchelastic or Slurm is another start.
    """
    elastic, slurm = environment.get("TORCHELASTIC_RUN_ID", "none"), environment.get("SLURM_JOB_ID")
    restarts = [environment.get(f"{name}_RESTART_COUNT", "0") for name in ("TORCHELASTIC", "SLURM")]
    values = {
        "shared": shared,
        "torchelastic": f"{elastic} {restarts[0]}" if elastic not in ("", "none") else None,
        "slurm": f"{slurm} {restarts[1]}" if slurm else None,
    }
    return {kind: sha256(value.encode()).hexdigest()[:16] for kind, value in values.items() if value}


def _shared_value() -> str | None:
    """The value of rank 0, which it shares with all ranks of this start; None if there is none yet.

    It is written again at every start: the store may be that of torchelastic, which survives a restart.
    """
    try:
        if (group := _distributed()) is None:
            return None
        store = sys.modules["torch.distributed.distributed_c10d"]._get_default_store()
        if group.get_rank() == 0:
            store.set(_SHARED_KEY, f"{_PROCESS}.{os.getpid()}")
        # No rank waits for another one.
        return str(store.get(_SHARED_KEY).decode()) if store.check([_SHARED_KEY]) else None
    except Exception:  # the process with the store may have ended
        return None


def _first_number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    values = (environment.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdecimal()), None)


class _Handler(Struct):
    warehouse: Path
    run: str
    labels: Mapping[str, str]
    wait: bool
    also: Path | None = None
    redactor: Redactor | None = None
    log: bool = False
    process: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    windows: int = 0

    def __post_init__(self) -> None:
        _shared_value()  # rank 0 shares it before another rank reads it

    def __call__(self, profiler: Profiler) -> None:
        """Spools a trace; a failure is a warning."""
        self.windows += 1
        try:
            self._store(profiler)
        except Exception as error:
            reason = _SAVED if "already saved" in str(error) else str(error) or type(error).__name__
            self._warn(f"not stored: {reason}")

    def _store(self, profiler: Profiler) -> None:
        # Read late: the W&B run and the process group begin after the handler is made.
        automatic = labels_of_process(self.redactor) if self.redactor else {}
        group = _distributed()
        process = ProcessRank(group.get_rank(), group.get_world_size()) if group else process_rank(os.environ)
        facts = {
            "span": self.windows,
            "world_size": process.world_size,
            "labels": {**automatic, **self.labels},
            "process": f"{self.process}.{os.getpid()}",  # a handler may be made before a fork
            "attempt": attempt_keys(os.environ, _shared_value()),
        }
        with exported_trace(profiler, self.warehouse) as exported:
            if self.also is not None:
                try:
                    _link(exported, self.also / f"{_process_name()}.{time.time_ns()}.pt.trace.json.gz")
                except OSError as error:
                    self._warn(f"not written to {self.also}: {error}")
            if self.log and not process.rank:
                self._log(exported)
            path = spool_trace(exported, inbox_folder(self.warehouse) / self.run, process, facts)
        if self.wait:
            self._finish(path)

    def _log(self, exported: Path) -> None:
        """Starts the process that logs the verdict, with a link to the trace: the inbox may be emptied."""
        run = self.run if self.windows == 1 else f"{self.run}~{self.windows}"
        trace = inbox_folder(self.warehouse) / f".{uuid.uuid4().hex}" / run / "rank0.json.gz"
        try:
            _link(exported, trace)
            training_log.start(trace)
        except Exception as error:
            shutil.rmtree(trace.parent.parent, ignore_errors=True)
            self._warn(f"not checked: {error}")

    def _warn(self, problem: str) -> None:
        message = f"trace of profiling window {self.windows} {problem}"
        warnings.warn(message, RuntimeWarning, stacklevel=3)

    def _finish(self, path: Path) -> None:
        """Ingests a trace."""
        from tracewarehouse.contracts.catalog import Catalog
        from tracewarehouse.ingest.outcome import Options
        from tracewarehouse.ingest.pipeline import ingest
        from tracewarehouse.storage.store import Store

        store = Store.open_or_create(self.warehouse, tool=__version__)
        for _ in range(2):  # another start of the job may be stored at the same time
            report = ingest(store, Catalog.load(), [path], Options(jobs=1, inbox=True))
            if not (refused := report.of("refused")):
                return
        self._warn(f"not stored: {refused[0].path}: {refused[0].reason}")


class _UploadingHandler(_Handler):
    """A handler whose traces are uploaded; `warehouse` is the local folder."""

    url: str = ""
    uploads: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        atexit.register(self._wait, _AT_EXIT_S, os.getpid())

    def _store(self, profiler: Profiler) -> None:
        """Spools a trace, and starts its upload."""
        try:
            super()._store(profiler)
        finally:  # what an earlier window left
            if not self.wait:
                self._start()

    def _finish(self, path: Path) -> None:
        """Waits for the upload of a trace."""
        self._start()
        self._wait(None, os.getpid())

    def _start(self) -> None:
        self._check()
        command = [_UPLOAD, self.url, str(self.warehouse), self.run]
        try:
            with (self.warehouse / "upload.log").open("ab") as log:
                self.uploads.append(training_log.in_background(command, log))
        except OSError as error:
            warnings.warn(f"traces in {self.warehouse} not uploaded: {error}", RuntimeWarning, stacklevel=3)

    def _check(self) -> None:
        """Warns if an earlier upload failed; the next one repeats it."""
        ended = [upload for upload in self.uploads if upload.poll() is not None]
        self.uploads = [upload for upload in self.uploads if upload.returncode is None]
        if any(upload.returncode for upload in ended):
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
        for upload in self.uploads:
            with suppress(subprocess.TimeoutExpired):
                upload.wait(None if until is None else max(0.0, until - time.monotonic()))
        self._check()


@contextmanager
def exported_trace(profiler: Profiler, warehouse: Path) -> Iterator[Path]:
    """A temporary file in the inbox with the profiler's trace."""
    inbox_folder(warehouse).mkdir(parents=True, exist_ok=True)
    temporary = inbox_folder(warehouse) / f".{uuid.uuid4().hex}.json.gz"
    try:
        profiler.export_chrome_trace(str(temporary))
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def spool_trace(exported: Path, folder: Path, process: ProcessRank, facts: Mapping[str, object]) -> Path:
    """Moves a trace and a note with facts into the folder of a run and returns the path of the trace.

    Both are renamed into place, the note first: a reader that sees the trace also sees its note.
    """
    name = _process_name()
    if process.rank is not None:
        name = f"rank{process.rank}" + (f"of{process.world_size}" if process.world_size else "")
    path = folder / f"{name}.span{facts['span']}.{time.time_ns()}.pt.trace.json.gz"
    note = exported.with_suffix(NOTE_SUFFIX)
    note.write_text(json.dumps(facts), encoding="utf-8")
    while note.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # an ingest has just removed the empty folder
            note.replace(note_path(path))
    exported.replace(path)
    return path


def _link(exported: Path, path: Path) -> None:
    """Links the trace as another file; a copy on another disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(exported, path)
    except OSError:
        temporary = path.with_name(f".{exported.name}")
        shutil.copyfile(exported, temporary)
        temporary.replace(path)


def _process_name() -> str:
    return f"{socket.gethostname()}_{os.getpid()}"
