"""A job written down: its traces, a file per rank, and the truth about them."""

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
from tracewarehouse.simulation.groups import Group
from tracewarehouse.simulation.header import closing, file_name, head, names, tail
from tracewarehouse.simulation.job import Injection, Job
from tracewarehouse.simulation.paths import CAUSES, Waits
from tracewarehouse.simulation.record import Recorder
from tracewarehouse.simulation.schedule import Clock, Setting, meet
from tracewarehouse.simulation.truth import SECTIONS, Row


@dataclass(frozen=True)
class Simulated:
    """What was written: the files, the truth, how many events, and how long it took."""

    files: tuple[Path, ...]
    truth: Path
    events: int
    seconds: float


def simulate(
    folder: str | PathLike[str],
    job: Job | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    **knobs: Any,
) -> Simulated:
    """Writes a job's traces, `rankN.json.gz`, and `truth.json` into a folder that is new or empty.

    Give a Job, or its knobs by name (`ranks=8, tensor=2, injections=["slow-rank:rank=3"]`). The same knobs
    give the same bytes. `progress` is told ranks done and ranks in all. Raises ParamError, UnknownName, and
    TwError for a folder that holds something.
    """
    started = perf_counter()
    job = job or _job(knobs)
    setting = Setting(job)
    meet(setting)
    _check(setting)
    place = Path(folder)
    _make(place)
    files, events = [], 0
    truth, waits = TruthFile(place), Waits()
    groups: dict[str, Group] = {}
    try:
        for rank in range(job.ranks):
            written = setting.planted.ever("missing-rank", rank) is None
            count = _rank(setting, rank, place if written else None, truth, waits)
            groups |= {group.name: group for group in setting.groups.all_of(rank)}
            setting.groups.forget(rank)
            if written:
                files.append(place / f"rank{rank}.json.gz")
                events += count
            if progress is not None:
                progress(rank + 1, job.ranks)
        path = truth.finish(_facts(job, setting, list(groups.values()), events), waits.rows())
    finally:
        truth.close()
    return Simulated(tuple(files), path, events, perf_counter() - started)


def _job(knobs: dict[str, Any]) -> Job:
    given = knobs.get("injections", ())
    parsed = tuple(each if isinstance(each, Injection) else Injection.parse(each) for each in given)
    return Job(**{**knobs, "injections": parsed})


def _check(setting: Setting) -> None:
    """Refuses to plant something where there is no such group or collective."""
    for each in setting.planted.all:
        if "group" not in each.values:
            continue
        name = each.word("group")
        if name not in setting.groups.names():
            raise UnknownName("group", name, setting.groups.names(), "the job has one rank: no groups")
        count = setting.meetings.count(name)
        if "collective" in each.values and not 0 <= each.number("collective") < count:
            raise ParamError(f"{name} has no collective {each.values['collective']}", f"there are {count}")


def _make(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise TwError(f"{place} is not empty", "name a folder that is new or empty")


def _rank(setting: Setting, rank: int, place: Path | None, truth: TruthFile, waits: Waits) -> int:
    recorder, count = write_rank(setting, rank, place)
    for arrival in recorder.truth.arrivals:
        waits.take(rank, *arrival)
    for name, rows in recorder.truth.sections():
        if place is not None:
            truth.add(name, rows)
    return count


def _facts(job: Job, setting: Setting, groups: list[Group], events: int) -> dict[str, object]:
    missing = [rank for rank in range(job.ranks) if setting.planted.ever("missing-rank", rank)]
    return {
        "truth": 1,
        "job": job.said(),
        "injected": [
            {"kind": each.kind, "rank": each.rank, "step": each.step, **each.values}
            for each in job.injections
        ],
        "missing_ranks": missing,
        "events": events,
        "step_factors": [setting.noise.step(step) for step in range(job.steps)],
        "run_factor": setting.noise.run,
        "groups": group_facts(groups),
    }


LEVEL = 1  # of gzip: the fastest; traces are read once or twice


@contextmanager
def zipped(path: Path) -> Iterator[gzip.GzipFile]:
    """A gzip file without name and time, so that equal text gives equal bytes; it appears when whole."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as raw, gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as out:
            yield out
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_rank(setting: Setting, rank: int, folder: Path | None) -> tuple[Recorder, int]:
    """Writes a rank's trace (nowhere without a folder); returns its recorder and the count of events."""
    if folder is None:
        return _record(setting, rank, lambda text: None)
    with zipped(folder / file_name(rank)) as out:
        return _record(setting, rank, lambda text: out.write(text.encode()))


def _record(setting: Setting, rank: int, write: Any) -> tuple[Recorder, int]:
    job = setting.job
    write(head(job, rank, setting.groups.all_of(rank)))
    first = True

    def put(texts: list[str]) -> None:
        nonlocal first
        write(("" if first else ",") + ",".join(texts))
        first = False

    recorder = Recorder(job, rank, setting.planted, put, 0)
    naming = names(recorder.text, recorder.span(0)[0])
    if job.dialect == "new":
        put(naming)
        recorder.written = len(naming)
    ends_ns = setting.ends[rank]  # known from the meeting
    recorder.roots(ends_ns + 500)
    for _ in Clock(setting, rank, recorder).run():
        pass  # the others have been there already
    recorder.flush()
    rest = [*([] if job.dialect == "new" else naming)]
    rest += closing(recorder.text, *recorder.span(ends_ns + 1_000))
    put(rest)
    write(tail(job, rank))
    return recorder, recorder.written + len(rest)


class TruthFile:
    """`truth.json`, section by section: rows of a rank go to a file per section until all ranks are done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts: dict[str, TextIO] = {
            name: self._part(name).open("w", encoding="utf-8") for name in SECTIONS
        }
        self.filled: set[str] = set()

    def _part(self, name: str) -> Path:
        return self.folder / f".truth-{name}.part"

    def add(self, name: str, rows: list[Row]) -> None:
        """Rows of a section."""
        if not rows:
            return
        out = self.parts[name]
        out.write(",\n" if name in self.filled else "\n")
        out.write(json.dumps(rows)[1:-1])
        self.filled.add(name)

    def finish(self, facts: dict[str, object], stragglers: list[Row]) -> Path:
        """Puts all sections into one file."""
        path = self.folder / "truth.json"
        with path.open("w", encoding="utf-8") as out:
            out.write(json.dumps(facts)[:-1] + ', "sections": {\n')
            columns = ["rank", "came_last", "caused_wait_ns", *(f"{cause}_ns" for cause in CAUSES), "cause"]
            rows = ",\n".join(map(json.dumps, stragglers))
            out.write(f'"straggler": {{"columns": {json.dumps(columns)}, "rows": [\n{rows}]}}')
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
        """Takes the files of the sections away."""
        for name, part in self.parts.items():
            part.close()
            self._part(name).unlink(missing_ok=True)


def group_facts(groups: list[Group]) -> list[dict[str, object]]:
    """Groups as JSON."""
    return [{"name": group.name, "scope": group.scope, "ranks": list(group.ranks)} for group in groups]
