"""Flows, allocations and quality rules of random ranks compared with the reference, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plain_rules
import pytest
from activity_rows import columns_of, flows, in_small_parts, memory_events, table_of
from odd_rows import odd_rows

from conftest import deep, deep_seeds
from tracewarehouse.ingest.columns import Columns, SpilledColumns
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.tables.events import find_flows
from tracewarehouse.ingest.tables.launches import find_calls, find_launches
from tracewarehouse.ingest.tables.model import Nesting
from tracewarehouse.ingest.tables.nesting import nest
from tracewarehouse.ingest.tables.quality import QualityInput, fired_rules
from tracewarehouse.ingest.tables.steps import find_step_annotations, put_steps

SEEDS = [range(5), *deep_seeds(5, 400)]


def evidence_of(columns: Columns) -> QualityInput:
    rules, nesting = rules_of(), nest(columns, rules_of())
    calls = find_calls(columns, rules, nesting)
    launches = find_launches(columns, rules, nesting, calls)
    put_steps(columns, rules, find_step_annotations(columns, rules), launches)
    return QualityInput(columns, rules, calls, launches, find_flows(columns, nesting).without_start)


def check_flows(rows: list[dict[str, Any]], columns: Columns, nesting: Nesting) -> None:
    found = flows(columns, nesting).to_pylist()
    wanted, bound = plain_rules.starts(rows), plain_rules.bound(rows)
    assert [(row["event_id"], row["start_id"]) for row in found] == sorted(wanted.items())
    assert {row["event_id"]: row["slice_id"] for row in found if row["slice_id"] is not None} == bound
    roles = {"s": "start", "t": "step", "f": "end"}
    assert all(row["role"] == roles[rows[row["event_id"]]["ph"]] for row in found)


def check_memory(rows: list[dict[str, Any]], columns: Columns, nesting: Nesting) -> None:
    found = memory_events(columns, nesting).to_pylist()
    assert {row["event_id"]: row["op_id"] for row in found} == plain_rules.operators(rows)
    order = [(row["ts_ns"] is None, row["ts_ns"] or 0, row["event_id"]) for row in found]
    assert order == sorted(order)
    assert all(row["bytes"] == rows[row["event_id"]]["bytes"] for row in found)


def check(rows: list[dict[str, Any]], columns: Columns) -> None:
    """Asserts that flows, allocations and rules equal the reference."""
    evidence, nesting = evidence_of(columns), nest(columns, rules_of())
    check_flows(rows, columns, nesting)
    check_memory(rows, columns, nesting)
    found = {each.rule: (each.rows, each.ns, each.first) for each in fired_rules(evidence)[0]}
    assert found == plain_rules.summed(plain_rules.hits(rows))


@pytest.mark.parametrize("seeds", SEEDS)
def test_random_ranks(seeds: range) -> None:
    for rows in map(odd_rows, seeds):
        check(rows, columns_of(rows))


@pytest.mark.parametrize("slices", [1, 5])
@pytest.mark.parametrize("seeds", SEEDS)
def test_a_few_slices_at_a_time_give_the_same(
    seeds: range, slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_small_parts(monkeypatch, slices, rows=3)
    for rows in map(odd_rows, seeds):
        check(rows, columns_of(rows))


@pytest.mark.parametrize("seed", [0, *deep(*range(1, 8))])
def test_columns_in_a_file_give_the_same(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_small_parts(monkeypatch, slices=4, rows=6)
    rows = odd_rows(seed)
    columns = SpilledColumns.spill(table_of(rows).to_reader(max_chunksize=16), tmp_path)
    check(rows, columns)
    columns.close()


def test_every_rule_fires_on_some_random_rank() -> None:
    shown = {rule for seed in range(40) for rule, _, _ in plain_rules.hits(odd_rows(seed))}
    decided = {rule for rule, said in rules_of().quality.items() if said.source == "events"}
    # Random ranks have profiler steps: see test_step_rules.
    assert shown == decided - {"steps_inferred"}
