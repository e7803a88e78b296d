"""The comparison: for each method and trace equal, apart because of traps, or unexplained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tracewarehouse as tw
from witness.hta import annotations, breakdowns, critical_path, launches, operators, stragglers, streams
from witness.hta.cases import Case
from witness.hta.frame import Rank, read
from witness.hta.loads import predicted
from witness.hta.method import Method, Table, first_difference, same
from witness.hta.oracle import Oracle
from witness.hta.rules import NONE, Fails, Rules, needed, reported

STORED = ("intact", "repaired", "damaged", "same")
METHODS: tuple[Method, ...] = (
    *breakdowns.METHODS,
    *launches.METHODS,
    *streams.METHODS,
    *annotations.METHODS,
    *operators.METHODS,
    *stragglers.METHODS,
    *critical_path.METHODS,
)


@dataclass(frozen=True)
class Verdict:
    """`word` is equal, apart, fails, none (neither has an answer) or unexplained; `why` names traps."""

    case: str
    method: str
    word: str
    why: str = ""


def compare(warehouse: tw.Warehouse, oracle: Oracle, case: Case, part: str = "") -> Iterator[Verdict]:
    """A verdict on the load, and where HTA got that far one per method whose name holds `part`."""
    report = warehouse.ingest(*case.files, run=case.run)
    files = {file.rank: Path(file.path) for file in report.files if file.state in STORED}
    answers = oracle.trace(files or {0: case.files[0]})
    yield Verdict(case.name, "load", *load_verdict(case, bool(files), answers["load"]))
    if "error" in answers["load"] or not files:
        return
    seen, ranks = warehouse.select(runs=[case.run]), read(warehouse, case.run, files)
    windows = critical_path.requested(ranks)
    left_out = critical_path.WINDOWS.keys() - windows
    selected = [method for method in METHODS if part in method.name and method.name not in left_out]
    if any(method.name in windows for method in selected):
        answers |= oracle.critical(files, windows)
    for method in selected:
        name = f"{method.name} {method.note}".strip()
        try:
            word, why = verdict(method, answers[method.name], seen, ranks)
        except Exception as error:
            word, why = "unexplained", f"the comparison fails: {type(error).__name__}: {error}"
        yield Verdict(case.name, name, word, why)


def load_verdict(case: Case, stored: bool, answer: dict[str, Any]) -> tuple[str, str]:
    """Whether both read the files."""
    if "error" not in answer:
        return ("equal", "") if stored else ("apart", "we refuse what is not a Kineto trace")
    if not stored:
        return "none", "neither reads it"
    error, why = predicted(case.files) or ("", "")
    if error == answer["error"]:
        return "fails", f"{error}, {why}"
    return "unexplained", f"HTA: {answer['error']}: {answer['message']}"


def verdict(
    method: Method, answer: dict[str, Any], seen: tw.Warehouse, ranks: tuple[Rank, ...]
) -> tuple[str, str]:
    """What to say of one method, and why."""
    if "error" in answer and method.witnessed:
        return _failure(method, answer, ranks)
    ours = method.ours(seen) if method.ours else None
    plain = ours if ours is not None and method.witnessed else method.model(ranks, NONE)
    if ours is not None and not same(ours, plain, method.within):
        return "unexplained", f"ours / the model: {first_difference(ours, plain, method.within)}"
    if "error" in answer:
        return _failure(method, answer, ranks)
    said = method.said(answer["value"])
    if same(plain, said, method.within):
        return ("equal", "") if plain else ("none", "neither has an answer")
    rules = needed(method.rules, lambda rules: _gives(method, ranks, rules, said))
    if rules is None:
        found = method.model(ranks, frozenset(method.rules))
        return "unexplained", f"the model / HTA: {first_difference(found, said, method.within)}"
    return "apart", reported(rules)


def _gives(method: Method, ranks: tuple[Rank, ...], rules: Rules, said: Table) -> bool:
    try:
        return same(method.model(ranks, rules), said, method.within)
    except Fails:
        return False


def _failure(method: Method, answer: dict[str, Any], ranks: tuple[Rank, ...]) -> tuple[str, str]:
    try:
        method.model(ranks, frozenset(method.rules))
    except Fails as expected:
        if expected.error == answer["error"]:
            return "fails", f"{expected.error}, trap {expected.trap}: {expected.why}"
    return "unexplained", f"HTA: {answer['error']}: {answer['message']}"
