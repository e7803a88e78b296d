"""The program of one training or inference step on a pipeline stage: host slices, launches, collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import cycle, islice

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.simulation.job import (
    COMPUTE,
    DATA,
    STAGE,
    TENSOR,
    Collective,
    Event,
    Frame,
    Graph,
    Kernel,
    Memory,
    Op,
    Operand,
    Spend,
    Tape,
)
from tracewarehouse.simulation.kernels import ELEMENT_BYTES, VOCABULARY, Kernels, Model, Variant
from tracewarehouse.simulation.truth import decode_annotation

Shape = tuple[int, ...]
# Elementwise operators of a fault, in turn: names, kernel, inputs, and how often it reads or writes a tensor.
ELEMENTWISE = {
    "slow-elementwise": ((("aten::add",), "strided_add", 2, 3),),
    "fusible-chain": (
        (("aten::mul",), "mul", 1, 2),
        (("aten::add",), "add", 2, 3),
        (("aten::gelu",), "gelu", 1, 2),
        (("aten::dropout", "aten::native_dropout"), "dropout", 1, 2),
    ),
}
# As PyTorch 2.13 records them; before, they are annotations.
COMPILING = ("_compile.compile_inner", "compile_fx_inner", "async_compile.wait")
ROOTS = ("train.py(1): <module>", "train.py(120): main")  # the outermost Python frames


class Work(Struct, frozen=True):
    """An operator of the backward pass: its kernel and inputs."""

    op: str
    kernel: Kernel
    shapes: tuple[Shape, ...] = ()
    values: tuple[tuple[int, str], ...] = ()


class Node(Struct, frozen=True):
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

    def annotation(self, name: str) -> AbstractContextManager[None]:
        """A user annotation."""
        return self.frame(Frame("user_annotation", name))

    def op(self, name: str, shapes: Sequence[Shape]) -> AbstractContextManager[None]:
        """A CPU operator without a backward one."""
        return self.frame(Frame("cpu_op", name, tuple(shapes)))

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
            number = sequence if inner and self.grad else None
            forward = number is not None
            arguments = values if inner else ()
            frame = Frame("cpu_op", name, tuple(shapes), sequence=number, forward=forward, values=arguments)
            self.begin(frame)
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
        self.nodes[-1] = replace(self.nodes[-1], then=tuple(lines))

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
        if node.name == "AddmmBackward0":  # the gradient of a weight
            name = "torch::autograd::AccumulateGrad"
            with self.evaluation(name), self.frame(Frame("cpu_op", name, ((1,),))):
                pass

    @contextmanager
    def evaluation(self, name: str, sequence: int | None = None) -> Iterator[None]:
        """The autograd engine's slice around a node; old PyTorch versions do not record it."""
        if self.old:
            yield
            return
        called = f"autograd::engine::evaluate_function: {name}"
        with self.frame(Frame("cpu_op", called, sequence=sequence, backward=sequence is not None)):
            yield

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


class Layers:
    """Forward pass of the layers of a stage, for training and inference."""

    def __init__(self, model: Model, program: Program, variant: Variant) -> None:
        self.model, self.program, self.variant = model, program, variant
        self.job, self.kernels = model.job, model.kernels
        self.tokens, self.hidden = round(model.tokens * variant.tokens), model.job.hidden
        self.part = max(self.hidden // self.job.tensor, 1)

    def block(self, number: int) -> None:
        """One layer: attention and feed-forward, each with normalization and residual."""
        with self.program.module("Block", number):
            if self.job.sharded and self.job.data > 1:
                weights = self.model.collective("all_gather", DATA, 12 * self.hidden * self.part)
                self.program.collective(weights, "_allgather_base_", wait=True)
            self._norm(2 * number)
            with self.program.module("Attention", number):
                self._linear(4 * number, self.hidden, 3 * self.part)
                self._attention()
                self._linear(4 * number + 1, self.part, self.hidden)
            self._reduce()
            self._dropout(2 * number)
            self._sum()
            self._norm(2 * number + 1)
            self._feed_forward(number)

    def _feed_forward(self, number: int) -> None:
        exchange = self.job.experts and self.job.data > 1
        with self.program.module("MLP", number):
            if exchange:
                self._exchange()
            for _ in range(self.variant.calls):
                self._linear(4 * number + 2, self.hidden, 4 * self.part)
                self._gelu(number)
                self._linear(4 * number + 3, 4 * self.part, self.hidden)
            if exchange:
                self._exchange()
        self._reduce()
        self._dropout(2 * number + 1)
        self._sum()

    def _linear(self, number: int, inner: int, columns: int) -> None:
        kernels, tokens = self.kernels, self.tokens
        work = (
            Work("aten::mm", kernels.gemm(tokens, columns, inner), ((tokens, columns), (columns, inner))),
            Work("aten::mm", kernels.gemm(columns, tokens, inner), ((columns, tokens), (tokens, inner))),
            Work("aten::sum", kernels.stream("reduce", tokens * columns, 1), ((tokens, columns), ())),
        )
        shapes = ((columns,), (tokens, inner), (inner, columns))
        with self.program.module("Linear", number):
            names = ("aten::linear", "aten::addmm")
            product = kernels.gemm(tokens, inner, columns)
            self.program.forward(names, shapes, (product,), "AddmmBackward0", work, tokens * columns)

    def _norm(self, number: int) -> None:
        rows = (self.tokens, self.hidden)
        work = (
            Work("aten::native_layer_norm_backward", self._wide("layer_norm_backward", 3), (rows, rows)),
            Work("aten::sum", self._wide("reduce", 1), (rows, ())),
        )
        with self.program.module("LayerNorm", number):
            self.program.forward(
                ("aten::layer_norm", "aten::native_layer_norm"),
                (rows, (), (self.hidden,), (self.hidden,)),
                (self._wide("layer_norm", 2),),
                "NativeLayerNormBackward0",
                work,
                self.tokens * self.hidden,
            )

    def _attention(self) -> None:
        back = self.kernels.flash("flash_backward", self.tokens, self.part)
        shape = (self.job.batch, 8, self.tokens // self.job.batch, max(self.part // 8, 1))
        input_shapes = (shape,) * 5 + (shape[:3],) + ((),) * 6

        def causal(at: int) -> tuple[tuple[int, str], ...]:
            return ((at, "True"),)

        self.program.forward(
            ("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention"),
            (shape, shape, shape, *((), ()) * self.job.inputs),
            (self.kernels.flash("flash", self.tokens, self.part),),
            "ScaledDotProductFlashAttentionBackward0",
            (Work("aten::_scaled_dot_product_flash_attention_backward", back, input_shapes, causal(11)),),
            self.tokens * self.part,
            causal(4) * self.job.inputs,
        )

    def _gelu(self, number: int) -> None:
        kernel = self.kernels.stream("gelu", 4 * self.tokens * self.part)
        back = self.kernels.stream("gelu", 4 * self.tokens * self.part, 3)
        with self.program.module("GELU", number):
            shapes = ((self.tokens, 4 * self.part),)
            work = (Work("aten::gelu_backward", back, shapes * 2),)
            self.program.forward(("aten::gelu",), shapes, (kernel,), "GeluBackward0", work)

    def _dropout(self, number: int) -> None:
        if self.job.mode == "inference":
            return
        rows = (self.tokens, self.hidden)
        with self.program.module("Dropout", number):
            self.program.forward(
                ("aten::dropout", "aten::native_dropout"),
                (rows, (), ()),
                (self._wide("dropout", 2),),
                "NativeDropoutBackward0",
                (Work("aten::native_dropout_backward", self._wide("add", 2), (rows, rows, ())),),
            )

    def _sum(self) -> None:
        shapes = ((self.tokens, self.hidden), (self.tokens, self.hidden), ())
        kernel = self._wide("add", 3)
        self.program.forward(("aten::add",), shapes, (kernel,), "AddBackward0", ())

    def _wide(self, key: str, passes: int) -> Kernel:
        return self.kernels.stream(key, self.tokens * self.hidden, passes)

    def _reduce(self) -> None:
        if self.job.tensor == 1:
            return
        sums = self.model.collective("allreduce", TENSOR, self.model.tokens * self.hidden)
        self._both_ways(sums, "allreduce_")

    def _exchange(self) -> None:
        tokens = self.model.collective("all_to_all", DATA, self.model.tokens * self.hidden)
        self._both_ways(tokens, "alltoall_base_")

    def _both_ways(self, collective: Collective, op: str) -> None:
        """A collective that the backward pass repeats."""
        self.program.collective(collective, op, wait=True)
        if self.job.mode == "training":
            self.program.after(collective_lines(collective, op, wait=True))

    def embed(self) -> None:
        """The embedding, on the first stage."""
        kernel, rows = self._wide("embedding", 2), (self.tokens, self.hidden)
        with self.program.module("Embedding", 0):
            self.program.forward(
                ("aten::embedding", "aten::index_select"),
                ((VOCABULARY, self.hidden), (self.tokens,)),
                (kernel,),
                "EmbeddingBackward0",
                (
                    Work(
                        "aten::embedding_dense_backward",
                        self._wide("embedding", 3),
                        (rows, rows[:1], (), (), ()),
                    ),
                ),
            )

    def stage_layers(self) -> range:
        """The layer numbers of this stage."""
        count = self.job.layers // self.job.pipeline
        return range(self.variant.stage * count, (self.variant.stage + 1) * count)

    def input(self, size: int) -> None:
        """Copies input from pinned host memory."""
        with (
            self.program.op("aten::to", ((size,), (), (), (), ())),
            self.program.op("aten::_to_copy", ((size,), (), (), (), (), ())),
        ):
            self._copy(size, 8 * size)

    def _copy(self, elements: int, size: int, bytes_per_ns: int = 25, fault: str = "") -> None:
        """Copies from pinned host memory."""
        name = "Memcpy HtoD (Host -> Device)" if self.kernels.amd else "Memcpy HtoD (Pinned -> Device)"
        with self.program.op("aten::copy_", ((elements,), (elements,), ())):
            self.program.launch(replace(self.kernels.copy(name, size, bytes_per_ns), fault=fault))

    def _elementwise(self, fault: str, mb: float, count: int, bandwidth: float) -> None:
        """Operators on a tensor, each on the result of the one before."""
        chain = [*islice(cycle(ELEMENTWISE[fault]), count)]
        passes = sum(op[3] for op in chain)
        fused = 2 + sum(op[2] - 1 for op in chain)  # its result, and each input once
        lost = 1 - (bandwidth if fault == "slow-elementwise" else fused / max(passes, 1))
        shape = (max(round(mb * 1_000_000) // (ELEMENT_BYTES * self.hidden), 1), self.hidden)
        size = ELEMENT_BYTES * shape[0] * shape[1]
        for names, key, inputs, passes in chain:
            kernel = self.kernels.stream(key, size // ELEMENT_BYTES, passes, bandwidth)
            for name in names:
                self.program.begin(Frame("cpu_op", name, (*(shape,) * inputs, ())))
            self.program.launch(replace(kernel, fault=fault, lost=lost, bytes=passes * size))
            for _ in names:
                self.program.emit(Op.END)

    def _injected(self) -> None:
        """The operators and the leak that faults add to a step."""
        for _ in self.stage_layers() if self.variant.copied_bytes else ():
            size = self.variant.copied_bytes // len(self.stage_layers())
            rate = self.job.machine.host_bytes_per_ns
            self._copy(size // ELEMENT_BYTES, size, rate, "exposed-copies")
        for fault in self.variant.elementwise:
            self._elementwise(*fault)
        if self.variant.extra_ns:
            with self.program.op("aten::clone", ((self.tokens, self.hidden),)):
                self.program.launch(self.kernels.extra(self.variant.extra_ns))
        if self.variant.leak_bytes:
            self.program.emit(Op.MEMORY, Memory(self.variant.leak_bytes, -1))

    def _pass_on(self, name: str, edge: int, *, wait: bool) -> None:
        size = self.model.tokens * self.hidden
        self.program.collective(self.model.collective(name, STAGE, size, edge), name, wait=wait)

    def item(self) -> None:
        """A blocking `.item()`."""
        name = "Memcpy DtoH (Device -> Host)" if self.kernels.amd else "Memcpy DtoH (Device -> Pageable)"
        with self.program.op("aten::item", ((),)), self.program.op("aten::_local_scalar_dense", ((),)):
            self.program.launch(self.kernels.copy(name, 4))
            self.program.emit(Op.SYNC, COMPUTE)

    def _compiled(self, number: int) -> AbstractContextManager[None]:
        """The region of torch.compile, if it is used, after the lookup; the first microbatch may compile."""
        if self.variant.compiled is None:
            return nullcontext()
        with self.program.frame(Frame("cpu_op", "TorchDynamo Cache Lookup")):
            pass
        category = "cpu_op" if self.job.dialect == "new" else "user_annotation"
        with ExitStack() as stack:
            for name in COMPILING if self.variant.compile_ns and not number else ():
                stack.enter_context(self.program.frame(Frame(category, f"{name} (dynamo_timed)")))
            self.program.emit(Op.SPEND, Spend(self.variant.compile_ns * (not number), "recompilation"))
        return self.program.frame(Frame("cpu_op", f"Torch-Compiled Region: 0/{self.variant.compiled}"))

    def _replay(self, write: Callable[[], None]) -> None:
        """Builds the instructions separately, and adds the kernels as nodes of one graph on one stream."""
        eager = Program(self.kernels, stacks=False, memory=False)
        eager.removed, eager.grad = self.variant.removed, self.job.mode == "training"
        if self.job.capture:
            eager.stacks = self.job.stacks
        program, self.program = self.program, eager
        write()
        self.program = program
        nodes = tuple(part for _, part in eager.lines if isinstance(part, Kernel | Collective))
        lines = eager.tape() if self.job.capture else ()
        with self.program.frame(Frame("cpu_op", "cudagraph_replay", ((),))):
            self.program.emit(Op.GRAPH, Graph(1, nodes, lines))


def step_tape(model: Model, variant: Variant) -> Tape:
    """The instructions of one step, without the profiler annotation."""
    job = model.job
    program = Program(model.kernels, stacks=job.stacks, memory=job.memory)
    program.removed, program.grad = variant.removed, job.mode == "training"
    kind = _Training if job.mode == "training" else _Inference
    kind(model, program, variant).write()
    return program.tape()


class _Training(Layers):
    """Data loading, forward, backward with gradient collectives, optimizer."""

    def write(self) -> None:
        """Adds the instructions of the step."""
        self._data()
        if self.job.graphs:
            self._replay(self._train)
        else:
            self._train()
        self._injected()
        if self.variant.item:
            self.item()

    def _train(self) -> None:
        with self.program.python("train.py(88): forward_backward"):
            nodes = [self._forward(number) for number in range(self.job.microbatches)]
            for number, nodes_of_batch in enumerate(nodes):
                self.program.nodes = nodes_of_batch
                self._backward(number)
        self._optimizer()

    def _data(self) -> None:
        loader = "_MultiProcessingDataLoaderIter" if self.job.workers else "_SingleProcessDataLoaderIter"
        name = f"enumerate(DataLoader)#{loader}.__next__"
        with (
            self.program.python("torch/utils/data/dataloader.py(701): __next__"),
            self.program.annotation(name),
        ):
            self.program.emit(Op.SPEND, Spend(1_000 * self.job.load_us, "data"))
        if self.variant.stage in (self.model.first, self.model.last):
            self.input(self.tokens)
        with self.program.annotation("Optimizer.zero_grad#AdamW.zero_grad"):
            self.program.emit(Op.SPEND, Spend(8_000))
        if self.job.data > 1 and not self.job.sharded:
            buffers = self.model.collective("broadcast", DATA, 4_096)
            self.program.collective(buffers, "broadcast_", wait=True)

    def _forward(self, number: int) -> list[Node]:
        self.program.nodes = []
        with self.program.annotation("forward"), self._compiled(number), self.program.module("GPT", 0):
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
                (
                    Work(
                        "aten::_log_softmax_backward_data", softmax, ((self.tokens, columns),) * 2 + ((), ())
                    ),
                ),
            )

    def _backward(self, number: int) -> None:
        with (
            self.program.annotation("backward"),
            self.program.python("torch/_tensor.py(570): backward"),
            self.program.python("torch/autograd/__init__.py(242): backward"),
        ):
            if self.variant.stage < self.model.last:
                self._pass_on("recv", self.variant.stage, wait=True)
            self.program.emit(Op.THREAD, "autograd")
            if number == self.job.microbatches - 1 and self.job.data > 1:
                self._hook_gradients()
            self.program.backward()
            self.program.emit(Op.THREAD, "main")
            if self.variant.stage > self.model.first:
                self._pass_on("send", self.variant.stage - 1, wait=False)
        if self.job.data > 1:
            done = Event(f"done {DATA}", DATA, COMPUTE)
            self.program.emit(Op.WAIT, done)

    def _hook_gradients(self) -> None:
        """Adds a gradient collective after the backward pass of each layer, on a separate stream."""
        count = 12 * self.hidden * self.part
        name, op = (
            ("reduce_scatter", "_reduce_scatter_base_") if self.job.sharded else ("allreduce", "allreduce_")
        )
        gradient = self.model.collective(name, DATA, count)
        nodes = self.program.nodes
        norms = [index for index, node in enumerate(nodes) if node.name == "NativeLayerNormBackward0"]
        for index in norms[::2]:
            lines = collective_lines(gradient, op, wait=not self.variant.overlap)
            nodes[index] = replace(nodes[index], then=(*nodes[index].then, *lines))

    def _optimizer(self) -> None:
        shards = self.job.data if self.job.sharded else 1
        weights = 12 * self.hidden * self.part // shards
        if self.variant.is_blocked:
            self.item()
        with (
            self.program.python("torch/optim/optimizer.py(484): wrapper"),
            self.program.annotation("Optimizer.step#AdamW.step"),
            self.program.op("aten::_fused_adamw_", ((weights,), (weights,))),
        ):
            self.program.launch(self.kernels.memset(4_096))
            for _ in self.stage_layers() if "adam" not in self.variant.removed else ():
                self.program.launch(self.kernels.stream("adam", weights, 12))


class _Inference(Layers):
    """One token per sequence: inputs, layers (optionally as a graph), and the copy of the result."""

    def write(self) -> None:
        """Adds the instructions of the step."""
        with (
            self.program.python("engine.py(210): step"),
            self.program.annotation(decode_annotation(self.job)),
            self.program.annotation("execute_model"),
        ):
            self.program.emit(Op.SPEND, Spend(40_000, "data"))
            if self.variant.stage > self.model.first:
                self._pass_on("recv", self.variant.stage - 1, wait=True)
            else:
                self.input(self.tokens)
            if self.job.graphs:
                self._replay(self._layers)
            else:
                with self.program.module("GPT", 0):
                    self._layers()
            self._injected()
            if self.variant.stage < self.model.last:
                self._pass_on("send", self.variant.stage, wait=False)
            else:
                self.item()
        self.program.emit(Op.SPEND, Spend(30_000))

    def _layers(self) -> None:
        if self.variant.stage == self.model.first:
            self.embed()
        for layer in self.stage_layers():
            self.block(layer)
        self.program.nodes.clear()
