"""An analysis over many ranks: memory, and how its cost grows with the ranks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from isal import igzip

from . import inputs
from .bench import Bench
from .ingest import check_split, summary
from .inputs import Simulated
from .model import Case, Row, Run, Target, check, seconds

_CALL = {"temporal_breakdown": [("temporal_breakdown", {})]}


def over(bench: Bench) -> Iterator[Row]:
    """`temporal_breakdown` over 64 ranks and more, of one stored run."""
    made = inputs.simulated(bench, "many")
    few = len(made.files)
    wanted = [2 * few] if bench.smoke else [4 * few, 16 * few] if bench.huge else [4 * few]
    folder = _stored(bench, wanted[-1])
    counts = [few, *wanted]
    taken = bench.turns(**{str(n): lambda n=n: _run(bench, folder, made, n) for n in counts})
    sides = {f"{n} ranks": seconds(runs) for n, runs in zip(counts, taken.values(), strict=True)}
    for n in wanted:
        pairs = zip(taken[str(n)], taken[str(few)], strict=True)
        figures = tuple((long.seconds / n) / (short.seconds / few) for long, short in pairs)
        yield Row("many-ranks", f"per rank, {n:,} ranks over {few}", Target(1.3), figures, "×", sides)
    memory = tuple(run.peak_bytes / 1e6 for run in taken[str(wanted[-1])])
    yield Row("many-ranks", f"memory, {wanted[-1]:,} ranks", Target(4_000, "MB"), memory, "MB")


def _run(bench: Bench, folder: Path, made: Simulated, ranks: int) -> Run:
    run = bench.ours("analyses", warehouse=folder / "house", calls=_CALL, ranks=list(range(ranks)))
    rows = run.answer["temporal_breakdown"]
    few = len(made.files)
    check([row["rank"] for row in rows] == list(range(ranks)), "other ranks")
    for first in range(0, ranks, few):
        again = [{**row, "rank": row["rank"] - first} for row in rows[first : first + few]]
        check_split(again, made)
    return run


def _stored(bench: Bench, ranks: int) -> Path:
    """A warehouse with `ranks` ranks: the simulated ones repeated, each with another rank number."""
    folder, traces = bench.houses / f"ranks-{ranks}", bench.houses / "many-ranks"
    for path in (folder, traces):
        path.mkdir()
    _write_ranks(bench, traces, ranks)
    run = bench.ours("ingest", paths=[traces], small=inputs.first(bench), folder=folder)
    check(run.answer["states"] == ["intact"] * ranks, "not every rank is intact")
    shutil.rmtree(traces)
    return folder


def _write_ranks(bench: Bench, folder: Path, ranks: int) -> None:
    """The simulated ranks repeated, each with another rank number."""
    files = inputs.simulated(bench, "many").files
    for rank in range(ranks):
        _as_rank(files[rank % len(files)], rank % len(files), folder / f"rank{rank}.json.gz", rank)


def _as_rank(path: Path, was: int, to: Path, rank: int) -> None:
    text, header = igzip.decompress(path.read_bytes()), b'"rank": %d, "world_size"'
    check(text.count(header % was) == 1, f"{path} does not contain its rank exactly once")
    to.write_bytes(igzip.compress(text.replace(header % was, header % rank), 1))


def taken(bench: Bench) -> Iterator[Row]:
    """Ingest of 64 ranks and more: CPU time per rank, and memory of all processes together."""
    few = len(inputs.simulated(bench, "many").files)
    wanted = [2 * few] if bench.smoke else [16 * few] if bench.huge else [4 * few]
    runs = {ranks: _ingested(bench, ranks) for ranks in (few, *wanted)}
    for ranks in wanted:
        over = (runs[ranks].cpu_s / ranks) / (runs[few].cpu_s / few)
        sides = {f"{count} ranks": summary([run]) for count, run in runs.items()}
        what = f"CPU per rank, {ranks:,} ranks over {few}"
        yield Row("ranks-ingest", what, Target(1.1), (over,), "×", sides)
        memory = (runs[ranks].peak_bytes / 1e6,)
        yield Row("ranks-ingest", f"memory, {ranks:,} ranks", Target(1_000, "MB"), memory, "MB")


def _ingested(bench: Bench, ranks: int) -> Run:
    with bench.passing() as folder:
        traces = folder / "many-ranks"
        traces.mkdir()
        _write_ranks(bench, traces, ranks)
        run = bench.ours("ingest", paths=[traces], small=inputs.first(bench), folder=folder)
        check(run.answer["states"] == ["intact"] * ranks, "not every rank is intact")
        return run


CASES = (
    Case("ranks-ingest", "ingest of 64 ranks and more", taken),
    Case("many-ranks", "temporal_breakdown over 64 ranks and more", over),
)
