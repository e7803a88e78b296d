"""Removal of runs that match conditions on name, labels and age."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from tracewarehouse.durations import age_ns
from tracewarehouse.errors import DamagedRunError, ExpressionError, PartlyDone, TwError
from tracewarehouse.runs.selection import SelectedRun, run_attributes
from tracewarehouse.runs.selectors import parse_labels
from tracewarehouse.storage import PendingSource, Store

_Act = Callable[[], object]


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
    damaged: tuple[str, ...] = ()

    def report(self, store: Store) -> tuple[Removed, ...]:
        """A line for each run."""
        versions = (each.version for each in self.published)
        results = store.results_of(versions) if self.keep_results else {}
        return (
            *(_removed(each, results.get(each.run, 0)) for each in self.published),
            *(Removed(run, ranks, 0) for run, ranks in self.pending.items()),
            *(Removed(run, 0, 0) for run in (*self.kept, *self.damaged)),
        )

    def apply(self, store: Store) -> None:
        """Removes the runs. Older versions stay readable until `clean`.

        Raises PartlyDone if it fails after some runs were removed.
        """
        published = [each.run for each in self.published]
        acts: list[tuple[str, _Act]] = [
            (run, partial(store.remove, run, self.keep_results)) for run in (*published, *self.pending)
        ]
        acts += [(run, partial(store.remove, run, False)) for run in self.damaged]
        acts += [(run, partial(store.drop_kept, run)) for run in self.kept]
        _one_by_one("removed", acts)


def _removed(selected: SelectedRun, results: int) -> Removed:
    return Removed(selected.run, len(selected.version.ranks), selected.version.bytes, results)


def pending_runs(store: Store, names: Iterable[str]) -> dict[str, int]:
    """The runs with these names that are not published yet, with their numbers of ingested ranks."""
    wanted = set(names)
    waiting = store.pending_runs() if wanted else {}
    waits = {run: waits for run, waits in waiting.items() if run in wanted}
    found = {
        run: len({one.source.rank for one in (*waits.get(run, ()), *_pushed(store, run))}) for run in wanted
    }
    return {run: ranks for run, ranks in found.items() if ranks and not _is_published(store, run)}


def _pushed(store: Store, run: str) -> tuple[PendingSource, ...]:
    try:
        return store.pushed(run)
    except TwError:  # a damaged run, or a selector
        return ()


def damaged_runs(store: Store, names: Iterable[str]) -> tuple[str, ...]:
    """The runs with these names whose newest version is damaged or lost."""
    found = []
    for name in dict.fromkeys(names):
        try:
            store.newest(name)
        except DamagedRunError:
            found.append(name)
        except TwError:
            continue
    return tuple(found)


def runs_with_kept_results(store: Store, names: Iterable[str]) -> tuple[str, ...]:
    """The runs with these names that were removed earlier and whose recorded results were kept."""
    names = tuple(dict.fromkeys(names))
    kept = {version.run for version in store.kept()} if names else set()
    return tuple(run for run in names if run in kept and not _is_published(store, run))


def _is_published(store: Store, run: str) -> bool:
    try:
        return store.newest(run) is not None
    except DamagedRunError:
        return True


def parse_where(texts: Iterable[str]) -> dict[str, str]:
    """The labels of `label.K=V` texts. Raises ExpressionError for anything else."""
    listed = list(texts)
    for text in listed:
        if not text.startswith("label.") or "=" not in text:
            raise ExpressionError(f"not a condition: {text or '(empty)'}", "write label.KEY=VALUE")
    return parse_labels(text.removeprefix("label.") for text in listed)


def parse_age_ns(age: str | timedelta) -> int:
    """`90d`, `12h`, `30m`, `2w` or a timedelta in ns. Raises ExpressionError."""
    if isinstance(age, timedelta):
        return age // timedelta(microseconds=1) * 1_000
    found = age_ns(age)
    if found is None:
        raise ExpressionError(f"invalid age: {age or '(empty)'}", "write 90d, 12h, 30m or 2w")
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


def _one_by_one(verb: str, acts: Iterable[tuple[str, _Act]]) -> None:
    """Acts on each run in order. Raises the error of the first run, PartlyDone once a run was changed."""
    done: list[str] = []
    todo = list(acts)
    for at, (run, act) in enumerate(todo):
        try:
            act()
        except TwError as error:
            if not done:
                raise
            left = ", ".join(name for name, _ in todo[at:])
            message = f"{verb} {', '.join(done)}, but not {left}: {error.message}"
            raise PartlyDone(message, error.hint) from error
        done.append(run)
