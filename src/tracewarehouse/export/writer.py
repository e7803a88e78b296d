"""Writes an export: the JSON text of one rank's trace, or of several ranks or a time range, with notices."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.duck import engine
from tracewarehouse.errors import ParamError, UnknownName
from tracewarehouse.exact_text import rank_list
from tracewarehouse.export.overlays import (
    FindingRows,
    RankLayout,
    TimeRange,
    addition_texts,
    fetched,
    micros,
    range_marker,
    worst_occurrence,
)
from tracewarehouse.export.request import (
    CLOCK_OFFSETS,
    Additions,
    Clock,
    ExportRequest,
    RankRows,
    additions,
    clock_notices,
    default_additions,
    rank_clocks,
    time_ranges,
    with_contracts,
)
from tracewarehouse.findings import check_runs
from tracewarehouse.formats.memory_timeline import ACTIONS, CATEGORIES
from tracewarehouse.query.connections import connection
from tracewarehouse.query.relations import dependencies
from tracewarehouse.query.selection import Selection
from tracewarehouse.runs.readable import check_unexpired
from tracewarehouse.runs.rows import built_rows
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage.parquet_file import Level
from tracewarehouse.storage.versions import Versions

_DUPLICATES = "__duplicates__"


class _Digits(str):
    """A number with the digits of the file."""


# A key is in `extra` if its column cannot hold its JSON type.
_TEXTS = """
WITH
  event AS (
    SELECT
      *,
      CASE WHEN extra IS NULL THEN [] ELSE json_keys(extra) END AS extra_keys,
      ts_ns - base_time_ns AS from_base_ns
    FROM {source}
    JOIN ranks USING (run_id, rank)
    WHERE run_id = $run AND rank = $rank
  ),
  member AS (
    SELECT
      event_id,
      ph IS NULL AND extra IS NOT NULL AND json_type(extra) <> 'OBJECT' AS is_not_object,
      concat_ws(
        ', ',
        '"ph": ' || to_json(ph),
        '"cat": ' || to_json(raw_category),
        '"name": ' || to_json(name),
        {pid},
        {tid},
        {id},
        CASE
          WHEN list_contains(extra_keys, 'ts') THEN NULL
          WHEN ts_text IS NOT NULL THEN '"ts": ' || ts_text
          WHEN from_base_ns % 1000 = 0 THEN '"ts": ' || (from_base_ns // 1000)
          ELSE '"ts": ' || (from_base_ns // 1000) || '.' || lpad((from_base_ns % 1000)::VARCHAR, 3, '0')
        END,
        CASE
          WHEN list_contains(extra_keys, 'dur') THEN NULL
          WHEN dur_text IS NOT NULL THEN '"dur": ' || dur_text
          WHEN ph = 'B' THEN NULL
          WHEN dur_ns % 1000 = 0 THEN '"dur": ' || (dur_ns // 1000)
          ELSE '"dur": ' || (dur_ns // 1000) || '.' || lpad((dur_ns % 1000)::VARCHAR, 3, '0')
        END,
        '"args": ' || args
      ) AS members,
      extra::VARCHAR AS extra,
      list_contains(extra_keys, '__duplicates__') AS has_duplicates
    FROM event
  )
SELECT
  CASE
    WHEN is_not_object THEN extra
    WHEN extra IS NULL THEN '{{' || members || '}}'
    ELSE '{{' || concat_ws(', ', nullif(members, ''), substr(extra, 2, length(extra) - 2)) || '}}'
  END AS text,
  CASE WHEN has_duplicates THEN members END AS members,
  CASE WHEN has_duplicates THEN extra END AS extra
FROM member
ORDER BY event_id
"""


# A text that is a number, or a string.
_ID = """CASE
          WHEN {column} IS NULL OR list_contains(extra_keys, '{key}') THEN NULL
          WHEN TRY_CAST({column} AS BIGINT)::VARCHAR = {column} THEN '"{key}": ' || {column}
          ELSE '"{key}": ' || to_json({column})
        END"""
_IDS = {
    key: _ID.format(key=key, column=column)
    for key, column in (("pid", "pid"), ("tid", "tid"), ("id", "flow_id"))
}

# The elements of a memory timeline, for a rank without events. `file_...` columns hold what no other one can.
_TIMELINE_TEXTS = """
SELECT
  coalesce(
    element,
    '[' || concat_ws(
      ',',
      coalesce(ts_ns, file_time_ns),
      coalesce(list_position($actions, action), file_action),
      bytes,
      coalesce(list_position($categories, category) - 1, file_category)
    ) || ']'
  ) AS text
FROM memory_timeline
WHERE run_id = $run AND rank = $rank
  AND NOT EXISTS (SELECT 1 FROM events WHERE events.run_id = $run AND events.rank = $rank)
ORDER BY event_id
"""


def timeline_texts(con: engine.Connection, run: str, rank: int) -> Iterator[str]:
    """The elements of a rank's memory timeline as in the file; none if the rank has events."""
    values = {"run": run, "rank": rank, "actions": list(ACTIONS[1:]), "categories": list(CATEGORIES)}
    for (text,) in fetched(con, _TIMELINE_TEXTS, values):
        yield text


def event_texts(con: engine.Connection, run: str, rank: int, source: str = "events") -> Iterator[str]:
    """The JSON text of each element of a rank's event array, in order.

    The connection has the tables `source`, with the columns of `events`, and `ranks`. The text equals that of
    the file except for the order of keys and whitespace between tokens.
    """
    for text, members, extra in fetched(
        con, _TEXTS.format(source=source, **_IDS), {"run": run, "rank": rank}
    ):
        yield text if extra is None else _with_duplicates(members, extra)


def header_members(header: str, without: str | None = None) -> str:
    """The members of a header as text: verbatim, or printed again number for number if one is left out."""
    pairs = _pairs(header)
    if not any(key == without for key, _ in pairs):
        return header.strip()[1:-1].strip()
    return ", ".join(_member(*pair) for pair in pairs if pair[0] != without)


def _with_duplicates(members: str, extra: str) -> str:
    """The text of an event with duplicate keys: earlier values first, so that the last one wins."""
    pairs = _pairs(extra)
    earlier = next(value for key, value in pairs if key == _DUPLICATES)
    later = [pair for pair in pairs if pair[0] != _DUPLICATES]
    members_in_order = [*(_member(*pair) for pair in earlier), members, *(_member(*pair) for pair in later)]
    return "{" + ", ".join(member for member in members_in_order if member) + "}"


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object in order, including duplicates."""


def _pairs(text: str) -> Any:
    """The members of a JSON object, with the digits of its numbers."""
    return json.loads(text, parse_int=_Digits, parse_float=_Digits, object_pairs_hook=_Pairs)


def _member(key: str, value: Any) -> str:
    return f"{json.dumps(key, ensure_ascii=False)}: {_dump(value)}"


def _dump(value: Any) -> str:
    """The JSON text of a value, with the digits of the file."""
    if isinstance(value, _Digits):
        return value
    if isinstance(value, _Pairs):
        return "{" + ", ".join(_member(*pair) for pair in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


# Slices that overlap the time range, complete; a begin with its end; async events by id if all that begin
# also end; flows between two selected slices; instant events in the range; names of processes and threads.
_SELECT = """
CREATE TABLE selected AS
WITH
  slice AS (
    SELECT event_id, end_id, pid, tid, ts_ns, ts_ns + dur_ns AS end_ns
    FROM events
    WHERE (ph = 'X' OR ph = 'B' AND end_id IS NOT NULL) AND dur_ns IS NOT NULL
      AND ts_ns < $to_ns AND (ts_ns >= $from_ns OR ts_ns + dur_ns > $from_ns)
  ),
  covered AS (
    -- The latest end of the slices of a thread that have begun.
    SELECT DISTINCT pid, tid, ts_ns, max(end_ns) OVER (PARTITION BY pid, tid ORDER BY ts_ns) AS until_ns
    FROM slice
  ),
  tip AS (
    -- An end outside the range counts if a selected slice begins there: else it is of an enclosing slice.
    SELECT flows.event_id, flows.start_id, flows.role
    FROM flows
    ASOF JOIN covered
      ON covered.pid = flows.pid AND covered.tid = flows.tid AND covered.ts_ns <= flows.ts_ns
    WHERE covered.ts_ns = flows.ts_ns
      OR flows.ts_ns >= $from_ns AND flows.ts_ns < $to_ns AND flows.ts_ns <= covered.until_ns
  ),
  flow AS (
    SELECT DISTINCT start_id
    FROM tip
    WHERE role = 'end' AND start_id IN (SELECT event_id FROM tip WHERE role = 'start')
  ),
  async_event AS (
    SELECT event_id, pid, raw_category, flow_id, ph IN ('b', 'S') AS begins, ph IN ('e', 'F') AS ends, ts_ns
    FROM events
    WHERE ph IN ('b', 'n', 'e', 'S', 'T', 'p', 'F')
  ),
  async_pair AS (
    SELECT unnest(list(event_id)) AS event_id
    FROM async_event
    GROUP BY pid, raw_category, flow_id
    HAVING min(ts_ns) < $to_ns AND max(ts_ns) >= $from_ns
      AND count(*) FILTER (begins) = count(*) FILTER (ends)
  )
SELECT event_id FROM slice
UNION ALL
SELECT end_id FROM slice WHERE end_id IS NOT NULL
UNION ALL
SELECT event_id FROM tip WHERE start_id IN (SELECT start_id FROM flow)
UNION ALL
SELECT event_id FROM async_pair
UNION ALL
SELECT event_id
FROM events
WHERE ph = 'M'
  OR ts_ns >= $from_ns AND ts_ns < $to_ns
    AND ph NOT IN ('X', 'B', 'E', 's', 't', 'f', 'b', 'n', 'e', 'S', 'T', 'p', 'F')
"""
_SELECT_ALL = "CREATE TABLE selected AS SELECT event_id FROM events WHERE ph IS NOT NULL"

_NO_PIDS = "CREATE TABLE pids (pid VARCHAR, name VARCHAR, as_pid BIGINT)"

# With several ranks each process gets a new number, in the order of the rank's trace.
_PIDS = """
CREATE TABLE pids AS
WITH
  used AS (
    -- Tracks may be added to any process with a number.
    SELECT DISTINCT pid
    FROM events
    WHERE ph <> 'M' AND pid IS NOT NULL
      AND (TRY_CAST(pid AS BIGINT) IS NOT NULL OR event_id IN (SELECT event_id FROM selected))
  ),
  named AS (
    SELECT
      pid,
      any_value(args ->> '$.name') FILTER (name = 'process_name') AS name,
      any_value(TRY_CAST(args ->> '$.sort_index' AS BIGINT))
        FILTER (name = 'process_sort_index') AS sort_index
    FROM events
    WHERE ph = 'M'
    GROUP BY pid
  )
SELECT
  used.pid,
  named.name,
  $first_pid + row_number() OVER (ORDER BY named.sort_index, TRY_CAST(used.pid AS BIGINT), used.pid) AS as_pid
FROM used
LEFT JOIN named ON named.pid = used.pid
"""

_PROCESS_NAMES = """
WITH
  process AS (
    SELECT
      as_pid,
      'rank ' || $rank || ': '
      || coalesce(name || ' (' || pid || ')', nullif(pid, ''), 'no process') AS name
    FROM pids
  )
SELECT
  '{"ph": "M", "name": "process_name", "pid": ' || as_pid || ', "args": ' || json_object('name', name) || '}',
  '{"ph": "M", "name": "process_sort_index", "pid": ' || as_pid || ', "args": '
  || json_object('sort_index', as_pid) || '}'
FROM process
ORDER BY as_pid
"""

_ONE_RANK = "CREATE VIEW clip AS SELECT events.* FROM events JOIN selected USING (event_id)"

# Ids that link events of a rank are made distinct between ranks; ids that are not such numbers are unchanged.
_MERGED = """
CREATE VIEW clip AS
SELECT events.* REPLACE (
  pids.as_pid::VARCHAR AS pid,
  CASE
    WHEN TRY_CAST(events.flow_id AS BIGINT) BETWEEN 0 AND {max_id}
      THEN (events.flow_id::BIGINT * {ranks} + {index})::VARCHAR
    ELSE events.flow_id || ' of rank ' || events.rank
  END AS flow_id,
  CASE
    WHEN events.correlation BETWEEN 1 AND {max_id} THEN regexp_replace(
      events.args::VARCHAR,
      '("correlation"\\s*:\\s*)"?\\d+"?',
      '\\1' || (events.correlation * {ranks} + {index})
    )::JSON
    ELSE events.args
  END AS args,
  CASE
    WHEN {shift_ns} <> 0 AND events.ts_ns IS NOT NULL THEN {ts}
    ELSE events.ts_text
  END AS ts_text,
  CASE
    WHEN json_exists(events.extra, '$.pid') OR json_exists(events.extra, '$.id')
      OR {shift_ns} <> 0 AND json_exists(events.extra, '$.ts')
      THEN nullif(json_merge_patch(events.extra, {patch})::VARCHAR, '{{}}')::JSON
    ELSE events.extra
  END AS extra
)
FROM events
JOIN selected USING (event_id)
JOIN ranks ON ranks.run_id = events.run_id AND ranks.rank = events.rank
LEFT JOIN pids ON pids.pid = events.pid
WHERE events.ph <> 'M' OR pids.as_pid IS NOT NULL
  AND events.name NOT IN ('process_name', 'process_sort_index')
"""
_MAX_ID = 2**40  # larger ids are addresses or hashes; times the number of ranks they exceed JSON numbers


def _prepare(con: engine.Connection, layout: RankLayout) -> None:
    """Creates `clip`, the selected events as written, and `pids`, process numbers.

    The connection has the tables `events`, `ranks` and `flows`, of one rank.
    """
    if layout.time_range is None:
        con.execute(_SELECT_ALL)
    else:
        from_ns, to_ns = layout.time_range
        con.execute(_SELECT, {"from_ns": from_ns, "to_ns": to_ns})
    if layout.is_merged:
        con.execute(_PIDS, {"first_pid": layout.first_pid})
        removed = '{"pid": null, "id": null' + (', "ts": null}' if layout.shift_ns else "}")
        merged = _MERGED.format(
            max_id=_MAX_ID,
            ranks=layout.ranks,
            index=layout.index,
            shift_ns=layout.shift_ns,
            ts=micros(f"(events.ts_ns + {layout.shift_ns} - ranks.base_time_ns)"),
            patch=f"'{removed}'",
        )
        con.execute(merged)
    else:
        con.execute(_NO_PIDS)
        con.execute(_ONE_RANK)


_HEADER_KEY = "tracewarehouse"  # describes a time range or several ranks


class Exported(Struct, frozen=True):
    """The JSON text of a trace in chunks, to be read once, its ranks, and notices.

    `is_new` is False for an unchanged copy of a stored trace.
    """

    chunks: Iterator[str]
    ranks: tuple[int, ...]
    is_new: bool
    notices: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[str]:
        return self.chunks


class Source(Struct, frozen=True):
    """The ranks to export, and the store that has them."""

    store: Versions
    catalog: Catalog
    selected: SelectedRun


class RankOutput(Struct, frozen=True):
    """A rank to write: how its events are written, what is added, and the findings of the run."""

    rank: int
    layout: RankLayout
    additions: Additions
    findings: FindingRows = ()


def contracts_read(catalog: Catalog, request: ExportRequest) -> tuple[Contract, ...]:
    """What an export may read, except for analyses of derived tables."""
    requested = additions(catalog, request.counters or (), request.overlays or ()).contracts
    names = ("steps", "idle_intervals", "queue_length", CLOCK_OFFSETS)
    return tuple(dict.fromkeys((*requested, *(catalog.get(name) for name in names))))


def export(
    store: Versions,
    catalog: Catalog,
    run: SelectedRun,
    ranks: Sequence[int],
    request: ExportRequest,
    findings: FindingRows = (),
) -> Exported:
    """One rank, or several together; `run` has all ranks that may help to align their clocks.

    `findings` are those of these ranks, the most severe first. Raises ParamError, UnknownName.
    """
    source = Source(store, catalog, replace(run, ranks=tuple(ranks)))
    requested = additions(catalog, request.counters or (), request.overlays or ())
    requested.check_needs([source.selected])
    if len(ranks) == 1 and not request.has_time_range:
        output = RankOutput(ranks[0], RankLayout(), requested, findings)
        return Exported(_entire_trace_text(source, output), tuple(ranks), bool(requested.items))
    return _clip(source, run, request, requested, findings)


def _clip(
    source: Source, run: SelectedRun, request: ExportRequest, requested: Additions, findings: FindingRows
) -> Exported:
    """A time range of one rank, or several ranks."""
    store, catalog, selected = source.store, source.catalog, source.selected
    rows = built_rows(store, catalog.get("ranks", kind="table"), [selected])
    ranks = {row["rank"]: row for row in rows}
    by_rank = rank_clocks(store, catalog, run, selected.ranks)
    ranges: dict[int, TimeRange] = {}
    if request.has_time_range:
        ranges = time_ranges(store, catalog, run, selected, request, ranks, by_rank, findings)
    outputs, not_drawn = [], defaultdict[str, list[int]](list)
    for rank, layout in _layouts(ranks, by_rank, ranges).items():
        of_rank = replace(selected, ranks=(rank,))
        drawn, reasons = _additions_of_rank(catalog, of_rank, request, requested, layout)
        outputs.append(RankOutput(rank, layout, drawn, findings))
        for reason in reasons:
            not_drawn[reason].append(rank)
    lacking = (f"rank {rank_list(without)}: {reason}" for reason, without in not_drawn.items())
    notices = (*clock_notices(by_rank), *lacking)
    header = _header_entry(selected, request, by_rank, ranges, notices)
    return Exported(_clip_text(source, outputs, header), selected.ranks, True, notices)


def _layouts(
    ranks: RankRows, clocks: Mapping[int, Clock], ranges: Mapping[int, TimeRange]
) -> dict[int, RankLayout]:
    """Times are relative to the base time of the first rank's file, by the reference clock."""
    base_times = {rank: row["base_time_ns"] or 0 for rank, row in ranks.items()}
    first_ns, is_single = next(iter(base_times.values())), len(ranks) == 1
    return {
        rank: RankLayout(
            ranges.get(rank),
            0 if is_single else base_times[rank] - first_ns - clocks[rank].offset_ns,
            index,
            len(ranks),
        )
        for index, rank in enumerate(ranks)
    }


def _additions_of_rank(
    catalog: Catalog, selected: SelectedRun, request: ExportRequest, requested: Additions, layout: RankLayout
) -> tuple[Additions, tuple[str, ...]]:
    """The requested and default additions of a rank, and why defaults are not drawn."""
    if request.plain:
        return requested, ()
    defaults, reasons = default_additions(
        catalog, [selected], request.counters is None, request.overlays is None
    )
    markers = [range_marker(_range_name(request), layout.time_range)] if layout.time_range else []
    return with_contracts(catalog, (*requested.items, *defaults.items, *markers)), reasons


def _range_name(request: ExportRequest) -> str:
    if request.step is not None:
        return f"step {request.step}"
    return "cut" if request.around is None else f"around {request.around}"


def _header_entry(
    selected: SelectedRun,
    request: ExportRequest,
    clocks: Mapping[int, Clock],
    ranges: Mapping[int, TimeRange],
    notices: Sequence[str],
) -> dict[str, Any]:
    """The header's description of a clip; times as text, since JSON readers may keep 53 bits of a number."""
    ranks = []
    for rank, clock in clocks.items():
        row: dict[str, Any] = {"rank": rank, "clock_offset_ns": clock.offset_ns}
        if rank in ranges:
            row |= {"from_ns": str(ranges[rank][0]), "to_ns": str(ranges[rank][1])}
        ranks.append(row)
    label = _range_name(request) if request.has_time_range else "entire trace"
    return {"run": selected.selector, "time_range": label, "ranks": ranks, "notes": list(notices)}


def _entire_trace_text(source: Source, output: RankOutput) -> Iterator[str]:
    """A rank's trace in chunks: the keys of its header, the list of its events, then the added ones."""
    run, rank, additions = source.selected.run, output.rank, output.additions
    with connection(source.store, source.catalog, [source.selected], additions.contracts) as con:
        additions.create(con, output.findings)
        con.execute(_NO_PIDS)
        names, added = addition_texts(con, run, rank, additions.items, output.layout)
        members = header_members(_header(con))
        texts = chain(event_texts(con, run, rank), timeline_texts(con, run, rank))
        yield from _document(members, chain(texts, names, added))


def _clip_text(source: Source, ranks: Sequence[RankOutput], entry: Mapping[str, Any]) -> Iterator[str]:
    """A time range of one rank, or several ranks: for each its track names, its events, and the added ones.

    `entry` is added to the header; with several ranks their own headers are left out.
    """
    first = replace(source.selected, ranks=(ranks[0].rank,))
    with connection(source.store, source.catalog, [first], [source.catalog.get("ranks")]) as con:
        members = header_members(_header(con), _HEADER_KEY) if len(ranks) == 1 else _shared_header(con)
    member = f'"{_HEADER_KEY}": {json.dumps(entry, ensure_ascii=False)}'
    yield from _document(f"{members}, {member}" if members else member, _all_ranks(source, ranks))


def _all_ranks(source: Source, ranks: Sequence[RankOutput]) -> Iterator[str]:
    first_pid = 0
    for output in ranks:
        of_rank = replace(source.selected, ranks=(output.rank,))
        with connection(source.store, source.catalog, [of_rank], output.additions.contracts) as con:
            output.additions.create(con, output.findings)
            _prepare(con, replace(output.layout, first_pid=first_pid))
            run, rank = source.selected.run, output.rank
            names, added = addition_texts(con, run, rank, output.additions.items, output.layout)
            processes = con.execute(_PROCESS_NAMES, {"rank": rank}).fetchall()
            first_pid += len(processes)
            yield from (text for texts in processes for text in texts)
            yield from event_texts(con, run, rank, "(FROM clip WHERE ph = 'M')")
            yield from names
            yield from event_texts(con, run, rank, "(FROM clip WHERE ph <> 'M')")
            yield from added


def _shared_header(con: engine.Connection) -> str:
    (base_time_ns,) = con.execute("SELECT base_time_ns FROM ranks").fetchone() or (None,)
    members = {"schemaVersion": 1, "displayTimeUnit": "ms"}
    if base_time_ns:
        members["baseTimeNanoseconds"] = base_time_ns
    return json.dumps(members)[1:-1]


def _header(con: engine.Connection) -> str:
    (header,) = con.execute("SELECT header FROM ranks").fetchone() or ("{}",)
    return header or "{}"


def _document(members: str, texts: Iterator[str]) -> Iterator[str]:
    yield "{" + (f"{members},\n" if members else "") + '"traceEvents": ['
    separator = "\n"
    for text in texts:
        yield separator + text
        separator = ",\n"
    yield "\n]}\n"


def export_run(
    selection: Selection, run: str, rank: int | Iterable[int] | None, request: ExportRequest
) -> Exported:
    """The ranks of a run of a selection; a single rank need not be named. Raises UnknownName, ParamError."""
    catalog, all_ranks = selection.catalog, selection.one_run(run)
    exported = all_ranks if rank is None else all_ranks.select(ranks=rank)
    findings = _findings_to_draw(all_ranks, exported, request)
    if rank is None and request.around is not None:
        exported = all_ranks.select(ranks=worst_occurrence(request.around, findings, run)[0])
    (selected,) = exported.selected()
    if rank is None and len(selected.ranks) != 1:
        hint = hints.fill("select one with {}: {}", hints.option("rank", "N"), rank_list(selected.ranks))
        raise ParamError(f"{selected.run} has several ranks", hint)
    read = dependencies(catalog, contracts_read(catalog, request))
    selection.store.headers(rank.main for rank in selected.by_rank)  # raises if a manifest is damaged
    check_unexpired(read, [selected])
    (run_read,) = selection.queryable(read, all_ranks.selected(), (), Level.FULL).selected
    return export(selection.store, catalog, run_read, selected.ranks, request, findings)


def _findings_to_draw(all_ranks: Selection, part: Selection, request: ExportRequest) -> list[dict[str, Any]]:
    """The findings of the exported ranks; for `around`, from rules that ran on the entire run."""
    ranks = part.selected()[0].ranks
    if request.around is not None:
        names = [rule.name for rule in all_ranks.catalog.rules()]
        if request.around not in names:
            raise UnknownName("finding", request.around, names)
        return [row for row in check_runs(all_ranks, merge=False).rows() if row["rank"] in ranks]
    return check_runs(part).rows() if request.draws_findings(len(ranks)) else []
