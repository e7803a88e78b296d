"""One step of training or inference on one pipeline stage: what the host does, in order."""

from __future__ import annotations

from tracewarehouse.simulation.layers import Layers
from tracewarehouse.simulation.model import VOCABULARY, Model, Variant
from tracewarehouse.simulation.parts import (
    COMPUTE,
    DATA,
    Do,
    Event,
    Memory,
    Spend,
    Tape,
)
from tracewarehouse.simulation.program import Node, Program, collective_lines


class Tapes:
    """The instructions of a job's steps, one tape per variant."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._made: dict[Variant, Tape] = {}

    def of(self, variant: Variant) -> Tape:
        """The instructions of one step, the mark of the profiler aside."""
        if variant not in self._made:
            job = self.model.job
            program = Program(self.model.kernels, stacks=job.stacks, memory=job.memory)
            program.removed, program.grad = variant.removed, job.mode == "training"
            kind = _Training if job.mode == "training" else _Inference
            kind(self.model, program, variant).write()
            self._made[variant] = program.tape()
        return self._made[variant]


class _Training(Layers):
    """Data, forward, backward with its gradient collectives, optimizer."""

    def write(self) -> None:
        """Writes the step down."""
        self._data()
        if self.job.graphs:
            self._replay(self._train)
        else:
            self._train()
        if self.variant.extra_ns:
            with self.program.op("aten::clone", ((self.tokens, self.hidden),)):
                self.program.launch(self.kernels.fixed("extra", self.variant.extra_ns))
        if self.variant.leak_bytes:
            self.program.do(Do.MEMORY, Memory(self.variant.leak_bytes, -1))
        if self.variant.item:
            self.item()

    def _train(self) -> None:
        with self.program.python("train.py(88): forward_backward"):
            nodes = [self._forward(number) for number in range(self.job.microbatches)]
            for number, kept in enumerate(nodes):
                self.program.nodes = kept
                self._backward(number)
        self._optimizer()

    def _data(self) -> None:
        loader = "_MultiProcessingDataLoaderIter" if self.job.workers else "_SingleProcessDataLoaderIter"
        name = f"enumerate(DataLoader)#{loader}.__next__"
        with self.program.python("torch/utils/data/dataloader.py(701): __next__"), self.program.note(name):
            self.program.do(Do.SPEND, Spend(1_000 * self.job.load_us, "data"))
        if self.variant.stage in (self.model.first, self.model.last):
            self.input(self.tokens)
        with self.program.note("Optimizer.zero_grad#AdamW.zero_grad"):
            self.program.do(Do.SPEND, Spend(8_000))
        if self.job.data > 1 and not self.job.sharded:
            buffers = self.model.collective("broadcast", DATA, 4_096)
            self.program.collective(buffers, "broadcast_", wait=True)

    def _forward(self, number: int) -> list[Node]:
        self.program.nodes = []
        with self.program.note("forward"), self.program.module("GPT", 0):
            if self.variant.stage > self.model.first:
                self._pass_on("recv", self.variant.stage - 1, wait=True)
            else:
                self.embed()
            for layer in self.stage_layers():
                self.block(layer)
            if self.variant.stage == self.model.last:
                self._loss()
            else:
                self._pass_on("send", self.variant.stage, wait=False)
        return self.program.nodes

    def _loss(self) -> None:
        columns = max(VOCABULARY // self.job.tensor, 1)
        self._linear(4 * self.job.layers, self.hidden, columns)
        softmax = self.kernels.stream("softmax", self.tokens * columns)
        with self.program.module("CrossEntropyLoss", 0):
            self.program.forward(
                ("aten::cross_entropy_loss", "aten::log_softmax", "aten::_log_softmax"),
                ((self.tokens, columns), (), ()),
                (softmax,),
                "LogSoftmaxBackward0",
                (("aten::_log_softmax_backward_data", softmax),),
            )

    def _backward(self, number: int) -> None:
        with (
            self.program.note("backward"),
            self.program.python("torch/_tensor.py(570): backward"),
            self.program.python("torch/autograd/__init__.py(242): backward"),
        ):
            if self.variant.stage < self.model.last:
                self._pass_on("recv", self.variant.stage, wait=True)
            self.program.do(Do.THREAD, "autograd")
            if number == self.job.microbatches - 1 and self.job.data > 1:
                self._hook_gradients()
            self.program.backward()
            self.program.do(Do.THREAD, "main")
            if self.variant.stage > self.model.first:
                self._pass_on("send", self.variant.stage - 1, wait=False)
        if self.job.data > 1:
            done = Event(f"done {DATA}", DATA, COMPUTE)
            self.program.do(Do.WAIT, done)

    def _hook_gradients(self) -> None:
        """After the gradients of each layer are there, they go round on their own stream."""
        count = 12 * self.hidden * self.part
        name, op = (
            ("reduce_scatter", "_reduce_scatter_base_") if self.job.sharded else ("allreduce", "allreduce_")
        )
        gradient = self.model.collective(name, DATA, count)
        nodes = self.program.nodes
        norms = [at for at, node in enumerate(nodes) if node.name == "NativeLayerNormBackward0"]
        for at in norms[::2]:
            node = nodes[at]
            lines = (*node.then, *collective_lines(gradient, op, wait=not self.variant.overlap))
            nodes[at] = type(node)(node.name, node.sequence, node.work, lines, node.frees)

    def _optimizer(self) -> None:
        shards = self.job.data if self.job.sharded else 1
        weights = 12 * self.hidden * self.part // shards
        with (
            self.program.python("torch/optim/optimizer.py(484): wrapper"),
            self.program.note("Optimizer.step#AdamW.step"),
            self.program.op("aten::_fused_adamw_", ((weights,), (weights,))),
        ):
            self.program.launch(self.kernels.memset(4_096))
            for _ in self.stage_layers() if "adam" not in self.variant.removed else ():
                self.program.launch(self.kernels.stream("adam", weights, 12))


class _Inference(Layers):
    """One token for each sequence: inputs, layers (as a graph, where asked for), the answer back."""

    def write(self) -> None:
        """Writes the step down."""
        with self.program.python("engine.py(210): step"), self.program.note("execute_model"):
            self.program.do(Do.SPEND, Spend(40_000, "data"))
            if self.variant.stage > self.model.first:
                self._pass_on("recv", self.variant.stage - 1, wait=True)
            else:
                self.input(self.tokens)
            if self.job.graphs:
                self._replay(self._layers)
            else:
                with self.program.module("GPT", 0):
                    self._layers()
            if self.variant.extra_ns:
                with self.program.op("aten::clone", ((self.tokens, self.hidden),)):
                    self.program.launch(self.kernels.fixed("extra", self.variant.extra_ns))
            if self.variant.leak_bytes:
                self.program.do(Do.MEMORY, Memory(self.variant.leak_bytes, -1))
            if self.variant.stage < self.model.last:
                self._pass_on("send", self.variant.stage, wait=False)
            else:
                self.item()
        self.program.do(Do.SPEND, Spend(30_000))

    def _layers(self) -> None:
        if self.variant.stage == self.model.first:
            self.embed()
        for layer in self.stage_layers():
            self.block(layer)
        self.program.nodes.clear()
