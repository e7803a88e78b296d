"""Removal of runs that match conditions on name, labels and age."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tracewarehouse.durations import age_ns
from tracewarehouse.errors import ParamError
from tracewarehouse.runs.selection import SelectedRun, run_attributes
from tracewarehouse.runs.selectors import parse_labels
from tracewarehouse.storage import Store


@dataclass(frozen=True)
class Removed:
    """A run that was removed, or would be; `clean` frees the bytes, recorded `results` are kept."""

    run: str
    ranks: int
    bytes: int
    results: int = 0


@dataclass(frozen=True)
class Removal:
    """What to remove: published runs, pending runs (name → ranks), and results kept of removed runs."""

    published: tuple[SelectedRun, ...]
    pending: Mapping[str, int]
    kept: tuple[str, ...]
    keep_results: bool = False

    def report(self, store: Store) -> tuple[Removed, ...]:
        """A line for each run."""
        versions = (each.version for each in self.published)
        results = store.results_of(versions) if self.keep_results else {}
        return (
            *(_removed(each, results.get(each.run, 0)) for each in self.published),
            *(Removed(run, ranks, 0) for run, ranks in self.pending.items()),
            *(Removed(run, 0, 0) for run in self.kept),
        )

    def apply(self, store: Store) -> None:
        """Removes the runs. Older versions stay readable until `clean`."""
        for run in (*(each.run for each in self.published), *self.pending):
            store.remove(run, self.keep_results)
        for run in self.kept:
            store.drop_kept(run)


def _removed(selected: SelectedRun, results: int) -> Removed:
    return Removed(selected.run, len(selected.version.ranks), selected.version.bytes, results)


def pending_runs(store: Store, names: Iterable[str]) -> dict[str, int]:
    """The runs with these names that are not published yet, with their numbers of ingested ranks."""
    wanted = set(names)
    waiting = store.pending_runs() if wanted else {}
    return {
        run: len({one.source.rank for one in waits})
        for run, waits in waiting.items()
        if run in wanted and not store.newest(run)
    }


def runs_with_kept_results(store: Store, names: Iterable[str]) -> tuple[str, ...]:
    """The runs with these names that were removed earlier and whose recorded results were kept."""
    names = tuple(dict.fromkeys(names))
    kept = {version.run for version in store.kept()} if names else set()
    return tuple(run for run in names if run in kept and not store.newest(run))


def parse_where(texts: Iterable[str]) -> dict[str, str]:
    """The labels of `label.K=V` texts. Raises ParamError for anything else."""
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
    """The runs that have all labels and are older; the age counts from the time that orders runs."""
    limit = None if older_than_ns is None else now_ns - older_than_ns
    return tuple(
        each
        for each in selected
        if labels.items() <= each.version.labels.items()
        and (limit is None or run_attributes(each.version).order[0] < limit)
    )
