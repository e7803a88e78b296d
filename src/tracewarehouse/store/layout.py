"""Where things are, as keys relative to the root of a warehouse. No folder is named `key=value`."""

from __future__ import annotations

import re

from tracewarehouse.errors import ParamError
from tracewarehouse.store.names import run_key

WAREHOUSE = "_tw/warehouse.json"
STAGING = "_tw/staging"
UNITS = "_tw/units"
RUNS = "_tw/runs"
SHELL = "_tw/shell"
KEPT = "_tw/kept"
ACKNOWLEDGED = "_tw/acknowledged"
DATA = "data"
RESULTS = "results"
# What a folder may hold and still become a warehouse: a training job may have filled the inbox first.
OWN_NAMES = frozenset({"_tw", DATA, "inbox", RESULTS, "warehouse.duckdb", "lost+found"})

_VERSION = re.compile(r"v([0-9]{6,})\.parquet")
_TABLE = re.compile(r"[a-z][a-z0-9_]*")


def is_run_key(name: str) -> bool:
    """Whether a folder's name is that of a run."""
    try:
        return run_key(name) == name
    except ParamError:
        return False


def versions(run: str) -> str:
    """The folder of a run's versions."""
    return f"{RUNS}/{run_key(run)}"


def version(run: str, number: int) -> str:
    """The object that publishes a version."""
    return f"{versions(run)}/v{number:06d}.parquet"


def kept(run: str) -> str:
    """The folder of the versions of a removed run whose recorded results are kept."""
    return f"{KEPT}/{run_key(run)}"


def kept_version(run: str, number: int) -> str:
    """The copy of a version that recorded results are of, though the run was removed."""
    return f"{kept(run)}/v{number:06d}.parquet"


def results(analysis: str, version: int) -> str:
    """The folder of the recorded results of an analysis, a folder per run inside."""
    if not _TABLE.fullmatch(analysis):
        raise ValueError(f"not the name of an analysis: {analysis!r}")
    return f"{RESULTS}/{analysis}@{version}"


def version_number(name: str) -> int | None:
    """The number in a version's file name, None for any other file."""
    match = _VERSION.fullmatch(name)
    return int(match[1]) if match else None


def manifests(run: str) -> str:
    """The folder of a run's unit manifests, a folder per rank inside."""
    return f"{UNITS}/{run_key(run)}"


def units(run: str, rank: int) -> str:
    """The folder of one rank's unit manifests."""
    return f"{manifests(run)}/{rank:06d}"


def unit(run: str, rank: int, name: str) -> str:
    """A unit's manifest; `name` is `<uid>-<attempt>`."""
    return f"{units(run, rank)}/{name}.json"


def waiting(run: str) -> str:
    """The folder of markers of units that wait for --expect-ranks."""
    return f"{manifests(run)}/waiting"


def marker(run: str, rank: int, name: str) -> str:
    """The marker of one waiting unit."""
    return f"{waiting(run)}/{rank:06d}-{name}.json"


def table_file(table: str, version: int, run: str, rank: int, name: str) -> str:
    """A Parquet file of a table; a packed one is named for its first rank.

    From version 2 on the name says the version: a unit may hold two.
    """
    if not _TABLE.fullmatch(table):
        raise ValueError(f"not a table name: {table!r}")
    ending = "parquet" if version == 1 else f"v{version}.parquet"
    return f"{DATA}/{table}/{run_key(run)}/{rank:06d}-{name}.{ending}"
