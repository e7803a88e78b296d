"""From the training script: traces dropped into a warehouse's inbox as the profiler produces them."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tracewarehouse.errors import TwError
from tracewarehouse.formats.redact import Redactor, check_text, policy_of
from tracewarehouse.ingest.inbox import beside, inbox
from tracewarehouse.storage.layout import check_labels, run_name

# The launchers' names for a process' place, most telling first: torchrun, Slurm, Open MPI, MPICH.
_RANK_NAMES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_SIZE_NAMES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


class Profiler(Protocol):
    """The one thing the handler asks of `torch.profiler.profile`."""

    def export_chrome_trace(self, path: str) -> None: ...


@dataclass(frozen=True)
class Place:
    """A process' rank and world size as its launcher tells them; None where it does not."""

    rank: int | None
    world_size: int | None


def trace_handler(
    warehouse: str | os.PathLike[str],
    *,
    run: str,
    labels: Mapping[str, str] | None = None,
    wait: bool = False,
) -> Callable[[Profiler], None]:
    """A function for `torch.profiler.profile(on_trace_ready=…)` that hands each trace to a warehouse.

    Each span the profiler finishes becomes one file in `WAREHOUSE/inbox/RUN/`, complete or not there at all;
    `tw ingest --inbox` takes it in. With `wait=True` it is taken in before the handler returns. The first
    span is the run itself, the k-th the run `RUN~k`. A failure is a warning: it never ends the training.

    Raises ParamError for a run name or label that cannot be used, or that looks like a secret.
    """
    redactor = Redactor(b"", policy_of(Path(warehouse)))
    check_text(redactor, "the name of the run", {"run": run})
    for name, value in check_labels(labels or {}).items():
        check_text(redactor, "a label", {name: value})
    return _Handler(Path(warehouse), run_name(run)[0], dict(labels or {}), wait)


def place_of_this_process(environment: Mapping[str, str]) -> Place:
    """Rank and world size from the launcher's variables; a lone LOCAL_RANK counts on one machine."""
    rank = _first_number(environment, _RANK_NAMES)
    world_size = _first_number(environment, _SIZE_NAMES)
    if rank is None and world_size == _first_number(environment, ("LOCAL_WORLD_SIZE",)):
        rank = _first_number(environment, ("LOCAL_RANK",))
    return Place(rank, world_size)


def _first_number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    given = (environment.get(name, "") for name in names)
    return next((int(value) for value in given if value.isdecimal()), None)


@dataclass
class _Handler:
    warehouse: Path
    run: str
    labels: Mapping[str, str]
    wait: bool
    spans: int = field(default=0)

    def __call__(self, profiler: Profiler) -> None:
        self.spans += 1
        try:
            path = drop(profiler, self.warehouse, self.run, self.labels, self.spans)
            if self.wait:
                self._take_in(path)
        except (OSError, TwError) as error:
            warnings.warn(f"trace of span {self.spans} not stored: {error}", RuntimeWarning, stacklevel=2)

    def _take_in(self, path: Path) -> None:
        from tracewarehouse.contracts.catalog import Catalog
        from tracewarehouse.ingest.outcome import Options
        from tracewarehouse.ingest.pipeline import ingest
        from tracewarehouse.storage import Store

        store = Store.open_or_create(self.warehouse)
        report = ingest(store, Catalog.load(), [path], Options(jobs=1, inbox=True))
        for file in report.files:
            if file.state == "refused":
                warnings.warn(f"{file.path}: {file.reason}", RuntimeWarning, stacklevel=3)


def drop(profiler: Profiler, warehouse: Path, run: str, labels: Mapping[str, str], span: int) -> Path:
    """Write one trace into the inbox, its labels beside it, and return its path.

    Both appear under their names by a rename, the labels first: who sees the trace sees its labels.
    """
    folder = inbox(warehouse) / run
    folder.mkdir(parents=True, exist_ok=True)
    place = place_of_this_process(os.environ)
    name = _file_name(place, span)
    temporary = folder / f".{uuid.uuid4().hex}.json.gz"
    try:
        profiler.export_chrome_trace(str(temporary))
        _write_beside(folder / name, {"span": span, "world_size": place.world_size, "labels": dict(labels)})
        temporary.replace(folder / name)
    finally:
        temporary.unlink(missing_ok=True)
    return folder / name


def _file_name(place: Place, span: int) -> str:
    who = f"{socket.gethostname()}_{os.getpid()}"
    if place.rank is not None:
        who = f"rank{place.rank}" + (f"of{place.world_size}" if place.world_size else "")
    return f"{who}.span{span}.{time.time_ns()}.pt.trace.json.gz"


def _write_beside(path: Path, facts: Mapping[str, object]) -> None:
    temporary = path.with_name(f".{uuid.uuid4().hex}.tw")
    temporary.write_text(json.dumps(facts), encoding="utf-8")
    temporary.replace(beside(path))
