"""What is asked of an ingest and what came of it: options, a line per file, the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Literal

from tracewarehouse.hints import Hint
from tracewarehouse.storage.layout import check_labels
from tracewarehouse.storage.unconverted import Unconverted

State = Literal["intact", "repaired", "damaged", "refused", "skipped", "same", "pending"]
Stage = Literal["survey", "read", "tables", "done"]


@dataclass(frozen=True)
class Options:
    """What may be asked of an ingest; the defaults are those of `tw ingest`.

    `jobs`: processes at most, None for one per core. `settle_s`: a file cut short that was written to less
    than this many seconds ago is left for later. `strict`: nothing is stored unless every file can be, whole.
    `inbox`: the files lie in the warehouse's inbox, and go from there once they are published. `temp_dir`:
    where what does not fit into memory lies meanwhile, None for the warehouse's own disk. `time_unit`: the
    unit of the times in the files, where it is not the one that their format says. `step_range`: a regular
    expression for names of annotations that mark steps.
    """

    run: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    rank: int | None = None
    expect_ranks: int | None = None
    jobs: int | None = None
    replace: bool = False
    settle_s: float = 30.0
    strict: bool = False
    inbox: bool = False
    temp_dir: Path | None = None
    time_unit: Literal["us", "ns"] | None = None
    step_range: str | None = None

    def __post_init__(self) -> None:
        check_labels(self.labels)


@dataclass(frozen=True)
class Progress:
    """How far a file is, in bytes: of the file in stage `survey`, of its text afterwards."""

    path: Path
    stage: Stage
    done_bytes: int
    total_bytes: int


Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Content:
    """What a trace turned out to hold; times are those of its GPU rows.

    `launch_known_ns` is GPU time whose launch is known, `with_op_ns` whose operator is. `quality`: rule →
    rows.
    """

    status: Literal["intact", "repaired", "damaged"]
    text_bytes: int
    events: int
    non_events: int = 0
    lost_bytes: int = 0
    lost_events: int | None = 0
    steps: int = 0
    gpu_ns: int = 0
    launch_known_ns: int = 0
    with_op_ns: int = 0
    quality: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FileOutcome:
    """What became of one file. `content` is None where it was not read in this call.

    `same`: already stored, nothing written. `pending`: left for later, or waiting for other ranks.
    A file that holds several ranks has an outcome for each.
    """

    path: Path
    state: State
    run: str | None = None
    rank: int | None = None
    reason: str | None = None
    hint: str | None = None
    notes: tuple[str, ...] = ()
    content: Content | None = None
    details: str | None = None


@dataclass(frozen=True)
class RunOutcome:
    """A run this call had to do with, as readers see it now; `version` None: nothing published yet.

    `written` is False where the call changed nothing. `waiting` = (ranks there, ranks expected).
    `rules`: what the run's ranks show side by side, as (rule, what).
    """

    run: str
    version: int | None
    written: bool
    ranks: tuple[int, ...] = ()
    expected_ranks: int | None = None
    waiting: tuple[int, int] | None = None
    rules: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class IngestReport:
    """Every file looked at, in order of path, and every run touched."""

    files: tuple[FileOutcome, ...]
    runs: tuple[RunOutcome, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    strict: bool = False

    def __repr__(self) -> str:
        """What a notebook shows: the runs, and what became of how many files."""
        runs = ", ".join(run.run if run.version is None else f"{run.run}@v{run.version}" for run in self.runs)
        states = Counter(file.state for file in self.files)
        files = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        return f"<IngestReport runs: {runs or 'none'}; files: {files or 'none'}>"

    def of(self, *states: State) -> tuple[FileOutcome, ...]:
        """The files in one of these states."""
        return tuple(file for file in self.files if file.state in states)

    @property
    def stored(self) -> tuple[FileOutcome, ...]:
        """The files that became ranks in this call, waiting ones included."""
        return tuple(file for file in self.files if file.content and file.state not in ("refused", "same"))

    @property
    def bytes(self) -> int:
        """Bytes of decompressed text that were read."""
        return sum(file.content.text_bytes for file in self.files if file.content)

    @property
    def megabytes_per_s(self) -> float:
        """Decompressed text per second of the whole call."""
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0

    @property
    def coverage(self) -> tuple[float | None, float | None]:
        """Shares of GPU time with a known launch and with a known operator; None without GPU time."""
        contents = [file.content for file in self.stored if file.content]
        gpu_ns = sum(content.gpu_ns for content in contents)
        if not gpu_ns:
            return None, None
        launch_known_ns = sum(content.launch_known_ns for content in contents)
        return launch_known_ns / gpu_ns, sum(content.with_op_ns for content in contents) / gpu_ns

    @property
    def quality(self) -> dict[str, int]:
        """Rows per rule of data quality over all files stored, and ranks per rule of whole runs."""
        counts: dict[str, int] = {}
        for file in self.stored:
            for rule, rows in file.content.quality.items() if file.content else ():
                counts[rule] = counts.get(rule, 0) + rows
        for run in self.runs:
            for rule, _ in run.rules:
                counts[rule] = counts.get(rule, 0) + 1
        return dict(sorted(counts.items()))

    @property
    def next_commands(self) -> tuple[str, ...]:
        """Commands to run next, on the first run that was stored."""
        names = [run.run for run in self.runs if run.version is not None]
        if not names:
            return ()
        run = quote(names[0])
        return (
            Hint(f'wh.select(runs="{names[0]}").check()', f"tw check {run}"),
            Hint(f'wh.report("{names[0]}")', f"tw report {run}"),
        )

    @property
    def exit_code(self) -> int:
        """0 done, 1 nothing could be stored, 4 stored something and something is missing."""
        refused, damaged = self.of("refused"), self.of("damaged")
        if self.strict and (refused or damaged):
            return 1
        if refused and len(refused) + len(self.of("skipped")) == len(self.files):
            return 1
        short = any(run.waiting for run in self.runs)
        return 4 if refused or damaged or self.of("pending") or short else 0


@dataclass(frozen=True)
class UpgradeReport:
    """What an upgrade did: a line per run converted and per table and run rebuilt; the ranks it left out."""

    lines: tuple[str, ...]
    unconverted: tuple[Unconverted, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 done, 4 something is missing."""
        return 4 if self.unconverted else 0
