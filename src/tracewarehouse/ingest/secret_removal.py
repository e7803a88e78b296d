"""Takes secrets out of stored runs: a clean version of each run, and old versions deleted.

A rank is built again from its own events with their texts redacted, as after an upgrade; its file is not
needed. Until old versions are purged, they are readable as RUN@vN.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.engines import LocalEngine, results_in_order
from tracewarehouse.errors import TwError, UnknownName
from tracewarehouse.formats.redact import Policy, Redactor, clean_name
from tracewarehouse.ingest import resources
from tracewarehouse.ingest.source_facts import redacted_by
from tracewarehouse.ingest.upgrade.rebuild import stored_files
from tracewarehouse.ingest.upgrade.stored_rank import READ, RebuildRank, StoredRank
from tracewarehouse.storage import (
    Changes,
    RankSource,
    RunVersion,
    Staged,
    Store,
    layout,
    run_catalog,
    run_key,
    run_name,
)
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

# Who removed a run, in the version that says so.
_PURGE: Final = f"{__version__} (purge of secrets)"
# Folders of `_tw` that have a folder for each run.
_FOLDERS: Final = (layout.RUNS, layout.RECEIPTS, layout.SOURCES, layout.KEPT)


@dataclass(frozen=True)
class CleanRows:
    """Rows of a table with every text redacted; can be sent to another process."""

    salt: bytes
    policy: Policy

    @cached_property
    def _redactor(self) -> Redactor:
        return Redactor(self.salt, self.policy)

    def __call__(self, table: str, rows: pa.Table) -> pa.Table:
        """The same columns; each distinct text is looked at once."""
        import pyarrow as pa

        columns = [self._clean_column(column) for column in rows.columns]
        return pa.Table.from_arrays(columns, names=rows.column_names)

    def _clean_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        import pyarrow as pa

        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if isinstance(column.type, pa.BaseExtensionType):  # JSON
            chunks = [self._clean(chunk.storage) for chunk in column.chunks]
            wrapped = [pa.ExtensionArray.from_storage(column.type, chunk) for chunk in chunks]
            return pa.chunked_array(wrapped, column.type)
        if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
            return column
        return pa.chunked_array([self._clean(chunk) for chunk in column.chunks], column.type)

    def _clean(self, texts: pa.Array) -> pa.Array:
        import pyarrow as pa

        encoded = texts.dictionary_encode()
        distinct = encoded.dictionary.cast(pa.string())
        places = self._redactor.flagged(distinct)
        if not places:
            return texts
        clean = distinct.to_pylist()
        for at in places:
            clean[at] = self._redactor.clean(clean[at])[0]
        return pa.array(clean, texts.type).take(encoded.indices)


@dataclass(frozen=True)
class SecretRemoval:
    """Publishes clean versions of runs, by the rules under a policy."""

    store: Store
    catalog: Catalog
    policy: Policy

    @cached_property
    def _redactor(self) -> Redactor:
        return Redactor(self.store.salt, self.policy)

    def held_by_newest(self, run: str) -> frozenset[str]:
        """The keys of what the newest version of a run consists of; none for a run that was removed."""
        version = self.store.newest(run)
        if version is None:
            return frozenset()
        keys = {file.path for source in version.sources for file in source.files}
        keys |= {layout.manifest(run, source.manifest) for source in version.sources}
        numbers = layout.version(run, version.number), layout.receipt(run, version.number)
        return frozenset((*keys, *numbers))

    def redact(self, run: str) -> str:
        """Publishes a version of the run without secrets; its name, which changes if it held one itself.

        Raises UnknownName for a run that readers do not see, TwError where a rank cannot be built again; then
        nothing is published.
        """
        version = self.store.newest(run)
        if version is None:
            raise UnknownName("run", run, self.store.runs())
        name = run_name(clean_name(self._redactor, version.run))[0]
        labels = self._labels(version)
        with self.store.staging() as staging:
            ranks = self._ranks(version, name)
            tasks = [
                RebuildRank(rank, staging / str(number), self.catalog.folder)
                for number, rank in enumerate(ranks)
            ]
            sources = self.store.commit(_built(tasks)) if tasks else ()
        if name == version.run:
            self.store.publish(run, Changes(sources=sources, labels=labels, rebuilt=True))
        else:
            kept = {key: value for key, value in {**version.labels, **labels}.items() if value is not None}
            self.store.publish(name, Changes(sources=sources, labels=kept))
            self.store.remove(version.run)
        return name

    def _ranks(self, version: RunVersion, name: str) -> list[StoredRank]:
        headers = self.store.headers(version.sources)
        clean = CleanRows(self.store.salt, self.policy)
        return [
            StoredRank(
                replace(source, run=name, facts=self._facts(source)),
                self._redactor.text(headers.get(source.name, "{}"))[0],
                {table: stored_files(self.store, self.catalog, version, source, table) for table in READ}
                | self._derived(source),
                tuple(self._derived(source)),
                clean,
            )
            for source in version.sources
        ]

    def _derived(self, source: RankSource) -> dict[str, Any]:
        if not source.facts.get("derived"):
            return {}
        names = sorted(contract.name for contract in self.catalog.tables() if contract.derived)
        return {
            name: tuple(self.store.path(file.path) for file in source.files if file.table == name)
            for name in names
        }

    def _facts(self, source: RankSource) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self._redactor.text(json.dumps(dict(source.facts)))[0])
        file_name = clean_name(self._redactor, str(source.facts.get("source_name", "")))
        return facts | {"redaction": redacted_by(self.policy), "source_name": file_name}

    def _labels(self, version: RunVersion) -> dict[str, str | None]:
        """What changes of the labels."""
        clean: Mapping[str, str] = json.loads(self._redactor.text(json.dumps(dict(version.labels)))[0])
        gone: dict[str, str | None] = dict.fromkeys(version.labels.keys() - clean.keys())
        return gone | {key: value for key, value in clean.items() if version.labels.get(key) != value}

    def redact_reasons(self) -> int:
        """Redacts the reasons of acknowledged changes; how many there were."""
        changed = 0
        for fields in self.store.acknowledged():
            text, found = self._redactor.text(json.dumps({"reason": fields["why"]}))
            if found:
                key = layout.acknowledgement_key(fields["metric"], fields["run"], fields["source"])
                self.store.acknowledge(key, {**fields, "why": json.loads(text)["reason"]})
                changed += 1
        return changed

    def purge(self, runs: Iterable[str], former: Iterable[str] = ()) -> None:
        """Deletes all versions of the runs but the newest, and all that is left of `former` names.

        It also deletes what `clean` deletes without a grace period: no other process may write. Raises
        TwError for a run that has pending ranks.
        """
        for run in runs:
            self._purge_run(run)
        run_catalog.delete_all(self.store.objects)
        run_catalog.delete_copy(self.store.folder)
        self.store.clean(0.0)
        for name in former:
            self.store.objects.delete(list(self._left_of(run_key(name))))
        self.store.forget()

    def _purge_run(self, run: str) -> None:
        version = self._kept_by_purge(run)
        if version is None or len(self.store.versions(run)) < 2:
            return
        if self.store.pending(run):
            raise TwError(f"run {run} has pending ranks", "complete or remove it, then repeat")
        expected = version.expected_ranks
        announced = expected if expected is not None and len(version.ranks) >= expected else None
        # What comes before a removal is not kept by `clean`.
        if not self.store.head(run).tombstone:
            Store(self.store.objects, self.store.identity, tool=_PURGE).remove(run)
        self.store.publish(run, Changes(version.sources, labels=version.labels, expected_ranks=announced))

    def _kept_by_purge(self, run: str) -> RunVersion | None:
        """The newest version, also where a purge was killed after it removed the run."""
        head = self.store.head(run)
        was_killed = head.tombstone and head.tool == _PURGE
        return self.store.get(run, head.number - 1) if was_killed else self.store.newest(run)

    def _left_of(self, key: str) -> Iterator[str]:
        for folder in _FOLDERS:
            yield from (entry.key for entry in self.store.objects.walk(f"{folder}/{key}/"))


def _built(tasks: list[RebuildRank]) -> list[Staged]:
    with LocalEngine(resources.rebuild_jobs(task.rank.source.text_bytes for task in tasks)) as engine:
        return [result for result in results_in_order(engine, tasks) if isinstance(result, Staged)]


@dataclass(frozen=True)
class RemovalReport:
    """What was done, a line each, and what still has secrets, with what to do about it."""

    lines: tuple[str, ...]
    left: tuple[str, ...] = ()
