"""The jobs of a plan done: each trace read once, its tables staged, and committed when it is large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tracewarehouse.catalog import Catalog
from tracewarehouse.ingest import machine
from tracewarehouse.ingest.outcome import Content, FileOutcome, Options, Progress, Watch
from tracewarehouse.ingest.plan import Job
from tracewarehouse.ingest.pool import Failure, Workers
from tracewarehouse.ingest.worker import Grew, Made, Make
from tracewarehouse.storage import RankSource, Staged, Store

# What took long to make is committed at once, so that a kill does not cost it; small ranks are packed.
_COMMIT_AT_ONCE_BYTES = 64 << 20


@dataclass(frozen=True)
class Ready:
    """A job done: staged, or already committed."""

    job: Job
    content: Content
    staged: Staged | None
    source: RankSource | None


def make(
    workers: Workers,
    store: Store,
    catalog: Catalog,
    jobs: Sequence[Job],
    staging: Path,
    options: Options,
    watch: Watch,
) -> tuple[list[Ready], list[FileOutcome]]:
    """Each job's tables, and what becomes of the files that gave none."""
    ready = [Ready(job, left_content(job.source), None, job.source) for job in jobs if job.source]
    # The largest first, so that no core is left with it at the end.
    todo = sorted((job for job in jobs if not job.source), key=lambda job: -job.trace.survey.text_bytes)
    tasks = [
        _task(store, catalog, job, staging / f"{n:06d}", workers.jobs, options) for n, job in enumerate(todo)
    ]
    failed: list[FileOutcome] = []

    def told(index: int, done: int, _: int) -> None:
        total = todo[index].trace.survey.text_bytes
        watch(Progress(todo[index].path, "tables" if done >= total else "read", min(done, total), total))

    for index, found in workers.run(tasks, told):
        job = todo[index]
        total = job.trace.survey.text_bytes
        watch(Progress(job.path, "done", total, total))
        if isinstance(found, Made):
            ready.append(_ready(store, job, found, options))
        else:
            failed.append(_failed(job, found, options))
    return ready, failed


def _task(store: Store, catalog: Catalog, job: Job, folder: Path, jobs: int, options: Options) -> Make:
    return Make(
        path=job.path,
        run_id=job.place.run,
        rank=job.place.rank,
        uid=job.uid,
        digest=job.trace.survey.digest,
        world_size=job.place.world_size,
        mark=job.trace.mark,
        salt=store.salt,
        folder=folder,
        sql=catalog.folder,
        threads=machine.threads_for(job.trace.survey.text_bytes, jobs),
        memory_bytes=machine.memory_bytes(jobs),
        text_bytes=job.trace.survey.text_bytes,
        temp_dir=options.temp_dir or folder,
    )


def _ready(store: Store, job: Job, made: Made, options: Options) -> Ready:
    if made.staged.text_bytes >= _COMMIT_AT_ONCE_BYTES and not options.strict:
        return Ready(job, made.content, None, store.commit_source(made.staged))
    return Ready(job, made.content, made.staged, None)


def _failed(job: Job, found: object, options: Options) -> FileOutcome:
    path, run, rank = job.path, job.place.run, job.place.rank
    if options.inbox and not path.exists():
        return FileOutcome(path, "skipped", run, rank, "another ingest took it in")
    if isinstance(found, Grew):
        hint = "ingest it again later"
        return FileOutcome(path, "pending", run, rank, "changed while it was read", hint)
    assert isinstance(found, Failure)
    reason = found.message.removeprefix(f"{path}: ")
    return FileOutcome(path, "refused", run, rank, reason, found.hint, job.place.notes, details=found.details)


def left_content(source: RankSource) -> Content:
    """What is known of a source that an earlier call made: its counts, not its quality."""

    def fact(name: str) -> int:
        value = source.facts.get(name)
        return value if isinstance(value, int) else 0

    lost = source.facts.get("lost_events")
    return Content(
        status=source.status,
        text_bytes=0,
        events=fact("events"),
        non_events=fact("non_events"),
        lost_bytes=fact("lost_bytes"),
        lost_events=lost if isinstance(lost, int) else None,
        steps=fact("steps"),
        gpu_ns=fact("gpu_ns"),
        linked_ns=fact("linked_ns"),
        with_op_ns=fact("with_op_ns"),
    )
