"""Measures every target beside its peer, and checks every answer.

    TW_HTA_PYTHON=…/hta/bin/python python -m tests.bench --write    the whole table, into RESULTS.md
    python -m tests.bench --only ingest-one cpu-floor --repeat 3    a part of it; with --write the other cases
                                                                    stay, of the same day and machine
    python -m tests.bench --smoke                                   small sizes, answers only

It is run from the root of the repository. HTA is `traceinsight==0.6.1` with pandas 2.3.3 in an environment
of its own, whose Python TW_HTA_PYTHON names; real traces are those under TW_TRACES. What is missing is told
in its row. Each measurement is a fresh process; the sides take turns, so that ratios hold on a busy machine.
Exit code 1: an answer was wrong, or a target was missed and --strict is given.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from . import analyses, ingest, memory, ranks, report, size, stages, start, thousand
from .bench import HERE, Bench
from .model import Case, Row, Unmeasured, WrongAnswer

CASES = (
    *ingest.CASES,
    *memory.CASES,
    *size.CASES,
    *analyses.CASES,
    *start.CASES,
    *thousand.CASES,
    *ranks.CASES,
    *stages.CASES,
)


def main() -> int:
    """Runs the cases that are asked for, prints the table, writes what is asked for."""
    asked = _asked()
    selected = [case for case in CASES if not asked.only or case.name in asked.only]
    with tempfile.TemporaryDirectory(prefix="bench-", dir=asked.data) as passing:
        bench = _bench(asked, Path(passing))
        earlier, told = _earlier(asked, report.about(bench))
        rows = list(_rows(bench, selected))
    print("\n".join(report.lines(rows)))
    if asked.json:
        _write_json(asked.json, rows, told)
    if asked.write:
        place = {case.name: number for number, case in enumerate(CASES)}
        every = sorted(report.beside(rows, earlier), key=lambda row: place[row.case])
        _write_json(HERE / "results.json", every, told)
        (HERE / "RESULTS.md").write_text(report.page(every, told), encoding="utf-8")
    missed = any(row.met is False for row in rows)
    return int(any(row.wrong for row in rows) or (asked.strict and missed))


def _earlier(asked: argparse.Namespace, told: dict[str, str]) -> tuple[list[Row], dict[str, str]]:
    """The rows that stay in the table beside those of a part; ends before anything runs if they can't."""
    if not (asked.write and asked.only):
        return [], told
    try:
        return report.before(HERE / "results.json", told)
    except report.OtherTable as other:
        sys.exit(f"RESULTS.md can't take a part: {other}; measure all cases, or remove results.json first")


def _write_json(path: Path, rows: Sequence[Row], told: dict[str, str]) -> None:
    data = {"about": told, "rows": [row.told() for row in rows]}
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _bench(asked: argparse.Namespace, passing: Path) -> Bench:
    folder = Path(asked.data or passing, "small" if asked.smoke else "full").resolve()
    folder.mkdir(exist_ok=True)
    peer, traces = (os.environ.get(name) for name in ("TW_HTA_PYTHON", "TW_TRACES"))
    bench = Bench(
        folder,
        passing.resolve(),
        repeat=asked.repeat,
        huge=asked.huge,
        peer=Path(peer) if peer else None,
        traces=Path(traces).resolve() if traces else None,
    )
    return replace(bench, repeat=1, smoke=True, huge=False, peer=None, traces=None) if asked.smoke else bench


def _rows(bench: Bench, selected: list[Case]) -> Iterator[Row]:
    """The rows of all cases; one that fails gives a row that says so, and the rest goes on."""
    for case in selected:
        try:
            for row in case.rows(bench):
                print("  ".join(filter(None, report.cells(row))), file=sys.stderr, flush=True)
                yield replace(row, target=None) if bench.smoke else row
        except WrongAnswer as wrong:
            yield Row(case.name, case.about, note=f"wrong answer: {wrong}", wrong=True)
        except Unmeasured as why:
            yield Row(case.name, case.about, note=f"not measured: {why}", wrong=bench.smoke)


def _asked() -> argparse.Namespace:
    told = "\n".join(f"  {case.name:14}{case.about}" for case in CASES)
    parser = argparse.ArgumentParser(
        "python -m tests.bench",
        description=f"{__doc__}\ncases:\n{told}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [case.name for case in CASES]
    parser.add_argument("--only", nargs="+", choices=names, metavar="CASE", help="these cases")
    parser.add_argument("--repeat", type=int, default=5, help="turns of each side (default: 5)")
    parser.add_argument("--huge", action="store_true", help="also 5 GB, 10 million events, 1,024 ranks")
    parser.add_argument("--smoke", action="store_true", help="small sizes, no peers, one turn: answers only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all rows as JSON")
    parser.add_argument(
        "--write",
        action="store_true",
        help="also write tests/bench/RESULTS.md (and results.json, of which it is made)",
    )
    parser.add_argument("--data", metavar="DIR", help="keep traces here for the next call; must exist")
    parser.add_argument("--strict", action="store_true", help="exit code 1 where a target is missed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
