"""Parquet files and small manifests on a disk: what a warehouse is made of."""

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
    Changes,
    CleanReport,
    Intent,
    Json,
    Outcome,
    Problem,
    Published,
    Rank,
    RankSource,
    RunVersion,
    Scan,
    Staged,
    StagedTable,
    TableFile,
    Waiting,
)
from tracewarehouse.storage.results import RECORDED, Recorded, request_hash, same_rows, write_result
from tracewarehouse.storage.store import Store
from tracewarehouse.storage.versions import Versions

__all__ = [
    "RECORDED",
    "Brief",
    "Changes",
    "CleanReport",
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
    "Versions",
    "Waiting",
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
