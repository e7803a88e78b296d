"""The tables `runs`, `ranks` and `rank_sources`, rules that compare ranks, notices, and provenance."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import RUN_TABLES, Column, Contract
from tracewarehouse.duck.arrow import table_of
from tracewarehouse.errors import DamagedRunError, TwError, UnknownName, WarehouseError
from tracewarehouse.exact_text import missing_ranks, rank_list
from tracewarehouse.result import Field, Provenance, Result, from_rows
from tracewarehouse.runs.readable import OF_RUN, damaged_run, file_faults, is_current, untested
from tracewarehouse.runs.recording import (
    common_start_ns,
    is_implausible,
    limits,
    recording,
    recording_verdict,
)
from tracewarehouse.runs.selection import SelectedRun, select_runs
from tracewarehouse.storage import layout
from tracewarehouse.storage.model import (
    Json,
    PendingSource,
    Rank,
    RankSource,
    RunVersion,
    TableFile,
    UnreadableRun,
    once_per_version,
)
from tracewarehouse.storage.parquet_file import Level, has_size
from tracewarehouse.storage.store import Store
from tracewarehouse.storage.versions import Versions
from tracewarehouse.version import __version__

# Formats that add to a rank, and a memory timeline: their times have no base.
_WITHOUT_BASE = ("memory_timeline", "memory_snapshot", "flight_recorder", "nsight_compute", "execution_trace")


class QualityIssue(Struct, frozen=True):
    """A row of `data_quality`; rank None means the run."""

    run_id: str
    rank: int | None
    rule: str
    severity: str
    rows: int
    affected_ns: int | None
    example: str


def run_issues(selected: Iterable[SelectedRun]) -> list[QualityIssue]:
    """The issues of the selected runs and ranks. Rules always compare all ranks of a run."""
    rules = (_ranks_missing, _world_size_differs, _time_base_differs, _rank_conflict)
    return [
        issue
        for run in selected
        for rule in rules
        for issue in rule(run.version)
        if issue.rank is None or issue.rank in run.ranks
    ]


def most_frequent(values: Iterable[object]) -> int | None:
    """The most frequent integer, ties by first occurrence; None without integers."""
    counts = Counter(value for value in values if isinstance(value, int))
    return counts.most_common(1)[0][0] if counts else None


@once_per_version
def world_size(version: RunVersion) -> int | None:
    """The plausible world size that most ranks record, ties by the lowest rank."""
    sizes = (rank.facts.get("world_size") for rank in version.by_rank)
    return most_frequent(size for size in sizes if not is_implausible(size))


def expected_ranks(version: RunVersion) -> int | None:
    """The number of ranks announced at ingest, else the world size."""
    stated = version.expected_ranks
    return world_size(version) if is_implausible(stated) else stated or world_size(version)


def _ranks_missing(version: RunVersion) -> Iterator[QualityIssue]:
    expected = expected_ranks(version)
    missing, ranks = missing_ranks(version.ranks, expected)
    if missing:
        are = "rank {} of {} is missing" if missing == 1 else "ranks {} of {} are missing"
        example = are.format(ranks, expected)
        yield QualityIssue(version.run, None, "ranks_missing", "warning", missing, None, example)


def _world_size_differs(version: RunVersion) -> Iterator[QualityIssue]:
    usual = world_size(version)
    for rank in version.by_rank:
        size = rank.facts.get("world_size")
        if isinstance(size, int) and size != usual:
            rule, example = "world_size_differs", f"world size {size}, most ranks have {usual}"
            if is_implausible(size):
                rule, example = "implausible_world_size", f"world size {size} is ignored"
            yield _rank_issue(rank, rule, "warning", example)


def _time_base_differs(version: RunVersion) -> Iterator[QualityIssue]:
    """The base is added to all times, so another one matters only if the profiling windows do not overlap.

    Times of files without activities have no base.
    """
    ranks = [rank for rank in version.by_rank if rank.main.format not in _WITHOUT_BASE]
    usual = most_frequent(rank.facts.get("base_time_ns") for rank in ranks)
    alike = [rank for rank in ranks if rank.facts.get("base_time_ns") == usual]
    for rank in ranks:
        base_ns = rank.facts.get("base_time_ns")
        if isinstance(base_ns, int) and base_ns != usual:
            severity = "info" if any(_overlap(rank, other) for other in alike) else "warning"
            example = f"base {base_ns} ns, most ranks have {usual} ns"
            yield _rank_issue(rank, "time_base_differs", severity, example)


def _overlap(one: Rank, other: Rank) -> bool:
    """Whether the profiling windows of two ranks overlap."""
    windows_ns = [(rank.facts.get("start_ns"), rank.facts.get("end_ns")) for rank in (one, other)]
    times = [time for window in windows_ns for time in window if isinstance(time, int)]
    return len(times) == 4 and times[0] <= times[3] and times[2] <= times[1]


def _rank_conflict(version: RunVersion) -> Iterator[QualityIssue]:
    for rank in version.by_rank:
        in_file = rank.facts.get("rank_in_file")
        if isinstance(in_file, int) and not isinstance(in_file, bool) and in_file != rank.rank:
            yield _rank_issue(rank, "rank_conflict", "warning", f"the file says rank {in_file}")


def _rank_issue(rank: Rank, rule: str, severity: str, example: str) -> QualityIssue:
    return QualityIssue(rank.run, rank.rank, rule, severity, 1, None, example)


# Bits of the magnitude of a number.
_BITS = {"INTEGER": 31, "BIGINT": 63}
_HEADER = "header"
_COMMON_START = "common_start_ns"
_UNKNOWN_TIME = "1970-01-01T00:00:00Z"


def built_rows(
    store: Versions,
    contract: Contract,
    selected: Sequence[SelectedRun],
    columns: Iterable[Column] | None = None,
) -> list[dict[str, Any]]:
    """The rows of `runs` (entire runs), or of `ranks` or `rank_sources` (selected ranks), by column name.

    Headers are read from the commits only if `columns` (None: all) includes them.
    """
    read = contract.columns if columns is None else tuple(columns)
    if contract.name == "runs":
        return [run_row(run.version) for run in selected]
    if contract.name == "recording_reasons":
        by_run = (recording(run.version, expected_ranks(run.version), run.ranks) for run in selected)
        return [asdict(reason) for reasons in by_run for reason in reasons]
    if contract.name == "rank_sources":
        return [_source_row(read, source) for run in selected for source in run.sources]
    ranks = [(run.version, rank) for run in selected for rank in run.by_rank]
    names = {column.name for column in read}
    headers = _headers(store, [rank for _, rank in ranks]) if _HEADER in names else {}
    starts = {run.run: common_start_ns(run.version) for run in selected} if _COMMON_START in names else {}
    return [_rank_row(read, version, rank, headers, starts.get(version.run)) for version, rank in ranks]


def _headers(store: Versions, ranks: Sequence[Rank]) -> Mapping[str, str]:
    """The headers of ranks by source; those of a damaged commit are missing."""
    by_commit: dict[tuple[str, str], list[RankSource]] = {}
    for rank in ranks:
        by_commit.setdefault((rank.run, rank.main.commit), []).append(rank.main)
    headers: dict[str, str] = {}
    for sources in by_commit.values():
        with suppress(WarehouseError):
            headers |= store.headers(sources)
    return headers


def run_row(version: RunVersion) -> dict[str, Any]:
    """The row of the table `runs`, by column name."""
    ranks = version.by_rank
    return {
        "run_id": version.run,
        "labels": dict(version.labels),
        "start_ns": min(_numbers(ranks, "start_ns"), default=None),
        "end_ns": max(_numbers(ranks, "end_ns"), default=None),
        "world_size": world_size(version),
        "ranks_present": len(ranks),
        "ranks_expected": expected_ranks(version),
        "device_names": _texts(ranks, "device_name"),
        "framework_versions": _texts(ranks, "framework_version"),
        "schema_versions": {table: numbers[-1] for table, numbers in version.summary.tables.items()},
        "tool_version": version.tool,
        "ingested_at": parse_utc(max((rank.committed_at for rank in ranks), default=version.created_at)),
        "version": version.number,
        "state": state(version),
        "bytes": version.bytes,
    }


def catalog_row(version: RunVersion) -> Json:
    """The row of `runs` in the list of all runs; a change of what it holds raises `codec.LIST_ROWS`."""
    row = run_row(version)
    return row | {"ingested_at": row["ingested_at"].isoformat()}


def copied_rows(store: Store, version: RunVersion) -> dict[str, Any]:
    """Table → rows of a version that no file has, which Delta logs need as files."""
    catalog, selected = Catalog.load(), [SelectedRun(version, version.ranks)]
    built = {name: built_rows(store, catalog.get(name), selected) for name in RUN_TABLES}
    built["data_quality"] = [asdict(issue) for issue in run_issues(selected)]
    return {name: table_of(catalog.get(name), rows) for name, rows in built.items()}


def list_new_versions(store: Store) -> None:
    """Adds what was published to the Delta logs, if there are any, and to the list of runs.

    Failures are ignored: the next call adds it.
    """
    with suppress(TwError, OSError):
        if store.objects.stat(layout.DELTA) is not None:
            from tracewarehouse.storage.delta import complete

            complete(store, copied_rows)
    store.list_new_versions(catalog_row)


def listed_rows(store: Versions) -> list[dict[str, Any]]:
    """The row of `runs` of every run in time order, from the list of all runs where it has them."""
    present = [entry for entry in store.entries(catalog_row) if not entry.brief.tombstone]
    present.sort(key=lambda entry: entry.brief.order)
    rows: list[dict[str, Any]] = [msgspec.json.decode(entry.row) for entry in present]
    return [row | {"ingested_at": datetime.fromisoformat(row["ingested_at"])} for row in rows]


def state(version: RunVersion) -> str:
    """`complete`, or `incomplete` if ranks are missing or damaged."""
    missing, _ = missing_ranks(version.ranks, expected_ranks(version))
    is_damaged = any(rank.status == "damaged" for rank in version.by_rank)
    return "incomplete" if missing or is_damaged else "complete"


def parse_utc(text: str) -> datetime:
    """An ISO time in UTC without its time zone, as in the tables."""
    time = datetime.fromisoformat(text)
    return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time


def pending_row(waiting: Sequence[PendingSource]) -> dict[str, Any]:
    """The row of a run that is not published yet because expected ranks are missing."""
    first = waiting[0]
    sources = tuple(source.source for source in waiting)
    version = RunVersion(first.source.run, 0, sources, {}, first.expected_ranks, sources[-1].committed_at, "")
    return run_row(version) | {"state": "pending"}


def damaged_row(run: UnreadableRun) -> dict[str, Any]:
    """A run whose newest version cannot be read: only its name and the number of that version are known."""
    number = layout.version_number(run.key.rpartition("/")[2]) or 0
    version = RunVersion(run.run, number, (), {}, None, _UNKNOWN_TIME, "")
    return run_row(version) | {"state": "damaged", "ingested_at": None}


def _rank_row(
    columns: Iterable[Column],
    version: RunVersion,
    rank: Rank,
    headers: Mapping[str, str],
    common_start: int | None,
) -> dict[str, Any]:
    """The row of a rank: facts of all its sources, and the ingest of its main source."""
    ingest = _ingest_columns(rank.main) | {"status": rank.status, "ingested_at": rank.committed_at}
    derived = {name: is_current(version, rank, name) for name in OF_RUN}
    header = headers.get(rank.main.name)
    row = {**rank.facts, **ingest, **derived, _COMMON_START: common_start, _HEADER: header}
    if is_implausible(row.get("world_size")):
        row["world_size"] = None
    return {column.name: _value(row.get(column.name), column.type) for column in columns}


def _source_row(columns: Iterable[Column], source: RankSource) -> dict[str, Any]:
    row = {
        **source.facts,
        **_ingest_columns(source),
        "tables": json.dumps(sorted({file.table for file in source.files})),
    }
    return {column.name: _value(row.get(column.name), column.type) for column in columns}


def _ingest_columns(source: RankSource) -> dict[str, Any]:
    """The columns that describe the ingest, not the trace."""
    return {
        "run_id": source.run,
        "rank": source.rank,
        "source": source.name,
        "source_sha256": source.digest,
        "source_format": source.format,
        "source_part": source.part,
        "text_bytes": source.text_bytes,
        "status": source.status,
        "format_version": source.format_version,
        "ingested_at": source.committed_at,
    }


def _value(value: Any, type_: str) -> Any:
    """A stored value in a column of this type; null if it has another type."""
    if value is None:
        return None
    if type_ == "TIMESTAMP":
        return parse_utc(value)
    if type_ == "JSON":
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        with suppress(ValueError, RecursionError):
            msgspec.json.decode(text, type=msgspec.Raw)
            return text
        return None
    if type_ in _BITS:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return value if is_number and -1 <= value >> _BITS[type_] <= 0 else None
    return value if isinstance(value, bool if type_ == "BOOLEAN" else str) else None


def _numbers(ranks: Iterable[Rank], fact: str) -> list[int]:
    values = (_value(rank.facts.get(fact), "BIGINT") for rank in ranks)
    return [value for value in values if value is not None]


def _texts(ranks: Iterable[Rank], fact: str) -> list[str]:
    return sorted({value for rank in ranks if isinstance(value := rank.facts.get(fact), str)})


class TableSize(Struct, frozen=True):
    """A stored table of a run: rows of its ranks, bytes of its files (shared files count once)."""

    table: str
    version: int
    rows: int
    bytes: int
    files: int


class RunInfo(Struct, frozen=True):
    """A run: its row of `runs`, its `ranks`, its tables, and the numbers of its published versions."""

    run: Mapping[str, Any]
    ranks: Result
    tables: tuple[TableSize, ...]
    versions: tuple[int, ...]
    # As in "rules 2, policy 3f2a91c05d6b7e88": what secrets in its ranks were replaced by.
    redaction: tuple[str, ...] = ()
    # Formats and parts of them that no real file has tested.
    untested: tuple[str, ...] = ()


def redactions(selected: SelectedRun) -> tuple[str, ...]:
    """The rules that secrets in the chosen ranks were found by, each once."""
    texts = {_redaction(source.facts.get("redaction")) for source in selected.sources}
    return tuple(sorted(texts))


def _redaction(fact: object) -> str:
    if not isinstance(fact, dict):
        return "rules 1"
    if fact.get("rules") == 0:
        return "off"
    policy = f", policy {fact['policy']}" if fact.get("policy") else ""
    return f"rules {fact.get('rules', 1)}{policy}"


def table_sizes(selected: SelectedRun) -> tuple[TableSize, ...]:
    """The stored tables of the selected ranks, by name and version."""
    rows: dict[tuple[str, int], int] = {}
    sizes: dict[tuple[str, int], dict[str, int]] = {}
    for file in selected.files:
        key = (file.table, file.version)
        rows[key] = rows.get(key, 0) + file.rows
        sizes.setdefault(key, {})[file.path] = file.bytes
    return tuple(
        TableSize(*key, rows[key], sum(sizes[key].values()), len(sizes[key])) for key in sorted(rows)
    )


_NAMED_RUNS = 3


def notices(selected: Sequence[SelectedRun], contract: Contract | None = None) -> tuple[str, ...]:
    """A line each for GPU time without a known launch (if launches are needed), damaged and missing ranks."""
    lines = _coverage(selected) if contract and "launches" in contract.needs else []
    damaged = [rank for run in selected for rank in run.by_rank if rank.status == "damaged"]
    if damaged:
        names = ", ".join(f"{rank.run} rank {rank.rank}" for rank in damaged[:3])
        more = ", …" if len(damaged) > 3 else ""
        ranks = "rank has a damaged trace" if len(damaged) == 1 else "ranks have damaged traces"
        lines.append(f"{len(damaged)} {ranks} ({names}{more})")
    recorded: list[str] = []
    for run in selected:
        expected = expected_ranks(run.version) or 0
        recorded_limits = recording_limits([run])
        missing, _ = missing_ranks(run.version.ranks, expected)
        if relevant := [limit for limit in recorded_limits if _matters(contract, limit)]:
            recorded.append(f"recording of {run.run}: {recording_verdict(relevant)}")
        if missing and all(limit["reason"] != "ranks_missing" for limit in recorded_limits):
            lines.append(f"{run.run} is incomplete: {expected - missing} of {expected} ranks")
    if len(recorded) > _NAMED_RUNS + 1:
        more = f"recordings of {len(recorded) - _NAMED_RUNS} more runs have limits: analysis recording"
        recorded = [*recorded[:_NAMED_RUNS], more]
    lines += recorded
    return tuple(lines)


def recording_limits(selected: Iterable[SelectedRun]) -> tuple[dict[str, Any], ...]:
    """What limits the recordings of the selected runs and ranks, as rows of `recording`."""
    by_run = (limits(run.version, expected_ranks(run.version), run.ranks) for run in selected)
    return tuple(asdict(reason) for reasons in by_run for reason in reasons)


def _matters(contract: Contract | None, limit: Mapping[str, Any]) -> bool:
    """Whether a limit changes what an analysis answers; findings state theirs themselves."""
    if contract is None or contract.kind != "analysis":
        return True
    # What is about other ranks changes no answer about one.
    of_ranks = limit["rank"] is None or limit["reason"] == "late_start"
    reads = contract.scope == "run" or not of_ranks
    return reads and contract.group != "findings" and not {"gpu", "collectives"}.isdisjoint(contract.needs)


def partly_read(
    selected: Sequence[SelectedRun], capable: Iterable[SelectedRun], contract: Contract
) -> Iterator[str]:
    """A line for each run of which only some ranks are read, if the analysis compares ranks.

    The others are not selected, or the analysis skips them: they are not in `capable`.
    """
    if contract.scope != "run":
        return
    counts = {run.run: len(run.ranks) for run in capable}
    for run in selected:
        count, total = counts.get(run.run, len(run.ranks)), len(run.version.ranks)
        if count < total:
            why = "selected" if count == len(run.ranks) else "read"
            yield f"{run.run}: {count} of {total} ranks {why}; collectives are matched among these only"


def nothing_stored(selected: Sequence[object]) -> tuple[str, ...]:
    """The notice of an empty warehouse, so that an empty result is not misread."""
    return () if selected else (hints.fill("the warehouse is empty: {} ingests traces", hints.ingest()),)


def damaged_runs(left_out: Iterable[UnreadableRun], selected: int = 0) -> tuple[str, ...]:
    """A line for each run that cannot be read; one for all with the same reason if they are many.

    `selected` is the number of runs with these, 0 if it is not known.
    """
    alike: dict[str, list[UnreadableRun]] = {}
    for run in left_out:
        reason = run.why.rpartition(": ")[2]
        alike.setdefault(re.sub(r"\d+", "0", reason), []).append(run)
    lines = []
    for runs in alike.values():
        if len(runs) > _NAMED_RUNS:
            of_all = f" of {selected:,}" if selected else ""
            names, reason = ", ".join(run.run for run in runs[:_NAMED_RUNS]), runs[0].why.rpartition(": ")[2]
            line = f"{len(runs):,}{of_all} runs left out: {{}} ({{}}, …); {{}} lists the damage"
            lines.append(hints.fill(line, reason, names, hints.call("verify")))
            continue
        for run in runs:
            line = "run {} is left out: {}" if run.hint is None else "run {} is damaged and left out: {}; {}"
            lines.append(hints.fill(line, run.run, run.why, *([run.hint] if run.hint else [])))
    return tuple(lines)


def _coverage(selected: Sequence[SelectedRun]) -> list[str]:
    """The share of GPU time with a known launch, per run; nothing if it is 100 %."""
    lines = []
    for run in selected:
        gpu_ns, launch_known_ns = (sum(_numbers(run.by_rank, fact)) for fact in ("gpu_ns", "launch_known_ns"))
        if launch_known_ns < gpu_ns:
            tenths = launch_known_ns * 1000 // gpu_ns  # rounded down: 99.99 % is not shown as 100 %
            of_run = f" of {run.run}" if len(selected) > 1 else ""
            lines.append(f"coverage{of_run}: {tenths / 10} % of GPU time is linked to its launch")
    if len(lines) <= _NAMED_RUNS:
        return lines
    others = len(lines) - _NAMED_RUNS
    return [*lines[:_NAMED_RUNS], f"coverage of {others} more run{'' if others == 1 else 's'}: below 100 %"]


def provenance_of(
    catalog: Catalog,
    selected: Sequence[SelectedRun],
    contract: Contract | None = None,
    bound: Mapping[str, object] | None = None,
    read: Iterable[Contract] | None = None,
    sql: str | None = None,
) -> Provenance:
    """The provenance of a result; `read` are the tables and views it depends on, by default the contract."""
    analysis = contract if contract and contract.kind == "analysis" else None
    if read is None:
        read = [contract] if contract else []
    return Provenance(
        tool=__version__,
        runs=tuple(run.selector for run in selected),
        analysis=analysis.name if analysis else None,
        version=analysis.version if analysis else None,
        own_hash=catalog.own_hash(contract) if contract else None,
        effective_hash=catalog.effective_hash(contract) if contract else None,
        params=dict(bound or {}),
        tables={table.name: table.version for table in read},
        ranks={run.run: list(run.ranks) for run in selected if run.is_part} or None,
        sql=sql,
    )


_FIELDS = (
    Field("key", "VARCHAR"),
    Field("bytes", "BIGINT", "bytes"),
    Field("rows", "BIGINT"),
    Field("ranks", "VARCHAR"),
    Field("sha256", "VARCHAR"),
)


class Fetched(Struct, frozen=True):
    """Files that are now on this machine: all of them, and those that were downloaded."""

    files: int
    bytes: int
    downloaded: int
    downloaded_bytes: int


def committed_files(run: SelectedRun, table: str) -> Result:
    """A row per file of a table, by key, with the selected ranks in it and their rows.

    Raises UnknownName if the run has no such table.
    """
    files: dict[str, TableFile] = {}
    rows: dict[str, dict[int, int]] = {}
    for source in run.sources:
        for file in source.files:
            if file.table == table:
                files[file.path] = file
                ranks = rows.setdefault(file.path, {})
                ranks[source.rank] = ranks.get(source.rank, 0) + file.rows
    if not files:
        raise UnknownName("table", table, {file.table for file in run.files})
    listed = [
        (key, file.bytes, sum(rows[key].values()), rank_list(sorted(rows[key])), file.sha256)
        for key, file in sorted(files.items())
    ]
    return from_rows(_FIELDS, listed)


def fetch_files(store: Store, runs: Iterable[SelectedRun], tables: Collection[str] = ()) -> Fetched:
    """Downloads the files of runs, of all tables or of these; each is compared with its checksum.

    Raises WarehouseError if they need more than the budget, DamagedRunError for a damaged one, UnknownName.
    """
    files: dict[str, TableFile] = {}
    for run in runs:
        for table in set(tables) - (stored := {file.table for file in run.files}):
            raise UnknownName("table", table, stored)
        files |= {file.path: file for file in run.files if not tables or file.table in tables}
    before = {key for key, file in files.items() if has_size(store.folder / key, file.bytes)}
    problems = store.files.fetch(files.values())
    for key, problem in sorted(problems.items()):
        verify = hints.Hint("wh.verify(deep=True)", "tw verify --deep")
        hint = hints.fill("{} lists all problems", verify)
        raise DamagedRunError(f"{store.objects.describe(key)}: {problem}", hint)
    new = [file.bytes for key, file in files.items() if key not in before]
    return Fetched(len(files), sum(file.bytes for file in files.values()), len(new), sum(new))


def list_runs(
    store: Store,
    catalog: Catalog,
    selected: Sequence[SelectedRun] | None,
    left_out: Callable[[], Sequence[UnreadableRun]],
    level: Level,
) -> Result:
    """A row per run (None: of all runs, including pending ones), with notices about damaged and pending runs.

    At level FULL, every file is read, and the state of a run with a damaged one is `damaged`. `left_out` is
    called after the runs were listed, which finds the damaged ones.
    """
    contract = catalog.get("runs", kind="table")
    faults: dict[str, str] = {}
    if selected is None and level is not Level.FULL:
        rows = listed_rows(store)
    else:
        runs = select_runs(store) if selected is None else selected
        faults = file_faults(store, runs, level) if level is Level.FULL else {}
        damaged = {run: {"state": "damaged"} for run in faults}
        rows = [run_row(run.version) | damaged.get(run.run, {}) for run in runs]
    selectors = tuple(f"{row['run_id']}@v{row['version']}" for row in rows)
    lines, unreadable = nothing_stored(rows), left_out()
    pending: list[dict[str, Any]] = []
    if selected is None:
        published = {row["run_id"] for row in rows}
        waiting = store.pending_runs()
        pending = [pending_row(waits) for run, waits in waiting.items() if run not in published]
    text = "{run_id} is pending: {ranks_present} of {ranks_expected} ranks ingested"
    notices = (
        *damaged_runs(unreadable),
        *(
            hints.fill("run {} is damaged: {}; {}", run, reason, hints.repair(run))
            for run, reason in faults.items()
        ),
        *(text.format_map(row) for row in pending),
    )
    rows = [*rows, *pending, *map(damaged_row, unreadable)]
    provenance = replace(provenance_of(catalog, selected or (), contract), runs=selectors)
    return Result(table_of(contract, rows), provenance, contract, notices=notices or lines)


def run_info(store: Store, catalog: Catalog, run: SelectedRun, level: Level) -> RunInfo:
    """A run with its ranks, tables and versions.

    At level FULL, every file of the run is read; raises DamagedRunError for a damaged one.
    """
    if level is Level.FULL:
        for name, fault in file_faults(store, [run], level).items():
            raise damaged_run(name, fault)
    contract = catalog.get("ranks", kind="table")
    rows = built_rows(store, contract, [run])
    ranks = Result(table_of(contract, rows), provenance_of(catalog, (run,), contract), contract)
    return RunInfo(
        run_row(run.version),
        ranks,
        table_sizes(run),
        store.versions(run.run),
        redactions(run),
        untested(run.sources),
    )
