"""The files of a simulated run: one trace per rank, and the truth about all of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from tracewarehouse.simulation.groups import Group
from tracewarehouse.simulation.header import closing, file_name, head, names, tail
from tracewarehouse.simulation.paths import CAUSES
from tracewarehouse.simulation.record import Recorder
from tracewarehouse.simulation.schedule import Clock, Setting
from tracewarehouse.simulation.truth import SECTIONS, Row

LEVEL = 1  # of gzip: the fastest; traces are read once or twice


@contextmanager
def zipped(path: Path) -> Iterator[gzip.GzipFile]:
    """A gzip file without name and time, so that equal text gives equal bytes; it appears when whole."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as raw, gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as out:
            yield out
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_rank(setting: Setting, rank: int, folder: Path | None) -> tuple[Recorder, int]:
    """Writes a rank's trace (nowhere without a folder); returns its recorder and the count of events."""
    if folder is None:
        return _record(setting, rank, lambda text: None)
    with zipped(folder / file_name(rank)) as out:
        return _record(setting, rank, lambda text: out.write(text.encode()))


def _record(setting: Setting, rank: int, write: Any) -> tuple[Recorder, int]:
    job = setting.job
    write(head(job, rank, setting.groups.all_of(rank)))
    first = True

    def put(texts: list[str]) -> None:
        nonlocal first
        write(("" if first else ",") + ",".join(texts))
        first = False

    recorder = Recorder(job, rank, setting.planted, put, 0)
    naming = names(recorder.text, recorder.span(0)[0])
    if job.dialect == "new":
        put(naming)
        recorder.written = len(naming)
    ends_ns = setting.ends[rank]  # known from the meeting
    recorder.roots(ends_ns + 500)
    for _ in Clock(setting, rank, recorder).run():
        pass  # the others have been there already
    recorder.flush()
    rest = [*([] if job.dialect == "new" else naming)]
    rest += closing(recorder.text, *recorder.span(ends_ns + 1_000))
    put(rest)
    write(tail(job, rank))
    return recorder, recorder.written + len(rest)


class TruthFile:
    """`truth.json`, section by section: rows of a rank go to a file per section until all ranks are done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts: dict[str, TextIO] = {
            name: self._part(name).open("w", encoding="utf-8") for name in SECTIONS
        }
        self.filled: set[str] = set()

    def _part(self, name: str) -> Path:
        return self.folder / f".truth-{name}.part"

    def add(self, name: str, rows: list[Row]) -> None:
        """Rows of a section."""
        if not rows:
            return
        out = self.parts[name]
        out.write(",\n" if name in self.filled else "\n")
        out.write(json.dumps(rows)[1:-1])
        self.filled.add(name)

    def finish(self, facts: dict[str, object], stragglers: list[Row]) -> Path:
        """Puts all sections into one file."""
        path = self.folder / "truth.json"
        with path.open("w", encoding="utf-8") as out:
            out.write(json.dumps(facts)[:-1] + ', "sections": {\n')
            columns = ["rank", "came_last", "caused_wait_ns", *(f"{cause}_ns" for cause in CAUSES), "cause"]
            rows = ",\n".join(map(json.dumps, stragglers))
            out.write(f'"straggler": {{"columns": {json.dumps(columns)}, "rows": [\n{rows}]}}')
            for name, columns_of in SECTIONS.items():
                out.write(f',\n"{name}": {{"columns": {json.dumps(columns_of)}, "rows": [')
                self.parts[name].close()
                with self._part(name).open(encoding="utf-8") as part:
                    for line in part:
                        out.write(line)
                out.write("]}")
            out.write("\n}}\n")
        return path

    def close(self) -> None:
        """Takes the files of the sections away."""
        for name, part in self.parts.items():
            part.close()
            self._part(name).unlink(missing_ok=True)


def group_facts(groups: list[Group]) -> list[dict[str, object]]:
    """Groups as JSON."""
    return [{"name": group.name, "scope": group.scope, "ranks": list(group.ranks)} for group in groups]
