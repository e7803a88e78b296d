"""Which runs are to be taken out: by selector, by label, by age."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tracewarehouse.durations import age_ns
from tracewarehouse.errors import ParamError
from tracewarehouse.runs.selection import SelectedRun, known
from tracewarehouse.runs.selectors import parse_labels


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


def parse_age_ns(age: str | timedelta) -> int:
    """`90d`, `12h`, `30m`, `2w` or a timedelta in ns. Raises ParamError."""
    if isinstance(age, timedelta):
        return age // timedelta(microseconds=1) * 1_000
    found = age_ns(age)
    if found is None:
        raise ParamError(f"invalid age: {age or '(empty)'}", "write 90d, 12h, 30m or 2w")
    return found


def matching(
    selected: Sequence[SelectedRun], labels: dict[str, str], older_than_ns: int | None, now_ns: int
) -> tuple[SelectedRun, ...]:
    """Those that have all the labels and are older than that; age counts as the order of runs does."""
    limit = None if older_than_ns is None else now_ns - older_than_ns
    return tuple(
        each
        for each in selected
        if labels.items() <= each.version.labels.items()
        and (limit is None or known(each.version).when[0] < limit)
    )
