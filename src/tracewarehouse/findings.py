"""Runs all finding rules, combines their rows by cause and severity, and reports skipped ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import quote_text
from tracewarehouse.errors import TwError
from tracewarehouse.late_regex import late_regex
from tracewarehouse.query.selection import Selection
from tracewarehouse.result import Field, Provenance, Result, Skipped, from_rows
from tracewarehouse.runs.readable import is_derived
from tracewarehouse.runs.recording import recording_verdict
from tracewarehouse.runs.rows import list_new_versions
from tracewarehouse.runs.selection import SelectedRun

ACCOUNT = "analyzed_account"
NONE = "none"
NOT_APPLICABLE = late_regex(
    r"no collectives recorded|no memory snapshot|no flight recorder dump|requires \d+ ranks"
    "|GPU activities recorded"
)
# Evidence that compares ranks: it has no rows if only one is selected.
OF_ALL_RANKS = frozenset(
    {"alltoall_imbalance", "collective_bandwidth", "collective_waits", "stragglers", "stuck_collective"}
)
SEVERITIES = (NONE, "info", "warning", "critical")  # ascending
UNEXPLAINED = "unexplained: "  # begins the notice about time that no rule explains
CHECKED = "checked "  # the first word of the notice about rules that could not be checked
_MUCH = 0.2  # of the analyzed time: what is said even if no rule explains it
CONFIDENCE = ("low", "medium", "high")
# What these rules find is explained by the others, if one of them has a finding.
GENERAL_RULES = frozenset({"low_gpu_use"})


def rules(catalog: Catalog) -> tuple[Contract, ...]:
    """The finding rules by name: the newest version of each analysis of the group."""
    return catalog.rules()


def is_of_one_rank(finding: Mapping[str, Any]) -> bool:
    """True if its rank alone has the evidence; if not, select all: the filter names the rank, if any."""
    by_filter = (finding["evidence_filter"] or "").startswith("rank = ")
    return not by_filter and finding["evidence"] not in OF_ALL_RANKS


def finding_fields(rule: Contract) -> tuple[Field, ...]:
    """The columns of findings: those of every rule, with the rule's name after the rank."""
    fields = [Field(column.name, column.type, column.unit) for column in rule.columns]
    fields.append(Field("source", "VARCHAR"))
    keys = ("run_id", "rank")
    location = [each for each in fields if each.name in keys]
    return (*location, Field("rule", "VARCHAR"), *(each for each in fields if each.name not in keys))


def apply_rules(
    catalog: Catalog,
    run: Callable[[str], Result],
    ranks: Iterable[tuple[str, int]],
    sources: Callable[[Sequence[Mapping[str, Any]]], Mapping[_Event, str]],
    *,
    passed: bool = False,
    merge: bool = True,
) -> Result:
    """The findings of all rules by severity and saving; with `passed` also checks that passed.

    Those of one cause are merged, unless `merge` is false: then each rule says what it found.
    `run` runs an analysis over the `ranks` (run, rank), `sources` gives the source line of events. Ranks
    that a rule skipped because the trace lacks what it needs are in `skipped`, with the rules after the
    reason; not those that it cannot apply to: of a job without communication, or without what it is about.
    """
    results = {rule.name: run(rule.name) for rule in rules(catalog)}
    fields = finding_fields(rules(catalog)[0])
    rows = [
        {**row, "rule": name}
        for name, result in results.items()
        for row in result.rows()
        if passed or row["severity"] != NONE
    ]
    rows = _merged(rows) if merge else rows
    rows.sort(key=lambda row: (*order(row), *(row[name] for name in ("run_id", "rank", "rule", "subject"))))
    lines = sources(rows)
    rows = [{**row, "source": lines.get(_event(row))} for row in rows]
    ranks = tuple(ranks)
    recorded = max((each.recording for each in results.values()), key=len, default=())
    recording = recording_verdict(recorded, several=len({run for run, _ in ranks}) > 1)
    limits = (f"recording: {recording}",) if recorded else ()
    rule_notices = (notice for result in results.values() for notice in result.notices)
    notices = (*_unexplained(run(ACCOUNT).rows(), rows), *limits, *_checked(results), *rule_notices)
    return replace(
        from_rows(fields, [[row[field.name] for field in fields] for row in rows]),
        provenance=_provenance(list(results.values())),
        skipped=tuple(_skipped(results, ranks)),
        recording=recorded,
        notices=tuple(dict.fromkeys(notices)),
        left_out={run: why for result in results.values() for run, why in result.left_out.items()},
    )


def check_runs(
    selection: Selection,
    *,
    passed: bool = False,
    merge: bool = True,
    notify: Callable[[str], object] = lambda rule: None,
) -> Result:
    """The findings of the selected runs and ranks, with source lines; see `apply_rules`.

    `notify` receives the name of each rule before it is applied.
    """
    selection = attributed(selection)
    if selection.has_workers:
        return selection.in_worker(partial(check_runs, passed=passed, merge=merge))
    ranks = [(run.run, rank) for run in selection.selected() for rank in run.ranks]
    sources = partial(_sources, selection)

    def run(name: str) -> Result:
        notify(name)
        return selection.analyze_or_skip(name)

    return apply_rules(selection.catalog, run, ranks, sources, passed=passed, merge=merge)


def findings_of(selection: Selection, contract: Contract, run: Callable[[str], Result]) -> Result:
    """The findings of the selected runs with the columns of a contract; `run` runs a rule."""
    ranks = [(each.run, rank) for each in selection.selected() for rank in each.ranks]
    findings = apply_rules(selection.catalog, run, ranks, lambda _: {})
    rows = findings.table.select([column.name for column in contract.columns])
    return replace(findings, table=rows, contract=contract)


# The innermost frame of the program around each event, or around the launch of a GPU activity.
_SOURCES = """
SELECT found.run_id, found.rank, found.event_id, arg_max(frame.source, frame.pre) AS source
FROM (VALUES {}) AS found (run_id, rank, event_id)
LEFT JOIN kernels
  ON kernels.run_id = found.run_id AND kernels.rank = found.rank AND kernels.event_id = found.event_id
JOIN events AS host
  ON host.run_id = found.run_id AND host.rank = found.rank
  AND host.event_id = coalesce(kernels.runtime_id, found.event_id)
JOIN source_frames AS frame
  ON frame.run_id = host.run_id AND frame.rank = host.rank AND host.pre BETWEEN frame.pre AND frame.post
  AND NOT frame.is_library
GROUP BY found.run_id, found.rank, found.event_id
"""


def _sources(selection: Selection, findings: Sequence[Mapping[str, Any]]) -> dict[_Event, str]:
    """The source line of each finding's worst occurrence, where stacks were recorded."""
    recorded = {
        (run.run, rank.rank)
        for run in selection.selected()
        for rank in run.by_rank
        if rank.main.facts.get("stacks")
    }
    events = {_event(row) for row in findings if row["severity"] != NONE and row["event_id"] is not None}
    values = [
        f"({quote_text(run)}, {rank}, {event})" for run, rank, event in events if (run, rank) in recorded
    ]
    if not values:
        return {}
    lines = selection.query(_SOURCES.format(", ".join(values))).rows()
    return {_event(line): line["source"] for line in lines}


_Event = tuple[str, int, int]


def _event(row: Mapping[str, Any]) -> _Event:
    return row["run_id"], row["rank"], row["event_id"]


def attributed(selection: Selection) -> Selection:
    """The selection with the waits of each run attributed of which all ranks are selected.

    What is missing is computed once, and stored as a new version unless the warehouse cannot be written.
    """
    selection.will_read((*rules(selection.catalog), selection.catalog.get(ACCOUNT)))
    runs = selection.selected()
    lacking = [run for run in runs if _lacks(selection.catalog, run)]
    if selection.has_workers:
        numbers = selection.each_in_worker(_attributed_version, lacking)
        versions = (
            selection.store.get(run.run, number) for run, number in zip(lacking, numbers, strict=True)
        )
        after = [replace(run, version=version) for run, version in zip(lacking, versions, strict=True)]
    else:
        after = [_attributed(selection, run) for run in lacking]
    by_run = {run.run: run for run in after}
    selected = tuple(by_run.get(run.run, run) for run in runs)
    return selection if selected == runs else selection.over(selected, selection.left_out)


def _lacks(catalog: Catalog, run: SelectedRun) -> bool:
    """Whether ranks may have waited for one another and nothing says for whom."""
    with_collectives = [rank for rank in run.by_rank if rank.facts.get("collectives")]
    is_whole = run.ranks == run.version.ranks
    return is_whole and len(with_collectives) > 1 and not is_derived(catalog, run, "wait_attribution")


def _attributed(selection: Selection, run: SelectedRun) -> SelectedRun:
    from tracewarehouse.derive.critical_path import derivation_sources, publish_tables, unpublished
    from tracewarehouse.derive.wait_attribution import NAME, wait_attribution_tables
    from tracewarehouse.duck.engine import Error
    from tracewarehouse.storage.parquet_file import Level

    store, catalog = selection.store, selection.catalog
    try:
        selection.readable(derivation_sources(catalog, NAME), [run], Level.FULL)
        rows = wait_attribution_tables(selection, run)
    except (TwError, Error):  # the rules say what is damaged, expired or stored without a table
        return run
    version = None
    with suppress(TwError):
        if run.version.number == store.newest_number(run.run):
            store.objects.check_writable()
            version = publish_tables(store, catalog, run, NAME, rows)
            list_new_versions(store)
    after = replace(run, version=version or unpublished(catalog, run, NAME, rows))
    selection.pool.carry(run, after)
    return after


def at_least(result: Result, severity: str) -> int:
    """The number of findings of that severity or a higher one."""
    severities = SEVERITIES[SEVERITIES.index(severity) :]
    return sum(row["severity"] in severities for row in result.rows())


def _attributed_version(selection: Selection) -> int:
    """The number of the only run's version with attributed waits; its own if they could not be stored."""
    (run,) = selection.selected()
    return _attributed(selection, run).version.number


# What makes a rank late (`culprit` of slow_rank) → the rules that find it on the rank itself.
_CAUSES = {
    "computation": ("host_operators",),
    "copies": ("blocking_copies", "exposed_copies", "host_copies", "pageable_copies"),
    "data": ("host_data_loading", "input_bound"),
    "host": ("allocator_calls", "blocking_syncs", "host_bound", "launch_bound", "recompilation"),
}

# What these rules find on that rank alone follows from its slow kernels.
_SLOW_KERNELS = ("low_roofline_hot_ops", "slow_elementwise")


def _merged(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One finding per cause: what makes a rank late, and that others wait for it."""
    by_rank: dict[tuple[str, int], dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        if row["severity"] != NONE:
            by_rank[row["run_id"], row["rank"]][row["rule"]] = row
    ranks_with = Counter((run, rule) for (run, _), by_rule in by_rank.items() for rule in by_rule)
    merged = []
    for (run, _), by_rule in by_rank.items():
        slow = by_rule.get("slow_rank", {})
        if slow.get("culprit") == "computation":
            merged += [
                by_rule[rule] for rule in _SLOW_KERNELS if ranks_with[run, rule] == 1 and rule in by_rule
            ]
        causes = _CAUSES.get(slow.get("culprit", ""), ())
        more_ns = {name: _more_ns(by_rule[name], rows) for name in causes if name in by_rule}
        cause = by_rule.get(max(more_ns, key=more_ns.__getitem__, default=""))
        is_data = slow.get("culprit") == "data"  # queued work of the GPU hides a part of it
        if cause is not None and (is_data or 2 * more_ns[cause["rule"]] >= slow["saving_ns"]):
            is_late, waits = slow["observation"].split(": ", 1)[0], slow["observation"].rpartition("; ")[2]
            reason, _, details = cause["observation"].partition(". ")
            reason = reason.removesuffix(".")
            slow["observation"] = f"{is_late}: {reason[0].lower()}{reason[1:]}; {waits} {details}".rstrip()
            slow |= {name: cause[name] for name in ("advice", "culprit")}
            merged.append(cause)
    return [row for row in rows if all(row is not part for part in merged)]


def _more_ns(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> int:
    """What a cause costs a rank more than most others: what all of them lose makes none of them late."""
    key = itemgetter("run_id", "rule")
    others_ns = [
        each["saving_ns"] or 0 for each in rows if key(each) == key(row) and each["rank"] != row["rank"]
    ]
    return int(row["saving_ns"] or 0) - sorted(others_ns or [0])[(len(others_ns) - 1) // 2]


def order(row: Mapping[str, Any]) -> tuple[object, ...]:
    """By severity; within it general rules last; then by the share of time, weighted by confidence."""
    share = min(row["share"], 1) if row["saving_share"] is None else row["saving_share"]
    weight = (CONFIDENCE.index(row["confidence"]) + 1) / len(CONFIDENCE)
    return (-SEVERITIES.index(row["severity"]), row["rule"] in GENERAL_RULES, -share * weight)


def _unexplained(account: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A sentence per run and category that takes much of the time of a rank without any finding about it."""
    rules_found = {(row["run_id"], row["rule"]) for row in rows if row["severity"] != NONE}
    largest: dict[tuple[str, str], tuple[float, int]] = {}
    for row in account:
        run, rank = row["run_id"], row["rank"]
        explained = row["explained_by"]
        if explained is None or row["share"] < _MUCH:
            continue
        if not any((run, rule) in rules_found for rule in explained.split(", ")):
            largest[run, row["what"]] = max(largest.get((run, row["what"]), (0, 0)), (row["share"], rank))
    for (run, category), (share, rank) in sorted(largest.items(), key=lambda item: -item[1][0]):
        percent = f"{100 * share:.1f} %"
        yield f"{UNEXPLAINED}{percent} of the time of {run} rank {rank} is {category}; no rule explains it"


def _checked(results: Mapping[str, Result]) -> Iterator[str]:
    """How many rules were checked on some rank, if some that apply were not."""
    apply = [
        result
        for result in results.values()
        if len(result) or any(not NOT_APPLICABLE.match(rank.reason) for rank in result.skipped)
    ]
    checked = sum(len(result) > 0 for result in apply)
    if checked < len(apply):
        yield f"{CHECKED}{checked} of {len(apply)} rules that apply; the others need what was not recorded"


def _skipped(results: Mapping[str, Result], ranks: Sequence[tuple[str, int]]) -> Iterator[Skipped]:
    """One entry per rank and reason, with the rules that were skipped."""
    skipped: dict[tuple[str, int, str], list[str]] = defaultdict(list)
    for name, result in results.items():
        with_rows = {(row["run_id"], row["rank"]) for row in result.select("run_id", "rank").rows()}
        reasons = {(each.run_id, each.rank): each.reason for each in result.skipped}
        for key in ranks:
            if key not in with_rows and key in reasons and not NOT_APPLICABLE.match(reasons[key]):
                skipped[*key, reasons[key]].append(name)
    for (run, rank, reason), names in skipped.items():
        yield Skipped(run, rank, hints.fill("{}: {}", reason, ", ".join(names)))


def _provenance(results: Sequence[Result]) -> Provenance:
    """The provenance of all rows; `params` has those of each rule, by rule and version."""
    any_provenance = results[0].provenance
    by_rule = {f"{each.provenance.analysis}@{each.provenance.version}": each.provenance for each in results}
    return Provenance(
        tool=any_provenance.tool,
        runs=any_provenance.runs,
        params={rule: each.params for rule, each in by_rule.items()},
        tables={name: number for each in by_rule.values() for name, number in each.tables.items()},
        ranks=any_provenance.ranks,
    )
