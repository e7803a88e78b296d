"""Files for other tools: traces for Perfetto, and a DuckDB file for shells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewarehouse import hints
from tracewarehouse.errors import ParamError, UnknownName, WarehouseError
from tracewarehouse.exact_text import rank_list
from tracewarehouse.storage.parquet_file import Level
from tracewarehouse.warehouse_base import WarehouseBase
from tracewarehouse.warehouse_secrets import WarehouseSecrets

if TYPE_CHECKING:
    from tracewarehouse.export import Exported, ExportRequest
    from tracewarehouse.export.delta import Publication
    from tracewarehouse.result import Result
    from tracewarehouse.runs.rows import Fetched


class WarehouseFiles(WarehouseSecrets):
    """The methods that return files for other tools."""

    def export_trace(
        self,
        run: str,
        rank: int | Iterable[int] | None = None,
        *,
        counters: str | Iterable[str] | None = None,
        overlays: str | Iterable[str] | None = None,
        start: int | str | None = None,
        end: int | str | None = None,
        step: int | None = None,
        around: str | None = None,
        margin: int | str | None = None,
        plain: bool = False,
    ) -> Exported:
        """A rank's trace as JSON text in chunks: its header, every event as in the file, then added events.

        Several ranks are merged into one trace, with clocks aligned where collectives allow it. `start` and
        `end` (`"1.2s"` since the first event, or a number as in the tables), `step` or `around` select a time
        range, with `margin` on both sides; slices that overlap it are complete. `around` is a rule of
        `check`: the range is its worst occurrence, in that rank. `counters` (`export.COUNTERS`) and
        `overlays` (`export.OVERLAYS`) add events and change none; time ranges have some unless `plain`. The
        rank is optional if the run has one rank. Raises UnknownName, ParamError.
        """
        from tracewarehouse.export import contracts_read, export, export_request, worst_occurrence
        from tracewarehouse.query.relations import dependencies
        from tracewarehouse.runs.readable import check_unexpired

        request = export_request(counters, overlays, start, end, step, around, margin, plain)
        all_ranks = self._one(run)
        part = all_ranks if rank is None else all_ranks.select(ranks=rank)
        findings = self._findings_to_draw(all_ranks, part, request)
        if rank is None and around is not None:
            part = all_ranks.select(ranks=worst_occurrence(around, findings, run)[0])
        (selected,) = part.selected()
        if rank is None and len(selected.ranks) != 1:
            hint = hints.fill("select one with {}: {}", hints.option("rank", "N"), rank_list(selected.ranks))
            raise ParamError(f"{selected.run} has several ranks", hint)
        read = dependencies(self.catalog, contracts_read(self.catalog, request))
        self.store.headers(rank.main for rank in selected.by_rank)  # raises if a manifest is damaged
        check_unexpired(read, [selected])
        (run_read,) = self._queryable(read, all_ranks.selected(), (), Level.FULL).selected
        return export(self.store, self.catalog, run_read, selected.ranks, request, findings)

    def _findings_to_draw(
        self, all_ranks: WarehouseBase, part: WarehouseBase, request: ExportRequest
    ) -> list[dict[str, Any]]:
        """The findings of the exported ranks; for `around`, from rules that ran on the entire run."""
        from tracewarehouse.findings import rules

        ranks = part.selected()[0].ranks
        if request.around is not None:
            known = [rule.name for rule in rules(self.catalog)]
            if request.around not in known:
                raise UnknownName("finding", request.around, known)
            return [row for row in all_ranks.check().rows() if row["rank"] in ranks]
        return part.check().rows() if request.draws_findings(len(ranks)) else []

    def files(self, run: str, table: str) -> Result:
        """The committed Parquet files of a table of a run: key, bytes, rows, ranks and SHA-256 of each.

        Keys are relative to the warehouse. `rows` and `ranks` are those that the version names in the file.
        Raises UnknownName.
        """
        from tracewarehouse.runs.rows import committed_files

        return committed_files(self._one(run).selected()[0], table)

    def fetch(self, runs: str | Iterable[str] | None = None, *, tables: str | Iterable[str] = ()) -> Fetched:
        """Downloads the files of runs (selectors; None: all selected) in an object store, and checks them.

        Questions about them then download nothing. Raises WarehouseError if they need more than
        TW_MIRROR_BYTES, DamagedRunError for a file that differs from its checksum, UnknownName.
        """
        from tracewarehouse.runs.rows import fetch_files

        part = self if runs is None else self.select(runs)
        wanted = (tables,) if isinstance(tables, str) else tuple(tables)
        return fetch_files(self.store, part.selected(), wanted)

    def publish_delta(
        self,
        destination: str | PathLike[str],
        runs: str | Iterable[str] | None = None,
        *,
        tables: Sequence[str] = (),
        on_run: Callable[[Publication], None] | None = None,
    ) -> tuple[Publication, ...]:
        """Copies tables of runs (None: all) to Delta tables below a folder or URL, each version exactly once.

        By default `kernels`, `steps`, `annotations`, `runs` and `ranks`. JSON and ENUM columns become text.
        `tw_published` is written last and lists the tables of each run. Rows of removed runs are deleted.
        Raises UnknownName, ParamError without the extra `delta`, WarehouseError.
        """
        from tracewarehouse.export import delta

        delta.check_installed()
        names = tuple(dict.fromkeys(tables)) or delta.DEFAULT_TABLES
        delta.check_tables(names, [each.name for each in self.catalog.tables() if not each.transient])
        wanted = None if runs is None else [runs] if isinstance(runs, str) else list(runs)
        removed = delta.removed_runs(self.store, wanted)
        gone = {name.lower() for name in removed}
        left = None if wanted is None else [name for name in wanted if name.lower() not in gone]
        selected = self.selected() if left is None else self._matching(left) if left else ()
        target = delta.DeltaTarget.at(destination, self.store.id)
        done = []
        for each in selected:
            done.append(delta.publish_run(target, each, self._with([each]), names))
            if on_run is not None:
                on_run(done[-1])
        found = (delta.unpublish_run(target, run, number, names) for run, number in removed.items())
        return (*done, *(each for each in found if each is not None))

    @contextmanager
    def shell_file(self, on_notice: Callable[[str], object] | None = None) -> Iterator[Path]:
        """A DuckDB file to open read-only: the updated `warehouse.duckdb`, or one over the selection.

        Damaged runs are left out, unless they were selected by name; `on_notice` gets a line about each.
        The latter is a temporary file, as is the former if the warehouse is not writable.
        """
        from tracewarehouse.query.shell_file import NAME, intact, is_current, write
        from tracewarehouse.runs.rows import damaged_runs
        from tracewarehouse.temp_folders import temporary_folder

        level = Level.FULL if self._level is Level.FULL else Level.SIZE
        readable = intact(self.store, self.catalog, self.selected(), level)
        if on_notice is not None:
            for notice in (*damaged_runs(self.left_out), *readable.notices):
                on_notice(notice)
        if self._selected is None:
            path = self.store.path(NAME)
            if is_current(path, self.store, self.catalog, readable.selected) or self._refreshed():
                yield path
                return
        with temporary_folder() as folder:
            path = folder / NAME
            write(path, self.store, self.catalog, readable.selected)
            yield path

    def _refreshed(self) -> bool:
        try:
            self.refresh()
        except (WarehouseError, OSError):
            return False
        return True
