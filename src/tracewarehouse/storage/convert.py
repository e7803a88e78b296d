"""From format 1 to format 2: versions, markers, recorded results, and the mark of the warehouse last."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tracewarehouse import hints
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage import layout, publish, results, root, waiting
from tracewarehouse.storage.codec import FORMAT, OldVersion, encode_version
from tracewarehouse.storage.commit import footer_bytes, sha256
from tracewarehouse.storage.format1 import Format1, OldRun
from tracewarehouse.storage.local import disk_errors
from tracewarehouse.storage.model import Changes, RankSource, RunVersion, TableFile
from tracewarehouse.storage.results import RECORDED, Recorded
from tracewarehouse.storage.store import Store


class Conversion:
    """A warehouse of format 1 on its way: `store` commits to it as if it were of the new format already."""

    def __init__(self, folder: Path, identity: root.Identity, tool: str) -> None:
        self.identity = replace(identity, format=FORMAT)
        self.store = Store(folder, self.identity, tool)

    def is_published(self, run: str) -> bool:
        """Whether the newest version of a run is of the new format already."""
        try:
            return self.store.head(run).number > 0
        except OldVersion:
            return False

    def publish(self, old: RunVersion, sources: Sequence[RankSource]) -> None:
        """The next version of a run: what the newest one of format 1 says, over these sources.

        A run none of whose ranks could be converted is as if it were removed.
        """
        ordered = tuple(sorted(sources, key=lambda one: (one.rank, one.name)))
        version = replace(
            old, number=old.number + 1, sources=ordered, dropped=(), tombstone=old.tombstone or not ordered
        )
        with disk_errors(self.store.root):
            if publish.put(self.store, version, self.store.tool) is None and not self.is_published(old.run):
                raise WarehouseError(
                    f"{self.store.root}: run {old.run} was written while it was converted",
                    hints.fill("repeat {}", hints.call("upgrade")),
                )

    def wait(self, changes: Changes) -> None:
        """Marks sources as waiting for the other ranks of their run."""
        with disk_errors(self.store.root):
            waiting.mark(self.store.objects, changes)

    def finish(self, old: Format1, runs: Mapping[str, OldRun]) -> None:
        """Copies recorded results, converts the versions kept for them, and marks the warehouse last."""
        with disk_errors(self.store.root):
            sources = dict(self._kept(old))
            # By all sources, those that could not be converted too: results are not of the others alone.
            sources |= {(key, run.source): run.version.source for key, run in runs.items()}
            self._results(old, sources)
            self.store.objects.put({layout.WAREHOUSE: root.encode(self.identity)})

    def _kept(self, old: Format1) -> Iterator[tuple[tuple[str, str], str]]:
        """Writes the versions of removed runs anew; gives (run key, old source) and source of all of them."""
        for path, run in old.kept():
            key = path.relative_to(self.store.root).as_posix()
            self._results(old, {(path.parent.name, run.source): run.version.source})
            self.store.objects.put({key: encode_version(run.version)})
            yield (path.parent.name, run.source), run.version.source

    def _results(self, old: Format1, sources: Mapping[tuple[str, str], str]) -> None:
        """Every result of these versions at its new place, but those that an earlier call copied."""
        present = {recorded for recorded, _ in results.every(self.store.objects)}
        with self.store.staging() as folder:
            files: dict[Recorded, tuple[Path, str]] = {}
            for number, (recorded, path) in enumerate(old.recorded()):
                source = sources.get((recorded.run, recorded.source))
                new = replace(recorded, source=source) if source else None
                if new is not None and new not in present:
                    copy = folder / f"{number}.parquet"
                    _copy_result(path, copy, new)
                    files[new] = copy, sha256(copy)
            if files:
                results.keep(self.store.objects, files)


def _copy_result(path: Path, copy: Path, recorded: Recorded) -> None:
    """The rows of a recorded result, whose file says what it is of in the new way."""
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read(use_threads=False)
        metadata = dict(table.schema.metadata or {})
        said = json.loads(metadata.pop(RECORDED.encode()))
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise WarehouseError(
            f"{path}: damaged result: {error}", hints.fill("delete it and repeat; then {}", hints.record())
        ) from error
    more = {name: value for name, value in said.items() if name not in vars(recorded)}
    results.write_result(copy, recorded, table.replace_schema_metadata(None), metadata, more)


def with_footers(store: Store, files: Iterable[TableFile]) -> Iterator[TableFile]:
    """Files of format 1 that stay, with the size and the hash of their footers."""
    for file in files:
        footer = footer_bytes(store.path(file.path))
        yield replace(file, footer_bytes=len(footer), footer_sha256=hashlib.sha256(footer).hexdigest())
