"""Conversion from format 1: versions, markers, recorded results, and `_tw/warehouse.json` last."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tracewarehouse import hints
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage import copies, layout, markers, publish, renames, results, root
from tracewarehouse.storage.changes import Changes
from tracewarehouse.storage.codec import FORMAT, OldVersion, decode_version, encode_version
from tracewarehouse.storage.format1 import Format1, OldRun, is_old, source_hash
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.local import LocalObjects, disk_errors
from tracewarehouse.storage.model import RankSource, RunVersion
from tracewarehouse.storage.parquet_file import sha256
from tracewarehouse.storage.results import RECORDED, Recorded, request_hash
from tracewarehouse.storage.store import Store

# (analysis, version, the first digits of its effective hash)
Definition = tuple[str, int, str]

METADATA_KEY = b"tracewarehouse"  # contract and provenance in the Parquet file of a result
_IDENTITY = ("analysis", "version", "run", "effective", renames.REQUEST, "source")


@dataclass(frozen=True)
class CarriedOver:
    """Counts of recorded results and acknowledgements that were converted, and of obsolete ones.

    Obsolete ones are of contents that are no longer stored. `redefined` names analyses whose results keep
    their old definition, because their rows may differ now.
    """

    results: int
    obsolete_results: int
    redefined: tuple[str, ...]
    acknowledgements: int = 0
    obsolete_acknowledgements: int = 0


@dataclass(frozen=True)
class _Moved:
    """Old → new: (run key, source) of a version, definitions of analyses, (run key, request)."""

    sources: Mapping[tuple[str, str], str]
    definitions: Mapping[Definition, str]
    requests: Mapping[tuple[str, str], str]

    def result(self, old: Recorded) -> Recorded | None:
        """The identity of a result in format 2; None if its version of the run is no longer stored."""
        source = self.sources.get((old.run, old.source))
        if source is None:
            return None
        definition = self.definitions.get((old.analysis, old.version, old.effective), old.effective)
        request = self.requests.get((old.run, old.request), old.request)
        return replace(old, source=source, effective=definition, request=request)


class Conversion:
    """A warehouse during conversion: `store` commits to it in the new format."""

    def __init__(self, folder: Path, identity: root.Identity, tool: str) -> None:
        self.identity = replace(identity, format=FORMAT)
        self.store = Store(LocalObjects(folder), self.identity, tool)

    def is_published(self, run: str) -> bool:
        """Whether the newest version of a run has the new format."""
        try:
            return self.store.head(run).number > 0
        except OldVersion:
            return False

    def publish(self, old: RunVersion, sources: Sequence[RankSource]) -> None:
        """Publishes the newest version of format 1 of a run again, with these sources.

        A run without a convertible rank gets a tombstone.
        """
        ordered = tuple(sorted(sources, key=lambda one: (one.rank, one.name)))
        version = replace(
            old, number=old.number + 1, sources=ordered, dropped=(), tombstone=old.tombstone or not ordered
        )
        with disk_errors(self.store.folder):
            if publish.put(self.store, version, self.store.tool) is None and not self.is_published(old.run):
                raise WarehouseError(
                    f"{self.store.folder}: run {old.run} changed during the conversion",
                    hints.fill("run {} again", hints.call("upgrade")),
                )

    def wait(self, changes: Changes) -> None:
        """Marks sources as pending."""
        with disk_errors(self.store.folder):
            markers.mark(self.store.objects, changes)

    def finish(
        self,
        old: Format1,
        runs: Mapping[str, OldRun],
        definitions: Mapping[Definition, str],
        derived: Collection[str],
    ) -> CarriedOver:
        """Copies recorded results and acknowledgements under their new names, then changes the format.

        `definitions`: definition of an analysis in format 1 → its current definition, if the rows are equal
        except for names. `derived` names the derived tables.
        """
        with disk_errors(self.store.folder):
            kept = list(old.kept())
            # With the sources that could not be converted, because results cover them, too.
            sources = {(run_key(one.run), source_hash(one)): one.source for one in self._converted_kept()}
            sources |= {(path.parent.name, run.source): run.version.source for path, run in kept}
            sources |= {(key, run.source): run.version.source for key, run in runs.items()}
            moved = _Moved(sources, definitions, self._requests(runs, derived))
            carried = self._acknowledgements(moved, self._results(old, moved))
            for path, run in kept:
                key = path.relative_to(self.store.folder).as_posix()
                copies.put(self.store.objects, {key: encode_version(run.version)})
            self.store.objects.put({layout.WAREHOUSE: root.encode(self.identity)})
        return carried

    def _converted_kept(self) -> Iterator[RunVersion]:
        """Versions of removed runs that an earlier call converted."""
        for path in sorted((self.store.folder / layout.KEPT).glob("*/*.parquet")):
            if not is_old(path):
                yield decode_version(path.read_bytes(), str(path))

    def _requests(self, runs: Mapping[str, OldRun], derived: Collection[str]) -> dict[tuple[str, str], str]:
        """(run key, request in format 1) → request in format 2, for results of derived tables.

        Derived tables get new files with other checksums. No analysis of them has parameters.
        """
        found = {}
        for key, run in runs.items():
            new = self.store.newest(key)
            before = _derived_files(run.version, derived)
            if new is not None and before:
                found[key, request_hash({}, before)] = request_hash({}, _derived_files(new, derived))
        return found

    def _results(self, old: Format1, moved: _Moved) -> CarriedOver:
        """Copies every result of these versions unless an earlier call did."""
        present = {recorded for recorded, _ in results.every(self.store.objects)}
        count = obsolete = 0
        redefined: set[str] = set()
        with self.store.staging() as folder:
            files: dict[Recorded, tuple[Path, str]] = {}
            for number, (recorded, path) in enumerate(old.recorded()):
                new = moved.result(recorded)
                if new is None:
                    obsolete += 1
                    continue
                count += 1
                if new.effective == recorded.effective:
                    redefined.add(recorded.analysis)
                if new not in present:
                    copy = folder / f"{number}.parquet"
                    _copy_result(path, copy, new)
                    files[new] = copy, sha256(copy)
            if files:
                results.keep(self.store.objects, files)
        return CarriedOver(count, obsolete, tuple(sorted(redefined)))

    def _acknowledgements(self, moved: _Moved, carried: CarriedOver) -> CarriedOver:
        """Renames acknowledgements; those of versions that are no longer stored keep their names."""
        count = obsolete = 0
        todays = set(moved.sources.values())
        folder = self.store.folder / layout.ACKNOWLEDGED
        for path in sorted(folder.glob("*.json")):
            fields = json.loads(path.read_bytes())
            fields.pop("checksum", None)
            source = moved.sources.get((run_key(fields["run"]), fields["source"]))
            is_current = source is not None or fields["source"] in todays
            count, obsolete = count + is_current, obsolete + (not is_current)
            new = fields
            if source is not None:
                new = {**fields, "metric": renames.renamed_metric(fields["metric"]), "source": source}
            self.store.acknowledge(_key(new), new)
            if _key(new) != path.stem:
                self.store.forget_acknowledged(path.stem)
        return replace(carried, acknowledgements=count, obsolete_acknowledgements=obsolete)


def _key(acknowledged: Mapping[str, str]) -> str:
    return layout.acknowledgement_key(acknowledged["metric"], acknowledged["run"], acknowledged["source"])


def _copy_result(path: Path, copy: Path, recorded: Recorded) -> None:
    """Writes the rows of a recorded result with its identity in format 2."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read(use_threads=False)
        metadata = dict(table.schema.metadata or {})
        fields = json.loads(metadata.pop(RECORDED.encode()))
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise WarehouseError(
            f"{path}: damaged result: {error}", hints.fill("delete it and retry; then {}", hints.record())
        ) from error
    more = {name: value for name, value in fields.items() if name not in _IDENTITY}
    if METADATA_KEY in metadata:
        provenance = json.loads(metadata[METADATA_KEY])
        provenance["contract"] = renames.renamed_contract(provenance["contract"])
        metadata[METADATA_KEY] = json.dumps(provenance).encode()
    rows = renames.renamed_rows(recorded.analysis, table.replace_schema_metadata(None))
    results.write_result(copy, recorded, rows, metadata, more)


def _derived_files(version: RunVersion, derived: Collection[str]) -> list[tuple[int, str, str]]:
    return [
        (source.rank, file.table, file.sha256)
        for source in version.sources
        for file in source.files
        if file.table in derived
    ]
