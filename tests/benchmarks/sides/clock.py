"""Times a call in the process of a side; it only needs Python, so that a peer's Python can import it."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any


def timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall seconds, CPU seconds of this process with its threads and ended children, and its result."""
    before, started = cpu_s(), perf_counter()
    given = call()
    return perf_counter() - started, cpu_s() - before, given


def cpu_s() -> float:
    """User and system time so far."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def serve(sides: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """Runs the requested side, and prints seconds, CPU seconds and result as the last line."""
    request = json.loads(sys.argv[1])
    print(json.dumps(sides[request.pop("do")](**request), default=plain), flush=True)


def measurement(taken: tuple[float, float, Any], answer: Any) -> dict[str, Any]:
    """A measured call as printed."""
    return {"seconds": taken[0], "cpu_s": taken[1], "answer": answer}


def plain(value: Any) -> Any:
    """JSON types for NumPy numbers and sets."""
    return value.item() if hasattr(value, "item") else list(value)
