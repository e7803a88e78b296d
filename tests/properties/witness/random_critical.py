"""Small random traces with all kinds of dependencies of a critical path, in the sketch language.

Times lie on a grid of 5 us, so that things meet and some waits are longer than others. There are two streams
and sometimes two devices, graph launches, copies that block, waits of streams for events, waits of the host
with and without the profiler's own row, backward on a second thread, a third thread that has nothing to do
with it, GPU activities without launch, steps that follow each other and end before their GPU activities.
"""

from __future__ import annotations

from random import Random

GRID_NS = 5_000
KERNELS = ("gemm", "relu", "ncclDevKernel_AllReduce", "'Memset (Device)'")
COPIES = ("'Memcpy DtoH (Device -> Pageable)'", "'Memcpy HtoD (Pinned -> Device)'")


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
        self.free: dict[tuple[int, int], int] = {}  # of each stream when it is done

    def draw(self) -> list[str]:
        """All its lines, shuffled."""
        at, ends = 0, [0]
        for _ in range(self.dice.randint(1, 3)):
            at = self.phase(1, "aten::mm", at)
            if self.dice.random() < 0.5:
                at = self.phase(2, "autograd::engine::evaluate_function: MmBackward0", at)
                at = self.phase(1, "aten::add_", at)
            at += self.time(4)
            ends.append(at)
        if self.dice.random() < 0.4:
            self.phase(3, "aten::pin_memory", self.time(40))
        for stream in (7, 20):
            if self.dice.random() < 0.3:
                self.line(f"gpu s{stream}@0 gemm {self.time(10)} {self.time(10)}")
        for number, (start, end) in enumerate(zip(ends, ends[1:], strict=False)):
            if end > start:
                self.line(f"step t1 {number} {start} {end - start}")
        self.dice.shuffle(self.lines)
        return [f"{self.head} {line}" for line in self.lines]

    def line(self, text: str) -> None:
        self.lines.append(text)

    def time(self, most: int) -> int:
        return self.dice.randint(0, most) * GRID_NS

    def phase(self, thread: int, name: str, at: int) -> int:
        """Operators and calls in sequence; returns when the thread is done."""
        for _ in range(self.dice.randint(1, 4)):
            at += self.time(3)
            start = at
            at += self.time(2)
            for _ in range(self.dice.randint(0, 3)):
                at = self.call(thread, at) + self.time(1)
            at += (
                self.time(1) + GRID_NS
            )  # an operator is longer than a call in it, so that it encloses the call
            if self.dice.random() < 0.8:
                self.line(f"op t{thread} '{name}' {start} {at - start}")
                if at - start > 4 * GRID_NS and self.dice.random() < 0.3:
                    self.line(f"op t{thread} aten::wrapped {start} {at - start}")
        return at

    def call(self, thread: int, at: int) -> int:
        """A host call; returns its end."""
        self.next_id += 1
        what = self.dice.random()
        if what < 0.55:
            return self.launch(thread, at)
        if what < 0.7:
            return self.wait_of_a_stream(thread, at)
        if what < 0.8:
            end = at + self.time(3)
            self.line(f"call t{thread} cudaMalloc {at} {end - at}")
            return end
        return self.wait_of_the_host(thread, at)

    def launch(self, thread: int, at: int) -> int:
        """A launch of a kernel, a copy or a graph."""
        end = at + self.time(3)
        kind = self.dice.choice(["kernel"] * 6 + ["copy", "copy", "graph"])
        api = {"kernel": "cudaLaunchKernel", "graph": "cudaGraphLaunch"}.get(
            kind, self.dice.choice(["cudaMemcpyAsync", "cudaMemcpy"])
        )
        rows = self.dice.randint(2, 4) if kind == "graph" else self.dice.choice([1, 1, 1, 0])
        for _ in range(rows):
            lane = (self.dice.randrange(self.devices), self.dice.choice([7, 7, 20]))
            start = max(
                at + self.time(2),
                self.free.get(lane, 0) + self.time(1) - self.dice.choice([0] * 9 + [GRID_NS]),
            )
            start += self.dice.choice([0, 0, 0, self.time(12)])
            length = self.dice.choice([0, self.time(4), self.time(4), self.time(20)])
            name = self.dice.choice(COPIES) if kind == "copy" else self.dice.choice(KERNELS)
            self.line(f"gpu s{lane[1]}@{lane[0]} {name} {max(start, at)} {length} id={self.next_id}")
            self.free[lane] = max(self.free.get(lane, 0), start + length)
            if kind == "copy" and self.dice.random() < 0.7:
                end = max(end, start + length + self.time(1))
        self.line(f"call t{thread} {api} {at} {end - at} id={self.next_id}")
        return end

    def wait_of_a_stream(self, thread: int, at: int) -> int:
        """An event recorded on one stream, and another stream that waits for it."""
        mark, one, other = self.next_id, *self.dice.sample([7, 20], 2)
        self.next_id += 1
        device, end = self.dice.randrange(self.devices), at + self.time(1)
        self.line(f"call t{thread} cudaEventRecord {at} {end - at} id={mark}")
        self.line(f"call t{thread} cudaStreamWaitEvent {end} 0 id={self.next_id}")
        self.line(
            f"sync s{other}@{device} 'Stream Wait Event' {end} 0 stream={other} device={device} "
            f"correlation={self.next_id} cuda_sync_kind='Stream Wait Event' wait_on_stream={one} "
            f"wait_on_cuda_event_record_corr_id={self.dice.choice([mark, mark, mark, -1])}"
        )
        self.free[device, other] = max(self.free.get((device, other), 0), self.free.get((device, one), 0))
        return end

    def wait_of_the_host(self, thread: int, at: int) -> int:
        """A call that blocks until a stream, an event or the device is done; sometimes without reason."""
        device, stream = self.dice.randrange(self.devices), self.dice.choice([7, 20])
        kind = self.dice.choice(["Device", "Stream", "Event"])
        mark = self.next_id
        if kind == "Event":
            self.line(f"call t{thread} cudaEventRecord {at} 0 id={mark}")
            self.next_id += 1
        done = (
            max(self.free.values(), default=at) if kind == "Device" else self.free.get((device, stream), at)
        )
        end = max(at, done) + self.time(1) if self.dice.random() < 0.8 else at + self.time(10)
        self.line(f"call t{thread} cuda{kind}Synchronize {at} {end - at} id={self.next_id}")
        if self.dice.random() < 0.6:
            name = {"Device": "Context Sync"}.get(kind, f"{kind} Sync")
            reported = {
                "Device": "stream=-1",
                "Stream": f"stream={stream}",
                "Event": f"stream=-1 wait_on_stream={stream} wait_on_cuda_event_record_corr_id={mark}",
            }[kind]
            self.line(
                f"sync s{stream}@{device} '{name}' {at} {end - at} {reported} device={device} "
                f"correlation={self.next_id} cuda_sync_kind='{name}'"
            )
        return end
