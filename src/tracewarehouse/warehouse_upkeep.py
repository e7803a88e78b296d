"""The upkeep of a warehouse: checks, repairs, compaction, retention, and deleting what is not needed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from tracewarehouse.errors import ParamError
from tracewarehouse.storage import KEEP_VERSIONS_S, TARGET_BYTES, CleanReport, Compacted, Expired, Problem
from tracewarehouse.warehouse_writes import WarehouseWrites, writing

if TYPE_CHECKING:
    from tracewarehouse.warehouse_repair import RepairReport


class WarehouseUpkeep(WarehouseWrites):
    """The methods that check the stored files and keep them small: verify, repair, compact, retain, clean."""

    def verify(self, *, deep: bool = False) -> list[Problem]:
        """Problems of the stored files; `deep` downloads those of an object store to compare checksums."""
        from tracewarehouse.query.shell_file import NAME, fault

        what = fault(self.store.path(NAME))
        return [*self.store.verify(deep), *([Problem("", NAME, what)] if what else [])]

    @writing
    def repair(
        self,
        runs: str | Iterable[str] | None = None,
        *,
        source: str | PathLike[str] | Iterable[str | PathLike[str]] = (),
        dry_run: bool = False,
    ) -> RepairReport:
        """Repairs damaged runs (names; None: the entire warehouse); nothing is ever deleted.

        Versions are restored from receipts and manifests, tables from the stored events, recorded results
        are computed again. Ranks whose events are damaged are dropped, unless their trace is among the files
        and folders of `source`. Damaged objects are moved to `_tw/quarantine`. The report says what was
        restored and what is lost; `dry_run` changes nothing. Raises UnknownName.
        """
        from tracewarehouse.warehouse_repair import repair

        named = [runs] if isinstance(runs, str) else runs
        paths = [source] if isinstance(source, str | PathLike) else list(source)
        return repair(self, named, paths, dry_run)

    @writing
    def compact(
        self,
        runs: str | Iterable[str] | None = None,
        *,
        target_bytes: int = TARGET_BYTES,
        dry_run: bool = False,
    ) -> tuple[Compacted, ...]:
        """Writes small files of runs (None: all) as few files of about `target_bytes` with the same rows.

        Files of at least half that size stay, unless ranks in them were replaced. Recorded results stay
        valid. `clean` deletes the replaced files. Raises UnknownName, WarehouseError for a damaged file.
        """
        if target_bytes < 1:
            raise ParamError("target_bytes is not positive", "give the size of a file in bytes")
        wanted = [runs] if isinstance(runs, str) else list(runs or ())
        wanted = [self._unversioned(each, "a compaction") for each in wanted]
        selected = self._matching(wanted) if wanted else self.selected()
        names = dict.fromkeys(each.run for each in selected)
        return tuple(self.store.compact(run, target_bytes, dry_run) for run in names)

    @writing
    def retain(self, policy: str | PathLike[str], *, dry_run: bool = False) -> tuple[Expired, ...]:
        """Drops the tables that expired by a retention policy, a TOML file, from the runs.

        Analyses that read a dropped table skip its ranks; recorded results stay. Ingesting the same traces
        again restores them. Without `dry_run`, new versions are published; `clean` deletes the files.
        Raises ParamError for an invalid policy.
        """
        from tracewarehouse.runs.removal import expiring, read_policy

        rules, now = read_policy(Path(policy), self.catalog), datetime.now(UTC)
        found = {each.run: expiring(each.version, rules, now) for each in self.selected()}
        return tuple(self.store.expire(run, each, dry_run) for run, each in found.items() if each)

    @writing
    def clean(
        self,
        grace_s: float = 86_400.0,
        *,
        quarantine: bool = False,
        keep_versions_s: float = KEEP_VERSIONS_S,
    ) -> CleanReport:
        """Deletes files that no kept version needs and that are older than `grace_s` seconds.

        Versions that were replaced within `keep_versions_s` seconds are kept, unless a later one has the same
        rows. Runs with lost or damaged objects are skipped. `quarantine` also deletes what repairs took out.
        """
        return self.store.clean(grace_s, quarantine, keep_versions_s)
