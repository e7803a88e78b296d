"""Findings of a run, most severe first, grouped by the ranks that share one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from tracewarehouse.exact_text import rank_list
from tracewarehouse.present.report.data import ReportData
from tracewarehouse.present.report.document import Finding, Section, Table
from tracewarehouse.present.report.tables import MAX_ROWS, relative_field, relative_row
from tracewarehouse.present.report.verdict import (
    Group,
    finding_commands,
    finding_groups,
    saving,
    subject_sentence,
    summary,
)
from tracewarehouse.result import Result

_MAX_FINDINGS = 10
_DOCS = {"rank": "The rank.", "rule": "The finding rule; see `tw describe RULE`."}
Row = Mapping[str, Any]


def findings_section(data: ReportData, result: Result) -> Section:
    """The section; `result` holds the rows of `tw check`."""
    groups = finding_groups(result.rows())
    findings = tuple(_finding(data, group) for group in groups[:_MAX_FINDINGS])
    tables = (_table(data, result),) if groups else ()
    return Section("findings", "Findings", summary(groups, result), (), tables, findings)


def _finding(data: ReportData, group: Group) -> Finding:
    """Rows of one rule and subject; the first is the worst."""
    worst = group[0]
    ranks = [row["rank"] for row in group]
    where = (
        f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {rank_list(ranks)}, worst: rank {worst['rank']}"
    )
    return Finding(
        severity=worst["severity"],
        title=f"{worst['rule']} ({worst['subject']}), {where}",
        observation=subject_sentence(group, data.ranks),
        saving=saving(worst),
        advice=worst["advice"],
        commands=tuple(finding_commands(data.run, worst)),
    )


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
