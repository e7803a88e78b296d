"""Names of runs, and the fingerprint of an ingested source. Pure: touches no disk."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from tracewarehouse.errors import ParamError

MAX_RUN_NAME = 128
_ALLOWED = re.compile(r"[A-Za-z0-9._+=~-]")
_REFERENCE = re.compile(r"(?P<run>.+)@v(?P<number>[0-9]+)")


def run_name(text: str) -> tuple[str, bool]:
    """The run name made of `text`, and whether it had to change.

    A character outside `A-Z a-z 0-9 . _ + = ~ -` becomes `-`; leading `.` and `-` go.
    Raises ParamError where nothing is left or the name is longer than 128 characters.
    """
    name = "".join(char if _ALLOWED.match(char) else "-" for char in text).lstrip(".-")
    if not re.search(r"[A-Za-z0-9]", name):
        raise ParamError(
            f"{_shown(text)} cannot name a run",
            "a run name is 1 to 128 letters, digits and . _ + = ~ -; give one with --run NAME",
        )
    if len(name) > MAX_RUN_NAME:
        raise ParamError(
            f"run name {_shown(text)} has {len(name)} characters, {MAX_RUN_NAME} are allowed",
            "give a shorter one with --run NAME",
        )
    return name, name != text


def _shown(text: str) -> str:
    """The text on one short line, whatever it holds."""
    shown = repr(text)
    return shown if len(shown) <= 60 else f"{shown[:56]}…{shown[-1]}"


def check_labels(labels: Mapping[str, str | None]) -> dict[str, str | None]:
    """The labels as they are; raises ParamError for an empty key, or a key or value that is no string."""
    for key, value in labels.items():
        if not isinstance(key, str) or not key.strip():
            raise ParamError(f"label {key!r} has no name", "a label is K=V, both of them text")
        if not isinstance(value, str | None):
            raise ParamError(f"label {key}: {value!r} is no string", f"write it as text: {str(value)!r}")
    return dict(labels)


def check_run_name(name: str) -> str:
    """The name itself; raises ParamError where it is not a run name as it stands."""
    clean, changed = run_name(name)
    if changed:
        raise ParamError(f"{_shown(name)} is not a run name", f"it could be {clean}")
    return name


@lru_cache(maxsize=4096)
def run_key(run: str) -> str:
    """The folder name of a run: lower case, for names are unique without regard to case."""
    return check_run_name(run).lower()


def parse_reference(text: str) -> tuple[str, int | None]:
    """`RUN@vN` as name and version number; the number is None where no `@vN` is given."""
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
    """16 hex digits that say which source, as which rank, was read and built how."""
    read = [digest, part, format, format_version, dict(definitions), run, rank, dict(options or {})]
    return _hash(read)


def group_uid(uids: Iterable[str]) -> str:
    """16 hex digits for the sources that are committed together, in their order."""
    return _hash(list(uids))


def _hash(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
