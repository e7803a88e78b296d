"""Parquet files and small manifests on a disk: what a warehouse is made of."""

from tracewarehouse.store.faults import disk_error, disk_errors
from tracewarehouse.store.model import (
    Brief,
    Changes,
    CleanReport,
    Json,
    Problem,
    Published,
    RunVersion,
    Scan,
    Staged,
    StagedTable,
    TableFile,
    Unit,
    Waiting,
)
from tracewarehouse.store.names import check_labels, parse_reference, run_key, run_name, uid
from tracewarehouse.store.results import RECORDED, Recorded, write_result
from tracewarehouse.store.store import Store

__all__ = [
    "RECORDED",
    "Brief",
    "Changes",
    "CleanReport",
    "Json",
    "Problem",
    "Published",
    "Recorded",
    "RunVersion",
    "Scan",
    "Staged",
    "StagedTable",
    "Store",
    "TableFile",
    "Unit",
    "Waiting",
    "check_labels",
    "disk_error",
    "disk_errors",
    "parse_reference",
    "run_key",
    "run_name",
    "uid",
    "write_result",
]
