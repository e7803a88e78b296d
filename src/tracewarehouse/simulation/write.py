"""Writes a simulated job: one trace file per rank, and truth.json with the expected results."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO

from tracewarehouse.errors import ParamError, TwError, UnknownName
from tracewarehouse.simulation.capture import capture_file_name, expected_nodes, write_capture
from tracewarehouse.simulation.groups import Group
from tracewarehouse.simulation.header import closing, file_name, head, names, tail
from tracewarehouse.simulation.job import Injection, Job
from tracewarehouse.simulation.paths import CAUSES, WaitAttribution
from tracewarehouse.simulation.record import Recorder
from tracewarehouse.simulation.schedule import JobState, RankSimulator, resolve_collectives
from tracewarehouse.simulation.truth import SECTIONS, Row


@dataclass(frozen=True)
class Simulated:
    """The files written, the number of events, and the time it took."""

    files: tuple[Path, ...]
    truth: Path
    events: int
    seconds: float


def simulate(
    folder: str | PathLike[str],
    job: Job | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Simulated:
    """Writes the traces of a job, `rankN.json.gz`, and `truth.json` to a new or empty folder.

    Pass a Job, or its settings by name (`ranks=8, tensor=2, injections=["slow-rank:rank=3"]`). The same
    settings give the same bytes. `progress` is called with ranks done and total ranks. Raises ParamError,
    UnknownName, and TwError if the folder is not empty.
    """
    started = perf_counter()
    job = job or _job(settings)
    state = JobState(job)
    resolve_collectives(state)
    _check_groups(state)
    target = Path(folder)
    _create_folder(target)
    files, events = [], 0
    truth, waits = TruthFile(target), WaitAttribution()
    groups: dict[str, Group] = {}
    try:
        for rank in range(job.ranks):
            written = state.faults.ever("missing-rank", rank) is None
            count = _write_rank(state, rank, target if written else None, truth, waits)
            groups |= {group.name: group for group in state.groups.all_of(rank)}
            state.groups.forget(rank)
            if written:
                files.append(target / f"rank{rank}.json.gz")
                events += count
            if progress is not None:
                progress(rank + 1, job.ranks)
        facts = _facts(job, state, list(groups.values()), events)
        path = truth.finish(facts, waits.rows(), state.faults.late_ranks())
    finally:
        truth.close()
    return Simulated(tuple(files), path, events, perf_counter() - started)


def _job(settings: dict[str, Any]) -> Job:
    given = settings.get("injections", ())
    parsed = tuple(each if isinstance(each, Injection) else Injection.parse(each) for each in given)
    return Job(**{**settings, "injections": parsed})


def _check_groups(state: JobState) -> None:
    """Raises UnknownName or ParamError for an injection into an unknown group or collective."""
    for each in state.faults.all:
        if "group" not in each.values:
            continue
        name = each.text_value("group")
        if name not in state.groups.names():
            raise UnknownName("group", name, state.groups.names(), "a job with one rank has no groups")
        count = state.rendezvous.count(name)
        if "collective" in each.values and not 0 <= each.number("collective") < count:
            raise ParamError(f"{name} has no collective {each.values['collective']}", f"it has {count}")


def _create_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise TwError(f"{folder} is not empty", "use a new or empty folder")


def _write_rank(
    state: JobState, rank: int, folder: Path | None, truth: TruthFile, waits: WaitAttribution
) -> int:
    recorder, count = _write_trace(state, rank, folder)
    for arrival in recorder.truth.arrivals:
        waits.add(rank, *arrival)
    for name, rows in recorder.truth.sections():
        if folder is not None:
            truth.add(name, rows)
    graph = recorder.graph_launched
    if folder is not None and state.job.capture and graph is not None:
        with gzip_writer(folder / capture_file_name(rank)) as out:
            groups = state.groups.all_of(rank)
            origins = write_capture(state.job, rank, groups, graph, lambda text: _write_text(out, text))
        truth.add("graph_nodes", expected_nodes(state.job, rank, recorder.truth.rows, origins))
    return count


def _facts(job: Job, state: JobState, groups: list[Group], events: int) -> dict[str, object]:
    missing = [rank for rank in range(job.ranks) if state.faults.ever("missing-rank", rank)]
    return {
        "truth": 1,
        "job": job.as_json(),
        "injected": [
            {"kind": each.kind, "rank": each.rank, "step": each.step, **each.values}
            for each in job.injections
        ],
        "missing_ranks": missing,
        "events": events,
        "step_factors": [state.noise.step(step) for step in range(job.steps)],
        "run_factor": state.noise.run,
        "groups": group_facts(groups),
    }


GZIP_LEVEL = 1  # the fastest; these files are read once or twice


def _write_text(out: gzip.GzipFile, text: str) -> None:
    out.write(text.encode())


@contextmanager
def gzip_writer(path: Path) -> Iterator[gzip.GzipFile]:
    """A gzip file without name and time, for reproducible bytes; it appears once complete."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as raw, gzip.GzipFile("", "wb", GZIP_LEVEL, raw, mtime=0) as out:
            yield out
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _write_trace(state: JobState, rank: int, folder: Path | None) -> tuple[Recorder, int]:
    """Writes the trace of a rank (without a folder, nothing); returns its recorder and event count."""
    if folder is None:
        return _record(state, rank, lambda text: None)
    with gzip_writer(folder / file_name(rank)) as out:
        return _record(state, rank, lambda text: out.write(text.encode()))


def _record(state: JobState, rank: int, write: Any) -> tuple[Recorder, int]:
    job = state.job
    write(head(job, rank, state.groups.all_of(rank)))
    first = True

    def write_events(texts: list[str]) -> None:
        nonlocal first
        write(("" if first else ",") + ",".join(texts))
        first = False

    recorder = Recorder(job, rank, state.faults, write_events, 0)
    naming = names(recorder.text, recorder.window_ns(0)[0])
    if job.dialect == "new":
        write_events(naming)
        recorder.written = len(naming)
    ends_ns = state.ends[rank]  # known from resolve_collectives
    recorder.write_root_frames(ends_ns + 500)
    for _ in RankSimulator(state, rank, recorder).run():
        pass  # all collectives are resolved
    recorder.flush()
    rest = [*([] if job.dialect == "new" else naming)]
    rest += closing(recorder.text, *recorder.window_ns(ends_ns + 1_000))
    write_events(rest)
    write(tail(job, rank))
    return recorder, recorder.written + len(rest)


class TruthFile:
    """`truth.json`; the rows of each section are collected in a temporary file until all ranks are done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts: dict[str, TextIO] = {
            name: self._part(name).open("w", encoding="utf-8") for name in SECTIONS
        }
        self.filled: set[str] = set()

    def _part(self, name: str) -> Path:
        return self.folder / f".truth-{name}.part"

    def add(self, name: str, rows: list[Row]) -> None:
        """Adds rows of a section."""
        if not rows:
            return
        out = self.parts[name]
        out.write(",\n" if name in self.filled else "\n")
        out.write(json.dumps(rows)[1:-1])
        self.filled.add(name)

    def finish(self, facts: dict[str, object], stragglers: list[Row], late: list[tuple[int, str]]) -> Path:
        """Writes all sections into one file."""
        path = self.folder / "truth.json"
        with path.open("w", encoding="utf-8") as out:
            out.write(json.dumps(facts)[:-1] + ', "sections": {\n')
            columns = ["rank", "came_last", "caused_wait_ns", *(f"{cause}_ns" for cause in CAUSES), "cause"]
            rows = ",\n".join(map(json.dumps, stragglers))
            out.write(f'"straggler": {{"columns": {json.dumps(columns)}, "rows": [\n{rows}]}}')
            out.write(f',\n"blame": {{"columns": ["rank", "cause"], "rows": {json.dumps(late)}}}')
            for name, columns_of in SECTIONS.items():
                out.write(f',\n"{name}": {{"columns": {json.dumps(columns_of)}, "rows": [')
                self.parts[name].close()
                with self._part(name).open(encoding="utf-8") as part:
                    for line in part:
                        out.write(line)
                out.write("]}")
            out.write("\n}}\n")
        return path

    def close(self) -> None:
        """Deletes the temporary files."""
        for name, part in self.parts.items():
            part.close()
            self._part(name).unlink(missing_ok=True)


def group_facts(groups: list[Group]) -> list[dict[str, object]]:
    """Groups as JSON."""
    return [{"name": group.name, "scope": group.scope, "ranks": list(group.ranks)} for group in groups]
