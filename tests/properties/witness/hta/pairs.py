"""TraceDiff of two traces, and a raw memory timeline: what is not about one trace of a profiler."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

import tracewarehouse as tw
from witness.hta.breakdowns import LOAD
from witness.hta.frame import MEMORY, STEP, Rank, parsed, read
from witness.hta.method import US, Table, columns, first_difference, same
from witness.hta.oracle import Oracle
from witness.hta.rules import NONE, Fails, Rules, needed, reported
from witness.hta.stepping import with_steps

RULES = (*LOAD, "stream", "marks")
WITHIN = (0, 0.5, 0, 0.5)
KINDS = ("ALL", "CPU", "GPU")
Verdict = tuple[str, str, str]


def verdicts(
    warehouse: tw.Warehouse, oracle: Oracle, runs: tuple[str, str], paths: tuple[Path, Path]
) -> Iterator[Verdict]:
    """Method, word and reason of each way to compare two traces; the runs are there already."""
    sides = [stored_rank(warehouse, run) for run in runs]
    answers = oracle.pair(*({rank: path} for rank, path in zip(sides, paths, strict=True)))
    ranks = [read(warehouse, run, {rank: path}) for run, rank, path in zip(runs, sides, paths, strict=True)]
    for name, answer in answers.items():
        kind = name.partition("(")[2].rstrip(")") or "ALL"
        try:
            yield name, *_verdict(warehouse, runs, ranks, kind, answer, name.endswith("ops_diff"))
        except Exception as error:
            yield name, "unexplained", f"the comparison fails: {type(error).__name__}: {error}"


def stored_rank(warehouse: tw.Warehouse, run: str) -> int:
    """The only rank of a run."""
    (row,) = warehouse.select(runs=[run]).query("SELECT rank FROM ranks", limits=None).rows()
    return int(row["rank"])


def _verdict(
    warehouse: tw.Warehouse,
    runs: tuple[str, str],
    ranks: list[tuple[Rank, ...]],
    kind: str,
    answer: dict[str, Any],
    groups: bool,
) -> tuple[str, str]:
    def model(rules: Rules) -> Table:
        found = both([_counts(side, rules, kind) for side in ranks])
        return _changes(found) if groups else found

    within = () if groups else WITHIN
    rules = RULES
    if "error" in answer:
        try:
            model(frozenset(rules))
        except Fails as expected:
            if expected.error == answer["error"]:
                return "fails", f"{expected.error}, trap {expected.trap}: {expected.why}"
        return "unexplained", f"HTA: {answer['error']}: {answer['message']}"
    plain = model(NONE)
    if kind != "short":
        ours = both([_ours(warehouse, run, kind) for run in runs])
        ours = _changes(ours) if groups else ours
        if not same(ours, plain, within):
            return "unexplained", f"ours / the model: {first_difference(ours, plain, within)}"
    said = _groups_said(answer["value"]) if groups else _said(answer["value"])
    if same(plain, said, within):
        return "equal", ""
    wanted = needed(rules, lambda each: same(model(each), said, within))
    if wanted is None:
        return "unexplained", f"the model / HTA: {first_difference(model(frozenset(rules)), said, within)}"
    return "apart", reported(wanted)


Side = dict[str, tuple[int, float]]


def both(sides: list[Side]) -> Table:
    """(name,): count and time of one side, then of the other; 0 where it is not there."""
    one, other = sides
    return {(name,): (*one.get(name, (0, 0)), *other.get(name, (0, 0))) for name in one | other}


def _ours(warehouse: tw.Warehouse, run: str, kind: str) -> Side:
    seen = warehouse.select(runs=[run])
    steps = sorted(row["step"] for row in seen.analyze("step_summary").rows())
    found: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0))
    for row in seen.analyze("name_summary", by_step=True).rows():
        if steps and row["step"] == steps[0] and kind in ("ALL", "GPU" if row["on_gpu"] else "CPU"):
            count, time = found[row["name"]]
            found[row["name"]] = count + row["count"], time + row["sum_ns"]
    return dict(found)


def _counts(ranks: tuple[Rank, ...], rules: Rules, kind: str) -> Side:
    rows = parsed(ranks[0], rules)
    if "marks" in rules:
        rows = with_steps(rows)
        steps = [int(mark[1]) for name in rows["name"].unique() if (mark := STEP.match(name or ""))]
    else:
        steps = [step for step in rows.filter("nests")["step"].unique() if step is not None]
    if not steps:
        if "marks" in rules:
            raise Fails("ValueError", 6, "a trace without steps has no first one")
        return {}
    rows = rows.filter(pl.col("step") == min(steps))
    rows = rows if "stream" in rules else rows.filter(pl.col("gpu") | pl.col("nests"))
    if kind in ("CPU", "GPU"):
        rows = rows.filter(pl.col("gpu") == (kind == "GPU"))
    if kind == "short":
        rows = rows.with_columns(name=pl.Series([short_name(name) for name in rows["name"]], dtype=pl.String))
    grouped = rows.group_by("name").agg(pl.len(), pl.col("dur").sum())
    return {name: (count, time) for name, count, time in grouped.rows()}


def short_name(name: str) -> str:
    """HTA's short name: what is in brackets goes, and all before the last blank."""
    if MEMORY.match(name) or ("<" not in name and "(" not in name):
        return name
    stack: list[str] = []
    for letter in name.replace("->", ""):
        if letter in ">)":
            opening = "<" if letter == ">" else "("
            while stack and stack[-1] != opening:
                stack.pop()
            if stack:
                stack.pop()
        else:
            stack.append(letter)
    return "".join(stack).split(" ")[-1]


def _said(answer: Any) -> Table:
    key = next(name for name in ("name", "short_name") if name in answer)
    numbers = ("control_counts", "control_total_duration", "test_counts", "test_total_duration")
    return {
        (name,): (before, US * before_us, after, US * after_us)
        for name, before, before_us, after, after_us in columns(answer, key, *numbers)
    }


def _changes(found: Table) -> Table:
    """(name,): added, deleted, increased, decreased or unchanged."""

    def word(before: float, after: float) -> str:
        if not before or not after:
            return "added" if after else "deleted"
        return "increased" if after > before else "decreased" if after < before else "unchanged"

    return {key: (word(row[0], row[2]),) for key, row in found.items()}


def _groups_said(answer: Any) -> Table:
    return {(name,): (word,) for word, names in answer.items() for name in names}


# A raw memory timeline

CATEGORIES = ("parameter", "optimizer_state", "input", "temporary", "activation", "gradient")
ALL = (*CATEGORIES, "autograd_detail", "unknown")


def timeline(warehouse: tw.Warehouse, oracle: Oracle, path: Path) -> Verdict:
    """Bytes by category after each moment."""
    report = warehouse.ingest(path, run="memory-timeline")
    run = report.files[0].run or "memory-timeline"
    times, sizes = oracle.timeline(path)["MemoryAnalysis"]["value"]
    rows = warehouse.select(runs=[run]).analyze("memory_category_curve").rows()
    rows = sorted(rows, key=lambda row: row["position"])
    first = min(time for time in times if time >= 0)
    ours: dict[int, list[int]] = {}
    for row in rows:
        ours[row["ts_ns"] if row["ts_ns"] is not None else first] = [row[f"{name}_bytes"] for name in ALL]
    said = dict(zip(times, sizes, strict=True))
    method = "MemoryAnalysis"
    if ours == said:
        return method, "equal", ""
    wrong = next(time for time in sorted(ours.keys() | said.keys()) if ours.get(time) != said.get(time))
    return method, "unexplained", json.dumps([wrong, ours.get(wrong), said.get(wrong), len(ours), len(said)])
