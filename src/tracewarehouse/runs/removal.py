"""Which runs are to be taken out: by selector, by label, by age."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tracewarehouse.errors import ParamError
from tracewarehouse.runs.selection import SelectedRun, known
from tracewarehouse.runs.selectors import parse_labels

_AGE = re.compile(r"([0-9]{1,6})\s*(s|min|m|h|d|w)")
_UNITS = {"s": "seconds", "min": "minutes", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True)
class Removed:
    """A run that was taken out, or would be; bytes are freed by `clean`, recorded `results` are kept."""

    run: str
    ranks: int
    bytes: int
    results: int = 0


def parse_where(texts: Iterable[str]) -> dict[str, str]:
    """`label.K=V` texts as labels. Raises ParamError for anything else."""
    listed = list(texts)
    for text in listed:
        if not text.startswith("label.") or "=" not in text:
            raise ParamError(f"not a condition: {text or '(empty)'}", "write label.KEY=VALUE")
    return parse_labels(text.removeprefix("label.") for text in listed)


def parse_age(text: str | timedelta) -> timedelta:
    """`90d`, `12h`, `30m`, `2w` as a span of time. Raises ParamError."""
    if isinstance(text, timedelta):
        return text
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise ParamError(f"not an age: {text or '(empty)'}", "write 90d, 12h, 30m or 2w")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def matching(
    selected: Sequence[SelectedRun], labels: dict[str, str], older_than: timedelta | None, now_ns: int
) -> tuple[SelectedRun, ...]:
    """Those that have all the labels and are older than that; age counts as the order of runs does."""
    limit = None if older_than is None else now_ns - int(older_than.total_seconds()) * 10**9
    return tuple(
        each
        for each in selected
        if labels.items() <= each.version.labels.items()
        and (limit is None or known(each.version).when[0] < limit)
    )
