"""Golden files: a drawn trace through the whole house, and the rows that must come out.

`tests/golden/{analyses/<group>,views,tables,derived}/<name>.v<N>[.<case>].golden` tests the contract of that
name and version. Comments (a drawing) on top, then sections, each a word at the start of a line with its body
indented: `trace` (the sketch language), `derive` (`critical_path`, then scopes like `steps=6` or
`annotations=forward#1`, else the usual ones, of each run), `params` (`name=value` lines), `columns` (for
tables: which ones, in one line), `abstained` (`run_id,rank,reason` lines, where ranks are left out), `result`
(CSV, empty = null).
`pytest --update-golden` rewrites the last section.
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

SECTIONS = ("trace", "derive", "params", "columns", "abstained", "result")


class GoldenError(Exception):
    """A golden file that is not well formed, or rows that are not the golden ones."""


@dataclass(frozen=True)
class Golden:
    """A golden file, read."""

    name: str
    version: int
    drawing: str
    sections: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Golden:
        """Raises GoldenError where name or sections are not as they should be."""
        name, version = path.name.split(".")[:2]
        text = path.read_text(encoding="utf-8")
        drawing, *found = split(text)
        sections = dict(found)
        unknown = set(sections) - set(SECTIONS)
        if unknown or "trace" not in sections or not found or found[-1][0] != "result":
            raise GoldenError(
                f"{path}: sections are {', '.join(SECTIONS)}; trace and a last result are needed"
            )
        return cls(name, int(version.removeprefix("v")), drawing[1], sections)

    def text(self, result: str) -> str:
        """The file with another result."""
        kept = {**self.sections, "result": result}
        parts = [f"{heading}\n{_indent(body)}" for heading, body in kept.items()]
        return self.drawing + "".join(parts)

    @property
    def drawn(self) -> tuple[str, str]:
        """What is drawn and derived; comments and blank lines say nothing."""
        lines = self.sections["trace"].splitlines()
        said = [line.strip() for line in lines if line.strip()[:1] not in ("", "#")]
        return "\n".join(said), self.sections.get("derive", "")

    def params(self) -> dict[str, str]:
        """The parameters, as text."""
        lines = self.sections.get("params", "").splitlines()
        return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}

    def derivations(self) -> list[tuple[str, dict[str, Any]]]:
        """What is to be derived, each with the scopes asked for."""
        found = []
        for line in self.sections.get("derive", "").splitlines():
            name, *scopes = shlex.split(line)
            asked = [scope.partition("=")[::2] for scope in scopes]
            found.append((name, {key: int(value) if value.isdecimal() else value for key, value in asked}))
        return found

    def columns(self) -> list[str]:
        """The columns to show; empty for all."""
        return [name.strip() for name in self.sections.get("columns", "").split(",") if name.strip()]


def split(text: str) -> list[tuple[str, str]]:
    """(heading, body) of each section; first ("", what stands above the first)."""
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
    """The drawings of golden files, taken in with one call; `mark` goes before the names of a drawing's runs.

    Files that draw and derive the same share what is taken in.
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
        self.warehouse.ingest(*(file for files in runs.values() for file in files))
        for mark, files in runs.items():
            derive(self.warehouse, drawn[mark], files)

    def rows(self, path: Path) -> tuple[str, str]:
        """(result, abstained) of a golden file as CSV lines, from traces through reader, tables, Parquet."""
        golden, contract = self.goldens[path], self._contract(path)
        mark = self.marks[path]
        if mark in self.failed:
            raise self.failed[mark]
        runs = [run for run in self.warehouse.store.runs() if run.startswith(mark)]
        result, abstained = answer(self.warehouse.select(runs=runs), contract, golden)
        return result.replace(mark, ""), abstained.replace(mark, "")

    def _contract(self, path: Path) -> Any:
        golden = self.goldens[path]
        return self.warehouse.catalog.get(golden.name, golden.version)

    def _drawings(self, mark: str, golden: Golden) -> list[Path]:
        lines = golden.sections["trace"].splitlines()
        drawn = [line if line.strip()[:1] in ("", "#") else f"{mark}{line.strip()}" for line in lines]
        try:
            return sketch.write("\n".join(drawn), self.folder / "traces")
        except sketch.SketchError as error:  # it fails its own tests alone
            self.failed[mark] = error
            return []


def take(warehouse: Any, golden: Golden, paths: list[Path]) -> None:
    """Ingests the drawn traces, each folder as a run, with all that is derived."""
    warehouse.ingest(*paths)
    derive(warehouse, golden, paths)


def derive(warehouse: Any, golden: Golden, paths: list[Path]) -> None:
    """Derives what is to be derived, of each run."""
    for name, scopes in golden.derivations():
        for run in dict.fromkeys(path.parent.name for path in paths):
            warehouse.derive(name, run, **scopes)


def answer(warehouse: Any, contract: Any, golden: Golden) -> tuple[str, str]:
    """(result, abstained) of what is stored."""
    if contract.kind != "analysis":
        return "".join(warehouse.query(select(contract, golden)).csv()), ""
    result = warehouse.run(golden.name, version=golden.version, **golden.params())
    left_out = [f"{each.run_id},{each.rank},{each.reason}\n" for each in result.abstained]
    return "".join(result.csv()), "".join(left_out)


def select(contract: Any, golden: Golden) -> str:
    """The rows of a table or view, in the order of its grain."""
    columns = golden.columns() or [column.name for column in contract.columns]
    quoted = ", ".join(f'"{name}"' for name in columns)
    order = ", ".join(f'"{name}" NULLS LAST' for name in contract.grain)
    return f"SELECT {quoted} FROM {contract.name} ORDER BY {order}"


class GoldenFile(pytest.File):
    """One file is one test; those of a folder are for one worker."""

    def collect(self) -> Iterator[GoldenItem]:
        name = self.path.name.removesuffix(".golden")
        assert self.parent is not None
        yield GoldenItem.from_parent(self, name=name, nodeid=f"{self.parent.nodeid}::{name}")


DRAWN = pytest.StashKey[dict[Path, Drawn]]()


class GoldenItem(pytest.Item):
    """Run what is drawn, compare or rewrite."""

    def drawn(self) -> Drawn:
        """What the files of this folder draw that are asked for, taken in when the first is tested."""
        known = self.session.stash.setdefault(DRAWN, {})
        if self.path.parent not in known:
            asked = [item.path for item in self.session.items if isinstance(item, GoldenItem)]
            factory = self.config._tmp_path_factory  # type: ignore[attr-defined]
            beside = [path for path in asked if path.parent == self.path.parent]
            known[self.path.parent] = Drawn(beside, factory.mktemp("golden"))
        return known[self.path.parent]

    def runtest(self) -> None:
        drawn = self.drawn()
        golden = drawn.goldens[self.path]
        result, abstained = drawn.rows(self.path)
        if abstained != golden.sections.get("abstained", ""):
            raise GoldenError(f"{self.path.name}: abstained:\n{abstained or 'none'}")
        if self.config.getoption("update_golden"):
            self.path.write_text(golden.text(result), encoding="utf-8")
        elif result != golden.sections["result"]:
            raise GoldenError(f"{self.path.name}:\n{difference(golden.sections['result'], result)}")

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """The difference alone for rows that differ, else the traceback."""
        if isinstance(excinfo.value, (GoldenError, sketch.SketchError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"golden: {self.name}"


def difference(wanted: str, found: str) -> str:
    """What differs, line by line."""
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
