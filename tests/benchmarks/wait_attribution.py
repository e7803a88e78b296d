"""Blame of many ranks with 2,000 collectives each: CPU time and memory of deriving and reading it."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .bench import Bench, tw
from .model import Case, Row, Run, Target, check

STEPS = 10
PERIOD_NS = 1_000_000  # from one collective to the next
READS = ("straggler_causes", "wait_matrix", "stragglers", "collective_bandwidth", "slow_links")


@dataclass(frozen=True)
class Groups:
    """Ranks in groups of equal size; all ranks of a group enter each of its collectives at other times."""

    ranks: int
    size: int
    collectives: int

    def arrives_ns(self, rank: int, number: int) -> int:
        """When a rank enters a collective: after computation that is up to 50 µs longer on some ranks."""
        return number * PERIOD_NS + 300_000 + (rank * 7_919 + number * 104_729 + rank * number % 997) % 50_000

    def last_ns(self, first: int, number: int) -> int:
        """When the last rank of the group of `first` enters it."""
        return max(self.arrives_ns(rank, number) for rank in range(first, first + self.size))

    def write(self, folder: Path) -> int:
        """Writes a trace per rank; returns the wait of all ranks in ns."""
        folder.mkdir()
        waited = 0
        for first in range(0, self.ranks, self.size):
            last = [self.last_ns(first, number) for number in range(self.collectives)]
            for rank in range(first, first + self.size):
                (folder / f"rank{rank}.json").write_text(self._trace(rank, first, last), encoding="utf-8")
                waited += sum(at - self.arrives_ns(rank, number) for number, at in enumerate(last))
        return waited

    def _trace(self, rank: int, first: int, last: list[int]) -> str:
        members = list(range(first, first + self.size))[:30]
        group = {"pg_name": f"group{first}", "pg_desc": "mesh", "pg_size": self.size, "ranks": members}
        about = {"backend": "nccl", "rank": rank, "world_size": self.ranks, "pg_config": [group]}
        cut = ", ..." if self.size > len(members) else ""
        message = (
            f'"Collective name":"allreduce","In msg nelems":1024,"Out msg nelems":1024,"dtype":"Float",'
            f'"Group size":{self.size},"Process Group Name":"group{first}",'
            f'"Process Group Ranks":"[{", ".join(map(str, members))}{cut}]"'
        )
        length = self.collectives // STEPS * PERIOD_NS
        events = [
            _slice("user_annotation", f"ProfilerStep#{step}", 1, step * length, length, "")
            for step in range(STEPS)
        ]
        for number, at in enumerate(last):
            begins, arrives = number * PERIOD_NS, self.arrives_ns(rank, number)
            events.append(
                _slice("kernel", "gemm", 7, begins, arrives - begins, ',"args":{"device":0,"stream":7}')
            )
            args = f',"args":{{"device":0,"stream":20,{message}}}'
            name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
            events.append(_slice("kernel", name, 20, arrives, at + 20_000 - arrives, args))
        return (
            '{{"distributedInfo":{},"baseTimeNanoseconds":1775078550000000000,"traceEvents":[\n{}]}}'.format(
                json.dumps(about), ",\n".join(events)
            )
        )


def _slice(category: str, name: str, thread: int, start_ns: int, dur_ns: int, args: str) -> str:
    times = f'"ts":{start_ns // 1000}.{start_ns % 1000:03d},"dur":{dur_ns // 1000}.{dur_ns % 1000:03d}'
    return f'{{"ph":"X","cat":"{category}","name":"{name}","pid":0,"tid":{thread},{times}{args}}}'


def wait_attribution(bench: Bench) -> Iterator[Row]:
    """All ranks as one group, and in groups of 8; few ranks, then many."""
    few, many = (8, 16) if bench.smoke else (64, 1_024) if bench.huge else (64, 256)
    collectives = 20 if bench.smoke else 2_000
    for what, sizes in (("one group", (few, many)), ("groups of 8", (8, 8))):
        runs = [
            _measured(bench, Groups(ranks, size, collectives))
            for ranks, size in zip((few, many), sizes, strict=True)
        ]
        over = sum(run.cpu_s for run in runs[1]) / many / (sum(run.cpu_s for run in runs[0]) / few)
        sides = {f"{ranks} ranks": _summary(each) for ranks, each in zip((few, many), runs, strict=True)}
        about, (own, others) = f"{many:,} ranks, {what}", (runs[1][:2], runs[1][2:])
        total, slowest = sum(run.cpu_s for run in own), max(run.cpu_s for run in others)
        yield Row(
            "wait_attribution",
            f"{about}: derive, straggler_causes",
            Target(60, "CPU s"),
            (total,),
            "CPU s",
            sides,
        )
        yield Row("wait_attribution", f"{about}: memory of both", Target(2_000, "MB"), (_peak_mb(own),), "MB")
        yield Row(
            "wait_attribution", f"{about}: slowest other analysis", Target(60, "CPU s"), (slowest,), "CPU s"
        )
        # DuckDB takes what the machine has, unless a limit is set.
        yield Row("wait_attribution", f"{about}: memory of other analyses", None, (_peak_mb(others),), "MB")
        yield Row(
            "wait_attribution", f"CPU per rank, {what}: {many:,} ranks over {few}", Target(1.1), (over,), "×"
        )


def _peak_mb(runs: list[Run]) -> float:
    return max(run.peak_bytes for run in runs) / 1e6


def _measured(bench: Bench, groups: Groups) -> list[Run]:
    """Deriving wait_attribution and each analysis, as whole processes."""
    with bench.passing() as folder:
        at = ("-w", str(folder / "house"))
        waited = groups.write(folder / "traces")
        bench.command(*tw(), "ingest", *at, "--run", "run", "--jobs", "1", str(folder / "traces"))
        runs = [bench.command(*tw(), "derive", "wait_attribution", "run", *at)]
        shown = [bench.command(*tw(), "show", name, "--run", "run", "-f", "csv", *at) for name in READS]
        rows = csv.DictReader(shown[0].answer.splitlines())
        check(
            sum(int(row["attributed_ns"]) for row in rows) == waited,
            "wait_attribution is not the sum of the waits",
        )
        return runs + shown


def _summary(runs: list[Run]) -> str:
    each = zip(("derive wait_attribution", *READS), runs, strict=True)
    return ", ".join(
        f"{name} CPU {run.cpu_s:.3g} s, peak {run.peak_bytes / 1e6:.0f} MB" for name, run in each
    )


CASES = (
    Case(
        "wait_attribution",
        "tw derive wait_attribution of 256 ranks and more, 2,000 collectives each, and its analyses",
        wait_attribution,
    ),
)
