"""Removal of runs by name, labels and age, and retention policies for tables of some ranks."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median_low
from typing import Any

from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import DamagedRunError, ExpressionError, ParamError, PartlyDone, TwError
from tracewarehouse.exact_text import age_ns
from tracewarehouse.runs.selection import SelectedRun, matching_runs, parse_labels
from tracewarehouse.storage.model import Json, PendingSource, RunVersion
from tracewarehouse.storage.store import Store

# Reports about the other tables, which also hold findings of the ingest.
_NEVER = frozenset({"data_quality"})
_RULE_KEYS = ("tables", "older_than", "keep")
_KEEP_KEYS = ("every", "outliers")


class Rule(Struct, frozen=True):
    """Tables that expire `age` after a rank was ingested.

    Ranks whose number is a multiple of `every` keep them (0: none), and the `outliers` ranks whose GPU time
    differs most from the median of their run.
    """

    number: int
    tables: tuple[str, ...]
    age: timedelta
    every: int = 0
    outliers: int = 0

    def keeps(self, version: RunVersion) -> frozenset[int]:
        """The ranks of a run that keep the tables."""
        multiples = (rank for rank in version.ranks if self.every and rank % self.every == 0)
        ranks = version.by_rank
        times = {rank.rank: ns for rank in ranks if isinstance(ns := rank.facts.get("gpu_ns"), int)}
        middle = median_low(times.values()) if times else 0
        order = sorted(times, key=lambda rank: (-abs(times[rank] - middle), rank))
        return frozenset((*multiples, *order[: self.outliers]))


def expiring(version: RunVersion, rules: Iterable[Rule], now: datetime) -> dict[int, dict[str, Json]]:
    """Rank → table → date and rule, for each table that the version holds and that expires now."""
    by_rank: dict[int, dict[str, Json]] = {}
    for rule in rules:
        keeping = rule.keeps(version)
        for source in version.sources:
            age = now - datetime.fromisoformat(source.committed_at)
            if source.rank in keeping or age < rule.age:
                continue
            for table in {file.table for file in source.files}.intersection(rule.tables):
                reason: Json = {"at": now.astimezone(UTC).date().isoformat(), "rule": rule.number}
                by_rank.setdefault(source.rank, {}).setdefault(table, reason)
    return by_rank


def read_policy(path: Path, catalog: Catalog) -> tuple[Rule, ...]:
    """The rules of a policy file. Raises ParamError that names the file and the line or key."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ParamError(f"{path}: {reason}", "name a retention policy, a TOML file") from error
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ParamError(f"{path}: {error}", "write TOML, such as [[rule]]") from error
    rules = fields.get("rule")
    if set(fields) - {"rule"} or not isinstance(rules, list) or not rules:
        unknown = next(iter(sorted(set(fields) - {"rule"})), None)
        problem = f"unknown key {unknown}" if unknown else "no rule"
        raise ParamError(f"{path}: {problem}", 'each rule begins with [[rule]] and has tables = ["events"]')
    return tuple(_rule(f"{path}: rule {n}", n, rule, catalog) for n, rule in enumerate(rules, 1))


def _rule(place: str, number: int, fields: Any, catalog: Catalog) -> Rule:
    _check_keys(place, fields, _RULE_KEYS)
    tables = fields.get("tables")
    # Stored tables; derived ones can be derived again instead.
    stored = (table for table in catalog.tables() if table.is_stored and not table.derived)
    names = sorted({table.name for table in stored} - _NEVER)
    if not isinstance(tables, list) or not tables or any(not isinstance(name, str) for name in tables):
        raise ParamError(f"{place}: tables is not a list of names", 'write tables = ["events", "flows"]')
    for table in tables:
        if table not in names:
            raise ParamError(f"{place}: tables: {table} cannot expire", f"these can: {', '.join(names)}")
    age = age_ns(older) if isinstance(older := fields.get("older_than"), str) else None
    if age is None:
        raise ParamError(f"{place}: older_than is not an age", 'write older_than = "7d", or 12h, 2w')
    keep = fields.get("keep", {})
    _check_keys(f"{place}: keep", keep, _KEEP_KEYS)
    counts = [keep.get(key, 0) for key in _KEEP_KEYS]
    for key, count in zip(_KEEP_KEYS, counts, strict=True):
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise ParamError(f"{place}: keep.{key} is not a number of ranks", f"write keep = {{ {key} = 8 }}")
    return Rule(number, tuple(tables), timedelta(microseconds=age // 1000), *counts)


def _check_keys(place: str, fields: Any, known: Sequence[str]) -> None:
    if not isinstance(fields, dict):
        raise ParamError(f"{place} is not a table", f"it has the keys {', '.join(known)}")
    if strange := sorted(set(fields) - set(known)):
        raise ParamError(f"{place}: unknown key {strange[0]}", f"known keys: {', '.join(known)}")


class Removed(Struct, frozen=True):
    """A run that was removed, or would be; `clean` frees the bytes, recorded `results` are kept."""

    run: str
    ranks: int
    bytes: int
    results: int = 0


def remove_runs(
    store: Store,
    within: Sequence[SelectedRun] | None,
    runs: Sequence[str],
    where: Iterable[str],
    older_than: str | timedelta | None,
    keep_results: bool,
    dry_run: bool,
) -> tuple[Removed, ...]:
    """Removes the runs that match all conditions, of those `within` (None: of all).

    At least one condition is required. Raises ParamError, UnknownName, DamagedRunError.
    """
    labels = parse_where(where)
    age_ns = None if older_than is None else parse_age_ns(older_than)
    if not runs and not labels and age_ns is None:
        raise ParamError("no runs specified", "specify runs, a label or an age to remove")
    pending = pending_runs(store, runs)
    with_results = () if keep_results else runs_with_kept_results(store, runs)
    damaged = damaged_runs(store, runs)
    others = [run for run in runs if run not in pending and run not in (*with_results, *damaged)]
    selected = matching_runs(store, within, others if runs else None)
    if damaged and (labels or age_ns is not None or keep_results):
        raise DamagedRunError(
            f"run {damaged[0]} is damaged: its labels, age and results cannot be read",
            hints.repair(damaged[0]),
        )
    versions = [run.version for run in matching(selected, labels, age_ns, time.time_ns())]
    results = store.results_of(versions) if keep_results else {}
    report = (
        *(Removed(run.run, len(run.ranks), run.bytes, results.get(run.run, 0)) for run in versions),
        *(Removed(run, ranks, 0) for run, ranks in pending.items()),
        *(Removed(run, 0, 0) for run in (*with_results, *damaged)),
    )
    if not dry_run:
        names = (*(version.run for version in versions), *pending)
        removals: list[tuple[str, Callable[[], object]]] = [
            (run, partial(store.remove, run, keep_results)) for run in names
        ]
        removals += [(run, partial(store.remove, run, False)) for run in damaged]
        removals += [(run, partial(store.drop_kept, run)) for run in with_results]
        _remove_all(removals)
    return report


def _remove_all(removals: Sequence[tuple[str, Callable[[], object]]]) -> None:
    """Raises PartlyDone if one fails after some runs were removed."""
    for number, (_, remove) in enumerate(removals):
        try:
            remove()
        except TwError as error:
            if not number:
                raise
            done, remaining = (
                ", ".join(run for run, _ in part) for part in (removals[:number], removals[number:])
            )
            raise PartlyDone(f"removed {done}, but not {remaining}: {error.message}", error.hint) from error


def pending_runs(store: Store, names: Iterable[str]) -> dict[str, int]:
    """The runs with these names that are not published yet, with their numbers of ingested ranks."""
    waiting = {run: _waiting(store, run) for run in dict.fromkeys(names)}
    counts = {run: len({rank.source.rank for rank in ranks}) for run, ranks in waiting.items()}
    return {run: ranks for run, ranks in counts.items() if ranks and not _is_published(store, run)}


def _waiting(store: Store, run: str) -> tuple[PendingSource, ...]:
    try:
        return store.pending(run)
    except TwError:  # a damaged run, or a selector
        return ()


def damaged_runs(store: Store, names: Iterable[str]) -> tuple[str, ...]:
    """The runs with these names whose newest version is damaged or lost."""
    damaged = []
    for name in dict.fromkeys(names):
        try:
            store.newest(name)
        except DamagedRunError:
            damaged.append(name)
        except TwError:
            continue
    return tuple(damaged)


def runs_with_kept_results(store: Store, names: Iterable[str]) -> tuple[str, ...]:
    """The runs with these names that were removed earlier and whose recorded results were kept."""
    names = tuple(dict.fromkeys(names))
    kept_runs = {version.run for version in store.kept()} if names else set()
    return tuple(run for run in names if run in kept_runs and not _is_published(store, run))


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
    age_in_ns = age_ns(age)
    if age_in_ns is None:
        raise ExpressionError(f"invalid age: {age or '(empty)'}", "write 90d, 12h, 30m or 2w")
    return age_in_ns


def matching(
    selected: Sequence[SelectedRun], labels: dict[str, str], older_than_ns: int | None, now_ns: int
) -> tuple[SelectedRun, ...]:
    """The runs that have all labels and are older; the age counts from the time that orders runs."""
    limit = None if older_than_ns is None else now_ns - older_than_ns
    return tuple(
        run
        for run in selected
        if labels.items() <= run.version.labels.items()
        and (limit is None or run.version.brief.order[0] < limit)
    )
