"""Golden files: a small synthetic trace, and the expected rows of a contract for it.

`tests/goldens/{analyses/<group>,views,tables,derived}/<name>.v<N>[.<case>].golden` tests the contract with
that name and version. It starts with comments, then sections, each a word at the start of a line with an
indented body: `trace` (the sketch language), `derive` (`critical_path`, then scopes like `steps=6` or
`annotations=forward#1`, by default the usual ones, of each run), `params` (`name=value` lines), `columns`
(for tables: the columns to show, in one line), `skipped` (`run_id,rank,reason` lines of skipped ranks),
`result` (CSV, empty = null). `pytest --update-golden` rewrites the last section. A deep test per
file checks that copies of all rows, as other runs and ranks, give copies of the result.
"""

from __future__ import annotations

import csv
import difflib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import sketch
from kept import Copy, Kept, KeptWarehouse
from tracewarehouse.storage.results import RecordedAnalysis

OTHER_RUN, OTHER_RANK = "~", 1000  # what copies add to runs and ranks
NOISE_RUN, NOISE_RANK = "?", 2000  # the same for copies with other names and times
SECTIONS = ("trace", "derive", "params", "columns", "skipped", "result")


class GoldenError(Exception):
    """A malformed golden file, or rows that differ from the expected ones."""


@dataclass(frozen=True)
class Golden:
    """A parsed golden file."""

    name: str
    version: int
    drawing: str
    sections: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Golden:
        """Parses a file; raises GoldenError for invalid sections."""
        name, version = path.name.split(".")[:2]
        text = path.read_text(encoding="utf-8")
        drawing, *found = split(text)
        sections = dict(found)
        unknown = set(sections) - set(SECTIONS)
        if unknown or "trace" not in sections or not found or found[-1][0] != "result":
            raise GoldenError(
                f"{path}: sections are {', '.join(SECTIONS)}; trace is required, and result as the last one"
            )
        return cls(name, int(version.removeprefix("v")), drawing[1], sections)

    def text(self, result: str) -> str:
        """The file with another result."""
        kept = {**self.sections, "result": result}
        parts = [f"{heading}\n{_indent(body)}" for heading, body in kept.items()]
        return self.drawing + "".join(parts)

    @property
    def drawn(self) -> tuple[str, str]:
        """The trace and the derivations, without comments and blank lines."""
        lines = self.sections["trace"].splitlines()
        kept = [line.strip() for line in lines if line.strip()[:1] not in ("", "#")]
        return "\n".join(kept), self.sections.get("derive", "")

    def params(self) -> dict[str, str]:
        """The parameters, as text."""
        lines = self.sections.get("params", "").splitlines()
        return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}

    def derivations(self) -> list[tuple[str, dict[str, Any]]]:
        """The derivations, each with its requested scopes."""
        found = []
        for line in self.sections.get("derive", "").splitlines():
            name, *scopes = shlex.split(line)
            pairs = [scope.partition("=")[::2] for scope in scopes]
            found.append((name, {key: int(value) if value.isdecimal() else value for key, value in pairs}))
        return found

    def columns(self) -> list[str]:
        """The columns to show; empty for all."""
        return [name.strip() for name in self.sections.get("columns", "").split(",") if name.strip()]


def split(text: str) -> list[tuple[str, str]]:
    """(heading, body) of each section; first ("", the comments above the sections)."""
    parts: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        if parts[-1][0] == "" and (not line or line.startswith("#")):
            parts[-1][1].append(line)
        elif line and not line[0].isspace():
            parts.append((line.strip(), []))
        else:
            parts[-1][1].append(line.removeprefix("  "))
    return [(heading, "".join(f"{line}\n" for line in body)) for heading, body in parts]


def _indent(body: str) -> str:
    return "".join(f"  {line}\n" if line else "\n" for line in body.splitlines())


class Drawn:
    """The traces of golden files, ingested with one call; run names start with a `mark` per trace.

    Files with the same trace and derivations share the ingested runs.
    """

    def __init__(self, paths: list[Path], folder: Path) -> None:
        import tracewarehouse as tw

        self.folder = folder
        self.warehouse = tw.open(folder / "warehouse")
        self.goldens = {path: Golden.read(path) for path in paths}
        self.failed: dict[str, Exception] = {}
        marks = {each.drawn: f"g{at}-" for at, each in enumerate(self.goldens.values())}
        self.marks = {path: marks[each.drawn] for path, each in self.goldens.items()}
        drawn = {self.marks[path]: each for path, each in self.goldens.items()}
        runs = {mark: self._drawings(mark, each) for mark, each in drawn.items()}
        stored = self.warehouse.ingest(*(file for files in runs.values() for file in files), jobs=1)
        # Without its trace a golden file would be rewritten without rows.
        refused = {Path(str(one.path)): one for one in stored.files if one.state == "refused"}
        for mark, files in runs.items():
            for one in (refused[file] for file in files if file in refused):
                self.failed[mark] = GoldenError(f"the trace was refused: {one.reason}\n{one.details or ''}")
        for mark, files in runs.items():
            derive(self.warehouse, drawn[mark], files)
        self.runs = self.warehouse.store.runs()

    def rows(self, path: Path) -> tuple[str, str]:
        """(result, skipped) of a golden file as CSV lines, from its ingested trace."""
        golden, contract = self.goldens[path], self._contract(path)
        mark = self.marks[path]
        result, skipped = answer(self._runs(mark), contract, golden)
        return result.replace(mark, ""), skipped.replace(mark, "")

    def check_copies(self, path: Path) -> None:
        """Raises GoldenError unless copies of all rows give copies of the result; tables have none."""
        golden, contract = self.goldens[path], self._contract(path)
        if contract.kind == "table" or contract.scope == "fleet":
            return
        wh = self._runs(self.marks[path])
        kept = Kept(copies=copies(contract))
        copied = KeptWarehouse(wh.root, catalog=wh.catalog, selected=wh.selected(), store=wh.store, kept=kept)
        result, _ = answer(copied, contract, golden)
        compare_copies(contract, golden, result.replace(self.marks[path], ""))

    def _runs(self, mark: str) -> Any:
        """The runs of a trace. Raises its error if it was invalid or refused."""
        if mark in self.failed:
            raise self.failed[mark]
        return self.warehouse.select(runs=[run for run in self.runs if run.startswith(mark)])

    def _contract(self, path: Path) -> Any:
        golden = self.goldens[path]
        return self.warehouse.catalog.get(golden.name, golden.version)

    def _drawings(self, mark: str, golden: Golden) -> list[Path]:
        lines = golden.sections["trace"].splitlines()
        drawn = [line if line.strip()[:1] in ("", "#") else f"{mark}{line.strip()}" for line in lines]
        try:
            return sketch.write("\n".join(drawn), self.folder / "traces")
        except sketch.SketchError as error:  # fails only the tests of this trace
            self.failed[mark] = error
            return []


def take(warehouse: Any, golden: Golden, paths: list[Path]) -> None:
    """Ingests the traces, each folder as a run, and computes the derivations."""
    warehouse.ingest(*paths)
    derive(warehouse, golden, paths)


def derive(warehouse: Any, golden: Golden, paths: list[Path]) -> None:
    """Computes the derivations of each run."""
    for name, scopes in golden.derivations():
        for run in dict.fromkeys(path.parent.name for path in paths):
            warehouse.derive(name, run, **scopes)


def answer(warehouse: Any, contract: Any, golden: Golden) -> tuple[str, str]:
    """(result, skipped) of the ingested runs."""
    if contract.kind != "analysis":
        return "".join(warehouse.query(select(contract, golden), limits=None).csv()), ""
    if contract.scope == "fleet":
        recorded = (warehouse.catalog.contracts[ref] for ref in contract.requires)
        names = (RecordedAnalysis.of(each, warehouse.catalog) for each in recorded if each.is_recorded)
        warehouse.record(analyses=[each.contract.name for each in names])
    result = warehouse.analyze(golden.name, version=golden.version, **golden.params())
    skipped = [f"{each.run_id},{each.rank},{each.reason}\n" for each in result.skipped]
    return "".join(result.csv()), "".join(skipped)


def copies(contract: Any) -> tuple[Copy, ...]:
    """Copies of the rows of all tables that must not change the rows of an answer.

    Each run is copied; each rank, too, if the rows of a rank do not depend on other ranks. An exact copy has
    a copy of the rows of the answer; the rows of copies with other names and times are not compared.
    """
    by_rank = contract.scope == "rank" and any(column.name == "rank" for column in contract.columns)
    exact = [Copy(run=OTHER_RUN), *([Copy(rank=OTHER_RANK)] if by_rank else [])]
    places: list[dict[str, Any]] = [{"run": NOISE_RUN}, *([{"rank": NOISE_RANK}] if by_rank else [])]
    noise = [
        Copy(**{key: at * value for key, value in place.items()}, name="~", shift_ns=shift_ns)
        for place in places
        for at, shift_ns in ((1, -7), (2, 7))
    ]
    return (*exact, *noise)


def compare_copies(contract: Any, golden: Golden, result: str) -> None:
    """Raises GoldenError unless the result over copied rows has the golden rows once per copy."""
    wanted = _originals(golden.sections["result"])
    (rows,) = wanted.values() or [[]]
    if any(column.name == "run_id" for column in contract.columns) and rows:
        wanted |= {(bool(copy.run), bool(copy.rank)): rows for copy in copies(contract)}
    if (found := _originals(result)) != wanted:
        lines = [difference(_lines(wanted, copy), _lines(found, copy)) for copy in sorted(wanted | found)]
        raise GoldenError("\n".join(["copies of the rows give other rows than the golden file", *lines]))


def _originals(result: str) -> dict[tuple[bool, bool], list[list[str]]]:
    """The sorted rows by copy (of another run, of another rank), each as in the original."""
    heading, *rows = csv.reader(result.splitlines(keepends=True))
    found: dict[tuple[bool, bool], list[list[str]]] = {}
    for row in rows:
        one = dict(zip(heading, row, strict=True))
        run, rank = one.get("run_id", ""), one.get("rank", "")
        if run.endswith(NOISE_RUN) or (rank.isdecimal() and int(rank) >= NOISE_RANK):
            continue
        copy = run.endswith(OTHER_RUN), rank.isdecimal() and int(rank) >= OTHER_RANK
        if copy[1]:
            one["rank"] = str(int(rank) - OTHER_RANK)
        found.setdefault(copy, []).append([cell.removesuffix(OTHER_RUN) for cell in one.values()])
    return {copy: sorted(rows) for copy, rows in found.items()}


def _lines(rows: dict[tuple[bool, bool], list[list[str]]], copy: tuple[bool, bool]) -> str:
    return "".join(f"{','.join(row)}\n" for row in rows.get(copy, []))


def select(contract: Any, golden: Golden) -> str:
    """The rows of a table or view, in the order of its grain."""
    columns = golden.columns() or [column.name for column in contract.columns]
    quoted = ", ".join(f'"{name}"' for name in columns)
    order = ", ".join(f'"{name}" NULLS LAST' for name in contract.grain)
    return f"SELECT {quoted} FROM {contract.name} ORDER BY {order}"


class GoldenFile(pytest.File):
    """A file is a test and a deep test; all files of a folder run in one worker."""

    def collect(self) -> Iterator[GoldenItem]:
        name = self.path.name.removesuffix(".golden")
        assert self.parent is not None
        yield GoldenItem.from_parent(self, name=name, nodeid=f"{self.parent.nodeid}::{name}")
        copied = CopiesItem.from_parent(self, name=name, nodeid=f"{self.parent.nodeid}::{name}-copies")
        copied.add_marker(pytest.mark.deep)
        yield copied


DRAWN = pytest.StashKey[dict[Path, Drawn]]()


class GoldenItem(pytest.Item):
    """Computes the rows of a golden file, and compares or rewrites them."""

    def drawn(self) -> Drawn:
        """The traces of the selected files of this folder, ingested for the first of its tests."""
        known = self.session.stash.setdefault(DRAWN, {})
        if self.path.parent not in known:
            selected = [item.path for item in self.session.items if isinstance(item, GoldenItem)]
            factory = self.config._tmp_path_factory  # type: ignore[attr-defined]
            in_folder = [path for path in selected if path.parent == self.path.parent]
            known[self.path.parent] = Drawn(in_folder, factory.mktemp("golden"))
        return known[self.path.parent]

    def runtest(self) -> None:
        drawn = self.drawn()
        golden = drawn.goldens[self.path]
        result, skipped = drawn.rows(self.path)
        if skipped != golden.sections.get("skipped", ""):
            raise GoldenError(f"{self.path.name}: skipped:\n{skipped or 'none'}")
        if self.config.getoption("update_golden"):
            self.path.write_text(golden.text(result), encoding="utf-8")
        elif result != golden.sections["result"]:
            raise GoldenError(
                f"the rows differ from the golden file\n{difference(golden.sections['result'], result)}"
            )

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Only the difference for rows that differ, else the traceback."""
        if isinstance(excinfo.value, (GoldenError, sketch.SketchError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"golden: {self.name}"


class CopiesItem(GoldenItem):
    """Checks that copies of the rows of a golden file, as other runs and ranks, give copies of its result."""

    def runtest(self) -> None:
        self.drawn().check_copies(self.path)


def difference(wanted: str, found: str) -> str:
    """A unified diff of the expected and the actual rows."""
    lines = difflib.unified_diff(wanted.splitlines(), found.splitlines(), "golden", "found", lineterm="")
    return "\n".join(lines)


def cells(text: str) -> list[dict[str, str]]:
    """CSV as one dictionary per row."""
    return list(csv.DictReader(text.splitlines()))


def pytest_addoption(parser: pytest.Parser) -> None:
    """--update-golden"""
    parser.addoption("--update-golden", action="store_true", help="rewrite the last section of golden files")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> GoldenFile | None:
    """A `.golden` file is a test."""
    return GoldenFile.from_parent(parent, path=file_path) if file_path.suffix == ".golden" else None
