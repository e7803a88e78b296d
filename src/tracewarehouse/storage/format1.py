"""Warehouses of format 1, read by `tw upgrade` and `tw verify` only. Nothing here writes.

That format had one rank source per rank, called a unit, with its own manifest under `_tw/units`, the header
among its facts, and the version of its only reader instead of a format.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from tracewarehouse.errors import TwError, WarehouseError
from tracewarehouse.location import Location
from tracewarehouse.storage import layout, renames
from tracewarehouse.storage.codec import first_line
from tracewarehouse.storage.layout import run_key
from tracewarehouse.storage.local import disk_errors
from tracewarehouse.storage.model import Json, Problem, RankSource, RunVersion, Status, TableFile
from tracewarehouse.storage.parquet_file import sha256
from tracewarehouse.storage.results import Recorded
from tracewarehouse.storage.root import Identity, stored_format

NUMBER = 1

_HEAD = b"tracewarehouse.run"
_TIMELINE = "memory_timeline"
_DAMAGED = "restore the file from a backup, or remove the run with the release that wrote it"
_FOLDER = re.compile(r"([a-z][a-z0-9_]*)@([1-9][0-9]*)")
_RESULT = re.compile(r"([0-9a-f]{16})-([0-9a-f]{8})-([0-9a-f]{16})-([0-9a-f]{16})\.parquet")


@dataclass(frozen=True)
class OldRun:
    """A version of a run in format 1.

    Its sources are in the current form, without manifest, definitions and footers. `headers` are by rank;
    `source` is the hash of the content in recorded results of that format.
    """

    version: RunVersion
    headers: Mapping[int, str]
    source: str


@dataclass(frozen=True)
class OldPendingSource:
    """A source that waits for the other ranks of its run."""

    source: RankSource
    header: str
    expected_ranks: int
    replace: bool
    labels: Mapping[str, str | None] = field(default_factory=dict)


class Format1:
    """A warehouse of format 1."""

    def __init__(self, folder: Path) -> None:
        self.root = folder

    @classmethod
    def is_at(cls, place: Location) -> TypeGuard[Path]:
        """Whether this is a folder that holds a warehouse of this format."""
        return isinstance(place, Path) and stored_format(place) == NUMBER

    def identity(self) -> Identity:
        """The content of `_tw/warehouse.json`; raises WarehouseError if it is damaged."""
        path = self.root / layout.WAREHOUSE
        try:
            fields = json.loads(path.read_bytes())
            return Identity(**{name: fields[name] for name in Identity.__dataclass_fields__})
        except (ValueError, TypeError, KeyError) as error:
            raise WarehouseError(f"{path}: damaged: {error}", _DAMAGED) from error

    def runs(self) -> tuple[str, ...]:
        """The keys of all runs, published or pending."""
        found = {
            path.name for folder in (layout.RUNS, layout.UNITS) for path in (self.root / folder).glob("*")
        }
        return tuple(sorted(name for name in found if layout.is_run_key(name)))

    def numbers(self, run: str) -> tuple[int, ...]:
        """The numbers of the versions of a run, of both formats, ascending."""
        names = (path.name for path in (self.root / layout.RUNS / run).glob("*"))
        return tuple(sorted(number for name in names if (number := layout.version_number(name)) is not None))

    def newest(self, run: str) -> OldRun | None:
        """The newest version of format 1, which may be a tombstone; None if nothing was published."""
        for number in reversed(self.numbers(run)):
            path = self.root / layout.version(run, number)
            if is_old(path):
                return read_version(path)
        return None

    def kept(self) -> Iterator[tuple[Path, OldRun]]:
        """The versions of removed runs whose recorded results are kept, with their paths."""
        for path in sorted((self.root / layout.KEPT).glob("*/*.parquet")):
            if layout.is_run_key(path.parent.name) and is_old(path):
                yield path, read_version(path)

    def pending(self, run: str) -> Iterator[OldPendingSource]:
        """The pending sources of a run, by rank; not those that were published or dropped since."""
        settled = self._settled(run)
        for path in sorted((self.root / layout.UNITS / run / "waiting").glob("*.json")):
            rank, _, name = path.stem.partition("-")
            if name not in settled:
                fields = json.loads(path.read_bytes())
                source, header = self.unit(self.root / layout.UNITS / run / rank / f"{name}.json")
                labels = fields.get("labels", {})
                yield OldPendingSource(source, header, fields["expected_ranks"], fields["replace"], labels)

    def _settled(self, run: str) -> frozenset[str]:
        found: set[str] = set()
        for number in self.numbers(run):
            path = self.root / layout.version(run, number)
            if is_old(path):
                version = read_version(path).version
                found |= {source.name for source in version.sources} | set(version.dropped)
        return frozenset(found)

    def unit(self, path: Path) -> tuple[RankSource, str]:
        """The source of a manifest, and its header; raises WarehouseError if it is damaged or missing."""
        try:
            return _source(json.loads(path.read_bytes()))
        except FileNotFoundError as error:
            raise WarehouseError(f"{path}: manifest missing", _DAMAGED) from error
        except (ValueError, TypeError, KeyError) as error:
            raise WarehouseError(f"{path}: damaged manifest: {error}", _DAMAGED) from error

    def recorded(self) -> Iterator[tuple[Recorded, Path]]:
        """Every recorded result with its path."""
        for path in sorted((self.root / layout.RESULTS).glob("*/*/*.parquet")):
            folder, name = _FOLDER.fullmatch(path.parent.parent.name), _RESULT.fullmatch(path.name)
            if folder and name and layout.is_run_key(path.parent.name):
                yield Recorded(folder[1], int(folder[2]), path.parent.name, name[1], name[2], name[3]), path

    def verify(self) -> list[Problem]:
        """The problems of the files that this release can read."""
        with disk_errors(self.root):
            return [*self._versions(), *self._manifests(), *self._results()]

    def _versions(self) -> Iterator[Problem]:
        files: dict[str, tuple[str, TableFile]] = {}
        for run in self.runs():
            for number in self.numbers(run):
                path = self.root / layout.version(run, number)
                try:
                    sources = read_version(path).version.sources if is_old(path) else ()
                except TwError as error:
                    yield Problem(run, self._key(path), error.message)
                    continue
                files |= {file.path: (run, file) for source in sources for file in source.files}
        for key, (run, file) in sorted(files.items()):
            if (what := self.fault(key, file)) is not None:
                yield Problem(run, key, what)

    def _manifests(self) -> Iterator[Problem]:
        for path in sorted((self.root / layout.UNITS).glob("*/[0-9]*/*.json")):
            try:
                self.unit(path)
            except TwError as error:
                yield Problem(path.parent.parent.name, self._key(path), error.message)

    def _results(self) -> Iterator[Problem]:
        for recorded, path in self.recorded():
            if not path.stem.endswith(sha256(path)[:16]):
                yield Problem(recorded.run, self._key(path), "damaged result")

    def fault(self, key: str, file: TableFile) -> str | None:
        """The problem of a file of a table, None if it is unchanged."""
        path = self.root / key
        if not path.is_file():
            return "file missing"
        if path.stat().st_size != file.bytes:
            return f"{path.stat().st_size} bytes, {file.bytes} were written"
        return None if sha256(path) == file.sha256 else "checksum differs: the content changed"

    def files(self, source: RankSource) -> tuple[str, ...]:
        """The keys of all files of a source, its manifest first."""
        unit = f"{layout.UNITS}/{run_key(source.run)}/{source.rank:06d}/{source.name}.json"
        return unit, *(file.path for file in source.files)

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def is_old(path: Path) -> bool:
    """Whether a version has format 1; an unreadable one counts as format 1."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return "uid" in pq.read_schema(path).names
    except (pa.ArrowException, OSError):
        return True


def read_version(path: Path) -> OldRun:
    """A version of format 1; raises WarehouseError naming the path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read(use_threads=False)
        head = json.loads(table.schema.metadata[_HEAD])
        rows = [
            row | {name: json.loads(row[name]) for name in ("files", "facts")} for row in table.to_pylist()
        ]
        found = [_source(row) for row in rows]
        return OldRun(
            _version(head, [source for source, _ in found]),
            {source.rank: header for source, header in found},
            _hash([row["rank"], row["digest"], row["reader"]] for row in rows),
        )
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise WarehouseError(f"{path}: damaged version: {first_line(error)}", _DAMAGED) from error


def _version(head: Mapping[str, Any], sources: Iterable[RankSource]) -> RunVersion:
    return RunVersion(
        run=head["run"],
        number=head["number"],
        sources=_with_ranks(tuple(sources)),
        labels=head["labels"],
        expected_ranks=head["expected_ranks"],
        created_at=head["created_at"],
        tool=head["tool"],
        tombstone=head.get("tombstone", False),
        dropped=tuple(head.get("dropped", ())),
    )


def _with_ranks(sources: tuple[RankSource, ...]) -> tuple[RankSource, ...]:
    """The sources, with first and last rank of their files."""
    sharing: dict[str, list[int]] = {}
    for source in sources:
        for file in source.files:
            sharing.setdefault(file.path, []).append(source.rank)
    return tuple(
        replace(
            source,
            files=tuple(
                replace(file, first_rank=min(sharing[file.path]), last_rank=max(sharing[file.path]))
                for file in source.files
            ),
        )
        for source in sources
    )


def _source(row: Mapping[str, Any]) -> tuple[RankSource, str]:
    """A unit as a rank source, and its header."""
    facts: dict[str, Json] = renames.renamed_facts(row["facts"])
    header = facts.pop("header", None)
    text = header if isinstance(header, str) else json.dumps({} if header is None else header)
    files = tuple(
        TableFile(**file, footer_bytes=0, footer_sha256="", first_rank=row["rank"], last_rank=row["rank"])
        for file in row["files"]
    )
    same = ("run", "rank", "uid", "attempt", "digest", "text_bytes", "committed_at")
    source = RankSource(
        **{name: row[name] for name in same},
        status=_status(row["status"]),
        manifest="",
        part="",
        format=_TIMELINE if facts.get(_TIMELINE) is True else "kineto",
        format_version=row["reader"],
        definitions={},
        files=files,
        facts=facts | {"rank_in_file": _rank_in_file(text)},
    )
    return source, text


def _status(text: str) -> Status:
    return renames.STATUS.get(text, text)  # type: ignore[return-value]


def _rank_in_file(header: str) -> int | None:
    """The rank in the header, which format 1 looked up each time."""
    fields = json.loads(header) if '"distributedInfo"' in header else None
    info = fields.get("distributedInfo") if isinstance(fields, dict) else None
    rank = info.get("rank") if isinstance(info, dict) else None
    return rank if isinstance(rank, int) and not isinstance(rank, bool) else None


def source_hash(version: RunVersion) -> str:
    """The hash of this content of a run in recorded results of format 1."""
    return _hash([one.rank, one.digest, one.format_version] for one in version.sources)


def _hash(read: Iterable[list[object]]) -> str:
    return hashlib.sha256(json.dumps(list(read), separators=(",", ":")).encode()).hexdigest()[:16]
