"""Keys of stored objects, relative to the root of a warehouse. No folder is named `key=value`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.errors import ParamError
from tracewarehouse.late_regex import late_regex

WAREHOUSE = "_tw/warehouse.json"
STAGING = "_tw/staging"
PROBE = "_tw/probe"
SOURCES = "_tw/sources"
WAITING = "_tw/waiting"
RUNS = "_tw/runs"
RECEIPTS = "_tw/receipts"
KEPT = "_tw/kept"
ACKNOWLEDGED = "_tw/acknowledged"
QUARANTINE = "_tw/quarantine"
CATALOG = "_tw/catalog"
LATEST = "_tw/catalog/latest.json"
DATA = "data"
RESULTS = "results"
ROLLUPS = "rollups"
RECORDED = "_tw/recorded"
# Names that a folder may hold and still become a warehouse: a training job may fill the inbox first.
OWN_NAMES = frozenset({"_tw", DATA, "inbox", RESULTS, ROLLUPS, "warehouse.duckdb", "lost+found"})

_VERSION = late_regex(r"v([0-9]{6,})\.parquet")
_RECEIPT = late_regex(r"v([0-9]{6,})\.json")
_CATALOG = late_regex(r"([0-9]{6,})\.json\.gz")
_CLEANED = late_regex(r"cleaned-([0-9]{6,})\.json")
_TABLE = late_regex(r"[a-z][a-z0-9_]*")
_MANIFEST = late_regex(
    r"(?P<first>[0-9]{6,})-(?P<last>[0-9]{6,})-(?P<uid>[0-9a-f]+)-(?P<attempt>[0-9a-z]+)\.(?P<intent>now|push)\.json"
)


def is_run_key(name: str) -> bool:
    """Whether the name of a folder is a run key."""
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
    """The list of the results that one call recorded."""
    return f"{RECORDED}/{name}"


def version_number(name: str) -> int | None:
    """The number in a version's file name, None for any other file."""
    match = _VERSION.fullmatch(name)
    return int(match[1]) if match else None


def receipts(run: str) -> str:
    """The folder of a run's receipts."""
    return f"{RECEIPTS}/{run_key(run)}"


def receipt(run: str, number: int) -> str:
    """The receipt of a version, written after it."""
    return f"{receipts(run)}/v{number:06d}.json"


def receipt_number(name: str) -> int | None:
    """The number in a receipt's file name, None for any other file."""
    match = _RECEIPT.fullmatch(name)
    return int(match[1]) if match else None


def catalog(number: int) -> str:
    """A catalog of all runs."""
    return f"{CATALOG}/{number:06d}.json.gz"


def catalog_number(name: str) -> int | None:
    """The number in a catalog's file name, None for any other file."""
    match = _CATALOG.fullmatch(name)
    return int(match[1]) if match else None


def cleaned(run: str, number: int) -> str:
    """A record of versions that `clean` deletes, written before it does."""
    return f"{receipts(run)}/cleaned-{number:06d}.json"


def cleaned_number(name: str) -> int | None:
    """The number in the file name of a record of deleted versions, None for any other file."""
    match = _CLEANED.fullmatch(name)
    return int(match[1]) if match else None


def quarantine(run: str) -> str:
    """The folder of what a repair took out of a run, each object under its original key."""
    return f"{QUARANTINE}/{run_key(run)}"


def run_of(key: str) -> str | None:
    """The run key in the key of an object that belongs to one run, None for any other."""
    parts = key.split("/")
    return parts[2] if len(parts) > 3 and is_run_key(parts[2]) else None


def kept(run: str) -> str:
    """The folder of the versions of a removed run whose recorded results are kept."""
    return f"{KEPT}/{run_key(run)}"


def kept_version(run: str, number: int) -> str:
    """The copy of a version that recorded results are of, though the run was removed."""
    return f"{kept(run)}/v{number:06d}.parquet"


def acknowledgement_key(metric: str, run: str, source: str) -> str:
    """The name of the acknowledgement of a change of a metric at one content (`source`) of a run."""
    return hashlib.sha256(f"{metric}\n{run.lower()}\n{source}".encode()).hexdigest()[:16]


def results(analysis: str, version: int) -> str:
    """The folder of the recorded results of an analysis, with a folder per run."""
    if not _TABLE.fullmatch(analysis):
        raise ValueError(f"invalid analysis name: {analysis!r}")
    return f"{RESULTS}/{analysis}@{version}"


class ManifestName(Struct, frozen=True):
    """The parts of a manifest's name: its ranks, the hash of its members' uids, and the attempt."""

    first: int
    last: int
    uid: str
    attempt: str
    intent: str

    @property
    def text(self) -> str:
        """The file name."""
        return f"{manifest_prefix(self.first, self.last, self.uid)}{self.attempt}.{self.intent}.json"

    @classmethod
    def parse(cls, name: str) -> ManifestName | None:
        """The parts of a manifest's file name, None for any other file."""
        found = _MANIFEST.fullmatch(name)
        if found is None:
            return None
        return cls(int(found["first"]), int(found["last"]), found["uid"], found["attempt"], found["intent"])


def is_pushed(manifest: str) -> bool:
    """Whether a manifest, by its file name, is of a commit that a later seal publishes."""
    return manifest.endswith(".push.json")


def manifest_prefix(first: int, last: int, uid: str) -> str:
    """The prefix of the manifest names of all commits of exactly these sources."""
    return f"{first:06d}-{last:06d}-{uid}-"


def manifests(run: str) -> str:
    """The folder of a run's manifests, one per commit of consecutive ranks."""
    return f"{SOURCES}/{run_key(run)}"


def manifest(run: str, name: str) -> str:
    """A manifest by its file name."""
    return f"{manifests(run)}/{name}"


def waiting(run: str) -> str:
    """The folder of markers of sources that wait for `--expect-ranks`."""
    return f"{WAITING}/{run_key(run)}"


def marker(run: str, rank: int, name: str) -> str:
    """The marker of one pending source."""
    return f"{waiting(run)}/{rank:06d}-{name}.json"


def table_file(table: str, version: int, run: str, rank: int, name: str) -> str:
    """A Parquet file of a table; a packed one is named after its first rank.

    From version 2 on the name contains the version, because a source may hold two.
    """
    if not _TABLE.fullmatch(table):
        raise ValueError(f"invalid table name: {table!r}")
    ending = "parquet" if version == 1 else f"v{version}.parquet"
    return f"{DATA}/{table}/{run_key(run)}/{rank:06d}-{name}.{ending}"


MAX_RUN_NAME = 128
_ALLOWED = late_regex(r"[A-Za-z0-9._+=~-]")
_REFERENCE = late_regex(r"(?P<run>.+)@v(?P<number>[0-9]+)")


def run_name(text: str) -> tuple[str, bool]:
    """The run name derived from `text`, and whether it differs.

    A character outside `A-Z a-z 0-9 . _ + = ~ -` becomes `-`; leading `.` and `-` are removed.
    Raises ParamError if nothing remains or the name is longer than 128 characters.
    """
    name = "".join(char if _ALLOWED.match(char) else "-" for char in text).lstrip(".-")
    if not re.search(r"[A-Za-z0-9]", name):
        raise ParamError(
            f"{_shown(text)} is not a valid run name",
            hints.fill(
                "a run name is 1 to 128 letters, digits and . _ + = ~ -; set one with {}",
                hints.option("run", "NAME"),
            ),
        )
    if len(name) > MAX_RUN_NAME:
        raise ParamError(
            f"run name {_shown(text)} has {len(name)} characters; at most {MAX_RUN_NAME} are allowed",
            hints.fill("set a shorter one with {}", hints.option("run", "NAME")),
        )
    return name, name != text


def _shown(text: str) -> str:
    """The text quoted on one short line."""
    shown = repr(text)
    return shown if len(shown) <= 60 else f"{shown[:56]}…{shown[-1]}"


def check_labels(labels: Mapping[str, str | None]) -> dict[str, str | None]:
    """The labels unchanged; raises ParamError for an empty key, or a key or value that is not a string."""
    for key, value in labels.items():
        if not isinstance(key, str) or not key.strip():
            raise ParamError(f"label {key!r} has no name", "write a label as K=V, both text")
        if not isinstance(value, str | None):
            raise ParamError(f"label {key}: {value!r} is not a string", f"write it as text: {str(value)!r}")
    return dict(labels)


@lru_cache(maxsize=4096)
def run_key(run: str) -> str:
    """The folder name of a run: lower case, because run names are case-insensitive."""
    clean, changed = run_name(run)
    if changed:
        raise ParamError(f"{_shown(run)} is not a run name", f"a valid name is {clean}")
    return run.lower()


def parse_reference(text: str) -> tuple[str, int | None]:
    """`RUN@vN` as name and version number; the number is None without `@vN`."""
    match = _REFERENCE.fullmatch(text)
    return (match["run"], int(match["number"])) if match else (text, None)


def uid(
    digest: str,
    run: str,
    rank: int,
    *,
    part: str = "",
    format: str,
    format_version: int,
    definitions: Mapping[str, int],
    options: Mapping[str, object] | None = None,
) -> str:
    """16 hex digits that identify a source, its rank, and how it was read and built."""
    read = [digest, part, format, format_version, dict(definitions), run, rank, dict(options or {})]
    return _hash(read)


def group_uid(uids: Iterable[str]) -> str:
    """16 hex digits for the sources that are committed together, in order."""
    return _hash(list(uids))


def _hash(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
