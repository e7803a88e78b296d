"""Writes down instructions in order, with frames as `with` blocks, and the backward pass as it goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tracewarehouse.simulation.kernels import ELEMENT_BYTES, Kernels
from tracewarehouse.simulation.parts import COMPUTE, Collective, Do, Event, Frame, Kernel, Memory, Part, Tape

Shape = tuple[int, ...]
ROOTS = ("train.py(1): <module>", "train.py(120): main")  # the Python frames around everything


@dataclass(frozen=True)
class Node:
    """What the backward pass owes to a forward operator: its autograd node and the operators under it."""

    name: str
    sequence: int
    work: tuple[tuple[str, Kernel | None], ...]
    then: tuple[tuple[Do, Part], ...] = ()
    frees: Memory | None = None


class Program:
    """A tape in the making."""

    def __init__(self, kernels: Kernels, *, stacks: bool, memory: bool) -> None:
        self.kernels = kernels
        self.old = kernels.job.dialect == "old"  # keeps stacks as an argument, not as slices
        self.stacks = stacks
        self.frames = [*ROOTS]
        self.with_memory = memory
        self.lines: list[tuple[Do, Part]] = []
        self.nodes: list[Node] = []
        self.sequences = 0
        self.keys = 0
        self.removed: frozenset[str] = frozenset()
        self.grad = True
        self.in_backward = False
        self._modules: dict[str, int] = {}

    def tape(self) -> Tape:
        """All that was written down."""
        return tuple(self.lines)

    def do(self, what: Do, part: Part = None) -> None:
        """One instruction."""
        self.lines.append((what, part))

    @contextmanager
    def frame(self, frame: Frame) -> Iterator[None]:
        """What is written inside happens inside the frame."""
        self.begin(frame)
        yield
        self.do(Do.END, frame)

    def begin(self, frame: Frame) -> None:
        """Goes into a frame; what runs on the autograd thread has no Python around it."""
        if self.old and self.stacks and not self.in_backward:
            frame = replace(frame, stack=";".join(reversed(self.frames)))
        self.do(Do.BEGIN, frame)

    @contextmanager
    def python(self, name: str, module: int | None = None) -> Iterator[None]:
        """A Python frame, where stacks are recorded."""
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
        """The frame of an nn.Module and those that lead to it."""
        place = self._modules.setdefault(f"{name}_{number}", len(self._modules))
        with (
            self.python(f"nn.Module: {name}_{number}", module=place),
            self.python(f"model.py({40 + 12 * (len(name) % 9)}): forward"),
        ):
            yield

    @contextmanager
    def note(self, name: str) -> Iterator[None]:
        """A user annotation."""
        with self.frame(Frame("user_annotation", name)):
            yield

    @contextmanager
    def op(self, name: str, shapes: Sequence[Shape] = (), sequence: int | None = None) -> Iterator[None]:
        """An operator of the CPU; with a sequence number it has a backward pass."""
        forward = sequence is not None
        with self.frame(Frame("cpu_op", name, tuple(shapes), sequence=sequence, forward=forward)):
            yield

    def launch(self, kernel: Kernel) -> None:
        """A kernel on the stream of the computation."""
        self.do(Do.LAUNCH, kernel)

    def forward(
        self,
        names: Sequence[str],
        shapes: Sequence[Shape],
        kernels: Sequence[Kernel],
        node: str,
        work: Sequence[tuple[str, Kernel | None]],
        keeps: int = 0,
    ) -> None:
        """Operators nested by name, the innermost launching the kernels; its backward work is kept.

        Nothing at all where the kernel is a removed one.
        """
        if kernels and kernels[0].key in self.removed:
            return
        sequence, self.sequences = self.sequences, self.sequences + 1
        for place, name in enumerate(names):
            inner = place == len(names) - 1
            own = sequence if inner and self.grad else None
            forward = own is not None
            self.begin(Frame("cpu_op", name, tuple(shapes), sequence=own, forward=forward))
        held = self.allocate(keeps * ELEMENT_BYTES) if keeps else None
        for kernel in kernels:
            self.launch(kernel)
        for _ in names:
            self.do(Do.END)
        self.nodes.append(Node(node, sequence, tuple(work), frees=held))

    def allocate(self, size: int) -> Memory | None:
        """Memory taken; returns what gives it back."""
        if not self.with_memory or not size:
            return None
        self.keys += 1
        self.do(Do.MEMORY, Memory(size, self.keys))
        return Memory(-size, self.keys)

    def after(self, lines: Sequence[tuple[Do, Part]]) -> None:
        """Instructions for the backward pass, once the last operator so far has had its turn."""
        last = self.nodes[-1]
        self.nodes[-1] = Node(last.name, last.sequence, last.work, tuple(lines), last.frees)

    def backward(self) -> None:
        """The backward pass of all that was kept, last first, on the autograd thread."""
        self.in_backward = True
        for node in reversed(self.nodes):
            self._evaluate(node)
        self.nodes.clear()
        self.in_backward = False

    def _evaluate(self, node: Node) -> None:
        name = node.name.removesuffix("0") if self.old else node.name
        with self.evaluation(name, node.sequence):
            with self.frame(Frame("cpu_op", name, (), sequence=node.sequence)):
                for op, kernel in node.work:
                    if kernel is not None and kernel.key in self.removed:
                        continue
                    with self.op(op):
                        if kernel is not None:
                            self.launch(kernel)
            if node.frees is not None:
                self.do(Do.MEMORY, node.frees)
            self.lines.extend(node.then)
        if node.name == "AddmmBackward0":
            self._accumulate()

    @contextmanager
    def evaluation(self, name: str, sequence: int | None = None) -> Iterator[None]:
        """The engine's own slice around an autograd node, which old torch did not record."""
        if self.old:
            yield
            return
        called = f"autograd::engine::evaluate_function: {name}"
        with self.frame(Frame("cpu_op", called, sequence=sequence, backward=sequence is not None)):
            yield

    def _accumulate(self) -> None:
        """The gradient of a weight is added to what is there."""
        name = "torch::autograd::AccumulateGrad"
        with self.evaluation(name), self.frame(Frame("cpu_op", name, ((1,),))):
            pass

    def collective(self, collective: Collective, op: str, *, wait: bool) -> None:
        """A collective after what the computation did so far; `wait` lets the computation wait for it."""
        for what, part in collective_lines(collective, op, wait=wait):
            if isinstance(part, Frame) and what is Do.BEGIN:
                self.begin(part)
            else:
                self.do(what, part)


def collective_lines(collective: Collective, op: str, *, wait: bool) -> list[tuple[Do, Part]]:
    """The instructions of a collective: operators, annotation, events and the kernel on its own stream."""
    shape = ((collective.in_elements,),)
    frames = [
        Frame("cpu_op", f"c10d::{op}", shape),
        Frame("cpu_op", "record_param_comms", shape),
        Frame("user_annotation", f"nccl:{collective.name}", shape),
    ]
    lines: list[tuple[Do, Part]] = [(Do.BEGIN, frame) for frame in frames]
    lines += [
        (Do.RECORD, Event("ready", COMPUTE)),
        (Do.WAIT, Event("ready", COMPUTE, collective.scope)),
        (Do.COLLECTIVE, collective),
        (Do.RECORD, Event(f"done {collective.scope}", collective.scope)),
    ]
    lines += [(Do.END, frame) for frame in reversed(frames)]
    if wait:
        lines.append((Do.WAIT, Event(f"done {collective.scope}", collective.scope, COMPUTE)))
    return lines
