"""A worker's task: read sources, build their tables, write and commit them, and report what they hold.

A task has one large source or several small ones of one run. What fails or is stored already costs its own
source only; the others are committed together.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.engines import Failure, TaskProgress, attempt
from tracewarehouse.formats.base import ACTIVITIES, Outcome, Request
from tracewarehouse.formats.other_formats import UnsupportedFormatError
from tracewarehouse.ingest.content import content_of, lost_events, window
from tracewarehouse.ingest.facts import header_facts, header_of, rank_in_file
from tracewarehouse.ingest.memory import frugal, held, is_large
from tracewarehouse.ingest.naming import Assignment
from tracewarehouse.ingest.outcome import Content
from tracewarehouse.ingest.pages import no_huge_pages
from tracewarehouse.ingest.plan import Item, Place, Stored
from tracewarehouse.ingest.rank_files import RankFiles
from tracewarehouse.ingest.reports import Made, NotRead, Read, Report
from tracewarehouse.ingest.survey import mark
from tracewarehouse.storage import Json, RankSource, Staged, Store, disk_error, uid

if TYPE_CHECKING:
    import pyarrow as pa

    from tracewarehouse.contracts.contract import Contract
    from tracewarehouse.ingest.columns import Columns

    Tables: TypeAlias = Mapping[str, Columns | pa.Table]

# What `progress` reports in place of bytes read: all is read, and tables are built.
BUILDING: Final = -1
# Tables of less text are written in less time than a thread takes to start.
_WORTH_A_THREAD_BYTES: Final = 4 << 20
# In the folder of a task: what the driver commits when all files are known.
_STAGED: Final = "staged.pickle"


@dataclass(frozen=True)
class Settings:
    """What is the same for all tasks of a call; see Options.

    `root` is the warehouse, `sql` the folder of the contracts. `hold`: what is built is only staged; the
    driver commits it when all files are known. `lone`: the call has no other source. `keep_rank`: the rank of
    a place holds, whatever the source says itself. `started_at` counts as the time of ingest of all sources:
    the order of runs does not depend on which worker was faster.
    """

    root: Path
    sql: Path
    temp_dir: Path | None = None
    replace: bool = False
    settle_s: float = 0.0
    hold: bool = False
    lone: bool = False
    keep_rank: bool = False
    time_unit: Literal["us", "ns"] | None = None
    step_range: str | None = None
    started_at: str | None = None


@dataclass(frozen=True)
class BuildRanks:
    """Read the items, build the tables of those with a place, and commit them as one group."""

    items: tuple[Item, ...]
    folder: Path
    settings: Settings

    def run(self, progress: TaskProgress) -> tuple[Report, ...]:
        """A report per item. `progress(position, bytes)` reports how much text of an item is read."""
        store, catalog = Store.open(self.settings.root), Catalog.load(self.settings.sql)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            most = max((item.text_bytes for item in self.items), default=0)
            alone = len(self.items) == 1 and most >= _WORTH_A_THREAD_BYTES
            with (
                self._pages(),
                ExitStack() as opened,
                RankFiles(catalog, self.folder, alone, is_large(most)) as files,
            ):
                group = _Group(self.settings, self.folder, store, catalog, files, opened)
                for position, item in enumerate(self.items):
                    group.add(item, partial(progress, position))
                return group.finish()
        except OSError as error:
            raise disk_error(self.folder, error) from error

    def _pages(self) -> AbstractContextManager[None]:
        # A large file works on the same memory for long, which is what huge pages are for.
        is_short = not any(is_large(item.text_bytes) for item in self.items)
        return no_huge_pages() if is_short else nullcontext()

    def one_by_one(self) -> list[BuildRanks]:
        """A task for each item."""
        folders = (
            self.folder.with_name(f"{self.folder.name}-{position}") for position in range(len(self.items))
        )
        return [
            BuildRanks((one,), folder, self.settings) for one, folder in zip(self.items, folders, strict=True)
        ]


def definitions(catalog: Catalog) -> dict[str, int]:
    """The definition of every table that an ingest stores now."""
    return {contract.name: contract.definition or 0 for contract in _tables(catalog)}


def _tables(catalog: Catalog) -> Sequence[Contract]:
    from tracewarehouse.ingest.tables.build import stored_tables

    return stored_tables(catalog)


def commit_staged(store: Store, folder: Path) -> tuple[RankSource, ...]:
    """Commits what a task left for the driver's word."""
    return store.commit(pickle.loads((folder / _STAGED).read_bytes()))


@dataclass
class _Group:
    """The sources of a task, until those that gave tables are committed together."""

    settings: Settings
    folder: Path
    store: Store
    catalog: Catalog
    files: RankFiles
    # What is read from until all is written.
    opened: ExitStack
    reports: list[Report] = field(default_factory=list)
    # Position in `reports` → what is to be committed, but for its tables.
    built: dict[int, Staged] = field(default_factory=dict)

    @cached_property
    def stored(self) -> Stored:
        """What is stored already."""
        return Stored(
            self.store, definitions(self.catalog), self.settings.time_unit, self.settings.step_range
        )

    def add(self, item: Item, progress: Callable[[int], None]) -> None:
        """Reads one source, and builds its tables."""
        found = attempt(_Source(self, item, progress), _unheard)
        if isinstance(found, Failure):
            if item.place:
                self.files.drop(item.place.rank)
            # Half a file fails in many ways.
            changed = mark(item.path) != item.mark
            found = NotRead(item.number, "changed") if changed else NotRead(item.number, "failed", found)
        self.reports.append(found)  # type: ignore[arg-type]

    def finish(self) -> tuple[Report, ...]:
        """The reports, once what was built is committed or staged."""
        if self.built:
            run = next(iter(self.built.values())).run
            tables = self.files.staged(run)
            staged = [replace(one, tables=tables.get(one.rank, ())) for one in self.built.values()]
            made = self._staged(staged) if self.settings.hold else self._committed(staged)
            for position, one in zip(self.built, made, strict=True):
                report = self.reports[position]
                assert isinstance(report, Read)
                self.reports[position] = replace(report, made=one)
        return tuple(self.reports)

    def _committed(self, staged: Sequence[Staged]) -> list[Made]:
        sources = self.store.commit(staged)
        return [Made(one.run, one.rank, one.uid, one.manifest) for one in sources]

    def _staged(self, staged: Sequence[Staged]) -> list[Made]:
        (self.folder / _STAGED).write_bytes(pickle.dumps(list(staged)))
        return [Made(one.run, one.rank, one.uid, staged=self.folder) for one in staged]


def _unheard(_done: int, _total: int) -> None:
    """Progress goes its own way."""


@dataclass(frozen=True)
class _Source:
    """One source of a task; `run` raises what made it fail."""

    group: _Group
    item: Item
    progress: Callable[[int], None]
    # Bytes of text, as the format reported them.
    read_bytes: list[int] = field(default_factory=lambda: [0])

    def run(self, _: TaskProgress) -> Report:
        """Reads the source, and builds its tables where it has a place that it may take."""
        with frugal() if is_large(self.item.text_bytes) else nullcontext():
            return self._run()

    def _run(self) -> Report:
        item, settings = self.item, self.group.settings
        self.progress(0)
        if mark(item.path) != item.mark:
            return NotRead(item.number, "changed")
        try:
            source = item.format.open(item.path).read(item.part, self._request())
            tables = {name: self._read(name, reader) for name, reader in source.tables.items()}
            outcome = source.outcome()
            del source  # what the reader holds is not needed any more
        except UnsupportedFormatError as error:
            return NotRead(item.number, "other", kind=error.format)
        if mark(item.path) != item.mark or item.digest not in (None, outcome.digest):
            return NotRead(item.number, "changed")
        if _is_cut_short(outcome) and time.time() - item.mark[1] / 1e9 < settings.settle_s:
            return NotRead(item.number, "unfinished")
        return self._known(outcome) if not tables else self._report(tables, outcome)

    @property
    def _spill(self) -> Path:
        """Where temporary files are unlinked as soon as they are open."""
        return self.group.settings.temp_dir or self.group.folder

    def _request(self) -> Request:
        item, settings = self.item, self.group.settings
        return Request(
            salt=self.group.store.salt,
            spill=self._spill,
            progress=self._progress,
            known_digest=item.place.known_digest if item.place else None,
            time_unit=settings.time_unit,
        )

    def _progress(self, read_bytes: int) -> None:
        self.read_bytes[-1] = read_bytes
        self.progress(read_bytes)

    def _read(self, name: str, reader: pa.RecordBatchReader) -> Columns | pa.Table:
        # What was read so far is all of it, or nothing is known yet but the estimate.
        text_bytes = self.read_bytes[-1] or self.item.text_bytes
        return held(name, reader, text_bytes, self._spill, self.group.opened)

    def _known(self, outcome: Outcome) -> Read:
        """Content that is at the place already, published or left by a broken-off call."""
        item, place = self.item, self.item.place
        assert place is not None
        held, left = place.held, place.left
        if held and held.is_current:
            return Read(item.number, held.digest, held.status, held.text_bytes, known=True)
        assert left is not None
        made = Made(place.run, place.rank, left.uid, left.manifest)
        return Read(item.number, left.digest, left.status, outcome.text_bytes, known=True, made=made)

    def _report(self, tables: Tables, outcome: Outcome) -> Report:
        """What was read; its tables are built where it may take the place that it has, as far as is known."""
        read = Read(
            self.item.number,
            outcome.digest,
            outcome.status,
            outcome.text_bytes,
            outcome.rank,
            outcome.world_size,
            window(tables.get(ACTIVITIES)),
        )
        place = self._place(outcome)
        held = place.held if place else None
        if place is None:
            return read
        if held and held.digest == outcome.digest:
            if held.is_current:
                return replace(read, known=True)
        elif held and not held.gives_way(outcome.status, outcome.text_bytes, self.group.settings.replace):
            return read
        source = self._uid(place, outcome)
        if place.left and place.left.uid == source:
            return replace(read, made=Made(place.run, place.rank, source, place.left.manifest))
        return replace(read, content=self._build(tables, outcome, place, source))

    def _place(self, outcome: Outcome) -> Place | None:
        """The place as far as it is known now: a source that says another rank does not go there."""
        place, settings = self.item.place, self.group.settings
        if place is None or settings.keep_rank or outcome.rank in (None, place.rank):
            return place
        if not settings.lone:
            return None
        # There is no other source whose rank or name could matter.
        wanted = Assignment(self.item.path, place.run, outcome.rank, place.world_size)
        return self.group.stored.place(self.item.format, wanted)

    def _uid(self, place: Place, outcome: Outcome) -> str:
        settings = self.group.settings
        options = {"time_unit": settings.time_unit, "step_range": settings.step_range}
        return uid(
            outcome.digest,
            place.run,
            place.rank,
            part=self.item.part.name,
            format=self.item.format.name,
            format_version=self.item.format.version,
            definitions=self.group.stored.definitions,
            options={name: value for name, value in options.items() if value},
        )

    def _build(self, tables: Tables, outcome: Outcome, place: Place, source: str) -> Content:
        """Builds and hands over the tables of the rank; it is committed with the others of its group."""
        from tracewarehouse.ingest.rules import rules_of
        from tracewarehouse.ingest.tables.build import build

        group, item = self.group, self.item
        self.progress(BUILDING)
        built = build(
            tables,
            outcome,
            rules_of(group.settings.sql),
            partial(group.files.add, place.run, place.rank),
            group.settings.step_range,
        )
        facts = self._facts(built.facts, outcome, place)
        content = content_of(outcome, facts, built)
        # Kept for the notice on coverage that goes with every answer about launches.
        facts |= {
            "gpu_ns": content.gpu_ns,
            "launch_known_ns": content.launch_known_ns,
            "with_op_ns": content.with_op_ns,
        }
        group.built[len(group.reports)] = Staged(
            run=place.run,
            rank=place.rank,
            uid=source,
            digest=outcome.digest,
            text_bytes=outcome.text_bytes,
            format=item.format.name,
            format_version=item.format.version,
            definitions=group.stored.definitions,
            status=outcome.status,
            tables=(),
            part=item.part.name,
            facts=facts,
            header=outcome.header_json,
            committed_at=self.group.settings.started_at,
        )
        return content

    def _facts(self, built: Mapping[str, Json], outcome: Outcome, place: Place) -> dict[str, Json]:
        """The columns of `ranks`, but for those that the source itself carries."""
        header = header_of(outcome.header_json)
        facts: dict[str, Json] = header_facts(header) | {"rank_in_file": rank_in_file(header)}
        facts |= {**outcome.facts, **built}  # type: ignore[dict-item]
        if self.group.settings.time_unit is not None:
            facts["time_unit"] = self.group.settings.time_unit
        if self.group.settings.step_range is not None:
            facts["step_range"] = self.group.settings.step_range
        known = outcome.world_size if outcome.world_size is not None else facts["world_size"]
        return facts | {
            "world_size": known if known is not None else place.world_size,
            # A file name may hold any bytes; a table holds text.
            "source_name": os.fsencode(self.item.path.name).decode(errors="backslashreplace"),
            "source_bytes": outcome.stored_bytes,
            "status": outcome.status,
            "lost_bytes": sum(loss.byte_to - loss.byte_from for loss in outcome.losses),
            "lost_events": lost_events(outcome),
            "redacted": len(outcome.redactions),
            "tables": {contract.name: [contract.version] for contract in _tables(self.group.catalog)},
        }


def _is_cut_short(outcome: Outcome) -> bool:
    return any(loss.byte_to >= outcome.text_bytes for loss in outcome.losses)
