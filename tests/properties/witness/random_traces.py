"""Small random traces in the sketch language, with all difficult cases of the basic analyses.

Times lie on a coarse grid, so that edges meet; there are rows without length, streams that overlap
themselves, two devices, copies without bytes, graph launches, launches without GPU activities, GPU
activities without launch, ids that mean none, a driver call within a runtime call of the same id, ranks
without GPU activities, rows out of order.
"""

from __future__ import annotations

from random import Random

KERNELS = ("gemm", "relu", "ncclDevKernel_AllReduce", "'Memcpy HtoD (Pinned -> Device)'", "'Memset (Device)'")
GRID_NS = 10


def run(name: str, seed: int, ranks: int) -> str:
    """The sketch of a run with that many ranks."""
    return "\n".join(
        line for rank in range(ranks) for line in Rank(name, rank, Random(f"{seed}/{rank}")).draw()
    )


class Rank:
    """A rank under construction."""

    def __init__(self, run: str, rank: int, dice: Random) -> None:
        self.dice = dice
        self.head = f"{run} {rank}"
        self.lines: list[str] = []
        self.next_id = 10
        self.devices = dice.choice([1, 1, 2])
        self.loses = rank % 3 == 0

    def draw(self) -> list[str]:
        """All its lines, shuffled."""
        for thread in range(1, self.dice.randint(2, 3)):
            self.thread(thread)
        if self.dice.random() < 0.9:
            for _ in range(self.dice.randint(0, 4)):
                self.orphan()
        else:
            self.lines = [line for line in self.lines if not line.startswith("gpu")]
        self.lines.append(f"sync s7 'Stream Sync' {self.time(300)} {self.time(9_000)}")
        self.lines.append(f"op t1 triton {self.time(2_000) + 5_000} 30 stream=7")
        self.steps()
        self.dice.shuffle(self.lines)
        return [f"{self.head} {line}" for line in self.lines]

    def time(self, limit: int) -> int:
        return self.dice.randrange(0, limit + GRID_NS, GRID_NS)

    def steps(self) -> None:
        """None to six, with and without gaps between."""
        at = self.time(300)
        for number in range(self.dice.randint(0, 6)):
            length = self.time(900) + GRID_NS
            self.lines.append(f"step t1 {number + 5} {at} {length}")
            at += length + self.dice.choice([0, 0, self.time(200)])

    def thread(self, thread: int) -> None:
        """Operators in sequence, with calls inside and outside."""
        at = self.time(100)
        for _ in range(self.dice.randint(0, 8)):
            if self.dice.random() < 0.3:
                at = self.call(thread, at) + self.time(40)
                continue
            start = at
            at = self.call(thread, at + self.time(20))
            if self.dice.random() < 0.5:
                inner, at = at, self.call(thread, at + self.time(20))
                self.lines.append(f"op t{thread} aten::mm {inner} {at + GRID_NS - inner}")
                at += GRID_NS
            at += self.time(40) + GRID_NS
            self.lines.append(f"op t{thread} aten::linear {start} {at - start}")
            at += self.time(40)

    def call(self, thread: int, at: int) -> int:
        """A host call and what it launches; returns its end."""
        start, end = at, at + GRID_NS + self.time(60)
        self.next_id += 1
        correlation: object = self.dice.choice([self.next_id] * 12 + [0, -1])
        graph = self.dice.random() < 0.15
        api = "cudaGraphLaunch" if graph else "cudaLaunchKernel"
        self.lines.append(f"call t{thread} {api} {start} {end - start} id={correlation}")
        if end - start > 2 * GRID_NS and self.dice.random() < 0.2:
            self.lines.append(f"call t{thread} cuLaunchKernel {start + GRID_NS} {GRID_NS} id={correlation}")
        rows = self.dice.randint(2, 5) if graph else self.dice.choice([0 if self.loses else 1, 1, 1, 1])
        for _ in range(rows):
            self.gpu(start + self.time(300) - self.dice.choice([0, 0, 0, 50]), f"id={correlation}")
        return end

    def orphan(self) -> None:
        """A GPU activity without a launch in the trace."""
        identity = self.dice.choice(["", "id=0", "id=-1", f"id={self.dice.randint(5000, 9000)}"])
        self.gpu(self.time(1_500), identity)

    def gpu(self, at: int, identity: str) -> None:
        length = self.dice.choice([0, GRID_NS, self.time(60), self.time(300), self.dice.randint(1, 40)])
        stream, device = self.dice.choice([7, 7, 20]), self.dice.randrange(self.devices)
        name = self.dice.choice(KERNELS)
        collective = '"Collective name"=broadcast' if self.dice.random() < 0.1 and name[0] != "'" else ""
        size = f"bytes={self.dice.randint(0, 4_096)}" if name[0] == "'" and self.dice.random() < 0.8 else ""
        self.lines.append(
            f"gpu s{stream}@{device} {name} {max(at, 0)} {length} {identity} {collective} {size}"
        )
