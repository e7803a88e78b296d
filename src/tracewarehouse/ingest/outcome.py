"""Options and results of an ingest: what a source holds, what happened to each file and run, the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Final, Literal

from msgspec import Struct, field

from tracewarehouse.errors import DONE_IN_PART, UNANSWERED
from tracewarehouse.hints import Hint
from tracewarehouse.ingest.rules import KernelRule
from tracewarehouse.storage.layout import check_labels
from tracewarehouse.storage.model import Json

State = Literal["intact", "repaired", "damaged", "refused", "skipped", "same", "pending"]
Stage = Literal["survey", "read", "tables", "done"]


class Options(Struct, frozen=True):
    """Options of an ingest, with the defaults of `tw ingest`.

    `jobs`: maximum number of processes, None for one per core. `min_age_s`: a truncated file that was
    modified less than this many seconds ago is skipped for now. `strict`: nothing is stored unless every file
    is intact. `inbox`: the files are in the warehouse's inbox and are removed once published. `temp_dir`:
    folder for temporary files, None for the disk of the warehouse. `time_unit`: unit of the times in the
    files, if it differs from the one that the format defines. `step_pattern`: a regular expression for
    annotations that mark steps. `redact`: secrets are replaced before anything is stored. `auto_labels`:
    label runs by the environment (git commit, batch job, …). `expect_ranks`: publish a run when it has this
    many. `kernel_rules`: those of the warehouse, which `ingest` reads.
    """

    run: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    rank: int | None = None
    expect_ranks: int | None = None
    jobs: int | None = None
    replace: bool = False
    min_age_s: float = 30.0
    strict: bool = False
    inbox: bool = False
    temp_dir: Path | None = None
    time_unit: Literal["us", "ns"] | None = None
    step_pattern: str | None = None
    redact: bool = True
    auto_labels: bool = False
    kernel_rules: tuple[KernelRule, ...] = ()

    def __post_init__(self) -> None:
        check_labels(self.labels)


class Progress(Struct, frozen=True):
    """Progress of a file in bytes: of the file in stage `survey`, of its text afterwards."""

    path: Path
    stage: Stage
    done_bytes: int
    total_bytes: int


Watch = Callable[[Progress], None]


class Content(Struct, frozen=True):
    """What a trace contains; times are those of its GPU activities.

    `launch_known_ns` is GPU time with a known launch, `with_op_ns` with a known operator. `quality`: rule →
    number of rows.
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
    collectives: bool = False
    # What the source holds instead of a trace, a key of _SHOWS_ADDITION; "" for a trace.
    addition: str = ""
    quality: Mapping[str, int] = field(default_factory=dict)


# The analysis that shows most of a run without GPU activities.
HOST_ANALYSIS: Final = "host_account"
BY_ANOTHER_PROCESS: Final = "already ingested by another process"


class FileOutcome(Struct, frozen=True):
    """The outcome of one file. `content` is None if it was not read in this call.

    `same`: already stored, nothing written. `pending`: skipped for now, or waiting for other ranks; with
    `unanswered` because a store does not answer. A file with several ranks has an outcome for each.
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
    unanswered: bool = False


class RunOutcome(Struct, frozen=True):
    """A run that this call read or changed, in its current state; `version` is None if it is unpublished.

    `written` is False if the call did not change the run. `waiting` = (ranks present, ranks expected).
    `rules`: data-quality rules that compare ranks, as (rule, example). `start_ns`: start of its traces.
    `recording`: what its recordings can carry, in one line.
    """

    run: str
    version: int | None
    written: bool
    ranks: tuple[int, ...] = ()
    expected_ranks: int | None = None
    waiting: tuple[int, int] | None = None
    rules: tuple[tuple[str, str], ...] = ()
    start_ns: int | None = None
    recording: str = ""


class IngestReport(Struct, frozen=True):
    """Every file in order of path, and every run that was read or changed."""

    files: tuple[FileOutcome, ...]
    runs: tuple[RunOutcome, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    strict: bool = False

    def __repr__(self) -> str:
        """A summary for notebooks: the runs, and the number of files per state."""
        runs = ", ".join(run.run if run.version is None else f"{run.run}@v{run.version}" for run in self.runs)
        states = Counter(file.state for file in self.files)
        files = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        return f"<IngestReport runs: {runs or 'none'}; files: {files or 'none'}>"

    def of(self, *states: State) -> tuple[FileOutcome, ...]:
        """The files in one of these states."""
        return tuple(file for file in self.files if file.state in states)

    @property
    def stored(self) -> tuple[FileOutcome, ...]:
        """The files that became ranks in this call, including those that wait for other ranks."""
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
        """Commands to run next on the first run that was stored, each with something to show for it."""
        published = [run for run in self.runs if run.version is not None]
        if not published:
            return ()
        first = published[0]
        contents = [file.content for file in self.files if file.run == first.run and file.content]
        hints = [
            Hint(f'wh.report("{first.run}")', f"tw report {quote(first.run)}"),
            Hint(f'wh.check("{first.run}")', f"tw check {quote(first.run)}"),
            *(
                Hint(f'wh.select("{first.run}").{name}()', f"tw show {name} --run {quote(first.run)}")
                for name in _worthwhile(contents, len(first.ranks))
            ),
        ]
        with_gpu = {file.run for file in self.files if file.content and file.content.gpu_ns > 0}
        kinds = {run.run in with_gpu for run in published}
        if len(published) == 2 and len(kinds) == 1:
            base, head = (run.run for run in sorted(published, key=lambda run: run.start_ns or 0))
            hints.append(
                Hint(f'wh.diff("{base}", "{head}")', f"tw diff {quote(base)} {quote(head)}"),
            )
        return tuple(hints)

    @property
    def exit_code(self) -> int:
        """0 success, 1 nothing could be stored, 4 something was stored and something is missing.

        6 if a store did not answer: the same call may store what is missing.
        """
        if any(file.unanswered for file in self.files):
            return UNANSWERED
        refused, damaged = self.of("refused"), self.of("damaged")
        if self.strict and (refused or damaged):
            return 1
        # What another process ingested meanwhile is stored.
        useless = [file for file in self.of("skipped") if file.reason != BY_ANOTHER_PROCESS]
        if self.files and len(refused) + len(useless) == len(self.files):
            return 1
        short = any(run.waiting for run in self.runs)
        return DONE_IN_PART if refused or damaged or self.of("pending") or short else 0


# What a source holds instead of a trace → the analyses that say most about it.
_SHOWS_ADDITION = {
    "snapshot": ("snapshot_oom", "snapshot_peak"),
    "flight_records": ("stuck_collective",),
    "kernel_metrics": ("kernel_limits",),
    "execution_nodes": ("execution_trace",),
    "memory_timeline": ("memory_by_category",),
}


def _worthwhile(contents: Sequence[Content], ranks: int) -> list[str]:
    """The analyses that say most about these contents: without GPU activities, of the host."""
    if not any(content.events for content in contents):
        return []
    additions = {content.addition for content in contents} - {""}
    contents = [content for content in contents if not content.addition]
    if not contents:
        return [name for addition in sorted(additions) for name in _SHOWS_ADDITION[addition]]
    if not any(content.gpu_ns for content in contents):
        return [HOST_ANALYSIS]
    if ranks > 1 and all(content.collectives for content in contents):
        return ["stragglers"]
    return ["kernel_summary"]


class UpgradeReport(Struct, frozen=True):
    """Result of an upgrade: a line per rebuilt table and run, and per run with new results."""

    lines: tuple[str, ...]
    # Run → why its tables could not be rebuilt.
    failed: Mapping[str, str]

    @property
    def exit_code(self) -> int:
        """0 success, 4 something is missing, 1 nothing was changed."""
        if not self.failed:
            return 0
        return 4 if self.lines else 1


def content_of(
    facts: Mapping[str, Json],
    status: Literal["intact", "repaired", "damaged"],
    text_bytes: int = 0,
    quality: Mapping[str, int] = {},
) -> Content:
    """The content of a source by its facts; of one that an earlier call committed, without its quality."""
    lost_events = facts.get("lost_events")
    return Content(
        status=status,
        text_bytes=text_bytes,
        events=_count(facts, "events"),
        non_events=_count(facts, "non_events"),
        lost_bytes=_count(facts, "lost_bytes"),
        lost_events=lost_events if isinstance(lost_events, int) else None,
        steps=_count(facts, "steps"),
        gpu_ns=_count(facts, "gpu_ns"),
        launch_known_ns=_count(facts, "launch_known_ns"),
        with_op_ns=_count(facts, "with_op_ns"),
        collectives=bool(facts.get("collectives")),
        addition=next((name for name in _SHOWS_ADDITION if facts.get(name) is True), ""),
        quality=quality,
    )


def _count(facts: Mapping[str, Json], name: str) -> int:
    value = facts.get(name)
    return value if isinstance(value, int) else 0
