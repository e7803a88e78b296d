"""What is wrong with a run: the verdict, all findings, most severe first, and stuck collectives of dumps."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tracewarehouse.display_names import CATEGORIES
from tracewarehouse.exact_text import rank_list
from tracewarehouse.findings import SEVERITIES, is_of_one_rank, order
from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.data import ReportData, breakdown, mean_step_ns
from tracewarehouse.present.report.document import (
    MAX_ROWS,
    Command,
    Finding,
    Listing,
    Section,
    Table,
    Verdict,
    and_list,
    duration,
    finding_percent,
    label,
    percent,
    relative_fields,
    relative_rows,
    sentence,
    shell_quoted,
    tables,
)
from tracewarehouse.present.report.memory import snapshot_sentence
from tracewarehouse.result import Result

_MAX_STATEMENTS = 5


_NOT_STUCK = "All ranks with a dump called the same collectives; none is stuck as far as recorded."


def flight_section(data: ReportData) -> Iterator[Section]:
    """The section; none without a dump of any rank."""
    if not _has_dump(data):
        return
    stuck = data.rows("SELECT explanation FROM stuck_collective", "stuck_collective")
    printed = tables(
        data,
        Listing("stuck_collective", "Stuck collectives"),
        Listing("flight_mismatches", "Mismatches between ranks"),
    )
    groups = plural(len(stuck), "process group")
    summary = f"{groups} stuck; the one that got stuck first is listed first." if stuck else _NOT_STUCK
    statements = tuple(row["explanation"] for row in stuck[:_MAX_STATEMENTS])
    yield Section("flight", "Flight recorder", summary, tables=printed, statements=statements)


def _has_dump(data: ReportData) -> bool:
    return len(data.result("stuck_collective").skipped) < data.ranks


Row = dict[str, Any]
Group = Sequence[Row]
_MAX_OTHERS = 3


def run_verdict(data: ReportData, findings: Result) -> Verdict:
    """The verdict on a run; `findings` holds the rows of `tw check`."""
    groups = finding_groups(findings.rows())
    if not groups:
        return _no_finding(data, findings)
    first, *others = groups
    worst = first[0]
    # The first sentence is the verdict, further ones explain it.
    answer, *details = sentences(subject_sentence(first, data.ranks))
    return Verdict(
        sentence=answer,
        severity=worst["severity"],
        price=" ".join([*details, saving(worst, mean_step_ns(data))]),
        advice=worst["advice"],
        commands=tuple(finding_commands(data.run, worst)),
        others=tuple((each[0]["severity"], _short(each, data.ranks)) for each in others[:_MAX_OTHERS]),
        rest=f"{len(others) - _MAX_OTHERS} more" if len(others) > _MAX_OTHERS else "",
        jump=max(map(jump, first)),
        rows=_table(data, findings, first),
    )


def finding_groups(findings: Iterable[Row]) -> list[Group]:
    """The findings of one rule and subject together, the worst rank first.

    Ranks and groups are in the order of `tw check`.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in findings:
        groups.setdefault((row["rule"], row["subject"]), []).append(row)
    for rows in groups.values():
        rows.sort(key=lambda row: (*order(row), row["rank"]))
    return sorted(groups.values(), key=lambda group: (*order(group[0]), group[0]["rule"]))


def sentences(text: str) -> list[str]:
    """The sentences of an observation."""
    return re.split(r"(?<=\.) (?=[A-Z])", text)


def subject_sentence(group: Group, ranks: int) -> str:
    """The observation of the worst finding, with its rank if the run has several."""
    text: str = group[0]["observation"]
    if ranks == 1 or re.search(r"\branks? [0-9]", text, re.IGNORECASE):
        return text
    named = f"Rank {group[0]['rank']}"
    if text.startswith("This rank"):
        return text.replace("This rank", named, 1)
    if "this rank" in text:
        return text.replace("this rank", f"rank {group[0]['rank']}", 1)
    if len(group) > 1:
        some = "Every rank" if len(group) == ranks else f"Ranks {rank_list([row['rank'] for row in group])}"
        named = f"{some} ({named.lower()} most)"  # the figures are those of the worst rank
    return f"{named}: {text[:1].lower()}{text[1:]}" if text[1:2].islower() else f"{named}: {text}"


def saving(row: Row, mean_ns: float | None = None) -> str:
    """What a fix saves at most, per step if there are complete steps; `mean_ns` is the step of the page."""
    if row["saving_ns"] is None:
        return f"{sentence(row['saving_limit'])}{_confidence(row)}"
    steps = row["steps"]
    lost, total = (ns / max(steps, 1) for ns in (row["saving_ns"], row["analyzed_ns"]))
    whole = f"every {duration(total)} step" if steps else f"the {duration(total)} recorded"
    share = finding_percent(lost, total)
    if mean_ns is not None and duration(mean_ns) != duration(total):
        share += f"; the mean step takes {duration(mean_ns)}"
    return f"Up to {duration(lost)} of {whole} ({share}) could be saved.{_confidence(row)}"


def _confidence(row: Row) -> str:
    if row["confidence"] == "high":
        return ""
    reason = ": no complete step was recorded" if not row["steps"] else ""
    return f" Confidence: {row['confidence']}{reason}."


def finding_commands(run: str, row: Row) -> Iterator[Command]:
    """The command that shows the evidence of a finding, and the one that opens its worst occurrence."""
    name, rank = shlex.quote(run), row["rank"]
    where = f" --where {shell_quoted(row['evidence_filter'])}" if row["evidence_filter"] else ""
    one = f" --rank {rank}" if is_of_one_rank(row) else ""
    yield Command(f"tw show {row['evidence']} --run {name}{one}{where}", "the evidence")
    if row["from_ns"] is not None:
        yield Command(f"tw open {name} --around {row['rule']}", "the worst occurrence in Perfetto")


def jump(row: Row) -> str:
    """The key of a finding's place on the timeline; empty without an occurrence."""
    return "" if row["from_ns"] is None else f"{row['rule']} {row['subject']}"


def _short(group: Group, ranks: int) -> str:
    """A finding in a few words: its rule, its ranks if the run has several, and the share of the time."""
    worst = group[0]
    name = worst["rule"].replace("_", " ")
    lost = finding_percent(worst["saving_ns"], worst["analyzed_ns"]) if worst["saving_ns"] is not None else ""
    where = ""
    if ranks > 1:
        where = "every rank: " if len(group) == ranks else f"{_named_ranks(group)}: "
    return where + ", ".join(each for each in (name, lost) if each)


def _named_ranks(group: Group) -> str:
    ranks = [row["rank"] for row in group]
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {rank_list(ranks)}"


def _none_found(findings: Result) -> str:
    """That there are no findings, or that what was recorded could not show all."""
    return "Not all could be checked, and nothing was found." if findings.recording else "No findings."


def _no_finding(data: ReportData, findings: Result) -> Verdict:
    """The largest part of the time; without GPU activities, of host time."""
    account = breakdown(data)
    if account is None:
        text = _host_sentence(data, findings)
        if "cannot be analyzed" in text:
            text = snapshot_sentence(data) or (_NOT_STUCK if _has_dump(data) else text)
        return Verdict(f"{_none_found(findings)} {text}")
    category, ns = next(iter(account.times.items()))
    share = percent(ns, account.total_ns)
    led = ""
    if category == "compute":
        kernels = data.rows(
            "SELECT name, sum(sum_ns) AS ns FROM kernel_summary WHERE kind = 'computation'"
            " GROUP BY name ORDER BY ns DESC, name LIMIT 1",
            "kernel_summary",
        )
        led = f", led by {label(kernels[0]['name'])}" if kernels else ""
    part = f"The largest part of the {account.whole} is {CATEGORIES[category]} ({share}{led})."
    return Verdict(
        f"{_none_found(findings)} {part}",
        commands=(Command(f"tw show {account.analysis} --run {shlex.quote(data.run)}", "all parts"),),
    )


def _host_sentence(data: ReportData, findings: Result) -> str:
    """The operator with the most host time; without one, why nothing can be analyzed."""
    rows = data.rows(
        """
        SELECT name, sum(host_self_ns)::BIGINT AS ns, sum(sum(host_self_ns)) OVER ()::BIGINT AS total_ns
        FROM op_summary WHERE name IS NOT NULL GROUP BY name ORDER BY ns DESC, name LIMIT 1
        """,
        "op_summary",
    )
    if rows and rows[0]["ns"]:
        share = percent(rows[0]["ns"], rows[0]["total_ns"])
        operator = label(rows[0]["name"])
        return f"No GPU activities were recorded; {operator} takes {share} of operator time on the host."
    reasons = list(dict.fromkeys(rank.reason.partition(":")[0] for rank in findings.skipped))
    return f"This run cannot be analyzed: {and_list(reasons) or 'nothing was recorded'}."


def skipped_checks(findings: Result) -> Iterator[str]:
    """Which checks were skipped why, as a sentence."""
    reasons = list(dict.fromkeys(each.reason for each in findings.skipped))
    ranks = {rank.rank for rank in findings.skipped}
    if reasons:
        yield f"Checks were skipped on {plural(len(ranks), 'rank')}: {'; '.join(reasons)}."


MAX_FINDINGS = 10
_DOCS = {"rank": "The rank.", "rule": "The finding rule; see `tw describe RULE`."}
# The other columns are said in the finding, or in its commands.
_COLUMNS = ("rank", "rule", "subject", "share", "threshold", "count", "steps", "analyzed_ns", "saving_ns") + (
    "saving_limit",
    "confidence",
    "step",
    "culprit",
    "source",
)


def findings_section(data: ReportData, result: Result) -> Iterator[Section]:
    """The findings after the first one, which is the verdict; `result` holds the rows of `tw check`."""
    others = finding_groups(result.rows())[1:]
    if not others:
        return
    counts = {each: sum(group[0]["severity"] == each for group in others) for each in reversed(SEVERITIES)}
    severities = [f"{count} {severity}" for severity, count in counts.items() if count]
    count = f"{plural(len(others), 'more finding')}: {and_list(severities)}"
    text = f"{count}. Savings overlap and cannot be summed."
    findings = tuple(_finding(data, result, group) for group in others[:MAX_FINDINGS])
    commands = (Command(f"tw check {shlex.quote(data.run)}", "all findings"),)
    yield Section("findings", "Other findings", text, findings=findings, commands=commands)


def _finding(data: ReportData, result: Result, group: Group) -> Finding:
    """Rows of one rule and subject; the first is the worst."""
    worst = group[0]
    return Finding(
        severity=worst["severity"],
        observation=subject_sentence(group, data.ranks),
        saving=saving(worst, mean_step_ns(data)),
        advice=worst["advice"],
        commands=tuple(finding_commands(data.run, worst)),
        jump=max(map(jump, group)),
        rows=_table(data, result, group),
    )


def _table(data: ReportData, result: Result, group: Group) -> Table:
    """The rows of a finding, one per rank."""
    fields = [
        field
        for field in result.columns()
        if field.name in _COLUMNS and any(row[field.name] is not None for row in group)
    ]
    return Table(
        name="check",
        caption="Details",
        fields=relative_fields(fields),
        docs=tuple(_DOCS.get(field.name, field.name) for field in fields),
        rows=relative_rows(fields, group[:MAX_ROWS], data.start_ns),
        total=len(group),
        command=f"tw check {shlex.quote(data.run)}",
        notes=result.notices,
    )
