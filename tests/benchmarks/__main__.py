"""Measures every target against its peer, and checks every result.

    TW_HTA_PYTHON=…/bin/python python -m tests.benchmarks --write
                                             the whole table, into RESULTS.md
    python -m tests.benchmarks --only ingest-one cpu-floor --repeat 3
                                             some cases; --write keeps others of the same day and machine
    python -m tests.benchmarks --smoke       small sizes, results only

Run it in the root of the repository. HTA is `traceinsight==0.6.1` with pandas 2.3.3 in a separate
environment, whose Python is TW_HTA_PYTHON; real traces are those in TW_TRACES. The row of a case says what is
missing. Each measurement is a new process, and the sides alternate, so that ratios are valid on a busy
machine. Exit code 1: a result was wrong, or a target was missed and --strict is given.
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

from . import (
    analyses,
    exports,
    ingest,
    memory,
    ranks,
    report,
    size,
    stages,
    start,
    thousand,
    wait_attribution,
)
from .bench import HERE, Bench
from .model import Case, Row, Unmeasured, WrongAnswer

CASES = (
    *ingest.CASES,
    *exports.CASES,
    *memory.CASES,
    *size.CASES,
    *analyses.CASES,
    *start.CASES,
    *thousand.CASES,
    *ranks.CASES,
    *wait_attribution.CASES,
    *stages.CASES,
)


def main() -> int:
    """Runs the selected cases, prints the table and writes the requested files."""
    args = _arguments()
    selected = [case for case in CASES if not args.only or case.name in args.only]
    with tempfile.TemporaryDirectory(prefix="bench-", dir=args.data) as temporary:
        bench = _bench(args, Path(temporary))
        earlier, about = _earlier(args, report.about(bench))
        rows = list(_rows(bench, selected))
    print("\n".join(report.lines(rows)))
    if args.json:
        _write_json(args.json, rows, about)
    if args.write:
        place = {case.name: number for number, case in enumerate(CASES)}
        every = sorted(report.with_earlier(rows, earlier), key=lambda row: place[row.case])
        _write_json(HERE / "results.json", every, about)
        (HERE / "RESULTS.md").write_text(report.page(every, about), encoding="utf-8")
    missed = any(row.met is False for row in rows)
    return int(any(row.wrong for row in rows) or (args.strict and missed))


def _earlier(args: argparse.Namespace, about: dict[str, str]) -> tuple[list[Row], dict[str, str]]:
    """The rows of other cases that stay in the table; exits before anything runs if they cannot."""
    if not (args.write and args.only):
        return [], about
    try:
        return report.before(HERE / "results.json", about)
    except report.OtherTable as other:
        sys.exit(
            f"cannot update a part of RESULTS.md: {other}; measure all cases, or remove results.json first"
        )


def _write_json(path: Path, rows: Sequence[Row], about: dict[str, str]) -> None:
    data = {"about": about, "rows": [row.as_json() for row in rows]}
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _bench(args: argparse.Namespace, temporary: Path) -> Bench:
    folder = Path(args.data or temporary, "small" if args.smoke else "full").resolve()
    folder.mkdir(exist_ok=True)
    peer, traces = (os.environ.get(name) for name in ("TW_HTA_PYTHON", "TW_TRACES"))
    bench = Bench(
        folder,
        temporary.resolve(),
        repeat=args.repeat,
        huge=args.huge,
        peer=Path(peer) if peer else None,
        traces=Path(traces).resolve() if traces else None,
    )
    return replace(bench, repeat=1, smoke=True, huge=False, peer=None, traces=None) if args.smoke else bench


def _rows(bench: Bench, selected: list[Case]) -> Iterator[Row]:
    """The rows of all cases; a failed case has a row with the reason, and does not stop the others."""
    for case in selected:
        try:
            for row in case.rows(bench):
                print("  ".join(filter(None, report.cells(row))), file=sys.stderr, flush=True)
                yield replace(row, target=None) if bench.smoke else row
        except WrongAnswer as wrong:
            yield Row(case.name, case.about, note=f"wrong result: {wrong}", wrong=True)
        except Unmeasured as why:
            yield Row(case.name, case.about, note=f"not measured: {why}", wrong=bench.smoke)


def _arguments() -> argparse.Namespace:
    cases = "\n".join(f"  {case.name:14}{case.about}" for case in CASES)
    parser = argparse.ArgumentParser(
        "python -m tests.benchmarks",
        description=f"{__doc__}\ncases:\n{cases}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [case.name for case in CASES]
    parser.add_argument("--only", nargs="+", choices=names, metavar="CASE", help="run only these cases")
    parser.add_argument("--repeat", type=int, default=5, help="turns of each side (default: 5)")
    parser.add_argument("--huge", action="store_true", help="also 5 GB, 10 million events, 1,024 ranks")
    parser.add_argument(
        "--smoke", action="store_true", help="small sizes, no peers, one turn: checks results only"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all rows as JSON")
    parser.add_argument(
        "--write",
        action="store_true",
        help="also write tests/benchmarks/RESULTS.md and results.json",
    )
    parser.add_argument("--data", metavar="DIR", help="folder that keeps traces for the next call")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a target is missed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
