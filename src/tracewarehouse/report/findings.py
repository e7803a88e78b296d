"""Findings of a run, most severe first, grouped by the ranks that share one."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tracewarehouse.exact_text import rank_list
from tracewarehouse.findings import SEVERITIES
from tracewarehouse.render.text import plural
from tracewarehouse.report.data import ReportData
from tracewarehouse.report.document import Finding, Section, Table
from tracewarehouse.report.tables import MAX_ROWS, relative_field, relative_row
from tracewarehouse.report.text import and_list, duration, percent
from tracewarehouse.result import Result

_MAX_FINDINGS = 10
_DOCS = {"rank": "The rank.", "rule": "The finding rule; see `tw describe RULE`."}
Row = Mapping[str, Any]


def findings_section(data: ReportData, result: Result) -> Section:
    """The section; `result` holds the rows of `tw check`."""
    rows = result.rows()
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["severity"], row["rule"], row["subject"]), []).append(row)
    findings = tuple(_finding(data.run, group) for group in groups.values())[:_MAX_FINDINGS]
    tables = (_table(data, result),) if rows else ()
    return Section("findings", "Findings", _summary(rows, result), (), tables, findings)


def _summary(rows: Sequence[Row], result: Result) -> str:
    counts = Counter(row["severity"] for row in rows)
    severities = [f"{counts[each]} {each}" for each in reversed(SEVERITIES) if counts[each]]
    text = f"{plural(len(rows), 'finding')}: {and_list(severities)}." if rows else "No findings."
    reasons = list(dict.fromkeys(each.reason for each in result.abstained))
    ranks = {each.rank for each in result.abstained}
    if reasons:
        text += f" Skipped checks on {plural(len(ranks), 'rank')}: {'; '.join(reasons)}."
    return text + (" Savings overlap and cannot be summed." if len(rows) > 1 else "")


def _finding(run: str, rows: Sequence[Row]) -> Finding:
    """Rows of one rule and subject; the first is the worst."""
    worst = rows[0]
    ranks = [row["rank"] for row in rows]
    where = (
        f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {rank_list(ranks)}, worst: rank {worst['rank']}"
    )
    return Finding(
        severity=worst["severity"],
        title=f"{worst['rule']} ({worst['subject']}), {where}",
        observation=worst["observation"],
        saving=_saving(worst),
        advice=worst["advice"],
        command=f"tw show {worst['evidence']} --run {shlex.quote(run)} --rank {worst['rank']}",
    )


def _saving(row: Row) -> str:
    if row["saving_ns"] is None:
        return f"{row['saving_limit']}. Confidence: {row['confidence']}."
    saving_ns, total_ns = row["saving_ns"], row["analyzed_ns"]
    share = percent(saving_ns, total_ns)
    saving = f"Saves at most {duration(saving_ns)} of {duration(total_ns)} ({share})"
    return f"{saving}: {row['saving_limit']}. Confidence: {row['confidence']}."


def _table(data: ReportData, result: Result) -> Table:
    fields = [field for field in result.columns() if field.name != "run_id"]
    timestamps = [at for at, field in enumerate(fields) if field.unit == "ts"]
    rows = [[row[field.name] for field in fields] for row in result.head(MAX_ROWS).rows()]
    return Table(
        name="check",
        caption="All findings",
        fields=tuple(map(relative_field, fields)),
        docs=tuple(_DOCS.get(field.name, field.name) for field in fields),
        rows=[relative_row(row, timestamps, data.start_ns) for row in rows],
        total=len(result),
        command=f"tw check {shlex.quote(data.run)}",
        notes=result.notices,
    )
