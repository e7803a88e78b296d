"""What of a run was read by code that no real file has tested yet, as the guide to input formats says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tracewarehouse.storage import RankSource

# Format → what is untested on real data.
_UNTESTED: Final = {
    "execution_trace": "execution trace: collectives of NCCL",
    "flight_recorder": "flight recorder dumps of NCCL",
    "memory_snapshot": "memory snapshots of a GPU",
    "nsight_compute": "Nsight Compute files",
    "rocpd": "rocpd files",
    "rocprofv3": "rocprofv3: memory copies, and HIP, HSA, RCCL and marker calls",
    "rpd": "rpd files",
}
_NSYS: Final = ("nsys", "nsys_report")
# The schema of the real exports that were read.
_TESTED_SCHEMA: Final = "3.25."


def untested(sources: Iterable[RankSource]) -> tuple[str, ...]:
    """What the sources hold that is untested on real data, each once."""
    found = (_of(source) for source in sources)
    return tuple(sorted({text for text in found if text is not None}))


def _of(source: RankSource) -> str | None:
    if source.format not in _NSYS:
        return _UNTESTED.get(source.format)
    schema = source.facts.get("source_schema")
    is_tested = isinstance(schema, str) and schema.startswith(_TESTED_SCHEMA)
    if source.facts.get("source_layout") == "parquetdir":
        return "Nsight Systems: folders of Parquet files"
    return None if is_tested else f"Nsight Systems: export schema {schema or 'unknown'}"
