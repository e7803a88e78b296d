"""Findings: what looks wrong, the gravest first, ranks in which it is so together."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tracewarehouse.exact_text import rank_list
from tracewarehouse.findings import SEVERITIES
from tracewarehouse.report.content import Finding, Section, Table
from tracewarehouse.report.data import Asked
from tracewarehouse.report.tables import TOP, relative
from tracewarehouse.report.wording import and_list, part, plural, time
from tracewarehouse.result import Field, Result

TOP_FINDINGS = 10
_WORDS = {"rank": "The rank.", "rule": "The rule that found it; `tw describe RULE` tells more."}
Row = Mapping[str, Any]


def findings(asked: Asked, found: Result) -> Section:
    """The section; `found` is what `tw check` gives."""
    rows = found.rows()
    blocks: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        blocks.setdefault((row["severity"], row["rule"], row["subject"]), []).append(row)
    told = tuple(_finding(asked.run, block) for block in blocks.values())[:TOP_FINDINGS]
    tables = (_table(asked, found),) if rows else ()
    return Section("findings", "Findings", _sentence(rows, found), (), tables, told)


def _sentence(rows: Sequence[Row], found: Result) -> str:
    counts = Counter(row["severity"] for row in rows)
    graded = [f"{counts[each]} {each}" for each in reversed(SEVERITIES) if counts[each]]
    said = f"{plural(len(rows), 'finding')}: {and_list(graded)}." if rows else "No rule found anything wrong."
    reasons = list(dict.fromkeys(each.reason for each in found.abstained))
    silent = {each.rank for each in found.abstained}
    if reasons:
        said += f" Not judged on {plural(len(silent), 'rank')}: {'; '.join(reasons)}."
    return said + (" Savings of several findings do not add up." if len(rows) > 1 else "")


def _finding(run: str, rows: Sequence[Row]) -> Finding:
    """Rows of one rule and subject; the first is the worst."""
    worst = rows[0]
    ranks = [row["rank"] for row in rows]
    of = (
        f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {rank_list(ranks)}, rank {worst['rank']} the worst"
    )
    return Finding(
        severity=worst["severity"],
        title=f"{worst['rule']} ({worst['subject']}), {of}",
        seen=worst["observation"],
        saving=_saving(worst),
        advice=worst["advice"],
        look=_look(run, worst),
    )


def _saving(row: Row) -> str:
    if row["saving_ns"] is None:
        return f"{row['saving_limit']}. Confidence: {row['confidence']}."
    of = f"{time(row['saving_ns'])} of {time(row['analyzed_ns'])} ({part(row['saving_ns'], row['analyzed_ns'])})"
    return f"Saves at most {of}: {row['saving_limit']}. Confidence: {row['confidence']}."


def _look(run: str, row: Row) -> str:
    return f"tw show {row['evidence']} --run {shlex.quote(run)} --rank {row['rank']}"


def _table(asked: Asked, found: Result) -> Table:
    fields = [each for each in found.columns() if each.name != "run_id"]
    points = [at for at, each in enumerate(fields) if each.unit == "ts"]
    rows = [[row[each.name] for each in fields] for row in found.head(TOP).rows()]
    return Table(
        name="check",
        caption="All findings",
        fields=tuple(
            Field(each.name, each.type, "ns" if each.unit == "ts" else each.unit) for each in fields
        ),
        docs=tuple(_WORDS.get(each.name, each.name) for each in fields),
        rows=[relative(row, points, asked.start_ns) for row in rows],
        total=len(found),
        command=f"tw check {shlex.quote(asked.run)}",
        notes=tuple(_notes(found)),
    )


def _notes(found: Result) -> Iterator[str]:
    yield from found.notices
