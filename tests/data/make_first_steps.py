"""Draw `first-steps`: 4 ranks × 3 steps of a small data-parallel training job that never ran.

    python tests/data/make_first_steps.py      # writes first-steps.sketch and first-steps/rank*.json.gz

What it shows: the GPU idles while the loader works, rank 2's loader is slow, so in each step the other ranks'
first all_reduce waits for it; gradients are reduced beside the backward pass; one copy at the very start was
launched before the recording began. Times are ns; the same script gives the same bytes.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
import sketch

HERE = Path(__file__).parent
RUN = "first-steps"
RANKS = range(4)
SLOW_RANK = 2
STEPS = range(10, 13)
LAYERS = (512, 256, 64)  # outputs of each linear layer
BATCH, INPUTS = 128, 1024
MAIN, BACKWARD = 1, 2  # host threads
COMPUTE, COMM = 7, 20  # streams
LOAD_NS, SLOW_LOAD_NS = 180_000, 620_000
CALL_NS = 6_000
GROUP = {
    "Process Group Name": "0",
    "Process Group Description": "default_pg",
    "Process Group Ranks": "[0, 1, 2, 3]",
    "Group size": len(RANKS),
    "dtype": "Float",
    "In split size": "[]",
    "Out split size": "[]",
}


@dataclass
class Rank:
    """A rank's clocks, all in ns, and the lines drawn so far."""

    number: int
    dice: random.Random
    lines: list[str] = field(default_factory=list)
    host: int = 40_000
    compute: int = 0
    comm: int = 0
    correlation: int = 100
    frame: int = 0
    collective: int = 0

    def add(self, verb: str, *words: object, **args: object) -> None:
        """One sketch line; underscores in the name of an argument are blanks."""
        pairs = {key.replace("_", " "): value for key, value in args.items()}
        quoted = [f"'{word}'" if " " in str(word) else str(word) for word in words]
        keyed = [f"'{key}={json.dumps(value)}'" for key, value in pairs.items()]
        self.lines.append(" ".join([RUN, str(self.number), verb, *quoted, *keyed]))

    def about(self, ns: int) -> int:
        """A duration within 4 % of `ns`."""
        return int(ns * (0.96 + 0.08 * self.dice.random()))

    def launch(
        self, thread: int, kernel: str, ns: int, api: str = "cudaLaunchKernel", **args: object
    ) -> None:
        """A host call, its kernel on the compute stream once that is free, and the arrow between them."""
        self.correlation += 1
        start = self.host
        self.host += self.about(CALL_NS)
        began = max(self.host + 1_500, self.compute)
        self.compute = began + self.about(ns)
        self.add("call", f"t{thread}", api, start, self.host - start, id=self.correlation)
        self.add("gpu", f"s{COMPUTE}", kernel, began, self.compute - began, id=self.correlation, **args)
        self.add("flow", "ac2g", self.correlation, f"t{thread}:{start}", f"s{COMPUTE}:{began}")

    def op(self, thread: int, name: str, dims: object, kernels: list[tuple[str, int]]) -> None:
        """An operator that launches kernels, shapes recorded."""
        start, place = self.host, len(self.lines)
        self.host += self.about(4_000)
        for kernel, ns in kernels:
            if kernel.startswith("Memset"):
                self.launch(thread, kernel, ns, "cudaMemsetAsync", bytes=ns * 800)
            else:
                self.launch(thread, kernel, ns, grid=[max(1, ns // 1_000), 1, 1], block=[256, 1, 1])
        self.host += self.about(2_000)
        types = ["float"] * len(dims) if isinstance(dims, list) else []
        self.add("op", f"t{thread}", name, start, self.host - start, Input_Dims=dims, Input_type=types)
        self.lines.insert(place, self.lines.pop())

    def module(self, name: str, start: int, frame: int, parent: int | None) -> None:
        """A module's Python frame from `start` to now."""
        args = {"Python_id": frame, "Python_parent_id": parent, "Python_module_id": frame % 4}
        self.add("py", f"t{MAIN}", f"nn.Module: {name}", start, self.host - start, **args)


def load(rank: Rank) -> None:
    """The loader, then the batch's copy to the device."""
    slow = SLOW_LOAD_NS if rank.number == SLOW_RANK else LOAD_NS
    start = rank.host
    rank.host += rank.about(slow)
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    rank.add("ann", f"t{MAIN}", loader, start, rank.host - start)
    size = BATCH * INPUTS * 4
    op_start, place = rank.host, len(rank.lines)
    rank.host += 3_000
    rank.launch(MAIN, "Memcpy HtoD (Pinned -> Device)", 21_000, "cudaMemcpyAsync", bytes=size)
    rank.host += 1_000
    dims = [[BATCH, INPUTS], [BATCH, INPUTS], []]
    rank.add("op", f"t{MAIN}", "aten::copy_", op_start, rank.host - op_start, Input_Dims=dims)
    rank.lines.insert(place, rank.lines.pop())


def forward(rank: Rank) -> None:
    """Three linear layers, each with its activation."""
    start, place, inputs, whole = rank.host, len(rank.lines), INPUTS, rank.frame
    rank.frame += 4
    for number, outputs in enumerate(LAYERS):
        began = rank.host
        rank.host += 3_000
        gemm = ("ampere_sgemm_128x64_tn", inputs * outputs // 6)
        rank.op(MAIN, "aten::linear", [[BATCH, inputs], [outputs, inputs], [outputs]], [gemm])
        rank.host += 1_000
        rank.module(f"Linear_{number}", began, whole + 1 + number, whole)
        relu = "void at::native::vectorized_elementwise_kernel<4, relu>(int, relu)"
        rank.op(MAIN, "aten::relu", [[BATCH, outputs]], [(relu, 4_000 + outputs * 8)])
        inputs = outputs
    rank.module("MLP_0", start, whole, None)
    rank.lines.insert(place, rank.lines.pop())
    loss = "void nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*)"
    rank.op(MAIN, "aten::nll_loss_forward", [[BATCH, LAYERS[-1]], [BATCH]], [(loss, 5_000)])


def backward(rank: Rank, layer: int) -> None:
    """One layer's gradients, on the backward thread."""
    inputs, outputs = (INPUTS, *LAYERS)[layer], LAYERS[layer]
    start, place = rank.host, len(rank.lines)
    rank.host += 4_000
    ns = inputs * outputs // 6
    kernels = [("ampere_sgemm_128x64_nt", ns), ("ampere_sgemm_64x64_nn", ns)]
    rank.op(BACKWARD, "aten::mm", [[outputs, BATCH], [BATCH, inputs]], kernels)
    rank.host += 2_000
    name = "autograd::engine::evaluate_function: AddmmBackward0"
    rank.add("op", f"t{BACKWARD}", name, start, rank.host - start, Sequence_number=layer, Fwd_thread_id=MAIN)
    rank.lines.insert(place, rank.lines.pop())


def reduce(ranks: list[Rank], elements: int, thread: int, name: str = "allreduce") -> None:
    """A collective of all ranks: each kernel starts when its rank is ready, all end together."""
    starts = []
    for rank in ranks:
        rank.host += 12_000
        starts.append(max(rank.host, rank.comm, rank.compute) + 1_500)
    end = max(starts) + elements // 5 + 9_000
    for rank, start in zip(ranks, starts, strict=True):
        rank.correlation += 1
        rank.collective += 1
        call = rank.host - 7_000
        known = GROUP | {
            "Collective name": name,
            "In msg nelems": elements,
            "Out msg nelems": elements * (1 if name == "allreduce" else len(ranks)),
            "Seq": rank.collective,
        }
        args = {key.replace(" ", "_"): value for key, value in known.items()}
        place = f"t{thread}"
        rank.add("op", place, "record_param_comms", rank.host - 11_000, 10_500, **args)
        rank.add(
            "ann", place, f"nccl:{'all_reduce' if name == 'allreduce' else name}", rank.host - 10_500, 9_500
        )
        rank.add("call", place, "cudaLaunchKernelExC", call, 6_000, id=rank.correlation)
        kernel = {"allreduce": "AllReduce_Sum_f32", "_allgather_base": "AllGather"}[name]
        rank.comm = end - int(rank.dice.random() * 300)
        kernel = f"ncclDevKernel_{kernel}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        rank.add("gpu", f"s{COMM}", kernel, start, rank.comm - start, id=rank.correlation, **args)
        rank.add("flow", "ac2g", rank.correlation, f"t{thread}:{call}", f"s{COMM}:{start}")


def optimize(rank: Rank) -> None:
    """The update waits for the last reduction; then the host waits for the device."""
    start, place = rank.host, len(rank.lines)
    rank.compute = max(rank.compute, rank.comm)
    update = (
        "void at::native::multi_tensor_apply_kernel<TensorListMetadata<2>, BinaryOpListAlphaFunctor>(int)"
    )
    rank.op(MAIN, "aten::_foreach_add_", [[LAYERS[0], INPUTS]], [(update, 34_000)])
    rank.add("ann", f"t{MAIN}", "Optimizer.step#SGD.step", start, rank.host - start)
    rank.lines.insert(place, rank.lines.pop())


def read_loss(rank: Rank) -> None:
    """`loss.item()`: a copy back and a wait for the stream."""
    rank.launch(MAIN, "Memcpy DtoH (Device -> Pinned)", 1_600, "cudaMemcpyAsync", bytes=4)
    start = rank.host
    rank.host = max(rank.host, rank.compute) + 2_000
    rank.correlation += 1
    rank.add("call", f"t{MAIN}", "cudaStreamSynchronize", start, rank.host - start, id=rank.correlation)
    rank.add(
        "sync", f"s{COMPUTE}", "Stream Sync", start + 500, rank.host - start - 1_000, id=rank.correlation
    )


def step(ranks: list[Rank], number: int) -> None:
    """One step on all ranks; they meet in the reductions."""
    began = [(rank.host, len(rank.lines)) for rank in ranks]
    for rank in ranks:
        load(rank)
        forward(rank)
    for layer in reversed(range(len(LAYERS))):
        for rank in ranks:
            backward(rank, layer)
        reduce(ranks, (INPUTS, *LAYERS)[layer] * LAYERS[layer], BACKWARD)
    for rank in ranks:
        optimize(rank)
    reduce(ranks, 64, MAIN, "_allgather_base")
    for rank, (start, place) in zip(ranks, began, strict=True):
        read_loss(rank)
        rank.add("step", f"t{MAIN}", number, start, rank.host - start)
        rank.lines.insert(place, rank.lines.pop())
        rank.host += 5_000


def header(rank: Rank) -> str:
    """The top-level keys, which say that this trace is drawn."""
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": len(RANKS)}
    top = {
        "synthetic": "drawn by tests/data/make_first_steps.py; no GPU ever ran it",
        "deviceProperties": [
            {"id": 0, "name": "Synthetic GPU", "totalGlobalMem": 85899345920, "numSms": 108}
        ],
        "distributedInfo": {
            "backend": "nccl",
            "rank": rank.number,
            "world_size": len(RANKS),
            "pg_count": 1,
            "pg_config": [group | {"ranks": list(RANKS)}],
        },
        "record_shapes": 1,
        "with_modules": 1,
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "traceName": f"first-steps/rank{rank.number}.json",
    }
    return f"{RUN} {rank.number} header {json.dumps(top)}"


def draw() -> str:
    """The whole drawing, as text."""
    ranks = [Rank(number, random.Random(number)) for number in RANKS]
    for rank in ranks:
        rank.lines.append(header(rank))
        early = rank.about(9_000)
        rank.add("gpu", f"s{COMPUTE}", "Memcpy DtoD (Device -> Device)", 1_000, early, id=99, bytes=2 << 20)
        rank.compute = 1_000 + early
        rank.op(MAIN, "aten::zero_", [[LAYERS[0], INPUTS]], [("Memset (Device)", 3_000)])
        rank.host = 80_000
    for number in STEPS:
        step(ranks, number)
    for rank in ranks:
        rank.op(MAIN, "aten::zero_", [[LAYERS[0], INPUTS]], [("Memset (Device)", 3_000)])
        rank.add("call", f"t{MAIN}", "cudaDeviceSynchronize", rank.host, 9_000)
    return "\n".join(line for rank in ranks for line in rank.lines) + "\n"


def files() -> dict[str, bytes]:
    """Name to bytes of all that the script writes beside itself."""
    drawing = draw()
    zipped = {f"{name}.gz": sketch.zip_bytes(text) for name, text in sketch.files(drawing).items()}
    return {"first-steps.sketch": drawing.encode()} | zipped


if __name__ == "__main__":
    for name, content in files().items():
        (HERE / name).parent.mkdir(exist_ok=True)
        (HERE / name).write_bytes(content)
