"""Breaks analyses and views mechanically, and tells which check catches each mutant.

    PYTHONPATH=src python -m tests.mutation [--only NAME]… [--all] [--jobs N] [--data DIR] [--list FILE]

What `MUTANTS.csv` already says of contracts that are still the same is kept, unless --all is given.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "laws"), str(HERE.parent)]

from judge import judge, prepare  # noqa: E402
from listing import FILE, Line, Lines, chosen, read, write  # noqa: E402
from mutants import mutants  # noqa: E402
from witnesses import ALIVE  # noqa: E402

from tracewarehouse.contract import Contract  # noqa: E402


def main() -> None:
    """Judges what is asked for and writes the list after each contract."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="these contracts only")
    parser.add_argument("--all", action="store_true", help="also what has not changed since")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--data", metavar="DIR", help="keeps what is prepared; for one state of the tables")
    parser.add_argument(
        "--list", type=Path, default=FILE, metavar="FILE", help="where to, instead of MUTANTS.csv"
    )
    asked = parser.parse_args()
    lines = read(asked.list)
    todo = chosen(lines, asked.only, asked.all)
    print(f"{len(todo)} contracts, {sum(len(mutants(c)) for c in todo)} mutants", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutation-") as passing:
        if todo:
            for ref, found in judged(todo, asked.data or passing, asked.jobs):
                lines[ref] = found
                write(lines, asked.list)
        refs = [str(contract.ref) for contract in todo]
        witnessed(lines, refs, Path(passing))
    write(lines, asked.list)
    for line in (line for ref in refs for line in lines[ref] if not line.killer):
        print(f"not caught: {line.contract} {line.number} {line.change} | {line.place}")


def judged(todo: list[Contract], folder: str, jobs: int) -> Iterator[tuple[str, list[Line]]]:
    """Golden files, laws and truth; contract after contract."""
    prepare(folder)
    with ProcessPoolExecutor(jobs, get_context("spawn"), prepare, (folder,)) as pool:
        for contract, found in zip(todo, pool.map(judge, (str(c.ref) for c in todo)), strict=True):
            alive = sum(not line.killer for line in found)
            print(f"{contract.ref}: {len(found)} mutants, {alive} left for the witnesses", flush=True)
            yield str(contract.ref), found


def witnessed(lines: Lines, refs: list[str], folder: Path) -> None:
    """The witnesses, for what is left: their tests once, and again with each mutant."""
    alive = {ref: [line.number for line in lines[ref] if not line.killer] for ref in refs}
    if not any(alive.values()):
        return
    path = folder / "alive.json"
    path.write_text(json.dumps(alive), encoding="utf-8")
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = os.pathsep.join([*sys.path[:3], *known])
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "witnesses", "tests/witness"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": paths, ALIVE: str(path)}, check=True)
    for ref, number, test in json.loads(path.with_suffix(".caught").read_text(encoding="utf-8")):
        lines[ref] = [replace(each, killer=test) if each.number == number else each for each in lines[ref]]


if __name__ == "__main__":
    main()
