"""Mutates analyses and views mechanically, and lists which check catches each mutant.

    PYTHONPATH=src python -m tests.properties.mutation               contracts that changed since
    PYTHONPATH=src python -m tests.properties.mutation --only NAME   one contract, merged into the list

Run it in the root of the repository. A mutant has one edit of the kinds in `mutants.LISTED`. Golden files
are checked first, then laws and the simulator's truth, then brute-force tests. Mutants that nothing catches
are printed, and need a golden file with the case; if no data can distinguish them from the original, the
reason is in `equivalent.toml`. The list is `MUTANTS.csv`, which is not
committed; `--list` writes another file (with `--every`, edits of more kinds).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PLACES = ("properties/laws", "unit/simulation", "support", "properties", ".")
sys.path[:0] = [str(HERE), *(str(HERE.parents[1] / name) for name in PLACES)]

from killers import users  # noqa: E402
from listing import FILE, NO_CHANGE, Line, Lines, caught_in_base, read, selected, write  # noqa: E402
from witnesses import ALIVE  # noqa: E402
from worker import by_goldens, by_laws, endless, prepare  # noqa: E402

from tracewarehouse.contracts.contract import Contract  # noqa: E402


def main() -> None:
    """Checks the selected contracts, and writes the list after each of them."""
    args = _arguments()
    lines = read(args.list)
    todo = selected(lines, args.only, args.again, args.every)
    with tempfile.TemporaryDirectory(prefix="mutation-") as temporary:
        folder = Path(args.data or temporary)
        for found in in_processes(goldens, lines, todo, args, folder):
            lines[found[0].contract] = found
            write(lines, args.list)
        merge(lines, caught_in_base(lines))
        if not args.goldens:
            for found in in_processes(laws, lines, todo, args, folder):
                merge(lines, found)
                write(lines, args.list)
            merge(lines, witnessed(left(lines, todo, args), todo, Path(temporary)))
    write(lines, args.list)
    for contract in todo:
        for line in lines.get(str(contract.ref), []):
            if not line.killed_by:
                print(f"not caught: {line.contract}  {line.change} | {line.place}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.properties.mutation", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="these contracts only")
    parser.add_argument("--again", action="store_true", help="also what has not changed since")
    parser.add_argument("--every", action="store_true", help="every kind of edit; requires --list")
    parser.add_argument("--goldens", action="store_true", help="golden files only: the first, quick look")
    parser.add_argument("--doubt", action="store_true", help="laws, truth, witnesses: also what has a reason")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--data", metavar="DIR", help="keeps what is prepared; for one state of the tables")
    parser.add_argument("--list", type=Path, default=FILE, metavar="FILE", help="instead of MUTANTS.csv")
    args = parser.parse_args()
    if args.every and args.list == FILE:
        parser.error("--every writes another list: give it by --list FILE")
    return args


def left(lines: Lines, todo: list[Contract], args: argparse.Namespace) -> list[Line]:
    """The mutants that nothing has caught yet."""
    open_ = ("", NO_CHANGE) if args.doubt else ("",)
    return [line for contract in todo for line in lines.get(str(contract.ref), []) if line.killed_by in open_]


def merge(lines: Lines, found: list[Line]) -> None:
    """Replaces earlier results of the same mutants."""
    for one in found:
        if one.killed_by:
            lines[one.contract] = [one if one.same(each) else each for each in lines[one.contract]]


Stage = Callable[
    [ProcessPoolExecutor, Lines, list[Contract], argparse.Namespace, list[Line]], Iterator[list[Line]]
]


def in_processes(
    stage: Stage, lines: Lines, todo: list[Contract], args: argparse.Namespace, folder: Path
) -> Iterator[list[Line]]:
    """The results of a stage. A mutant whose check ends a process is caught; new processes do the rest."""
    ended: list[Line] = []
    done: set[str] = set()
    while True:
        rest = [contract for contract in todo if str(contract.ref) not in done]
        try:
            with ProcessPoolExecutor(args.jobs, get_context("spawn"), prepare, (str(folder),)) as pool:
                for found in stage(pool, lines, rest, args, ended):
                    done.add(found[0].contract)
                    yield found
            return
        except BrokenProcessPool:
            stopped = endless(folder)
            if not stopped:
                raise
            ended += stopped
            print(*(f"{line.contract} {line.change}: {line.killed_by}" for line in stopped), sep="\n")


def goldens(
    pool: ProcessPoolExecutor,
    lines: Lines,
    todo: list[Contract],
    args: argparse.Namespace,
    ended: list[Line],
) -> Iterator[list[Line]]:
    """All mutants of each contract; known catches are kept."""
    names = [str(contract.ref) for contract in todo]
    known = [[*([] if args.again else lines.get(name, [])), *ended] for name in names]
    for place, found in enumerate(pool.map(by_goldens, names, known, [args.every] * len(names)), 1):
        if found:
            alive = sum(not line.killed_by for line in found)
            print(f"{place}/{len(todo)} {found[0].contract}: {len(found)} mutants, {alive} left", flush=True)
            yield found


def laws(
    pool: ProcessPoolExecutor,
    lines: Lines,
    todo: list[Contract],
    args: argparse.Namespace,
    ended: list[Line],
) -> Iterator[list[Line]]:
    """The mutants that golden files did not catch."""
    merge(lines, ended)
    alive: dict[str, list[tuple[str, str]]] = {}
    for line in left(lines, todo, args):
        alive.setdefault(line.contract, []).append((line.change, line.place))
    for found in pool.map(by_laws, alive, alive.values(), [args.every] * len(alive)):
        caught = sum(line.killed_by not in ("", NO_CHANGE) for line in found)
        print(f"{found[0].contract}: laws and truth catch {caught} of {len(found)}", flush=True)
        yield found


def witnessed(alive: list[Line], todo: list[Contract], folder: Path) -> list[Line]:
    """Mutants that laws did not catch: runs the tests of the contract and its readers with each of them."""
    files = sorted({file for line in alive for file in _files(line, todo)})
    if not files:
        return []
    path = folder / "alive.json"
    wanted = [(line.contract, line.change, line.place) for line in alive]
    path.write_text(json.dumps(wanted), encoding="utf-8")
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = os.pathsep.join([*sys.path[: len(PLACES) + 1], *known])
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "witnesses", *files]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths, ALIVE: str(path)}, check=False)
    assert ended.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    caught = json.loads(path.with_suffix(".caught").read_text(encoding="utf-8"))
    return [Line(**one) for one in caught]


def _files(line: Line, todo: list[Contract]) -> Iterator[str]:
    contract = next(each for each in todo if str(each.ref) == line.contract)
    names = {user.name for user in users(contract)}
    for path in (HERE.parent / "witness").glob("test_*.py"):
        if any(name in path.read_text(encoding="utf-8") for name in names):
            yield str(path)


if __name__ == "__main__":
    main()
