"""Results of the stored warehouse of format 1 in the current names, values and sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.storage import renames

DATA = Path(__file__).parent / "data"
# A run is named timeline, and so is an analysis that is new.
RELATIONS = {"check()", "changes"} | {each.name for each in Catalog.load().contracts.values()} - {"timeline"}
# `check()` returns the rows of all findings.
COLUMNS = {**renames.COLUMNS, "check()": renames.COLUMNS[renames.FINDINGS[0]], "changes": {"part": "name"}}
VALUES = {**renames.VALUES} | {
    ("check()", column): {
        old: new
        for (name, other), values in renames.VALUES.items()
        if name in renames.FINDINGS and other == column
        for old, new in values.items()
    }
    for column in ("evidence_filter", "subject")
}
# Old sentence → current sentence: observations, limits of savings, and advice of findings.
REWORDED: dict[str, str] = json.loads((DATA / "warehouse-1-rewordings.json").read_text(encoding="utf-8"))
_HARDWARE = "1 × Synthetic GPU, 2 × NVIDIA H100 80GB HBM3"
# The upgrade publishes a new version of every run, which notices name.
REWORDED |= {
    f"not derived: tw derive critical_path {run}": "critical_path is not derived"
    for run in ("good", "odd", "slow", "timeline")
}
REWORDED |= {
    "2 of 5 runs are not recorded (odd@v2, timeline@v1): tw record --all": (
        "2 of 5 runs are not recorded (odd@v3, timeline@v2): wh.record()"
    ),
    "1 damaged rank (odd rank 1)": "1 rank has a damaged trace (odd rank 1)",
    "waits: pending 1/2": "waits is pending: 1 of 2 ranks ingested",
    "0 steps, needs 1": "requires 1 step, found 0",
    "no counters of kernels recorded": "no kernel counters recorded",
    **{
        f"no GPU rows recorded{rules}": f"no GPU activities recorded{rules}"
        for rules in (
            "",
            ": allocator_calls, blocking_copies, blocking_syncs, exposed_comm, host_bound, input_bound,"
            " launch_bound, low_gpu_use, pageable_copies, tensor_cores",
        )
    },
    **{
        f"nothing to judge by: {rules}": f"no applicable data: {rules}"
        for rules in ("allocator_calls", "pageable_copies, tensor_cores")
    },
    **{
        f"change and verdict are those of {measure}: --measure chooses another": (
            f"rows are classified by {measure} (change with measure=NAME)"
        )
        for measure in ("count", "window_ns")
    },
    "mean window 1.197 → 1.485 ms, +24.0 %, inconclusive: one window per side; mean +24.0 %": (
        "mean window 1.197 → 1.485 ms, +24.0 % (not tested: one sample per side)"
    ),
    "fewer than 12 runs: no change is looked for": "change detection needs at least 12 runs",
    f"a line has runs of 2 kinds of machine ({_HARDWARE}): --where or --by a label keeps them apart": (
        f"one series mixes 2 hardware configurations ({_HARDWARE}):"
        ' separate them with where="label.K=V" or by="label.K"'
    ),
}


def today(value: Any, contract: str = "", column: str = "") -> Any:
    """An old result in current names; `contract` is the relation it belongs to."""
    if isinstance(value, dict):
        renamed = COLUMNS.get(contract, {})
        keys = {key: renames.TABLES.get(key, renamed.get(key, key)) for key in value}
        return by_rule(
            {
                keys[key]: today(each, keys[key] if keys[key] in RELATIONS else contract, keys[key])
                for key, each in value.items()
            }
        )
    if isinstance(value, list):
        return [today(each, contract, column) for each in value]
    if not isinstance(value, str):
        return value
    return REWORDED.get(value, VALUES.get((contract, column), {}).get(value, value))


def by_rule(columns: dict[str, Any]) -> dict[str, Any]:
    """Columns of data quality in the order of the current names; anything else unchanged."""
    if not isinstance(columns.get("rule"), list) or "affected_ns" not in columns:
        return columns
    ranks = [-1 if rank is None else rank for rank in columns["rank"]]
    order = sorted(range(len(ranks)), key=lambda row: (ranks[row], columns["rule"][row]))
    return {name: [cells[row] for row in order] for name, cells in columns.items()}
