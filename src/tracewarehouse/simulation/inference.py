"""Steps of a simulated inference server: their annotation, and what `inference_steps` should find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tracewarehouse.simulation.job import Job
from tracewarehouse.simulation.recording import GpuActivity, Step

Span = tuple[int, int]


def decode_annotation(job: Job) -> str:
    """How a serving engine marks a step in which each sequence of the batch gets one token."""
    query, key = job.batch, job.batch * job.sequence
    sums = f"sq{query}sk{key}sqsq{query}sqsk{key}"
    return f"execute_{query}_context_0(sq0sk0sqsq0sqsk0)_generation_{query}({sums})"


def expected_steps(
    job: Job, rank: int, rows: Iterable[GpuActivity], steps: Iterable[Step], hosts: Sequence[Span]
) -> list[tuple[Any, ...]]:
    """A row per annotation of a step; everything that a profiler step launches is launched within it."""
    if not hosts:
        return []
    spans: dict[int | None, Span] = {}
    for row in rows:
        first, last = spans.get(row.step, (row.start_ns, row.end_ns))
        spans[row.step] = min(first, row.start_ns), max(last, row.end_ns)
    counts = (job.batch, job.batch, job.batch, job.batch * job.sequence)
    return [
        (rank, "decode", *counts, host[1] - host[0], span[1] - span[0] if span else None)
        for step, host in zip(steps, hosts, strict=False)
        for span in [spans.get(step.number)]
    ]
