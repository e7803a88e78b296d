"""A process of the mutation check: prepares once, then checks one contract after the other."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from killers import Check, Killers
from limits import watched
from listing import ENDLESS, NO_CHANGE, Line, lines_of
from mutants import Mutant

KILLERS: list[Killers] = []
# What a process is checking, and the stack that it leaves if it is ended for that.
CHECKED, STOPPED = "checked.json", "stopped.txt"


def prepare(folder: str) -> None:
    """Once per process."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    KILLERS.append(Killers(Path(folder), Path(tempfile.mkdtemp(dir=folder))))


def by_goldens(name: str, known: Collection[Line], every: bool) -> list[Line]:
    """Each mutant of a contract with the golden file that catches it, if any, or the earlier check."""
    killers = KILLERS[-1]
    contract = killers.catalog.get(name)
    caught = {replace(each, killed_by=""): each for each in known if each.killed_by not in ("", NO_CHANGE)}
    made = lines_of(contract, every=every)
    if any(line not in caught for line, _ in made):
        killers.draw(contract)
    checks = list(killers.golden_checks(contract))
    return [caught.get(line) or _checked(killers, line, mutant, checks) for line, mutant in made]


def by_laws(name: str, alive: Collection[tuple[str, str]], every: bool) -> list[Line]:
    """The mutants with these changes and locations, with the law or truth that catches them, if any."""
    killers = KILLERS[-1]
    killers.prepare()
    contract = killers.catalog.get(name)
    killers.remember(contract)
    checks = list(killers.other_checks(contract))
    todo = [each for each in lines_of(contract, every=every) if (each[0].change, each[0].place) in alive]
    return [_checked(killers, line, mutant, checks, if_changed=True) for line, mutant in todo]


def endless(folder: Path) -> list[Line]:
    """The mutants whose checks ended a process; they are caught by that."""
    stopped = [path for path in folder.glob(f"*/{STOPPED}") if path.stat().st_size]
    found = [Line(**json.loads((path.parent / CHECKED).read_text(encoding="utf-8"))) for path in stopped]
    for path in stopped:
        path.unlink()
    return [replace(line, killed_by=ENDLESS) for line in found]


def catches(line: Line) -> bool:
    """Whether the check named in the line (golden file, law or truth) catches the mutant."""
    killers = KILLERS[-1]
    contract = killers.catalog.get(line.contract)
    if line.killed_by.startswith("golden "):
        killers.draw(contract)
        checks = list(killers.golden_checks(contract))
    else:
        killers.prepare()
        checks = list(killers.other_checks(contract))
    mutant = next(mutant for each, mutant in lines_of(contract) if each.same(line))
    named = [(name, check) for name, check in checks if name == line.killed_by]
    return killers.killer(mutant.contract, named) is not None


def _checked(
    killers: Killers,
    line: Line,
    mutant: Mutant,
    checks: list[tuple[str, Check]],
    *,
    if_changed: bool = False,
) -> Line:
    """The line with the check that catches the mutant; `if_changed`: only if it changes the laws' data."""
    started = time.monotonic()
    with _watched(killers.own, line):
        may_be_caught = not if_changed or killers.changes(mutant.contract)
        found = killers.killer(mutant.contract, checks if may_be_caught else []) or ""
    if (seconds := time.monotonic() - started) > 20:
        print(f"{line.contract} {line.change}: {seconds:.0f} s {found}", file=sys.stderr, flush=True)
    return replace(line, killed_by=found or (NO_CHANGE if line.reason else ""))


@contextmanager
def _watched(folder: Path, line: Line) -> Iterator[None]:
    (folder / CHECKED).write_text(json.dumps(asdict(line)), encoding="utf-8")
    with watched(folder / STOPPED):
        yield
