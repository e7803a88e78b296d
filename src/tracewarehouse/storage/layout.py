"""Where things are, as keys relative to the root of a warehouse. No folder is named `key=value`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tracewarehouse.errors import ParamError
from tracewarehouse.storage.names import run_key

WAREHOUSE = "_tw/warehouse.json"
STAGING = "_tw/staging"
SOURCES = "_tw/sources"
WAITING = "_tw/waiting"
RUNS = "_tw/runs"
RECEIPTS = "_tw/receipts"
SHELL = "_tw/shell"
KEPT = "_tw/kept"
UNCONVERTED = "_tw/unconverted"
ACKNOWLEDGED = "_tw/acknowledged"
DATA = "data"
RESULTS = "results"
RECORDED = "_tw/recorded"
# What a folder may hold and still become a warehouse: a training job may have filled the inbox first.
OWN_NAMES = frozenset({"_tw", DATA, "inbox", RESULTS, "warehouse.duckdb", "lost+found"})

_VERSION = re.compile(r"v([0-9]{6,})\.parquet")
_RECEIPT = re.compile(r"v([0-9]{6,})\.json")
_TABLE = re.compile(r"[a-z][a-z0-9_]*")
_MANIFEST = re.compile(
    r"(?P<first>[0-9]{6,})-(?P<last>[0-9]{6,})-(?P<uid>[0-9a-f]+)-(?P<attempt>[0-9a-z]+)\.(?P<intent>now|push)\.json"
)


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


def recorded(name: str) -> str:
    """The list of what one recording wrote."""
    return f"{RECORDED}/{name}"


def version_number(name: str) -> int | None:
    """The number in a version's file name, None for any other file."""
    match = _VERSION.fullmatch(name)
    return int(match[1]) if match else None


def receipts(run: str) -> str:
    """The folder of a run's receipts."""
    return f"{RECEIPTS}/{run_key(run)}"


def receipt(run: str, number: int) -> str:
    """What was published as a version, written after it."""
    return f"{receipts(run)}/v{number:06d}.json"


def receipt_number(name: str) -> int | None:
    """The number in a receipt's file name, None for any other file."""
    match = _RECEIPT.fullmatch(name)
    return int(match[1]) if match else None


def kept(run: str) -> str:
    """The folder of the versions of a removed run whose recorded results are kept."""
    return f"{KEPT}/{run_key(run)}"


def kept_version(run: str, number: int) -> str:
    """The copy of a version that recorded results are of, though the run was removed."""
    return f"{kept(run)}/v{number:06d}.parquet"


def unconverted_of(run: str) -> str:
    """The folder of records of the ranks that could not be converted from format 1."""
    return f"{UNCONVERTED}/{run_key(run)}"


def unconverted(run: str, rank: int, name: str) -> str:
    """The record of one of them."""
    return f"{unconverted_of(run)}/{rank:06d}-{name}.json"


def results(analysis: str, version: int) -> str:
    """The folder of the recorded results of an analysis, a folder per run inside."""
    if not _TABLE.fullmatch(analysis):
        raise ValueError(f"not the name of an analysis: {analysis!r}")
    return f"{RESULTS}/{analysis}@{version}"


@dataclass(frozen=True)
class ManifestName:
    """What the name of a manifest says: its ranks, the hash of its members' uids, and the attempt."""

    first: int
    last: int
    uid: str
    attempt: str
    intent: str

    @property
    def text(self) -> str:
        """The name itself."""
        return f"{manifest_prefix(self.first, self.last, self.uid)}{self.attempt}.{self.intent}.json"

    @classmethod
    def parse(cls, name: str) -> ManifestName | None:
        """What a file name says, None for any other file."""
        found = _MANIFEST.fullmatch(name)
        if found is None:
            return None
        return cls(int(found["first"]), int(found["last"]), found["uid"], found["attempt"], found["intent"])


def manifest_prefix(first: int, last: int, uid: str) -> str:
    """How the names of all commits of just these sources begin."""
    return f"{first:06d}-{last:06d}-{uid}-"


def manifests(run: str) -> str:
    """The folder of a run's manifests: one for each commit of consecutive ranks."""
    return f"{SOURCES}/{run_key(run)}"


def manifest(run: str, name: str) -> str:
    """A manifest by its file name."""
    return f"{manifests(run)}/{name}"


def waiting(run: str) -> str:
    """The folder of markers of sources that wait for --expect-ranks."""
    return f"{WAITING}/{run_key(run)}"


def marker(run: str, rank: int, name: str) -> str:
    """The marker of one waiting source."""
    return f"{waiting(run)}/{rank:06d}-{name}.json"


def table_file(table: str, version: int, run: str, rank: int, name: str) -> str:
    """A Parquet file of a table; a packed one is named for its first rank.

    From version 2 on the name says the version: a source may hold two.
    """
    if not _TABLE.fullmatch(table):
        raise ValueError(f"not a table name: {table!r}")
    ending = "parquet" if version == 1 else f"v{version}.parquet"
    return f"{DATA}/{table}/{run_key(run)}/{rank:06d}-{name}.{ending}"
