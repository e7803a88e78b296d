"""A job written down: its traces, a file per rank, and the truth about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

from tracewarehouse.errors import ParamError, TwError, UnknownName
from tracewarehouse.simulation.files import TruthFile, group_facts, write_rank
from tracewarehouse.simulation.groups import Group
from tracewarehouse.simulation.injections import Injection
from tracewarehouse.simulation.job import Job
from tracewarehouse.simulation.paths import Waits
from tracewarehouse.simulation.schedule import Setting, meet


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
