"""Holds our answers against HTA's on every Kineto trace, and says of each difference which trap it is.

TW_HTA_PYTHON=…/python PYTHONPATH=src:tests:tests/support:tests/properties \\
    python -m witness.hta --traces FOLDER [--summary HTA.md]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import tracewarehouse as tw
from witness.hta.cases import PAIRS, TIMELINE, Case, cases, left_out
from witness.hta.compare import Verdict, compare
from witness.hta.oracle import Oracle
from witness.hta.pairs import timeline, verdicts
from witness.hta.summary import page

ROOT = Path(__file__).parents[4]


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="witness.hta", description=__doc__)
    parser.add_argument("--hta-python", type=Path, default=os.environ.get("TW_HTA_PYTHON"))
    parser.add_argument("--traces", type=Path, default=os.environ.get("TW_TRACES", "../shared/traces"))
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "tw-hta")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--method", default="", help="methods whose name holds this")
    parser.add_argument("--summary", type=Path, help="a Markdown file to write")
    parser.add_argument("--verbose", action="store_true", help="every verdict, not only the unexplained")
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """0 where nothing is unexplained."""
    selected = arguments(given)
    if selected.hta_python is None:
        print("HTA's Python is not known: --hta-python or TW_HTA_PYTHON", file=sys.stderr)
        return 2
    oracle = Oracle(selected.hta_python, selected.work / "answers")
    warehouse = tw.open(selected.work / f"warehouse-{_tables()}")
    found: list[Verdict] = []
    for case in cases(selected.traces):
        if selected.only in case.name:
            started = time.perf_counter()
            found += compare(warehouse, oracle, case, selected.method)
            show(case.name, found, time.perf_counter() - started, selected.verbose)
    for name, pair in PAIRS.items():
        if selected.only in name:
            found += of_pair(warehouse, oracle, selected.traces, name, pair, selected.method)
            show(name, found, 0, selected.verbose)
    if selected.only in TIMELINE and selected.method in "MemoryAnalysis":
        found.append(Verdict(TIMELINE, *timeline(warehouse, oracle, selected.traces / TIMELINE)))
        show(TIMELINE, found, 0, selected.verbose)
    for path, why in left_out(selected.traces).items():
        print(f"left out: {path}: {why}")
    if selected.summary:
        selected.summary.write_text(page(found, left_out(selected.traces)), encoding="utf-8")
    print(dict(Counter(each.word for each in found)))
    return 1 if any(each.word == "unexplained" for each in found) else 0


def of_pair(
    warehouse: tw.Warehouse, oracle: Oracle, folder: Path, name: str, pair: tuple[str, str], part: str
) -> list[Verdict]:
    """The verdicts of two traces held against one another."""
    one, other = (Case(path, (folder / path,)) for path in pair)
    for case in (one, other):
        warehouse.ingest(*case.files, run=case.run)
    runs, paths = (one.run, other.run), (one.files[0], other.files[0])
    return [Verdict(name, *each) for each in verdicts(warehouse, oracle, runs, paths) if part in each[0]]


def _tables() -> str:
    """A name for the tables as they are: a changed contract needs another warehouse."""
    found = hashlib.sha256()
    for path in sorted(path for name in ("tables", "rules") for path in (ROOT / "sql" / name).glob("*.sql")):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def show(case: str, found: Sequence[Verdict], seconds: float, verbose: bool) -> None:
    """The verdicts of a case."""
    of_case = [each for each in found if each.case == case]
    words = ", ".join(f"{count} {word}" for word, count in Counter(v.word for v in of_case).items())
    print(f"{case} ({seconds:.1f} s): {words}", flush=True)
    for each in of_case:
        if verbose or each.word == "unexplained":
            print(f"    {each.method}: {each.word}: {each.why}"[:400], flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
