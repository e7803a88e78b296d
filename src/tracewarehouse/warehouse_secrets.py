"""Secrets in what is stored: finding them, and publishing versions without them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tracewarehouse.warehouse_upkeep import WarehouseUpkeep
from tracewarehouse.warehouse_writes import writing

if TYPE_CHECKING:
    from tracewarehouse.ingest.secrets import RemovalReport, SecretFound, SecretReport


class WarehouseSecrets(WarehouseUpkeep):
    """The methods that find and remove secrets."""

    def secrets(self, runs: str | Iterable[str] | None = None) -> SecretReport:
        """What looks like a secret in everything stored, or in what is stored of some runs (names).

        Columns, headers, manifests, versions, recorded results, `warehouse.duckdb`, paths and traces in the
        inbox are searched by the rules of redaction. Nothing is changed.
        """
        from tracewarehouse.formats.redact import POLICY_FILE, policy_of
        from tracewarehouse.ingest.secrets import scan_warehouse

        wanted = [runs] if isinstance(runs, str) else runs
        names = None if wanted is None else [self._unversioned(run, "a search") for run in wanted]
        return scan_warehouse(self.store, names, policy_of(self.store.folder_with(POLICY_FILE)))

    @writing
    def remove_secrets(
        self, runs: str | Iterable[str] | None = None, *, redact: bool = True, purge: bool = False
    ) -> RemovalReport:
        """Publishes clean versions of runs in which `secrets` finds some; `purge` deletes the old versions.

        Tables are built again from the stored events with secrets replaced; recorded results that held some
        are recorded again. Traces in the inbox stay as they are until they are ingested. With `purge`, no
        other process may write to the warehouse.
        """
        from tracewarehouse.formats.redact import POLICY_FILE, policy_of
        from tracewarehouse.ingest.inbox import INBOX
        from tracewarehouse.ingest.secrets import RemovalReport, SecretRemoval
        from tracewarehouse.present.render.text import plural
        from tracewarehouse.query.shell_file import NAME

        found = self.secrets(runs).found
        removal = SecretRemoval(self.store, self.catalog, policy_of(self.store.folder_with(POLICY_FILE)))
        lines: list[str] = []
        keys = {each.run for each in found if each.run and not each.file.startswith(f"{INBOX}/")}
        names, former = {key: self.store.spelling(key) for key in keys}, []
        for key, run in sorted(names.items()):
            files = {each.file for each in found if each.run == key}
            if redact and (files & removal.held_by_newest(run) or self._holds_secret_name(found, key)):
                names[key] = removal.redact(run)
                former += [run] if names[key] != run else []
                lines.append(f"{names[key]}: published without secrets")
        if redact:
            lines += self._record_without_secrets(found)
            reasons = removal.redact_reasons()
            lines += [f"{plural(reasons, 'acknowledgement reason')} redacted"] if reasons else []
        if purge and keys:
            removal.purge(sorted(set(names.values())), former)
            lines.append("old versions deleted")
        if lines and self.store.path(NAME).exists():
            self.refresh()
        left = self.secrets(runs).found
        return RemovalReport(tuple(lines), tuple(sorted({f"{each.file}: {each.where}" for each in left})))

    def _holds_secret_name(self, found: Iterable[SecretFound], key: str) -> bool:
        """Whether the name of a run that readers see is a secret itself."""
        is_named = any(each.run == key and each.where == "path" for each in found)
        return is_named and self.store.newest(key) is not None

    def _record_without_secrets(self, found: Iterable[SecretFound]) -> list[str]:
        """Deletes recorded results that hold secrets, and records them again."""
        files = sorted({each.file for each in found if each.file.startswith("results/")})
        folders = {file.rpartition("/")[0].replace("results/", "rollups/", 1) for file in files}
        for folder in sorted(folders):
            self.store.objects.delete([entry.key for entry in self.store.objects.walk(f"{folder}/")])
        self.store.objects.delete(files)
        analyses = sorted({file.split("/")[1] for file in files})
        runs = sorted({self.store.spelling(file.split("/")[2]) for file in files} & set(self.store.runs()))
        if analyses and runs:
            self.record(runs, analyses=analyses)
        return [f"{len(files)} recorded results redacted"] if files else []
