"""Names of runs and numbers of ranks, from file names, folders and the header of a trace."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, Final

from msgspec import Struct

from tracewarehouse.formats.base import number, rank_number
from tracewarehouse.formats.json_text import members
from tracewarehouse.late_regex import late_regex
from tracewarehouse.storage.layout import MAX_RUN_NAME

_LEFT = r"(?<![A-Za-z0-9])"
_RIGHT = r"(?![A-Za-z0-9])"
_ENDINGS = late_regex(
    r"\.(?:gz|zst|json|jsonl|ndjson|csv|trace|pt|raw|chrome_trace|sqlite|sqlite3|db|rpd|pickle|pkl|pb|xplane|pftrace)$",
    re.IGNORECASE,
)
_RANKS = tuple(
    late_regex(_LEFT + pattern + _RIGHT, re.IGNORECASE)
    for pattern in (
        r"(?<!local[-_])(?:global[-_]?)?rank[-_.=]?(\d{1,6})(?:[-_]?of[-_]?(\d{1,6}))?",
        r"worker[-_.=]?(\d{1,6})(?:[-_]?of[-_]?(\d{1,6}))?",
        r"r(\d{1,6})of(\d{1,6})",
    )
)
_BARE_RANK = late_regex(r"r(\d{1,6})", re.IGNORECASE)
# Coordinates of parallelism, from the outermost: data, pipeline, context, sequence, expert, tensor.
COORDINATES = ("dp", "pp", "cp", "dcp", "sp", "ep", "tp", "local")
_COORDINATE = late_regex(
    _LEFT + r"(tp|pp|dp|ep|cp|dcp|sp|local[-_]?rank)[-_.=]?(\d{1,6})" + _RIGHT, re.IGNORECASE
)
# `ep3` alone may be an epoch: it counts only together with one of these.
_SURE_COORDINATES = frozenset({"tp", "pp", "dp", "local"})
_DATE = r"20\d\d([-_]?)[01]\d\1[0-3]\d"
_CLOCK = r"[0-2]\d([-_:.]?)[0-5]\d(?:\2[0-5]\d(?:[.,]\d{1,9})?)?Z?"
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_TIMES = tuple(
    late_regex(_LEFT + pattern + _RIGHT, re.IGNORECASE)
    for pattern in (
        rf"(?:{_MONTHS})[-_]\d{{1,2}}(?:[-_]\d\d){{3}}(?:\.\d{{1,9}})?",
        rf"{_DATE}(?:[-_T]?{_CLOCK})?",
        rf"{_DATE}[0-2]\d[0-5]\d[0-5]\d\d{{3,9}}",
        r"1\d{9}\.\d{1,9}",
        r"1(?:\d{18}|\d{15}|\d{12}|\d{9})",
    )
)
# The profiler's default name: host_pid.time.pt.trace.json
_HOST_PID = late_regex(r"(?P<process>(?P<host>.+)_\d{1,10})\.\d{9,19}")
# A dump of the flight recorder on several hosts: prefix_rank_host_rank
_HOST_RANK = late_regex(r"(?P<prefix>(?:.+[-_])?)rank_(?P<host>[^\d].*)_(?P<rank>\d{1,6})", re.IGNORECASE)
_PROCESS_OR_STEP = late_regex(_LEFT + r"(?:pid|step|iter(?:ation)?)[-_.=]?\d{1,10}" + _RIGHT, re.IGNORECASE)
_NODE = late_regex(_LEFT + r"(?:node|host)[-_.=]?\d{1,6}" + _RIGHT, re.IGNORECASE)
# Folders that say a rank, a node or an iteration of a job instead of its name.
_PART_OF_JOB = late_regex(r"node[-_.]?(?:\d.*|[a-z])?|(?:global[-_]?)?rank[-_.=]?\d{1,6}.*", re.IGNORECASE)
_WINDOW_OF_JOB = late_regex(r"(?:step|iter(?:ation)?)[-_.]?\d{1,9}|profile_traces", re.IGNORECASE)
# The folder of a profile of JAX, which has a file per host.
PROFILE_FOLDER: Final = late_regex(r"(?:^|/)plugins/profile/[^/]+$")
# The fact that files of one folder have in common.
SOURCE_FOLDER: Final = "source_folder"
# Words of file names that do not distinguish one job from another.
_GENERIC: Final = (
    "trace traces profile profiler profiling kineto torch pytorch pt chrome report result results output"
    " worker rank nsys ncu rocprof rocprofv rpd nccl comm lib et execution memory snapshot timeline flight"
    " recorder dump"
)


class NameParts(Struct, frozen=True):
    """The parts of a path.

    `stem` is the file name, without the time if it is a default name: a process may have several windows.
    `remainder` is the stem without rank, coordinates, host, process, time and step. `coordinates` are pairs
    such as ("tp", 3), `job` is the folder that may name the run, `place` the node, host or folder of a rank.
    """

    stem: str
    job: PurePath
    rank: int | None = None
    world_size: int | None = None
    coordinates: tuple[tuple[str, int], ...] = ()
    place: str = ""
    remainder: str = ""


def split_path(path: PurePath) -> NameParts:
    """Splits a path by the tokens that profilers, launchers and people use."""
    job, places = _job_folder(path.parent)
    whole = remainder = stem(path.name)
    if dump := _HOST_RANK.fullmatch(remainder):
        place = ".".join((*places, dump["host"]))
        return NameParts(whole, job, int(dump["rank"]), place=place, remainder=dump["prefix"].rstrip("-_"))
    if default := _HOST_PID.fullmatch(remainder):
        whole = default["process"]
    for pattern in _TIMES:
        remainder = _cut(remainder, pattern.search(remainder))
    rank, world_size, remainder = _take_rank(remainder)
    while token := _PROCESS_OR_STEP.search(remainder):
        remainder = _cut(remainder, token)
    coordinates = tuple((match[1].lower()[:5], int(match[2])) for match in _COORDINATE.finditer(remainder))
    if not any(kind in _SURE_COORDINATES for kind, _ in coordinates):
        coordinates = ()
    while coordinates and (match := _COORDINATE.search(remainder)):
        remainder = _cut(remainder, match)
    if PROFILE_FOLDER.search(path.parent.as_posix()):
        places, whole, remainder = [*places, whole], "", ""
    elif default and rank is None and not coordinates:
        places, remainder = [*places, default["host"]], ""
    elif node := _NODE.search(remainder):
        places, remainder = [*places, node[0]], _cut(remainder, node)
    if rank is None and not coordinates:
        rank = next((number for name in places if (number := _take_rank(name)[0]) is not None), None)
    return NameParts(whole, job, rank, world_size, coordinates, ".".join(places), remainder)


def is_distinctive(remainder: str, rank: int | None) -> bool:
    """Whether a remainder may name a run: by a word that is not generic, or a number that is not the rank."""
    generic = _GENERIC.split()
    words = re.findall(r"[^\W\d_]+|\d+", remainder.lower())
    return any(int(word) != rank if word.isdecimal() else word not in generic for word in words)


def folder_of(path: Path) -> Path:
    """The folder of a file, without `..`."""
    return path.parent.resolve() if ".." in path.parts else path.absolute().parent


def source_folder(path: Path, salt: bytes) -> str:
    """A hash that is equal for the files of one folder."""
    return hashlib.sha256(salt + os.fsencode(folder_of(path))).hexdigest()[:16]


def _job_folder(folder: PurePath) -> tuple[PurePath, list[str]]:
    """The folder that may name a job, and those below it of its nodes and ranks."""
    job, places = folder, list[str]()
    if PROFILE_FOLDER.search(folder.as_posix()):
        job = folder.parents[2]
    while (is_part := _PART_OF_JOB.fullmatch(job.name)) or _WINDOW_OF_JOB.fullmatch(job.name):
        places[:0] = [job.name] if is_part else []
        job = job.parent
    return (job, places) if job.name else (folder, [])


def folder_run_name(text: str) -> str:
    """A valid run name from names of folders and files; long ones end in a hash."""
    name = re.sub(r"[^A-Za-z0-9._+=~-]", "-", text).lstrip(".-")
    if not re.search(r"[A-Za-z0-9]", name):
        name = "run"
    if len(name) <= MAX_RUN_NAME:
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{name[: MAX_RUN_NAME - 9]}-{digest}"


def stem(name: str) -> str:
    """A file name without suffixes of traces, else without its only one."""
    if not _ENDINGS.search(name):
        return re.sub(r"(?<=[^.])\.[A-Za-z-]{1,10}$", "", name)
    while match := _ENDINGS.search(name):
        name = name[: match.start()]
    return name


def _take_rank(text: str) -> tuple[int | None, int | None, str]:
    for pattern in _RANKS:
        if match := pattern.search(text):
            return int(match[1]), int(match[2]) if match[2] else None, _cut(text, match)
    if match := _BARE_RANK.fullmatch(text):
        return int(match[1]), None, ""
    return None, None, text


def _cut(text: str, match: re.Match[str] | None) -> str:
    """The text without the match, its two ends joined by one of the separators around the match."""
    if match is None:
        return text
    left, right = text[: match.start()], text[match.end() :]
    bare_left, bare_right = left.rstrip("._- "), right.lstrip("._- ")
    if bare_left and bare_right:
        return f"{bare_left}{left[len(bare_left) :][:1] or right[:1]}{bare_right}"
    return bare_left or bare_right


# The rest of a longer text remains in the header.
_LONGEST_TEXT: Final = 4_096
_VERSION_KEYS = ("torch_version", "pytorch_version", "framework_version")
_HOST_KEYS = ("host_name", "hostname", "HOSTNAME")


def header_of(text: str) -> Mapping[str, Any]:
    """The header as a mapping; empty if there is none (a bare list) or it is not an object."""
    try:
        header = json.loads(text)
    except RecursionError:
        # The members that are not nested too deeply for the parser.
        readable: dict[str, Any] = {}
        for key, value in members(text) if text.startswith("{") else ():
            with suppress(RecursionError, ValueError):
                readable[key] = json.loads(value)
        return readable
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}


def header_facts(header: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of `ranks` that come from the header; None if it has no such entry."""
    info = _mapping(header.get("distributedInfo"))
    devices = _devices(header)
    groups = info.get("pg_config")
    names = [str(device["name"])[:_LONGEST_TEXT] for device in devices if device.get("name")]
    return {
        "world_size": world_size_of(header),
        "backend": _text(info.get("backend")),
        "process_groups": json.dumps(groups, ensure_ascii=False) if isinstance(groups, list) else None,
        "device_name": names[0] if names else None,
        "device_count": len(devices) if devices else None,
        "device_properties": any(device.get("name") and device.get("totalGlobalMem") for device in devices),
        "host": _first(header, _HOST_KEYS),
        "framework_version": _first(header, _VERSION_KEYS),
    }


def rank_in_stored_header(header: Mapping[str, Any]) -> int | None:
    """The rank in the trace; None if it is missing or invalid."""
    return rank_number(_mapping(header.get("distributedInfo")).get("rank"))


def rank_in_file(header: Mapping[str, Any]) -> int | None:
    """The rank as written in the trace, valid or not."""
    rank = _mapping(header.get("distributedInfo")).get("rank")
    return rank if isinstance(rank, int) and not isinstance(rank, bool) else None


def world_size_of(header: Mapping[str, Any]) -> int | None:
    """The world size in the trace."""
    return number(_mapping(header.get("distributedInfo")).get("world_size"))


def _devices(header: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The device table, called `computeProperties` in torch 1.8; empty tables are ignored."""
    for key in ("deviceProperties", "computeProperties"):
        devices = header.get(key)
        if isinstance(devices, list) and devices:
            return [device for device in devices if isinstance(device, dict)]
    return []


def _first(header: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first of these keys, searched level by level: some tools nest them in `metadata`."""
    level = [header]
    while level:
        for mapping in level:
            for key in keys:
                if text := _text(mapping.get(key)):
                    return text
        level = [value for mapping in level for value in mapping.values() if isinstance(value, dict)]
    return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value[:_LONGEST_TEXT] if isinstance(value, str) and value else None
