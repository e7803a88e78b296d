"""The results of a warehouse as plain values by column, to compare with those of a later release.

Rows become `{"column": [values]}`, in the order of the rows. Timestamps are ISO 8601 text, a MAP is a list of
pairs; integers and floats are unchanged.
"""

from __future__ import annotations

import datetime
import gzip
import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import tracewarehouse as tw
from tracewarehouse.contracts.contract import Contract

Columns = dict[str, list[Any]]
Answer = dict[str, Any]

METRICS = ("step_time", "kernel_summary.sum_ns[kind=communication]")
DIFFED = ("kernel_summary", "temporal_breakdown", "name_summary")


def stored_tables(wh: tw.Warehouse) -> tuple[Contract, ...]:
    """The tables that are stored per rank."""
    return tuple(each for each in wh.catalog.tables() if not each.transient and each.scope != "run")


def columns(result: tw.Result) -> Columns:
    """The rows of a result by column."""
    return {
        name: [plain(cell) for cell in result.table[name].to_pylist()] for name in result.table.column_names
    }


def plain(cell: Any) -> Any:
    """A value as JSON types."""
    if isinstance(cell, datetime.datetime):
        return cell.isoformat()
    if isinstance(cell, list | tuple):
        return [plain(each) for each in cell]
    if isinstance(cell, dict):
        return {key: plain(each) for key, each in cell.items()}
    return cell


def rows_of(wh: tw.Warehouse, run: str, table: Contract) -> Columns:
    """All rows of a stored table of a run, in the order of its grain."""
    order = ", ".join(table.grain)
    return columns(wh.select(run).query_all(f"SELECT * FROM {table.name} ORDER BY {order}"))


def answer(call: Callable[[], tw.Result]) -> Answer:
    """The rows, the skipped ranks with reasons and the notices; or the error."""
    try:
        result = call()
    except tw.TwError as error:
        return {"error": type(error).__name__, "message": str(error)}
    abstained = [[each.run_id, each.rank, each.reason] for each in result.abstained]
    return {"rows": columns(result), "abstained": abstained, "notices": list(result.notices)}


def tables(wh: tw.Warehouse, run: str) -> dict[str, Columns]:
    """Every stored table of a run."""
    return {table.name: rows_of(wh, run, table) for table in stored_tables(wh)}


def analyses(wh: tw.Warehouse, run: str, names: Iterable[str] | None = None) -> dict[str, Answer]:
    """Analyses of a run with default parameters, of these names or all, and its findings."""
    part = wh.select(run)
    chosen = [each.name for each in wh.catalog.analyses()] if names is None else names
    answers = {name: answer(lambda name=name: part.run(name)) for name in chosen}  # type: ignore[misc]
    if names is not None:
        return answers
    return {**answers, "check()": answer(part.check)}


def exported(wh: tw.Warehouse, run: str) -> dict[str, str]:
    """Rank → the sha256 of its exported trace."""
    ranks = wh.select(run).selected()[0].ranks
    return {str(rank): _sha256(wh.export_trace(run, rank).chunks) for rank in ranks}


def whole(wh: tw.Warehouse, leave_out: Iterable[str] = ()) -> Answer:
    """Results over all runs: runs, ranks and versions, histories, differences."""
    runs = [each.run for each in wh.selected()]
    compared = wh.diff("good", "slow")
    parts: dict[str, Callable[[], Any]] = {
        "runs": lambda: answer(wh.runs),
        "ranks": lambda: {run: columns(wh.info(run).ranks) for run in runs},
        "versions": lambda: {run: len(wh.info(run).versions) for run in runs},
        "older": lambda: answer(lambda: wh.select(["odd@v1", "good@v1"]).run("temporal_breakdown")),
        "history": lambda: {metric: answer(lambda m=metric: wh.history(m).result) for metric in METRICS},  # type: ignore[misc]
        "diff": lambda: {name: answer(lambda n=name: compared.run(n)) for name in DIFFED},  # type: ignore[misc]
        "changes": lambda: {"line": compared.changes().line, "rows": columns(compared.changes().rows())},
    }
    return {name: part() for name, part in parts.items() if name not in leave_out}


def write(wh: tw.Warehouse, folder: Path) -> None:
    """Writes all answers: one file for all runs, and two per run."""
    folder.mkdir(parents=True)
    _dump(folder / "whole.json.gz", whole(wh))
    for each in wh.selected():
        _dump(folder / f"{each.run}.tables.json.gz", tables(wh, each.run))
        answers = {"analyses": analyses(wh, each.run), "exported": exported(wh, each.run)}
        _dump(folder / f"{each.run}.answers.json.gz", answers)


def read(path: Path) -> Any:
    """A file that `write` wrote."""
    return json.loads(gzip.decompress(path.read_bytes()))


def _dump(path: Path, value: Any) -> None:
    text = json.dumps(value, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _sha256(chunks: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk.encode())
    return digest.hexdigest()
