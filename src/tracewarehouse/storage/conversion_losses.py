"""Records of ranks that could not be converted from format 1, and whose old files are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tracewarehouse import hints
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage import layout
from tracewarehouse.storage.codec import sealed, unsealed
from tracewarehouse.storage.model import RunVersion
from tracewarehouse.storage.objects import Objects, names_in


@dataclass(frozen=True)
class UnconvertedRank:
    """A rank that could not be converted.

    `name` is the name of its commit in format 1, `source_name` and `digest` (sha256) identify its trace,
    `why` names the damaged file. `source` is the hash of all sources of the run, including this one, under
    which results are recorded ("" if the rank was pending). `version` is the number of the version that was
    published without it. `files` are the keys of its old files, which `tw clean` keeps.
    """

    run: str
    rank: int
    name: str
    source_name: str
    digest: str
    why: str
    source: str
    version: int
    files: tuple[str, ...]

    @property
    def key(self) -> str:
        """The key of the record."""
        return layout.unconverted(self.run, self.rank, self.name)

    @property
    def line(self) -> str:
        """A line that names the lost rank, the reason, and the trace to ingest again."""
        trace = f"ingest {self.source_name} again (sha256 {self.digest})"
        return f"run {self.run} rank {self.rank} is not converted: {self.why}; {trace}"


def put(objects: Objects, one: UnconvertedRank) -> None:
    """Writes the record, replacing an older one."""
    objects.put({one.key: sealed(vars(one))})


def every(objects: Objects, run: str) -> Iterator[UnconvertedRank]:
    """The records of a run; raises WarehouseError for a damaged one."""
    folder = layout.unconverted_of(run)
    for name in names_in(objects, folder):
        key = f"{folder}/{name}"
        try:
            fields: dict[str, Any] = unsealed(objects.get(key))
        except ValueError as error:
            raise WarehouseError(
                f"{objects.describe(key)}: damaged: {error}",
                hints.fill("delete it; {} then deletes the files it lists", hints.call("clean")),
            ) from error
        del fields["checksum"]
        yield UnconvertedRank(**fields | {"files": tuple(fields["files"])})


def is_settled(one: UnconvertedRank, history: Sequence[RunVersion]) -> bool:
    """Whether its old files are obsolete: its trace was ingested again, or its run was removed since."""
    later = [version for version in history if version.number > one.version]
    sources = (source for version in later for source in version.sources)
    return any(version.tombstone for version in later) or any(
        (source.rank, source.digest) == (one.rank, one.digest) for source in sources
    )
