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
# What the name of the staging folder of a running clean begins with.
CLEANING = "clean-"
PROBE = "_tw/probe"
COMMITS = "_tw/commits"
VERSIONS = "_tw/versions"
INDEX = "_tw/index"
ENTRIES = "_tw/index/runs"
WAITING = "_tw/index/waiting"
LIST = "_tw/index/list.json.gz"
# The list of many runs is in parts, by a hash of the run. Their number is part of the format.
PARTS = tuple(f"_tw/index/list-{number:02}.json.gz" for number in range(32))
LISTS = (LIST, *PARTS)
DATA = "data"
# The folder of the Delta log in the folder of a table; no run has this name.
DELTA_LOG = "_delta_log"
# The first commit of the log of `runs`: without it, the warehouse has no Delta logs.
DELTA = f"{DATA}/runs/{DELTA_LOG}/{0:020d}.json"
RESULTS = "results"
ACKNOWLEDGED = "results/acknowledged"
RECORDED = "results/recorded"
# The ending of the name of a damaged object that no version names.
ASIDE = ".damaged"
# Names that a folder may hold and still become a warehouse: a training job may fill the inbox first.
OWN_NAMES = frozenset({"_tw", DATA, "inbox", RESULTS, "warehouse.duckdb", "lost+found"})

_VERSION = late_regex(r"([0-9]{6,})\.json")
_TABLE = late_regex(r"[a-z][a-z0-9_]*")
_COMMIT = late_regex(
    r"(?P<first>[0-9]{6,})-(?P<last>[0-9]{6,})-(?P<uid>[0-9a-f]+)-(?P<attempt>[0-9a-z]+)(?P<waits>\.wait)?\.json"
)


def is_run_key(name: str) -> bool:
    """Whether the name of a folder is a run key."""
    return _NAME.fullmatch(name) is not None and name == name.lower()


def versions(run: str) -> str:
    """The folder of a run's versions."""
    return f"{VERSIONS}/{run_key(run)}"


def version(run: str, number: int) -> str:
    """The object that publishes a version."""
    return f"{versions(run)}/{number:06d}.json"


def version_list(run: str, number: int, uid: str) -> str:
    """The files and sources of a version of many files, written before it."""
    return f"{versions(run)}/{number:06d}-{uid}.parquet"


def version_number(name: str) -> int | None:
    """The number in a version's file name, None for any other file."""
    match = _VERSION.fullmatch(name)
    return int(match[1]) if match else None


def entry(run: str) -> str:
    """The index entry of a run: its newest version."""
    return f"{ENTRIES}/{run_key(run)}.json"


def list_part(run: str) -> str:
    """The part of the list of many runs that has a run."""
    return PARTS[hashlib.sha256(run_key(run).encode()).digest()[0] % len(PARTS)]


def waiting(run: str) -> str:
    """The mark of a run that may have waiting ranks."""
    return f"{WAITING}/{run_key(run)}.json"


def run_of(key: str) -> str | None:
    """The run key in the key of an object that belongs to one run, None for any other."""
    names = key.split("/")
    if key.startswith(f"{INDEX}/") and len(names) == 4:
        name = names[3].removesuffix(".json")
    else:
        name = names[2] if len(names) > 3 else ""
    return name if is_run_key(name) else None


def acknowledgement_key(metric: str, run: str, source: str) -> str:
    """The name of the acknowledgement of a change of a metric at one content (`source`) of a run."""
    return hashlib.sha256(f"{metric}\n{run.lower()}\n{source}".encode()).hexdigest()[:16]


def results(analysis: str, version: int) -> str:
    """The folder of the recorded results of an analysis, with a folder per run."""
    if not _TABLE.fullmatch(analysis):
        raise ValueError(f"invalid analysis name: {analysis!r}")
    return f"{RESULTS}/{analysis}@{version}"


class CommitName(Struct, frozen=True):
    """The parts of a commit's name: its ranks, the hash of its members' uids, the attempt.

    `waits`: the commit waits for other ranks of its run.
    """

    first: int
    last: int
    uid: str
    attempt: str
    waits: bool = False

    @property
    def text(self) -> str:
        """The file name."""
        ending = ".wait.json" if self.waits else ".json"
        return f"{commit_prefix(self.first, self.last, self.uid)}{self.attempt}{ending}"

    @classmethod
    def parse(cls, name: str) -> CommitName | None:
        """The parts of a commit's file name, None for any other file."""
        match = _COMMIT.fullmatch(name)
        if match is None:
            return None
        is_waiting = match["waits"] is not None
        return cls(int(match["first"]), int(match["last"]), match["uid"], match["attempt"], is_waiting)


def is_waiting(commit: str) -> bool:
    """Whether a commit, by its file name, waits for other ranks."""
    return commit.endswith(".wait.json")


def commit_prefix(first: int, last: int, uid: str) -> str:
    """The prefix of the names of all commits of exactly these sources."""
    return f"{first:06d}-{last:06d}-{uid}-"


def commits(run: str) -> str:
    """The folder of a run's commits, one per group of consecutive ranks."""
    return f"{COMMITS}/{run_key(run)}"


def commit(run: str, name: str) -> str:
    """A commit by its file name."""
    return f"{commits(run)}/{name}"


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
# A name that stays as it is: no other character, none of `.-` first, a letter or digit somewhere.
_NAME = late_regex(r"(?![.-]|(?i:_delta_log)$)(?=.*[A-Za-z0-9])[A-Za-z0-9._+=~-]{1,128}")
_REFERENCE = late_regex(r"(?P<run>.+)@v(?P<number>[0-9]+)")


def run_name(text: str) -> tuple[str, bool]:
    """The run name derived from `text`, and whether it differs.

    A character outside `A-Z a-z 0-9 . _ + = ~ -` becomes `-`; leading `.` and `-` are removed.
    Raises ParamError if nothing remains or the name is longer than 128 characters.
    """
    name = "".join(char if _ALLOWED.match(char) else "-" for char in text).lstrip(".-")
    name = name.lstrip("_") if name.lower() == DELTA_LOG else name
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
    quoted = repr(text)
    return quoted if len(quoted) <= 60 else f"{quoted[:56]}…{quoted[-1]}"


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
    if _NAME.fullmatch(run):
        return run.lower()
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
    identity = [digest, part, format, format_version, dict(definitions), run, rank, dict(options or {})]
    return _hash(identity)


def group_uid(uids: Iterable[str]) -> str:
    """16 hex digits for the sources that are committed together, in order."""
    return _hash(list(uids))


def _hash(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
