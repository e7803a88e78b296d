"""The stored form of a warehouse: Parquet files, manifests and versions of runs."""

from tracewarehouse.storage.changes import (
    KEEP_VERSIONS_S,
    TARGET_BYTES,
    Changes,
    Compacted,
    Expired,
    Intent,
    Outcome,
    PendingSource,
    Published,
    Staged,
    StagedTable,
)
from tracewarehouse.storage.layout import (
    acknowledgement_key,
    check_labels,
    parse_reference,
    run_key,
    run_name,
    uid,
)
from tracewarehouse.storage.local import disk_error, disk_errors
from tracewarehouse.storage.model import (
    Brief,
    CleanReport,
    Json,
    Problem,
    Rank,
    RankSource,
    RunVersion,
    Scan,
    TableFile,
    UnreadableRun,
)
from tracewarehouse.storage.results import RECORDED, Recorded, request_hash, same_rows, write_result
from tracewarehouse.storage.store import Store
from tracewarehouse.storage.versions import Versions

__all__ = [
    "KEEP_VERSIONS_S",
    "RECORDED",
    "TARGET_BYTES",
    "Brief",
    "Changes",
    "CleanReport",
    "Compacted",
    "Expired",
    "Intent",
    "Json",
    "Outcome",
    "Problem",
    "Published",
    "Rank",
    "RankSource",
    "Recorded",
    "RunVersion",
    "Scan",
    "Staged",
    "StagedTable",
    "Store",
    "TableFile",
    "UnreadableRun",
    "Versions",
    "PendingSource",
    "acknowledgement_key",
    "check_labels",
    "disk_error",
    "disk_errors",
    "parse_reference",
    "request_hash",
    "run_key",
    "run_name",
    "uid",
    "same_rows",
    "write_result",
]
