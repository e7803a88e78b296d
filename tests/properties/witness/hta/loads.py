"""Where HTA's load ends with an error: the same steps on the file, in plain Python, end with the same."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

STRICT = "§2.7: one file that strict JSON or gzip refuses ends the load of all ranks"
TYPES = "trap 15: values of another type than expected end the load"
LIST = "§2.7: a list as the top level is refused"


def predicted(files: Iterable[Path]) -> tuple[str, str] | None:
    """The error that HTA ends with and why; None where its reader takes every file."""
    for path in files:
        try:
            top = _read(path)
        except Exception as error:
            return type(error).__name__, STRICT
        if isinstance(top, list):
            return "AttributeError", LIST
        found = _odd(top.get("traceEvents") or [])
        if found:
            return found
    return None


def _odd(events: list[Any]) -> tuple[str, str] | None:
    """What pandas makes of events that are none, and of times that are no numbers."""
    if any(event is None for event in events):
        return "AttributeError", TYPES
    times = [
        event[key] for event in events for key in ("ts", "dur") if isinstance(event, dict) and key in event
    ]
    if any(isinstance(time, str) for time in times):
        return "TypeError", TYPES
    if any(isinstance(time, float) and math.isinf(time) for time in times):
        return "OverflowError", TYPES
    return None


def _read(path: Path) -> Any:
    if path.name.endswith(".gz"):
        with gzip.open(path, "rb") as packed:
            return json.loads(packed.read())
    with path.open(encoding="utf-8") as plain:
        return json.loads(plain.read())
