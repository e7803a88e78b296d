"""Objects that an earlier call stored: their URL and tag are those of then, so that they need no download.

A source of an object has the fact `source_object`: a hash of URL, size and tag, the number of sources in the
object, and what the object says about rank and world size. An object without it, or of another tag, is
downloaded, and found by the digest of its content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tracewarehouse.errors import DamagedRunError
from tracewarehouse.formats.base import Outcome, Part
from tracewarehouse.formats.registry import format_named
from tracewarehouse.ingest.naming.file_names import folder_run_name
from tracewarehouse.ingest.naming.header import number
from tracewarehouse.ingest.outcome import left_content
from tracewarehouse.ingest.plan import BuiltTables, Item, ReadSource
from tracewarehouse.ingest.remote_file import RemoteFile
from tracewarehouse.ingest.stored_sources import StoredSources
from tracewarehouse.ingest.survey import Candidate, SurveyedSource
from tracewarehouse.storage import Json, RankSource, layout

_FACT: Final = "source_object"


def object_fact(item: Item, salt: bytes, outcome: Outcome) -> dict[str, Json]:
    """The fact of a source that was read from an object; nothing for a file."""
    if item.remote is None:
        return {}
    found: dict[str, Json] = {"id": item.remote.object.identity(salt), "parts": item.remote.parts}
    found |= {"rank": outcome.rank, "world_size": outcome.world_size, "addition": item.part.addition}
    return {_FACT: found}


@dataclass(frozen=True)
class StoredObjects:
    """The stored sources of the objects of a call. `clean` returns a name without secrets."""

    stored: StoredSources
    copies: Path
    clean: Callable[[str], str]

    def sources(self, files: Sequence[Candidate], run: str | None) -> list[SurveyedSource]:
        """The sources of those objects that are stored completely and would be read the same now."""
        remote = [(file, file.remote) for file in files if file.remote]
        if not remote or self.stored.replace:
            return []
        known = self._by_object([file for file, _ in remote], run)
        salt = self.stored.store.salt
        return [
            _surveyed(file, RemoteFile.of(each, self.copies).of_parts(len(parts)), source)
            for file, each in remote
            for parts in [known.get(each.identity(salt), {})]
            for source in parts.values()
        ]

    def _by_object(self, files: Sequence[Candidate], run: str | None) -> dict[str, dict[str, RankSource]]:
        """Hash of an object → the sources by part; only of objects of which every part is stored."""
        found: dict[str, dict[str, RankSource]] = {}
        for key in self._runs(files, run):
            for source in self._sources(key):
                identity = _fact(source).get("id")
                if isinstance(identity, str):
                    found.setdefault(identity, {}).setdefault(source.part, source)
        return {
            identity: parts
            for identity, parts in found.items()
            if all(_fact(source).get("parts") == len(parts) for source in parts.values())
            and all(self.stored.is_reusable(source) for source in parts.values())
        }

    def _sources(self, run: str) -> Iterator[RankSource]:
        """The published sources of a run, then the unpublished ones."""
        try:
            version = self.stored.store.newest(run)
        except DamagedRunError:
            return
        yield from version.sources if version else ()
        yield from self.stored.unpublished_of(run)

    def _runs(self, files: Sequence[Candidate], run: str | None) -> list[str]:
        """The keys of the runs that the files may belong to, by the names of their folders."""
        names = {run} if run is not None else {file.path.parent.name for file in files}
        texts = {re.escape(folder_run_name(self.clean(name)).lower()) for name in names}
        pattern = re.compile(rf"(?:^|\.)(?:{'|'.join(sorted(texts))})(?:$|[.~])")
        store = self.stored.store
        keys = {*store.keys(layout.RUNS), *store.keys(layout.SOURCES)}
        return sorted(key for key in keys if pattern.search(key))


def read_before(number_: int, source: SurveyedSource, published: bool) -> ReadSource:
    """The report of a source as an earlier call read it."""
    stored = source.stored
    assert stored is not None
    said = _fact(stored)
    start, end = stored.facts.get("start_ns"), stored.facts.get("end_ns")
    window = (start, end) if isinstance(start, int) and isinstance(end, int) else (None, None)
    return ReadSource(
        number_,
        stored.digest,
        stored.status,
        stored.text_bytes,
        number(said.get("rank")),
        number(said.get("world_size")),
        window,
        known=True,
        content=None if published else left_content(stored),
        built_tables=None if published else BuiltTables(stored.run, stored.rank, stored.uid, stored.manifest),
    )


def _surveyed(file: Candidate, remote: RemoteFile, source: RankSource) -> SurveyedSource:
    format_ = format_named(source.format)
    assert format_ is not None
    said = _fact(source)
    rank, world_size = number(said.get("rank")), number(said.get("world_size"))
    part = Part(source.part, rank, world_size, addition=str(said.get("addition") or ""))
    return SurveyedSource(file.path, file.stamp, format_, part, source.text_bytes, file.note, remote, source)


def _fact(source: RankSource) -> Mapping[str, Json]:
    found = source.facts.get(_FACT)
    return found if isinstance(found, dict) else {}
