"""Names of format 1 and the names that replaced them; only the conversion from format 1 needs these.

Nothing else was renamed: a table, column or value that is not listed here has the same name in both formats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

# Tables and views.
TABLES: Final[Mapping[str, str]] = {
    "device_pieces": "device_segments",
    "judged_pieces": "analyzed_segments",
    "judged_spans": "analyzed_intervals",
    "critical_puts": "critical_enqueues",
    "critical_starts": "critical_start_dependencies",
    "critical_returns": "critical_return_dependencies",
    "critical_walk": "critical_path_nodes",
}

# Analyses whose rows are findings.
FINDINGS: Final = (
    "allocator_calls", "blocking_copies", "blocking_syncs", "exposed_comm", "host_bound", "input_bound",
    "launch_bound", "low_gpu_use", "memory_pressure", "pageable_copies", "slow_collectives", "slow_rank",
    "tensor_cores",
)  # fmt: skip
_FINDING = {"judged_ns": "analyzed_ns", "bound": "saving_limit", "seen": "observation"}
_INSTANCE = {"meeting": "instance_id", "waited_for": "straggler_rank"}
_LAUNCH_DELAY = {"call_late_ns": "launch_delay_ns"}
_SEGMENT = {"piece_ns": "segment_ns"}
_CATEGORY = {"part": "category", "part_ns": "category_ns"}

# Current name of a table, view or analysis → its columns, old → new.
COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    **dict.fromkeys(FINDINGS, _FINDING),
    "analyzed_intervals": {"judged_ns": "analyzed_ns"},
    "analyzed_segments": {**_SEGMENT, "judged_ns": "analyzed_ns"},
    "collective_arrivals": {**_INSTANCE, "group_told": "group_known", "doubt_ns": "uncertainty_ns"},
    "collective_matches": {**_INSTANCE, "group_told": "group_known"},
    "collective_waits": _INSTANCE,
    "collectives": {"place": "occurrence", "places": "occurrences"},
    "coverage": {"linked_ns": "launch_known_ns", "linked": "launch_known"},
    "critical_edges": {"decides": "is_limiting"},
    "critical_nodes": {"place": "kind"},
    "critical_path": {"part_ns": "segment_ns"},
    "critical_path_breakdown": {"parts": "segments"},
    "critical_path_by_op": {"parts": "segments"},
    "critical_scopes": {"whole": "entire_trace"},
    "cupti_counters": {"place": "position"},
    "data_quality": {"ns_affected": "affected_ns"},
    "device_gaps": _LAUNCH_DELAY,
    "device_segments": _SEGMENT,
    "device_timeline": _SEGMENT,
    "idle_intervals": _LAUNCH_DELAY,
    "launch_summary": {"known": "recognized", "gpu_rows": "gpu_activities"},
    "memory_bandwidth": {"held_ns": "dur_ns"},
    "memory_bandwidth_summary": {"untimed": "unusable"},
    "memory_by_category": {"most_bytes": "max_bytes", "most_at_ns": "max_at_ns"},
    "quality": {"ns_affected": "affected_ns"},
    "queue_changes": {"held_ns": "dur_ns"},
    "queue_length": {"held_ns": "dur_ns"},
    "queue_length_summary": {"unlinked": "launch_unknown"},
    "ranks": {"gpu_rows": "gpu_activities", "reader_version": "format_version"},
    "step_account": _CATEGORY,
    "stragglers": {"waited_for": "arrived_last"},
    "stream_gaps": _LAUNCH_DELAY,
    "stream_idle_intervals": _LAUNCH_DELAY,
    "window_account": _CATEGORY,
}

# Rules of data quality.
RULES: Final[Mapping[str, str]] = {
    "impossible_value": "invalid_block_size",
    "launch_without_gpu_row": "launch_without_gpu_activity",
    "many_rows_per_launch": "many_activities_per_launch",
    "mended_file": "repaired_file",
    "open_bracket": "unpaired_begin_end",
    "several_processes": "multiple_processes",
    "unusable_time": "invalid_time",
}
# How much of a source could be read.
STATUS: Final[Mapping[str, str]] = {"whole": "intact"}

_MATCHING = {"whole": "complete", "alone": "unmatched", "apart": "inconsistent_clocks"}
_LAUNCH_STATE = {"linked": "known"}

# Current names of (table, view or analysis, column) → the values of the column, old → new.
VALUES: Final[Mapping[tuple[str, str], Mapping[str, str]]] = {
    ("blocking_copies", "evidence_filter"): {"part = 'idle_sync'": "category = 'idle_sync'"},
    ("blocking_syncs", "evidence_filter"): {"part = 'idle_sync'": "category = 'idle_sync'"},
    ("blocking_syncs", "subject"): {"synchronising calls": "synchronizing calls"},
    ("collective_arrivals", "state"): _MATCHING,
    ("collective_matches", "state"): _MATCHING,
    ("collective_waits", "state"): _MATCHING,
    ("data_quality", "rule"): RULES,
    ("input_bound", "evidence_filter"): {"part = 'idle_dataloader'": "category = 'idle_dataloader'"},
    ("kernel_rules", "category"): {"uncategorised": "uncategorized"},
    ("kernels", "launch_state"): _LAUNCH_STATE,
    ("kernels_by_annotation", "launch_state"): _LAUNCH_STATE,
    ("launch_summary", "state"): {
        **_LAUNCH_STATE,
        "no_gpu_row": "no_gpu_activity",
        "same_id": "shared_id",
    },
    ("low_gpu_use", "evidence_filter"): {"starts_with(part, 'idle_')": "starts_with(category, 'idle_')"},
    ("quality", "rule"): RULES,
    ("quality_rules", "rule"): RULES,
    ("rank_sources", "status"): STATUS,
    ("ranks", "status"): STATUS,
    ("runs", "state"): {"whole": "complete"},
    ("tensor_cores", "subject"): {"matrix products": "GEMMs and convolutions"},
}

# The field of a recorded result with the hash of its parameters.
REQUEST: Final = "asked"

# Facts of a source in manifests and versions.
FACTS: Final[Mapping[str, str]] = {"gpu_rows": "gpu_activities", "linked_ns": "launch_known_ns"}

# Analysis (version 1) → the first 16 digits of its effective hash in format 1. Its rows equal those of the
# current version 1 except for the names above and the wording of findings, so a recorded series continues.
# Missing are `quality`, because rules were added, and `exposed_comm`, `step_account` and `window_account`,
# because exposed communication was split.
DEFINITIONS: Final[Mapping[str, str]] = {
    "allocator_calls": "1d2a01031d941473",
    "annotation_breakdown": "7cf016be44a9811a",
    "blocking_copies": "963fd4655dbccb19",
    "blocking_syncs": "dda35326a54caf54",
    "collective_waits": "0c93b75ca9745d57",
    "comm_by_group": "a79afe4b939b7154",
    "comm_comp_overlap": "8fd4f6121f3fc219",
    "coverage": "f58abf6fe1a5bff0",
    "critical_path_breakdown": "bbf71656a8cf4284",
    "critical_path_by_op": "faa5dee4fc163250",
    "cupti_counters": "cc30c5ce51a66a1b",
    "host_bound": "bda3dcb0d1a82c7b",
    "idle_breakdown": "c53b730476bf1ec3",
    "idle_intervals": "854340e6c2daa6d9",
    "input_bound": "3bda28107f542f8b",
    "kernel_sequences": "6b8a6e8cd6ddf656",
    "kernel_summary": "b9daabb73a4b4106",
    "kernel_type_breakdown": "eaf6d79a558e78c7",
    "kernels_by_annotation": "c16bc854d3be9425",
    "launch_bound": "98cd97135eac1f6f",
    "launch_stats": "2be1caacdeeb072c",
    "launch_summary": "28f80fac056b7425",
    "low_gpu_use": "af534a4a4c9db11c",
    "memory_bandwidth": "60c61447329d4700",
    "memory_bandwidth_summary": "16fcd8499d9314bd",
    "memory_by_category": "68a636a32619db84",
    "memory_by_op": "06b4013cd7be7b97",
    "memory_category_curve": "df6df542e06d0b00",
    "memory_curve": "f85c05751d08b608",
    "memory_live": "77e3fbf5224fbf23",
    "memory_peak": "5ea5c11e1cecd9d2",
    "memory_pressure": "a2ddd680b0989968",
    "name_summary": "b7a5ac3f7000a1b8",
    "op_kernel_delays": "2aedf39331748e51",
    "op_summary": "cd5f21361206cd9e",
    "pageable_copies": "cb4fefe0a44c7486",
    "queue_blocked": "6795a23badf059ed",
    "queue_length": "9eaff78f9219b15b",
    "queue_length_summary": "52cd38fc36ba851d",
    "slow_collectives": "1967774d1b68f96a",
    "slow_rank": "402121f62ea68624",
    "step_kernels": "da565d192d6901ee",
    "step_summary": "36e2d01daf7d8d93",
    "stragglers": "b1163cc517db7924",
    "stream_idle": "0c98c19d42d1b293",
    "stream_idle_intervals": "e36a5c1087ac66ce",
    "temporal_breakdown": "fd8fc7658e974c49",
    "tensor_cores": "dbbd3c4fe5306fa2",
    "window_kernels": "9f53047d17b926ae",
}
# The same of the derived table `critical_path`.
CRITICAL_PATH: Final = "26e218b232928f9c"

_METRIC = re.compile(r"(?P<analysis>\w+)\.(?P<column>\w+)(?:\[(?P<filters>.*)\])?", re.DOTALL)
_NEXT_FILTER = re.compile(r",(?=[a-z_]+=)")


def renamed_rows(name: str, rows: pa.Table) -> pa.Table:
    """Rows of a table or analysis with current names for columns and values."""
    import pyarrow as pa

    known = COLUMNS.get(name, {})
    rows = rows.rename_columns([known.get(column, column) for column in rows.column_names])
    for at, column in enumerate(rows.column_names):
        values = VALUES.get((name, column))
        if values:
            cells = [values.get(cell, cell) for cell in rows.column(at).to_pylist()]
            rows = rows.set_column(at, rows.schema.field(at), pa.array(cells, rows.schema.field(at).type))
    return rows


def renamed_metric(metric: str) -> str:
    """A metric, `analysis.column[column=value,…]`, with current names."""
    match = _METRIC.fullmatch(metric)
    if match is None:
        return metric
    analysis, filters = match["analysis"], match["filters"]
    columns = COLUMNS.get(analysis, {})
    found = f"{analysis}.{columns.get(match['column'], match['column'])}"
    if not filters:
        return found
    named = (_renamed_filter(analysis, *one.split("=", 1)) for one in _NEXT_FILTER.split(filters))
    return f"{found}[{','.join(sorted(named))}]"


def _renamed_filter(analysis: str, column: str, value: str) -> str:
    column = COLUMNS.get(analysis, {}).get(column, column)
    return f"{column}={VALUES.get((analysis, column), {}).get(value, value)}"


def renamed_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a source under current names."""
    return {FACTS.get(name, name): fact for name, fact in facts.items()}


def renamed_contract(contract: dict[str, Any]) -> dict[str, Any]:
    """The contract in a recorded result with current column names."""
    known = COLUMNS.get(contract["name"], {})

    def named(column: str) -> str:
        sign = "-" if column.startswith("-") else ""
        return sign + known.get(column.removeprefix(sign), column.removeprefix(sign))

    columns = [{**column, "name": named(column["name"])} for column in contract["columns"]]
    lists = {key: [named(column) for column in contract[key]] for key in ("grain", "order")}
    return {**contract, **lists, "columns": columns}
