"""Random traces about modules, in the sketch language: trees of modules, backward by number, checkpointing.

Forward runs on thread 1, backward on thread 2. Numbers of operators repeat from step to step, some operators
of forward have none, some modules run twice or only inside of a recomputation, and communication and losses
are launched beside them. The thread of forward is recorded only where operators of one thread have numbers:
without it, the latest operator counts.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

CLASSES = ("Linear", "Block", "Norm")
STEP_NS = 100_000


@dataclass
class Module:
    """An instance with its submodules."""

    name: str
    parts: list[Module]
    checkpointed: bool


@dataclass
class Rank:
    """A rank under construction; `done` has the numbers of this step's operators of forward, in order."""

    dice: random.Random
    lines: list[str] = field(default_factory=list)
    instances: Counter[str] = field(default_factory=Counter)
    next_id: int = 0
    next_number: int = 0
    checkpointing: float = 0.5
    recomputes: bool = False
    done: list[tuple[int, Module | None]] = field(default_factory=list)

    def run(self) -> str:
        """The lines of all steps."""
        net = self.module("Net", 0)
        for step in range(3):
            at, self.done = step * STEP_NS, []
            self.next_number = self.dice.choice([0, self.next_number])
            end = self.forward(net, 1, at, False)
            if self.dice.random() < 0.7:
                end = self.operator(1, end + 10, "aten::mse_loss", None)
            self.backward(end + 100)
        return "\n".join(self.lines)

    def module(self, kind: str, depth: int) -> Module:
        name = f"{kind}_{self.instances[kind]}"
        self.instances[kind] += 1
        count = self.dice.randint(1, 3) if depth == 0 else self.dice.choice([0, 0, 1, 2]) if depth < 3 else 0
        parts = [self.module(self.dice.choice(CLASSES), depth + 1) for _ in range(count)]
        checkpointed = depth > 0 and self.dice.random() < self.checkpointing
        self.recomputes |= checkpointed
        return Module(name, parts, checkpointed)

    def forward(self, module: Module, thread: int, at: int, again: bool) -> int:
        """A call of a module; returns its end."""
        start, at = at, at + self.dice.choice([0, 10])
        for _ in range(self.dice.randint(0, 2)):
            at = self.operator(thread, at, "aten::linear", module if not again else None)
        for part in module.parts:
            for _ in range(self.dice.choice([1, 1, 1, 2])):
                at = self.forward(part, thread, at, again)
        self.lines.append(f'py t{thread} "nn.Module: {module.name}" {start} {at + 10 - start}')
        return at + 20

    def operator(self, thread: int, at: int, name: str, module: Module | None) -> int:
        number = ""
        if self.dice.random() < 0.8:
            number = f'"Sequence number={self.next_number}"'
            self.done.append((self.next_number, module))
            self.next_number += 1
        end = self.launch(thread, at + 10)
        if self.dice.random() < 0.3:  # a wrapper with the same number, which may start at the same time
            self.lines.append(f"op t{thread} aten::wrapped {at} {end - at + 10} {number}")
        inner = self.dice.choice([0, 5])
        self.lines.append(f"op t{thread} {name} {at + inner} {end - at - inner + 5} {number}")
        return end + 20

    def launch(self, thread: int, at: int) -> int:
        """Zero to two launches; returns the end of the last one."""
        for _ in range(self.dice.choice([0, 1, 1, 2])):
            self.next_id += 1
            name = "ncclDevKernel_AllReduce" if self.dice.random() < 0.1 else "k"
            self.lines.append(f"call t{thread} cudaLaunchKernel {at} 5 id={self.next_id}")
            self.lines.append(f"gpu s7 {name} {at + 500_000} 10 id={self.next_id}")
            at += 10
        return at

    def backward(self, at: int) -> None:
        """The operators of forward in reverse, on thread 2; a recomputation adds its own in between."""
        todo = list(self.done)
        while todo:
            number, module = todo.pop()
            start = at
            at = self.launch(2, at + 10)
            if module is not None and module.checkpointed:
                self.done, frame = [], at
                at = self.forward(module, 2, at + 5, True)
                self.lines.append(f"py t2 'checkpoint.py(1): recompute_fn' {frame} {at - frame + 5}")
                todo += self.done
                at += 10
            at = self.launch(2, at + 10)
            threads = self.dice.choice(['"Fwd thread id=1"', ""]) if not self.recomputes else ""
            name = self.dice.choice(["AddmmBackward0", "AddmmBackward0", "torch::autograd::AccumulateGrad"])
            engine = f"autograd::engine::evaluate_function: {name}"
            self.lines.append(
                f'op t2 "{engine}" {start} {at + 10 - start} "Sequence number={number}" {threads}'
            )
            at += 30


def sketch(run: str, rank: int, seed: int) -> str:
    """The trace of a rank."""
    dice = random.Random(f"modules {seed} {rank}")
    lines = Rank(dice, checkpointing=0.1 if rank else 0.9).run().splitlines()
    return "\n".join(f"{run} {rank} {line}" for line in lines)
