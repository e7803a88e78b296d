"""Builds the instructions of a step, with frames as `with` blocks, and derives the backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tracewarehouse.simulation.instructions import (
    COMPUTE,
    Collective,
    Event,
    Frame,
    Kernel,
    Memory,
    Op,
    Operand,
    Tape,
)
from tracewarehouse.simulation.kernels import ELEMENT_BYTES, Kernels

Shape = tuple[int, ...]
ROOTS = ("train.py(1): <module>", "train.py(120): main")  # the outermost Python frames


@dataclass(frozen=True)
class Work:
    """An operator of the backward pass: its kernel and inputs."""

    op: str
    kernel: Kernel
    shapes: tuple[Shape, ...] = ()
    values: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Node:
    """The backward work of a forward operator: its autograd node and the operators in it."""

    name: str
    sequence: int
    work: tuple[Work, ...]
    then: tuple[tuple[Op, Operand], ...] = ()
    frees: Memory | None = None


class Program:
    """A list of instructions under construction."""

    def __init__(self, kernels: Kernels, *, stacks: bool, memory: bool) -> None:
        self.kernels = kernels
        self.old = kernels.job.dialect == "old"  # stacks are an argument, not slices
        self.stacks = stacks
        self.frames = [*ROOTS]
        self.with_memory = memory
        self.lines: list[tuple[Op, Operand]] = []
        self.nodes: list[Node] = []
        self.sequences = 0
        self.keys = 0
        self.removed: frozenset[str] = frozenset()
        self.grad = True
        self.in_backward = False
        self._modules: dict[str, int] = {}

    def tape(self) -> Tape:
        """The instructions so far."""
        return tuple(self.lines)

    def emit(self, op_code: Op, operand: Operand = None) -> None:
        """Appends an instruction."""
        self.lines.append((op_code, operand))

    @contextmanager
    def frame(self, frame: Frame) -> Iterator[None]:
        """Encloses the instructions of the block in a frame."""
        self.begin(frame)
        yield
        self.emit(Op.END, frame)

    def begin(self, frame: Frame) -> None:
        """Begins a frame; the autograd thread has no Python frames."""
        if self.old and self.stacks and not self.in_backward:
            frame = replace(frame, stack=";".join(reversed(self.frames)))
        self.emit(Op.BEGIN, frame)

    @contextmanager
    def python(self, name: str, module: int | None = None) -> Iterator[None]:
        """A Python frame, if stacks are recorded."""
        if not self.stacks:
            yield
            return
        if self.old:
            self.frames.append(name)
            yield
            self.frames.pop()
            return
        with self.frame(Frame("python_function", name, lead_ns=900, tail_ns=400, module=module)):
            yield

    @contextmanager
    def module(self, name: str, number: int = 0) -> Iterator[None]:
        """The frames of an nn.Module call."""
        index = self._modules.setdefault(f"{name}_{number}", len(self._modules))
        with (
            self.python(f"nn.Module: {name}_{number}", module=index),
            self.python(f"model.py({40 + 12 * (len(name) % 9)}): forward"),
        ):
            yield

    @contextmanager
    def annotation(self, name: str) -> Iterator[None]:
        """A user annotation."""
        with self.frame(Frame("user_annotation", name)):
            yield

    @contextmanager
    def op(self, name: str, shapes: Sequence[Shape] = (), sequence: int | None = None) -> Iterator[None]:
        """A CPU operator; with a sequence number it has a backward operator."""
        forward = sequence is not None
        with self.frame(Frame("cpu_op", name, tuple(shapes), sequence=sequence, forward=forward)):
            yield

    def launch(self, kernel: Kernel) -> None:
        """Launches a kernel on the compute stream."""
        self.emit(Op.LAUNCH, kernel)

    def forward(
        self,
        names: Sequence[str],
        shapes: Sequence[Shape],
        kernels: Sequence[Kernel],
        node: str,
        work: Sequence[Work],
        keeps: int = 0,
        values: tuple[tuple[int, str], ...] = (),
    ) -> None:
        """Adds nested operators, the innermost of which launches the kernels, and stores the backward work.

        Does nothing if the kernel is removed.
        """
        if kernels and kernels[0].key in self.removed:
            return
        sequence, self.sequences = self.sequences, self.sequences + 1
        for index, name in enumerate(names):
            inner = index == len(names) - 1
            own = sequence if inner and self.grad else None
            forward = own is not None
            given = values if inner else ()
            self.begin(Frame("cpu_op", name, tuple(shapes), sequence=own, forward=forward, values=given))
        held = self.allocate(keeps * ELEMENT_BYTES) if keeps else None
        for kernel in kernels:
            self.launch(kernel)
        for _ in names:
            self.emit(Op.END)
        self.nodes.append(Node(node, sequence, tuple(work), frees=held))

    def allocate(self, size: int) -> Memory | None:
        """Allocates memory; returns the instruction that frees it."""
        if not self.with_memory or not size:
            return None
        self.keys += 1
        self.emit(Op.MEMORY, Memory(size, self.keys))
        return Memory(-size, self.keys)

    def after(self, lines: Sequence[tuple[Op, Operand]]) -> None:
        """Adds instructions to the backward pass, after those of the last operator."""
        last = self.nodes[-1]
        self.nodes[-1] = Node(last.name, last.sequence, last.work, tuple(lines), last.frees)

    def backward(self) -> None:
        """Adds the backward pass of all stored operators in reverse order, on the autograd thread."""
        self.in_backward = True
        for node in reversed(self.nodes):
            self._evaluate(node)
        self.nodes.clear()
        self.in_backward = False

    def _evaluate(self, node: Node) -> None:
        name = node.name.removesuffix("0") if self.old else node.name
        with self.evaluation(name, node.sequence):
            with self.frame(Frame("cpu_op", name, (), sequence=node.sequence)):
                for work in node.work:
                    if work.kernel.key in self.removed:
                        continue
                    inputs = (work.shapes, work.values) if self.kernels.job.inputs else ((), ())
                    with self.frame(Frame("cpu_op", work.op, inputs[0], values=inputs[1])):
                        self.launch(work.kernel)
            if node.frees is not None:
                self.emit(Op.MEMORY, node.frees)
            self.lines.extend(node.then)
        if node.name == "AddmmBackward0":
            self._accumulate()

    @contextmanager
    def evaluation(self, name: str, sequence: int | None = None) -> Iterator[None]:
        """The autograd engine's slice around a node; old PyTorch versions do not record it."""
        if self.old:
            yield
            return
        called = f"autograd::engine::evaluate_function: {name}"
        with self.frame(Frame("cpu_op", called, sequence=sequence, backward=sequence is not None)):
            yield

    def _accumulate(self) -> None:
        """Accumulates the gradient of a weight."""
        name = "torch::autograd::AccumulateGrad"
        with self.evaluation(name), self.frame(Frame("cpu_op", name, ((1,),))):
            pass

    def collective(self, collective: Collective, op: str, *, wait: bool) -> None:
        """Adds a collective after all computation so far; with `wait`, computation waits for it."""
        for op_code, operand in collective_lines(collective, op, wait=wait):
            if isinstance(operand, Frame) and op_code is Op.BEGIN:
                self.begin(operand)
            else:
                self.emit(op_code, operand)


def collective_lines(collective: Collective, op: str, *, wait: bool) -> list[tuple[Op, Operand]]:
    """The instructions of a collective: operators, annotation, events, kernel on a separate stream."""
    shape = ((collective.in_elements,),)
    frames = [
        Frame("cpu_op", f"c10d::{op}", shape),
        Frame("cpu_op", "record_param_comms", shape),
        Frame("user_annotation", f"nccl:{collective.name}", shape),
    ]
    lines: list[tuple[Op, Operand]] = [(Op.BEGIN, frame) for frame in frames]
    lines += [
        (Op.RECORD, Event("ready", COMPUTE)),
        (Op.WAIT, Event("ready", COMPUTE, collective.scope)),
        (Op.COLLECTIVE, collective),
        (Op.RECORD, Event(f"done {collective.scope}", collective.scope)),
    ]
    lines += [(Op.END, frame) for frame in reversed(frames)]
    if wait:
        lines.append((Op.WAIT, Event(f"done {collective.scope}", collective.scope, COMPUTE)))
    return lines
