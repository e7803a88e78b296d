"""Random traces about operators, in the sketch language, on top of `random_traces`.

Operators nest, recurse, contain Python frames, extend beyond enclosing slices, have zero duration, and
come from more than one thread; annotations nest and cross; communication belongs to process groups; some
calls launch nothing, or launch by functions that no rule knows.
"""

from __future__ import annotations

from witness import random_traces
from witness.random_traces import GRID_NS

OPERATORS = ("aten::linear", "aten::addmm", "aten::linear", "aten::copy_", "AddmmBackward0")
SHAPES = ("[[2,3],[3,4]]", "[[2,3],[]]", None)
FUNCTIONS = ("cudaLaunchKernel",) * 6 + ("cudaMemcpyAsync", "hipExtModuleLaunchKernel", "tripleRun")
NOTES = ("forward", "backward", "Optimizer.step#SGD.step")
GROUPS = ("tp", "tp", "dp", None)


class Rank(random_traces.Rank):
    """A rank under construction."""

    def thread(self, thread: int) -> None:
        """Trees of operators in sequence, with annotations enclosing them."""
        at = self.time(100)
        for _ in range(self.dice.randint(0, 9)):
            at = self.operator(thread, at, 1) + self.time(40)
        for _ in range(self.dice.randint(0, 8)):
            self.lines.append(
                f"ann t{thread} '{self.dice.choice(NOTES)}' {self.time(at)} {self.time(at // 2)}"
            )
        if self.dice.random() < 0.5:
            start = self.time(at)
            self.lines.append(
                f'raw {{"ph": "X", "cat": "gpu_user_annotation", "name": "forward", "pid": 0, "tid": 7, '
                f'"ts": {start / 1000}, "dur": 0.05, "args": {{}}}}'
            )

    def operator(self, thread: int, start: int, depth: int) -> int:
        """An operator with its contents; returns its end, or a later time if it extends beyond its parent."""
        name, shapes = self.dice.choice(OPERATORS), self.dice.choice(SHAPES)
        at = start + self.dice.choice([0, GRID_NS, self.time(30)])
        for _ in range(self.dice.choice([0, 1, 1, 2, 3])):
            at = self.part(thread, at, depth) + self.time(20)
        is_long = self.dice.random() < 0.06
        length = at - start + (self.time(300) if is_long else 0)
        reported = f"'Input Dims={shapes}'" if shapes else ""
        self.lines.append(f"op t{thread} {name} {start} {length} {reported}")
        return at

    def part(self, thread: int, at: int, depth: int) -> int:
        """A call, a frame or a further operator inside one."""
        kind = self.dice.random()
        if depth > 4 or kind < 0.5:
            return self.call(thread, at)
        end = self.operator(thread, at, depth + 1)
        if kind < 0.65:
            beyond = self.dice.choice([0, 0, GRID_NS * 5])
            self.lines.append(f"py t{thread} 'frame.py(1): f' {at} {end - at + beyond}")
        return end

    def call(self, thread: int, at: int) -> int:
        """A host call and what it launches; returns its end."""
        if self.dice.random() < 0.3:
            return super().call(thread, at)
        self.next_id += 1
        length = self.dice.choice([GRID_NS, self.time(60), self.time(60), 60_000])
        api = self.dice.choice(FUNCTIONS)
        self.lines.append(f"call t{thread} {api} {at} {length} id={self.next_id}")
        for _ in range(self.dice.choice([0, 1, 1, 1, 1, 2])):
            late = self.dice.choice([0, 0, 0, 100_000, 100_010])
            self.gpu(at + length + late - self.dice.choice([0, 0, 20]), f"id={self.next_id}")
        return at + length

    def gpu(self, at: int, identity: str) -> None:
        super().gpu(at, identity)
        group = self.dice.choice(GROUPS)
        if group is not None and "nccl" in self.lines[-1]:
            self.lines[-1] += f' "Collective name"=allreduce "Process Group Name"={group}'
