"""What a process of the mutation check does: prepare once, then judge one contract after the other."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from killers import Killers
from listing import Line
from mutants import mutants

from tracewarehouse.catalog import Catalog

KILLERS: list[Killers] = []


def prepare(folder: str) -> None:
    """Once per process."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    KILLERS.append(Killers(Path(folder), Path(tempfile.mkdtemp(dir=folder))))
    KILLERS[0].prepare()


def judge(name: str) -> list[Line]:
    """Each mutant of a contract with what catches it; empty where nothing does."""
    killers = KILLERS[0]
    contract = Catalog.load().get(name)
    killers.draw(contract)
    checks = list(killers.checks(contract))
    wrong = [check for check in checks if killers.killer(contract, [check])]
    assert not wrong, f"{contract.ref} as it is fails {wrong[0][0]}"
    lines = []
    for mutant in mutants(contract):
        started = time.monotonic()
        lines.append(Line.of(mutant, killers.killer(mutant.contract, checks) or ""))
        if (seconds := time.monotonic() - started) > 20:
            print(f"{contract.ref} {mutant.number} {mutant.change}: {seconds:.0f} s", file=sys.stderr)
    return lines
