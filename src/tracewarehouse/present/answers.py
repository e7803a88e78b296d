"""What `tw ingest`, `tw check` and `tw diff` print: as text, as Markdown, and the rows of JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from itertools import chain
from shlex import quote
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from tracewarehouse.display_names import HOST_LEVELS, LEVELS
from tracewarehouse.errors import TwError
from tracewarehouse.exact_text import rank_list
from tracewarehouse.findings import CHECKED, SEVERITIES, UNEXPLAINED, is_of_one_rank
from tracewarehouse.hints import cli_text
from tracewarehouse.present.render.table import Facts, markdown, shortened, table
from tracewarehouse.present.render.text import count, duration, one_line, plural, ratio, show, size
from tracewarehouse.result import Field, Result
from tracewarehouse.runs.recording import NO_BASIS, SOUND, recording_verdict

if TYPE_CHECKING:
    from tracewarehouse.compare.diff.change import Change
    from tracewarehouse.compare.diff.gate import GateResult
    from tracewarehouse.ingest.outcome import FileOutcome, IngestReport, RunOutcome

_COLUMNS = (
    "name",
    "base_ns",
    "head_ns",
    "delta_ns",
    "share",
    "change",
    "q",
    "significant",
    "calls_ns",
    "speed_ns",
)
# Stay in a narrow table.
_ANSWER = ("delta_ns", "base_ns", "head_ns", "significant")
_GATE_ANSWER = ("outcome", "value", "head", "base")
_HEADINGS = {"share": "share_of_change"}
_SNAPSHOT = "memory at the peak by call"
_BANDWIDTH = "bus bandwidth by collective, message size and number of ranks"
_SHORT_LEVELS = ("breakdown",)  # a few rows, never folded
_MOST_CHARACTERS = 60_000  # GitHub limits comments to 65,536
_CUT = "\n\n… the rest is left out.\n"
_MARKS = {
    "fail": "## ❌ tw diff: a gate failed\n\n",
    "inconclusive": "## ⚠️ tw diff: inconclusive\n\n",
    "pass": "## ✅ tw diff: all gates hold\n\n",
}
_GOOD = ("no change", "faster")
_GATE_COLUMNS = ("gate", "outcome", "base", "head", "value")
_OUTCOMES = ("fail", "inconclusive", "pass")
Layout = Callable[[Sequence[Field], Sequence[Sequence[object]]], str]


def change_text(change: Change, levels: Sequence[str], top: int, width: int | None) -> str:
    """Configuration differences, the verdict, gates, and the breakdown by level; lines of `width` columns."""

    def plain(fields: Sequence[Field], rows: Sequence[Sequence[object]]) -> str:
        return "\n".join(table(fields, rows, width=width, keys=("name", "gate"), answer=_ANSWER).lines())

    def titled(title: str, rows: str) -> str:
        return f"{_wrapped(title, width)}\n{rows}"

    blocks = [_wrapped(_summary(change, ""), width), *_gate_table(change.gates, width)]
    if change.breakdown is not None:
        blocks += [titled(_title(change, name), _level(change, name, top, plain)) for name in levels]
    blocks += [titled(title, rows) for title, rows in _noticeable(change, top, plain)]
    return "\n\n".join(blocks) + "\n"


def _wrapped(text: str, width: int | None) -> str:
    """The lines of `text`, those longer than `width` wrapped; a name that is longer is shortened."""
    if width is None:
        return text
    fits = partial(wrap, width=width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    text = re.sub(rf"\S{{{width - 1},}}", lambda name: shortened(name[0], width - 2), text)
    return "\n".join("\n".join(fits(line)) for line in text.splitlines())


def markdown_comment(change: Change, levels: Sequence[str], top: int) -> str:
    """The same as Markdown: the verdict visible, levels collapsed."""
    blocks = [f"### {change.line}", _summary(change, "- ", verdict=False), *_gates(change.gates)]
    if change.breakdown is not None:
        for name in levels:
            opened = " open" if name in _SHORT_LEVELS else ""
            table_text = _level(change, name, top, _markdown)
            block = f"<details{opened}><summary>{_title(change, name)}</summary>\n\n{table_text}\n</details>"
            if sum(map(len, blocks)) + len(block) < _MOST_CHARACTERS:
                blocks.append(block)
    blocks += [
        f"<details><summary>{title}</summary>\n\n{table_text}\n</details>"
        for title, table_text in _noticeable(change, top, _markdown)
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def github_comment(change: Change, levels: Sequence[str], top: int) -> str:
    """A comment of at most 60 kB: the verdict with a mark, failed gates first, and what there is room for.

    The rows of each level are cut before a level is left out, so that the first rows of each remain.
    """
    for rows in (top, top // 2, 3, 1):
        text = f"{_heading(change)}{markdown_comment(change, levels, rows)}"
        if len(text.encode()) <= _MOST_CHARACTERS:
            return text
    cut = text.encode()[: _MOST_CHARACTERS - len(_CUT.encode())].decode(errors="ignore")
    return cut.rpartition("\n")[0] + _CUT


def untested_gates(gates: Sequence[GateResult], why: str, format_: str, width: int | None) -> str:
    """Gates without a comparison, as text or Markdown; with a mark for GitHub."""
    gates = [replace(gate, reason=None) for gate in gates]  # it is `why`, which is above them
    if format_ == "table":
        return "\n\n".join([_wrapped(why, width), *_gate_table(gates, width)]) + "\n"
    mark = _MARKS["inconclusive"] if format_ == "github" else ""
    return mark + "\n\n".join([f"### {why}", *_gates(gates)]) + "\n"


def _heading(change: Change) -> str:
    """The worst outcome of the gates, else the verdict."""
    outcomes = {gate.outcome for gate in change.gates}
    worst = next((each for each in _OUTCOMES if each in outcomes), None)
    if worst:
        return _MARKS[worst]
    mark = "✅" if change.verdict.word in _GOOD else "⚠️"
    return f"## {mark} tw diff: {change.verdict.outcome}\n\n"


def _markdown(fields: Sequence[Field], rows: Sequence[Sequence[object]]) -> str:
    return markdown(fields, rows).rstrip("\n")


def _summary(change: Change, mark: str, verdict: bool = True) -> str:
    """The two sides, how they differ, and the verdict."""
    lines = [f"{mark}recording: {change.recording}"]
    lines += [f"{mark}base {_run_list(change.base)}", f"{mark}head {_run_list(change.head)}"]
    lines += [
        f"{mark}{'warning' if difference.is_warning else 'note'}: {one_line(cli_text(difference.message))}"
        for difference in change.differences
    ]
    if verdict:
        lines += ["", change.line]
    lines += [f"{mark}{remark}" for remark in _remarks(change)]
    if change.no_breakdown_reason:
        lines.append(f"{mark}no breakdown: {cli_text(change.no_breakdown_reason)}")
    return "\n".join(lines)


def _remarks(change: Change) -> Iterator[str]:
    """The causes, how far the verdict holds, and changes that the verdict does not show."""
    yield from change.causes
    if change.verdict.reason and change.verdict.sample == "run":
        yield change.verdict.reason
    changed = _significant_rows(change)
    if changed and change.breakdown and change.verdict.word in ("inconclusive", "no change"):
        host_nouns = ("operator, call or frame", "operators, calls or frames")
        rows = plural(changed, *(host_nouns if change.breakdown.on_host else ("kernel",)))
        yield f"the step as a whole: {change.verdict.outcome}; {rows} changed significantly"
    left_out = change.breakdown.incomplete if change.breakdown else ()
    yield from (f"note: {each}" for each in (*change.verdict.notices, *change.spread_notes, *left_out))


def _significant_rows(change: Change) -> int:
    if change.breakdown is None:
        return 0
    rows = change.breakdown.level("kernels").result().rows()
    return sum(bool(row.get("significant")) and not row["name"].startswith("idle_") for row in rows)


def _run_list(runs: Sequence[str]) -> str:
    return (
        runs[0]
        if len(runs) == 1
        else f"{len(runs)} runs: {', '.join(runs[:3])}{', …' if len(runs) > 3 else ''}"
    )


def _title(change: Change, name: str) -> str:
    account = change.breakdown
    assert account is not None
    times = f"{show(float(account.base_mean), 'ns')} → {show(float(account.head_mean), 'ns')}"
    return f"mean {account.whole} {times} {(HOST_LEVELS if account.on_host else LEVELS)[name]}"


def _level(change: Change, name: str, top: int, layout: Layout) -> str:
    assert change.breakdown is not None
    result = change.breakdown.level(name).result(None if name in _SHORT_LEVELS else top)
    columns = {field.name: field for field in result.columns()}
    rows = result.rows()
    names = [name for name in _COLUMNS if name in columns and any(row[name] is not None for row in rows)]
    fields = [replace(columns[name], name=_HEADINGS.get(name, name)) for name in names]
    return layout(fields, [[row[name] for name in names] for row in rows])


def _noticeable(change: Change, top: int, layout: Layout) -> Iterator[tuple[str, str]]:
    """Collectives, and calls that hold memory: title and noticeable changes."""
    for title, comparison in (
        (_BANDWIDTH, change.bandwidth),
        (_SNAPSHOT, change.snapshot),
    ):
        rows = comparison.changed[:top] if comparison else []
        if comparison and rows:
            fields = comparison.rows.columns()
            yield title, layout(fields, [[row[field.name] for field in fields] for row in rows])


def _gates(gates: Sequence[GateResult]) -> Iterator[str]:
    if gates:
        fields = [Field(name, "VARCHAR") for name in (*_GATE_COLUMNS, "reason", "power")]
        rows = [_gate_row(gate) for gate in _worst_first(gates)]
        yield markdown(fields, rows, code=("gate",)).rstrip("\n")


def _gate_table(gates: Sequence[GateResult], width: int | None) -> Iterator[str]:
    """The gates as a table, and below it the reasons of outcomes and the power, which are sentences."""
    if not gates:
        return
    fields, rows = [Field(name, "VARCHAR") for name in _GATE_COLUMNS], []
    notes: dict[str, list[str]] = {}
    for gate in _worst_first(gates):
        *cells, reason, power = _gate_row(gate)
        rows.append(cells)
        for note in (reason, power):
            if note is not None:
                notes.setdefault(str(note), []).append(gate.gate.text)
    table_lines = table(fields, rows, width, ("gate",), Facts(), _GATE_ANSWER).lines()
    note_lines = [_wrapped(f"{', '.join(texts)}: {note}", width) for note, texts in notes.items()]
    yield "\n".join([*table_lines, *note_lines])


def _worst_first(gates: Sequence[GateResult]) -> list[GateResult]:
    return sorted(gates, key=lambda each: _OUTCOMES.index(each.outcome))


def _gate_row(result: GateResult) -> list[object]:
    unit = result.gate.metric.column.unit
    base, head = (None if value is None else show(value, unit) for value in (result.base, result.head))
    reason = None if result.reason is None else cli_text(result.reason)
    value, power = gate_value(result), gate_power(result)
    return [result.gate.text, result.outcome, base, head, value, reason, power]


def gate_power(result: GateResult) -> str | None:
    """How likely the gate fails at its bound and at twice the bound, and what it fails for with 80 %."""
    if result.power_at_bound is None:
        return None
    bound = result.gate.bound
    phrases = [
        f"fails in {100 * result.power_at_bound:.0f} % of cases if the true change is {100 * bound:+.1f} %"
    ]
    if result.power_at_twice is not None:
        phrases.append(f"in {100 * result.power_at_twice:.0f} % if {200 * bound:+.1f} %")
    if result.detects is not None:
        phrases.append(f"in 80 % if {100 * result.detects:+.1f} %")
    return ", ".join(phrases)


def gate_value(result: GateResult) -> str | None:
    """The value compared with the bound, with its interval."""
    if result.value is None:
        return None
    if not result.gate.relative:
        return show(result.value, result.gate.metric.column.unit)
    change = f"{100 * result.value:+.1f} %"
    if result.low is None or result.high is None:
        return change
    return f"{change} [{100 * result.low:.1f}, {100 * result.high:.1f}]"


def gate_rows(results: Iterable[GateResult]) -> list[dict[str, object]]:
    """Gates as rows of the JSON object."""
    return [{"gate": each.gate.text, **{key: getattr(each, key) for key in _GATE_FIELDS}} for each in results]


_GATE_FIELDS = (
    *("outcome", "base", "head", "value", "low", "high", "reason", "test"),
    *("detects", "power_at_bound", "power_at_twice"),
)


def change_row(change: Change) -> dict[str, object]:
    """The complete comparison, for the JSON object."""
    from tracewarehouse.compare.diff.causes import spread

    return {
        "base": list(change.base),
        "head": list(change.head),
        "differences": [asdict(difference) for difference in change.differences],
        "verdict": {**to_builtins(change.verdict), "line": change.line},
        "late_rank": change.late_rank,
        "causes": list(change.causes),
        "spread": [] if change.breakdown is None else [asdict(row) for row in spread(change.breakdown)],
        "gates": gate_rows(change.gates),
        "breakdown": None if change.breakdown is None else change.rows().rows(),
        "no_breakdown_reason": change.no_breakdown_reason,
        "bandwidth": [] if change.bandwidth is None else change.bandwidth.rows.rows(),
        "snapshot": [] if change.snapshot is None else change.snapshot.rows.rows(),
    }


_NAMED_RECORDINGS, _MOST_ALIKE = 5, 5
STATES_LISTED_PER_FILE = ("refused", "damaged", "repaired", "pending", "skipped")


def ingest_notices(report: IngestReport) -> Iterator[str]:
    """A line for each file that was not stored as is, with its hint; then notes on runs.

    Many files with the same reason have one line.
    """
    counts = Counter((file.state, _reason(file)) for file in report.files)
    listed = set()
    for file in report.files:
        key = file.state, _reason(file)
        if file.state in STATES_LISTED_PER_FILE and key not in listed:
            is_many = key[1] and counts[key] > _MOST_ALIKE
            listed |= {key} if is_many else set()
            which = f"{counts[key]:,} files such as {file.path}" if is_many else file.path
            yield f"{file.state}: {which}{f': {key[1]}' if key[1] else ''}"
            if file.hint:
                yield f"hint: {cli_text(file.hint)}"
        yield from (f"note: {file.path}: {note}" for note in file.notes)
    if report.files and len(report.of("skipped")) == len(report.files):
        from tracewarehouse.ingest.survey import TRACES

        yield f"hint: {TRACES}"
    yield from (f"note: {cli_text(note)}" for note in report.notes)
    for run in report.runs:
        yield from (f"quality: run {run.run}: {rule}: {text}" for rule, text in run.rules)


def ingest_error(report: IngestReport) -> TwError | None:
    """The error of an ingest that stored nothing although it was given files."""
    if report.exit_code != 1:
        return None
    if report.strict:
        return TwError("nothing was stored: --strict requires all files to be intact")
    counts = {state: len({file.path for file in report.of(state)}) for state in ("refused", "skipped")}
    counted = ", ".join(f"{plural(number, 'file')} {state}" for state, number in counts.items() if number)
    return TwError(f"nothing was stored: {counted}")


def ingest_summary(report: IngestReport) -> str:
    """Counts, coverage, data quality, speed, and the next commands."""
    lines = [*_recordings(report), _ingest_headline(report)]
    lines += [f"  run {run.run}  {_state(run)}" for run in report.runs]
    facts = dict(_facts(report))
    width = max(map(len, facts), default=0)
    lines += [f"  {name.ljust(width)}  {text}" for name, text in facts.items()]
    if report.next_commands:
        lines += ["next", *(f"  {cli_text(command)}" for command in report.next_commands)]
    return "\n".join(lines) + "\n"


def _recordings(report: IngestReport) -> Iterator[str]:
    """What the recordings can carry: a line for each run with limits, or one for all if there are none."""
    states = {run.run: run.recording for run in report.runs if run.recording}
    limited = [f"recording of {run}: {state}" for run, state in states.items() if state != SOUND]
    yield from limited[:_NAMED_RECORDINGS]
    if len(limited) > _NAMED_RECORDINGS:
        yield f"recordings of {len(limited) - _NAMED_RECORDINGS} more runs have limits (tw show recording)"
    if states and not limited:
        yield f"recording: {SOUND}"


def _ingest_headline(report: IngestReport) -> str:
    """The number of ingested ranks, then files by other outcomes."""
    ranks = {(file.run, file.rank) for file in report.stored}  # several files may belong to one
    runs = {run for run, _ in ranks}
    ingested = f"ingested {plural(len(ranks), 'rank')} of {plural(len(runs), 'run')}"
    other_states = {
        "refused": len({file.path for file in report.of("refused")}),
        "damaged": len(report.of("damaged")),
        "pending": sum(file.content is None for file in report.of("pending")),
        "already stored": len(report.of("same")),
    }
    counts = [f"{number} {state}" for state, number in other_states.items() if number]
    return ", ".join([ingested if runs else "no traces ingested", *counts])


def _state(run: RunOutcome) -> str:
    if run.waiting is not None:
        return "pending {}/{}".format(*run.waiting)
    of_expected = f" of {run.expected_ranks}" if run.expected_ranks is not None else ""
    noun = "rank" if len(run.ranks) == 1 else "ranks"
    return f"v{run.version}, {noun} {rank_list(list(run.ranks))}{of_expected}"


def _facts(report: IngestReport) -> Iterator[tuple[str, str]]:
    contents = [file.content for file in report.stored if file.content]
    if not contents:
        return
    others = sum(content.non_events for content in contents)
    yield (
        "events",
        count(sum(each.events for each in contents)) + (f" and {others} non-events" if others else ""),
    )
    if not all(each.addition for each in contents):
        steps, hint = sum(each.steps for each in contents), ""
        if not steps and any(each.events and not each.addition for each in contents):
            hint = " (--step-pattern REGEX selects names of tw show annotation_breakdown that mark steps)"
        yield "steps", f"{count(steps)}{hint}"
        linked, with_op = report.coverage
        if linked is None or with_op is None:
            yield "coverage", "no GPU activities in these traces"
        else:
            yield "coverage", f"launch known for {ratio(linked)} of GPU time, operator for {ratio(with_op)}"
    fired = ", ".join(f"{rule} {count(rows)}" for rule, rows in report.quality.items())
    yield "data quality", fired or "no issues found"
    speed = f"{report.megabytes_per_s:.1f} MB/s"
    yield "time", f"{duration(report.seconds * 1e9)}, {speed} ({size(report.bytes)})"


def _reason(file: FileOutcome) -> str:
    """Why the file was not stored as it is, and what was lost."""
    content = file.content
    if content is None or file.state not in ("damaged", "repaired"):
        return file.reason or ""
    if not content.lost_bytes and content.lost_events is None:
        loss = f"truncated: the first {count(content.events)} events were stored"
    elif not content.lost_bytes and not content.lost_events:
        loss = "repaired invalid JSON; no data was lost"
    else:
        events = "unknown" if content.lost_events is None else count(content.lost_events)
        loss = f"lost {count(content.lost_bytes)} bytes (events: {events})"
    return f"{file.reason}; {loss}" if file.reason else loss


_WIDTH = 100
Finding = Mapping[str, Any]


class Findings(Result, frozen=True):
    """What `Warehouse.check` finds: printed as sentences, merged over ranks, as `tw check` prints it."""

    def __repr__(self) -> str:
        """The findings as text."""
        is_complete = {"observation", "advice", "evidence"}.issubset(self.table.column_names)
        return findings_text(self) if is_complete else super().__repr__()

    def _repr_html_(self) -> str:
        """The findings as text in HTML, for notebooks."""
        return f'<pre style="white-space: pre-wrap">{escape(repr(self))}</pre>'


def findings_text(
    result: Result,
    unexplained: Sequence[str] | None = None,
    *,
    as_markdown: bool = False,
    width: int | None = None,
    place: str = "",
    most: int | None = None,
    by_run: bool = False,
) -> str:
    """One block per rule and subject of a run, with all its ranks, or for the first ones; most severe first.

    Before them, what the recording can carry, what takes much time without a finding, and `by_run` a line per
    run. `place` is the option that selects the warehouse in printed commands.
    """
    unexplained = stated(result) if unexplained is None else unexplained
    rows, recorded = result.rows(), recording_verdict(result.recording, len(result.provenance.runs) > 1)
    blocks = finding_blocks(rows)[:most]
    if as_markdown:
        parts = [f"**Recording: {recorded}**", *(f"**{each}**" for each in unexplained)]
        parts += [f"### {findings_headline(rows, result)}"]
        parts += [_finding_markdown(block, place) for block in blocks]
    else:
        width = width or _WIDTH
        lines = wrap(f"recording: {recorded}", width, subsequent_indent="  ")
        lines += [f"  see: tw show recording{_of_run(result)}{place}"] if result.recording else []
        lines += chain.from_iterable(wrap(each, width, subsequent_indent="  ") for each in unexplained)
        lines += _run_lines(result) if by_run else ()
        parts = ["\n".join(lines), findings_headline(rows, result)]
        parts += [_block(block, width, place) for block in blocks]
    if most is not None:
        not_shown = len(rows) - sum(map(len, blocks))
        runs = quote(",".join(map(_name, result.provenance.runs)))
        more_line = [f"{plural(not_shown, 'more finding')}: tw check {runs}{place}"] if not_shown else []
        parts.append("\n".join([*more_line, f"report: {_report(result, place)}"]))
    return "\n\n".join(parts) + "\n"


def finding_blocks(rows: Iterable[Finding]) -> list[list[Finding]]:
    """The findings of a rule and subject of a run, with all its ranks."""
    blocks: dict[tuple[object, ...], list[Finding]] = {}
    for row in rows:
        blocks.setdefault((row["severity"], row["run_id"], row["rule"], row["subject"]), []).append(row)
    return list(blocks.values())


def stated(result: Result) -> list[str]:
    """What takes much time without a finding, of the notices of a check."""
    return [notice.removeprefix(UNEXPLAINED) for notice in result.notices if notice.startswith(UNEXPLAINED)]


def _run_lines(result: Result) -> Iterator[str]:
    """A line per run: its findings by severity, and the most severe one."""
    rows, unfit = result.rows(), {row["run_id"] for row in result.recording if row["state"] == NO_BASIS}
    for run in map(_name, result.provenance.runs):
        findings = [row for row in rows if row["run_id"] == run]
        line = "0 findings" + (": the recording is not a basis" if run in unfit else "")
        if findings:
            saving = _saving(findings[0]).removesuffix(": ")
            line = f"{findings_headline(findings)}; first {findings[0]['rule']}: {saving}"
        yield one_line(f"{run}: {line}")


def findings_brief(result: Result, unexplained: Sequence[str], place: str) -> Iterator[str]:
    """The recording, the first finding, and the command that opens the evidence: a line each.

    Between them, what takes much time without a finding.
    """
    yield one_line(f"recording: {recording_verdict(result.recording, len(result.provenance.runs) > 1)}")
    yield from map(one_line, unexplained)
    if first := result.rows()[:1]:
        saving = _saving(first[0]).removesuffix(": ")
        yield f"{_finding_title(first)}: {one_line(first[0]['observation'])}{saving and f' A fix {saving}.'}"
    else:
        yield findings_headline(first, result)
    yield f"report: {_report(result, place)}"


def _report(result: Result, place: str) -> str:
    """The command that writes the page about the run with the first finding."""
    runs = (*(row["run_id"] for row in result.rows()), *result.provenance.runs)
    return f"tw report {quote(_name(runs[0]))}{place}"


def _name(run: str) -> str:
    """A run without its version."""
    return run.partition("@v")[0]


def _of_run(result: Result) -> str:
    """The option that selects the run, if there is only one."""
    runs = {reason["run_id"] for reason in result.recording}
    return f" --run {quote(runs.pop())}" if len(runs) == 1 else ""


def findings_headline(rows: Sequence[Finding], result: Result | None = None) -> str:
    """The number of findings, in total and by severity; without any, how many rules could be checked."""
    if not rows:
        checked = [each for each in result.notices if each.startswith(CHECKED)] if result is not None else []
        if checked:
            return f"0 findings: {checked[0].partition(';')[0]}"
        return "0 findings (--all lists the checks that passed)"
    counts = Counter(row["severity"] for row in rows)
    by_severity = ", ".join(f"{counts[each]} {each}" for each in reversed(SEVERITIES) if counts[each])
    return plural(len(rows), "finding") + (f": {by_severity}" if by_severity else "")


def _block(rows: Sequence[Finding], width: int, place: str) -> str:
    wrapped = partial(wrap, width=max(width - 2, 20), subsequent_indent="  ", break_on_hyphens=False)
    # Commands are not wrapped: a line break would be part of what is pasted.
    lines = [*chain.from_iterable(map(wrapped, _sentences(rows))), *map(one_line, _evidence(rows[0], place))]
    return "\n".join([_finding_title(rows), *(f"  {line}" for line in lines)])


def _finding_markdown(rows: Sequence[Finding], place: str) -> str:
    first, *rest = (*_sentences(rows), *map(one_line, _evidence(rows[0], place)))
    return "\n".join([f"**{_finding_title(rows)}**", "", first, "", *(f"- {line}" for line in rest)])


def _finding_title(rows: Sequence[Finding]) -> str:
    worst = rows[0]
    ranks = [row["rank"] for row in rows]
    scope = f"{worst['run_id']} rank{'' if len(ranks) == 1 else 's'} {rank_list(ranks)}"
    return one_line(f"{worst['severity']}: {worst['rule']} ({worst['subject']}) in {scope}")


def _sentences(rows: Sequence[Finding]) -> Iterator[str]:
    """The lines of a block without commands; with several ranks, the figures are those of the worst one."""
    worst = rows[0]
    yield one_line(worst["observation"])
    prefix = f"worst: rank {worst['rank']}, " if len(rows) > 1 else ""
    steps = plural(worst["steps"], "complete step") if worst["steps"] else "no complete step"
    occurrences = f", {plural(worst['count'], 'occurrence')}" if worst["count"] else ""
    share, threshold = show(worst["share"], "ratio"), show(worst["threshold"], "ratio")
    analyzed = f"{share} of {show(worst['analyzed_ns'], 'ns')} ({steps})"
    yield f"{prefix}{analyzed}{occurrences}; threshold {threshold}"
    yield one_line(_saving(worst) + worst["saving_limit"])
    yield one_line(f"confidence: {worst['confidence']}")
    if worst["source"]:
        yield one_line(f"source: {worst['source']}")
    yield one_line(f"try: {worst['advice']}")


def _saving(row: Finding) -> str:
    """The upper bound on the saving, per step if there are steps, with its share of the analyzed time."""
    if row["saving_ns"] is None:
        return ""
    share = show(row["saving_share"], "ratio")
    if row["saving_step_ns"] is None:
        return f"saves up to {show(row['saving_ns'], 'ns')} of the profiling window ({share}): "
    return f"saves up to {show(row['saving_step_ns'], 'ns')} per step ({share}): "


def _evidence(row: Finding, place: str) -> Iterator[str]:
    """The command that shows the data, and the one that writes the worst occurrence as a trace."""
    run, rank, rule = quote(row["run_id"]), row["rank"], row["rule"]
    where = f" --where {_quoted(row['evidence_filter'])}" if row["evidence_filter"] is not None else ""
    rank_option = f" --rank {rank}" if is_of_one_rank(row) else ""
    yield f"see: tw show {row['evidence']} --run {run}{rank_option}{where}{place}"
    if row["from_ns"] is not None:
        length_ns = row["to_ns"] - row["from_ns"]
        lasts = f" (interval of {show(length_ns, 'ns')})" if length_ns else ""
        step = "" if row["step"] is None else f" in step {row['step']}"
        export_command = f"tw export trace {run} --rank {rank} --around {rule} -o {rule}.json.gz{place}"
        yield f"worst occurrence{step}{lasts}: {export_command}"


def _quoted(condition: str) -> str:
    """An argument in double quotes, because conditions contain single ones."""
    has_special = any(each in condition for each in '"$`\\!')
    return quote(condition) if has_special else f'"{condition}"'
