"""Tables of every real trace: round trip of events, nesting, sums."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import real_traces
from table_cases import rows, tables_of
from tracewarehouse.duck import engine
from tracewarehouse.export.writer import event_texts
from witness.stack import Place, Slice, ancestors, nest

LARGE_BYTES = 15_000


# Files of other formats and files without events: refused, so without tables.
NO_TRACE = re.compile(
    r"_et\.json|dlrm_eg_|chakra_|memory_timeline|memory\.raw|rocprofv3|nccl_trace_rank|key_averages|EXPECT"
    r"|/(empty|html_error|no_events|null_events)\."
)


def files() -> list[Any]:
    """Each real trace; large ones only in the deep run."""
    folder = real_traces()
    found = sorted(folder.glob("*/*.json*")) if folder else []
    found = [path for path in found if not NO_TRACE.search(path.as_posix())]
    return [
        pytest.param(
            path,
            id=f"{path.parent.name}/{path.name}",
            marks=[pytest.mark.deep] if path.stat().st_size > LARGE_BYTES else [],
        )
        for path in found
    ] or [pytest.param(None, marks=pytest.mark.skip(reason="no real traces here"))]


# Accepted by Python's parser: two arrays of events, half a character.
REPAIRED = re.compile("duplicate_keys|lone_surrogate")
HOST_SLICES = """
SELECT
  event_id,
  dense_rank() OVER (
    ORDER BY category IS NOT DISTINCT FROM 'user_annotation', coalesce(pid, ''), coalesce(tid, '')
  ) AS thread,
  ts_ns,
  ts_ns + dur_ns AS end_ns
FROM events
WHERE pre IS NOT NULL"""


@pytest.fixture(scope="module", params=files())
def rank(request: pytest.FixtureRequest) -> Iterator[engine.Connection]:
    """The tables of one real trace."""
    con = tables_of(request.param)
    con.execute(f"CREATE VIEW host_slices AS {HOST_SLICES}")
    yield con
    con.close()


class Number(str):
    """A number as written: 1.10 is not 1.1."""


def digits(text: str) -> Any:
    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number)


def elements(path: Path) -> list[Any]:
    """The elements of a file that is JSON; others are repaired before they are read."""
    if REPAIRED.search(path.name):
        pytest.skip("JSON for some readers only")
    data = path.read_bytes()
    try:
        found = digits((gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode())
    except (ValueError, EOFError):
        pytest.skip("no JSON as it is")
    return found if isinstance(found, list) else found["traceEvents"]  # type: ignore[no-any-return]


def test_events_round_trip_digit_by_digit(rank: engine.Connection, request: pytest.FixtureRequest) -> None:
    rank.execute("CREATE OR REPLACE VIEW ranks AS SELECT run_id, rank, base_time_ns FROM rank_facts")
    wanted = elements(request.node.callspec.params["rank"])
    back = [digits(text) for text in event_texts(rank, "a", 0)]
    assert len(back) == len(wanted)
    assert [n for n, (old, new) in enumerate(zip(wanted, back, strict=True)) if old != new] == []


def test_host_slices_nest_as_a_stack_nests_them(rank: engine.Connection) -> None:
    slices = [Slice(*row) for row in rows(rank, "SELECT event_id, thread, ts_ns, end_ns FROM host_slices")]
    sql = "SELECT event_id, parent_id, depth, pre, post, crosses FROM events WHERE pre IS NOT NULL"
    found = {event_id: Place(*place) for event_id, *place in rows(rank, sql)}
    assert found == nest(slices)


def test_a_launch_belongs_to_the_innermost_open_slices(rank: engine.Connection) -> None:
    slices = [Slice(*row) for row in rows(rank, "SELECT event_id, thread, ts_ns, end_ns FROM host_slices")]
    tree, by_id = nest(slices), {part.event_id: part for part in slices}
    kind = dict(
        rows(rank, "SELECT event_id, category FROM events WHERE category IN ('cpu_op', 'python_function')")
    )
    names = dict(rows(rank, "SELECT event_id, name FROM events WHERE starts_with(name, 'nn.Module: ')"))
    sql = "SELECT DISTINCT runtime_id, op_id, top_op_id, module_id FROM kernels WHERE runtime_id IS NOT NULL"
    for call, *owners in rows(rank, sql):
        around = [a for a in ancestors(tree, call) if by_id[a].end > by_id[call].start]
        ops = [a for a in around if kind.get(a) == "cpu_op"]
        modules = [a for a in around if a in names]
        assert owners == [ops[0] if ops else None, ops[-1] if ops else None, modules[0] if modules else None]


def test_an_allocation_belongs_to_the_innermost_open_operator(rank: engine.Connection) -> None:
    if rows(rank, "SELECT count(*) FROM memory_events") > [(5_000,)]:
        pytest.skip("too many for the plain join")
    plain = """
        SELECT memory.event_id, arg_max(op.event_id, op.pre)
        FROM memory_events AS memory
        LEFT JOIN events AS op
          ON op.category = 'cpu_op' AND op.pre IS NOT NULL AND op.pid = memory.pid AND op.tid = memory.tid
          AND op.ts_ns <= memory.ts_ns AND memory.ts_ns < op.ts_ns + op.dur_ns
        GROUP BY memory.event_id ORDER BY memory.event_id"""
    assert rows(rank, "SELECT event_id, op_id FROM memory_events ORDER BY event_id") == rows(rank, plain)


def test_every_gpu_activity_is_in_kernels_once(rank: engine.Connection) -> None:
    sql = """
        SELECT event_id FROM events
        WHERE category IN ('kernel', 'gpu_memcpy', 'gpu_memset', 'mtia_ccp_events') AND ph IN ('X', 'B')
          AND ts_ns IS NOT NULL AND dur_ns IS NOT NULL
        ORDER BY event_id"""
    assert rows(rank, sql) == rows(rank, "SELECT event_id FROM kernels ORDER BY event_id")


def test_launch_states_cover_all_activities(rank: engine.Connection) -> None:
    states = dict(rows(rank, "SELECT launch_state, count(*) FROM kernels GROUP BY ALL"))
    assert set(states) <= {"known", "before_window", "missing"}
    assert [(states.get("known", 0),)] == rows(rank, "SELECT count(*) FROM correlations")
    assert rows(
        rank, "SELECT count(*) FROM kernels WHERE (runtime_id IS NULL) = (launch_state = 'known')"
    ) == [(0,)]


def test_nothing_is_negative(rank: engine.Connection) -> None:
    for table in ("events", "kernels", "runtime", "annotations", "syncs"):
        assert rows(rank, f"SELECT count(*) FROM {table} WHERE dur_ns < 0") == [(0,)]
    assert rows(rank, "SELECT count(*) FROM events WHERE depth < 1 OR post < pre") == [(0,)]
    assert rows(rank, "SELECT count(*) FROM steps WHERE period_ns < 0 OR host_ns < 0 OR device_ns < 0") == [
        (0,)
    ]


def test_a_parent_contains_its_child_or_the_child_is_flagged(rank: engine.Connection) -> None:
    sql = """
        SELECT count(*) FROM events AS child JOIN events AS parent ON parent.event_id = child.parent_id
        WHERE child.ts_ns < parent.ts_ns OR parent.ts_ns + parent.dur_ns <= child.ts_ns
          OR child.crosses <> (child.ts_ns + child.dur_ns > parent.ts_ns + parent.dur_ns)
          OR child.depth <> parent.depth + 1 OR child.pre <= parent.pre OR child.post > parent.post"""
    assert rows(rank, sql) == [(0,)]


def test_idle_and_busy_time_sum_to_the_window(rank: engine.Connection) -> None:
    sql = "SELECT device, ts_ns, ts_ns + dur_ns FROM kernels ORDER BY device, ts_ns, event_id"
    windows: dict[int, list[tuple[int, int]]] = {}
    for device, start, end in rows(rank, sql):
        windows.setdefault(device, []).append((start, end))
    for spans in windows.values():
        busy = idle = 0
        reached = spans[0][0]
        for start, end in spans:
            idle += max(start - reached, 0)
            busy += max(end - max(start, reached), 0)
            reached = max(reached, end)
        assert busy + idle == reached - spans[0][0]


def test_periods_tile_the_window(rank: engine.Connection) -> None:
    steps = rows(
        rank, "SELECT period_start_ns, period_ns, host_start_ns FROM steps ORDER BY host_start_ns, step"
    )
    for (start, length, _), (next_start, _, _) in zip(steps, steps[1:], strict=False):
        assert start + length == next_start
    assert all(start == host for start, _, host in steps[:1])


def test_every_rule_that_fires_has_an_example(rank: engine.Connection) -> None:
    assert (
        rows(rank, "SELECT rule FROM data_quality WHERE example IS NULL OR rows < 1 OR affected_ns < 0") == []
    )
    assert rows(rank, "SELECT rule FROM data_quality GROUP BY rule HAVING count(*) > 1") == []


def test_every_table_keeps_its_grain(rank: engine.Connection) -> None:
    from tracewarehouse.contracts.catalog import Catalog

    for contract in Catalog.load().tables():
        if contract.filled_by_program or contract.transient or contract.derived or not contract.requires:
            continue
        keys = ", ".join(contract.grain)
        sql = f"SELECT count(*), count(DISTINCT ({keys})) FROM {contract.name}"
        assert len({*rows(rank, sql)[0]}) == 1, contract.ref
        never_null = [column.name for column in contract.columns if not column.null]
        nulls = " OR ".join(f'"{name}" IS NULL' for name in never_null)
        assert rows(rank, f"SELECT count(*) FROM {contract.name} WHERE {nulls}") == [(0,)], contract.ref


def test_the_number_of_traces_is_what_it_was() -> None:
    """A changed path must not leave this file without cases."""
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces here")
    assert len(files()) >= 89, Path(folder)  # 111 files less 22 that are not traces
