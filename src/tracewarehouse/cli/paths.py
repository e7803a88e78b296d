"""Trace files and folders in place of runs: they are stored in the cache, the warehouse of the call then."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from tracewarehouse.cli.session import Session
from tracewarehouse.errors import TwError
from tracewarehouse.location import Location, is_url
from tracewarehouse.present.render.text import plural
from tracewarehouse.storage.layout import WAREHOUSE

if TYPE_CHECKING:
    from tracewarehouse.ingest.outcome import IngestReport
    from tracewarehouse.ingest.sources import TraceFile
    from tracewarehouse.warehouse import Warehouse


def resolve(
    session: Session, names: Sequence[str], *, by_name: bool = False, may_be_empty: bool = False
) -> tuple[str, ...]:
    """Selectors of the runs that arguments name; traces are stored in the cache first.

    There is one selector for all paths; `by_name`, one for each. Raises UsageError for runs mixed with paths,
    TwError if nothing could be stored, unless it `may_be_empty`.
    """
    paths = [name for name in names if _is_path(session, name)]
    if not paths:
        return tuple(names)
    if runs := [name for name in names if name not in paths]:
        raise click.UsageError(f"{paths[0]} is a path, {runs[0]} a run: give runs or paths, not both")
    session.prefer_text()  # an answer for a reader
    return _stored(session, paths, by_name, may_be_empty)


def _is_path(session: Session, name: str) -> bool:
    """Whether an argument is a path: there is such a file, and no run with exactly this name.

    Raises TwError for a path that does not exist, is a warehouse, or is given with -w.
    """
    exists = name != "" and Path(name).exists()
    if is_url(name) or not exists and os.sep not in name and not name.endswith((".json", ".gz", ".sqlite")):
        return False
    run = _run(session, name)
    if run is None and not exists:
        raise TwError(f"{name}: no such file, folder or run", "check the path; tw runs lists runs")
    if not exists or run and session.is_chosen():
        return False
    if session.is_chosen():
        hint = f"it is a path: leave out -w, or run tw ingest {name} -w {session.warehouse} first"
        raise TwError(f"{session.warehouse} has no run {name}", hint)
    if run is None and (Path(name) / WAREHOUSE).is_file():
        raise TwError(f"{name} is a warehouse, not traces", f"select it with -w {name}")
    if run is not None:
        which = f"run {name}; ./{name} is the path" if run == name else f"path {name}; {run} is the run"
        session.out.notice(f"note: took the {which}")
    return run != name


def _run(session: Session, name: str) -> str | None:
    """The run of the warehouse that a name selects, if there is one."""
    from tracewarehouse.warehouse import Warehouse

    with suppress(TwError, OSError):
        return Warehouse(session.warehouse).select(name).selected()[0].run
    return None


def _stored(
    session: Session,
    paths: Sequence[str | TraceFile],
    by_name: bool = False,
    may_be_empty: bool = False,
    base: Path | None = None,
    printed: set[str] | None = None,
) -> tuple[str, ...]:
    """Selectors of the runs in the cache; `by_name`, each path is a run of that name.

    The entry begins with `base`. With `printed`, the lines that are not printed again, files are read
    in another process: none ends this one.
    """
    from tracewarehouse.engines import LocalEngine
    from tracewarehouse.ingest.cache import cached
    from tracewarehouse.present.answers import ingest_error, ingest_notices
    from tracewarehouse.present.render.progress import bars
    from tracewarehouse.warehouse import Warehouse

    run_names = _distinct_names(list(map(str, paths))) if by_name else [None]
    files: set[Path] = set()

    def fill(folder: Path) -> list[str]:
        lines: list[str] = []
        warehouse = Warehouse(folder)
        for name, part in zip(run_names, zip(paths) if by_name else [paths], strict=True):
            with bars() as progress, LocalEngine(1, is_apart=True) as engine:
                where = "local" if printed is None else engine
                add = partial(warehouse.ingest, part, min_age_s=0, progress=progress, engine=where)
                report = add(run=name)
                if base is not None and _remove_changed(warehouse, report):
                    report = add()
            lines += ingest_notices(replace(report, notes=()))  # the others are about names
            if (error := ingest_error(report)) and not may_be_empty:
                for line in lines:
                    session.out.notice(line)
                raise error
            files.update(file.path for file in report.stored)
        return lines

    catalog = Warehouse(session.warehouse).catalog
    folder, notes = cached(paths, [catalog.digest, *run_names], fill, base)
    done = f"ingested {plural(len(files), 'file')}" if files else "ingested before"
    printed = set() if printed is None else printed
    for line in (each for each in (*notes, f"{done} into {folder}") if each not in printed):
        session.out.notice(line)
        printed.add(line)
    home = Path(os.environ.get("HOME") or ".")
    shown = f"~/{quote(str(folder.relative_to(home)))}" if home in folder.parents else quote(str(folder))
    session.warehouse, session.place = folder, f" -w {shown}"
    runs = Warehouse(folder, catalog=catalog).store.runs()
    selectors = ([run for run in runs if name in (None, run.partition("~")[0])] for name in run_names)
    return tuple(map(",".join, selectors))


def _remove_changed(warehouse: Warehouse, report: IngestReport) -> bool:
    """Removes the runs that have a rank from none of the files; whether there are any."""
    ingested = {(file.run, file.rank) for file in report.files if file.state != "refused"}
    newest = {run: warehouse.store.newest(run) for run in warehouse.store.runs()}
    ranks = {run: version.ranks for run, version in newest.items() if version}
    changed = [run for run in ranks if not ingested.issuperset((run, rank) for rank in ranks[run])]
    for run in changed:
        warehouse.remove(run)
    return bool(changed)


def follow(session: Session, paths: Sequence[str]) -> Iterator[tuple[Location, str] | None]:
    """Stores what comes to paths in the cache; each step looks once, the first one before `resolve`.

    A file counts when two looks in a row saw it in the same state: it is complete. If there was something to
    store, the session then has another warehouse and place, which are what the step is. No file ends it: what
    is wrong is printed once.
    """
    from tracewarehouse.ingest.cache import forget
    from tracewarehouse.ingest.survey import discover

    printed: set[str] = set()
    older: Path | None = None
    seen = stored = {file: file.stamp for file in discover(paths)[0]}
    yield None
    while True:
        base = session.warehouse
        assert isinstance(base, Path)
        try:
            before, seen = seen, {file: file.stamp for file in discover(paths)[0]}
            complete = {file: stamp for file, stamp in seen.items() if before.get(file) == stamp}
            if not complete.items() <= stored.items():
                # Without files that are gone, other runs may have other names.
                same_base = base if stored.keys() <= seen.keys() else None
                _stored(session, list(complete), may_be_empty=True, base=same_base, printed=printed)
                stored = complete
        except Exception as error:
            if (line := f"note: new traces are not stored: {error}") not in printed:
                session.out.notice(line)
                printed.add(line)
        is_moved = session.warehouse != base
        if is_moved:
            if older not in (None, base, session.warehouse):  # what it answered has ended
                forget(older)
            older = base
        yield (session.warehouse, session.place) if is_moved else None


def _distinct_names(paths: Sequence[str]) -> list[str]:
    """Names of runs after two folders or files, with the side if they are equal."""
    from tracewarehouse.ingest.naming import folder_run_name, stem

    names = [stem(Path(path).resolve().name).replace("~", "-") for path in paths]
    if len({folder_run_name(name).casefold() for name in names}) < len(names):
        names = [f"{side}-{name}" for side, name in zip(("base", "head"), names, strict=True)]
    return [*map(folder_run_name, names)]
