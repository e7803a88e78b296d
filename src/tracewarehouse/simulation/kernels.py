"""The kernels of a transformer, its collectives in process groups, and what changes their durations.

Names are those of the vendor, durations follow from work and bandwidth.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from random import Random
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.errors import ParamError, UnknownName
from tracewarehouse.simulation.job import DATA, STAGE, TENSOR, Api, Collective, Injection, Job, Kernel

LEAST_NS = 1_400  # duration of the shortest kernel
ELEMENT_BYTES = 2  # bfloat16

_NATIVE = "void at::native::"
_HERE = f"{_NATIVE}(anonymous namespace)::"
_BF16 = "c10::BFloat16"
_INFO = f"at::cuda::detail::TensorInfo<{_BF16}, unsigned int>"
_LISTS = "at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>"
_ADD = f"at::native::CUDAFunctor_add<{_BF16}>"
_PRODUCT = "at::native::binary_internal::MulFunctor<float> "
_MUL = f"at::native::BUnaryFunctor<{_BF16}, {_BF16}, {_BF16}, {_PRODUCT}>"
_SCALE = f"{_NATIVE}vectorized_elementwise_kernel<4, {_MUL}, at::detail::Array<char*, 2> >(int, {_MUL})"
_CALL = (
    f"at::native::gpu_kernel_impl_nocast<{_ADD} >(at::TensorIteratorBase&, {_ADD} const&)::{{lambda(int)#1}}"
)
_STRIDED = f"{_NATIVE}elementwise_kernel<128, 4, {_CALL}>(int, {_CALL})"
_REDUCE = f"at::native::ReduceOp<{_BF16}>"
# Key: name (AMD adds a suffix), registers, shared memory, threads per block.
NAMES: Mapping[str, tuple[str, int, int, int]] = MappingProxyType(
    {
        "gemm": (
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1"
            "_execute_segment_k_off_kernel__5x_cublas",
            168,
            231_424,
            384,
        ),
        "flash": (
            "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, "
            "cutlass::bfloat16_t>, true>(Flash_fwd_params)",
            255,
            81_920,
            128,
        ),
        "flash_backward": (
            "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, "
            "128, 8>, true>(Flash_bwd_params)",
            255,
            147_456,
            256,
        ),
        "layer_norm": (
            f"{_HERE}vectorized_layer_norm_kernel<{_BF16}, float>(int, float, {_BF16} const*, {_BF16}*)",
            32,
            24,
            128,
        ),
        "layer_norm_backward": (
            f"{_HERE}layer_norm_grad_input_kernel_vectorized<{_BF16}, float>({_BF16} const*, {_BF16}*, int)",
            40,
            128,
            128,
        ),
        "gelu": (
            f"{_NATIVE}vectorized_elementwise_kernel<4, "
            "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)"
            "::{lambda()#1}, at::detail::Array<char*, 2> >(int)",
            30,
            0,
            128,
        ),
        "add": (
            f"{_NATIVE}vectorized_elementwise_kernel<4, {_ADD}, at::detail::Array<char*, 3> >(int, {_ADD})",
            26,
            0,
            128,
        ),
        "mul": (_SCALE, 24, 0, 128),
        "strided_add": (_STRIDED, 34, 0, 128),
        "dropout": (
            f"{_HERE}fused_dropout_kernel_vec<{_BF16}, float, unsigned int, 1, 4>({_INFO})",
            36,
            0,
            256,
        ),
        "reduce": (f"{_NATIVE}reduce_kernel<128, 4, {_REDUCE} >({_REDUCE})", 32, 16, 128),
        "embedding": (
            f"{_HERE}indexSelectLargeIndex<{_BF16}, long, unsigned int, 2, 2, -2>({_INFO})",
            32,
            0,
            128,
        ),
        "softmax": (
            f"{_HERE}cunn_SoftMaxForward<8, {_BF16}, float>(float*, {_BF16} const*, int)",
            40,
            128,
            1024,
        ),
        "adam": (f"{_HERE}multi_tensor_apply_kernel<{_LISTS} >({_LISTS})", 64, 0, 512),
        "extra": ("triton_poi_fused_clone_mul_0", 24, 0, 128),
    }
)
AMD_GEMM = "Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB1_AFC1_AFEM1.kd"
HOOKED = ("gemm", "layer_norm")  # gradient collectives are started by these
REMOVABLE = tuple(key for key in NAMES if key not in (*HOOKED, "extra", "mul", "strided_add"))
_COLLECTIVES: Mapping[str, str] = MappingProxyType(
    {
        "allreduce": "AllReduce_Sum_bf16_RING_LL",
        "all_gather": "AllGather_RING_LL",
        "reduce_scatter": "ReduceScatter_Sum_bf16_RING_LL",
        "all_to_all": "SendRecv",
        "broadcast": "Broadcast_RING_LL",
        "send": "SendRecv",
        "recv": "SendRecv",
    }
)


class Kernels:
    """The kernels of one job. Raises UnknownName for an injected fault on an unknown kernel."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.amd = job.machine.vendor == "amd"
        self.renamed: dict[str, str] = {}
        self._cache: dict[tuple[object, ...], Kernel] = {}
        for injection in job.injections:
            if "kernel" in injection.values and injection.text_value("kernel") not in NAMES:
                raise UnknownName("kernel", injection.text_value("kernel"), NAMES)
            if injection.kind == "removed-kernel" and injection.text_value("kernel") not in REMOVABLE:
                hint = f"removable kernels: {', '.join(REMOVABLE)}"
                raise ParamError(f"{injection.text_value('kernel')} cannot be removed", hint)
            if injection.kind == "renamed-kernel":
                key = injection.text_value("kernel")
                self.renamed[key] = injection.text_value("to") or f"{self._name(key)}_v2"
        self.launch = self.api("cudaLaunchKernel", "hipLaunchKernel", 211, 160)
        self.launch_ex = self.api("cudaLaunchKernelExC", "hipExtLaunchKernel", 430, 161)
        # The driver call with which Triton launches; old PyTorch versions do not record it.
        driver = replace(
            self.api("cuLaunchKernel", "hipModuleLaunchKernel", 307, 239),
            category="cuda_runtime" if self.amd else "cuda_driver",
        )
        self.launch_triton = self.launch if job.dialect == "old" else driver
        self.copy_api = self.api("cudaMemcpyAsync", "hipMemcpyAsync", 41, 69)
        self.memset_api = self.api("cudaMemsetAsync", "hipMemsetAsync", 51, 76)

    def api(self, nvidia: str, amd: str, nvidia_number: int, amd_number: int, ns: int | None = None) -> Api:
        """A runtime call under the vendor's name."""
        name, number = (amd, amd_number) if self.amd else (nvidia, nvidia_number)
        return Api(name, number, self.job.launch_ns if ns is None else ns)

    def _name(self, key: str) -> str:
        if self.amd:
            return AMD_GEMM if key == "gemm" else f"{NAMES[key][0]} [clone .kd]"
        return NAMES[key][0]

    def gemm(self, rows: int, inner: int, columns: int) -> Kernel:
        """A matrix product of rows x inner by inner x columns."""
        ns = 2 * rows * inner * columns // self.job.machine.flop_per_ns
        return self._kernel("gemm", ns, (max(rows // 128, 1), max(columns // 128, 1), 1))

    def flash(self, key: str, tokens: int, hidden: int) -> Kernel:
        """Attention over the sequence, forward or backward (2.5 times the work)."""
        flop = 4 * tokens * self.job.sequence * hidden * (5 if key == "flash_backward" else 2) // 4
        return self._kernel(key, flop // self.job.machine.flop_per_ns, (max(tokens // 128, 1), 8, 1))

    def stream(self, key: str, elements: int, passes: int = 2, bandwidth: float = 1.0) -> Kernel:
        """A kernel that reads or writes its elements `passes` times, at a share of the memory bandwidth."""
        ns = elements * ELEMENT_BYTES * passes // self.job.machine.memory_bytes_per_ns
        return self._kernel(key, round(ns / bandwidth), (max(elements // 1024, 1), 1, 1))

    def extra(self, ns: int) -> Kernel:
        """The kernel of a fault, with a given duration."""
        return self._kernel("extra", ns, (self.job.machine.multiprocessors, 1, 1))

    def copy(self, name: str, size: int, bytes_per_ns: int = 25) -> Kernel:
        """A memory copy, by default over the host bus."""
        ns = max(size // bytes_per_ns, LEAST_NS)
        return Kernel("copy", name, "gpu_memcpy", "memory", ns, self.copy_api, bytes=size)

    def memset(self, size: int) -> Kernel:
        """A memset."""
        ns = max(size // self.job.machine.memory_bytes_per_ns, LEAST_NS)
        return Kernel("memset", "Memset (Device)", "gpu_memset", "memory", ns, self.memset_api, bytes=size)

    def collective(self, name: str) -> Kernel:
        """The kernel of a collective; the simulation of all ranks determines its duration."""
        kernel = f"ncclDevKernel_{_COLLECTIVES[name]}(ncclDevKernelArgsStorage<4096ul>)"
        if self.amd:
            kernel = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>) [clone .kd]"
        if self.job.dialect == "old":
            kernel = f"ncclKernel_{_COLLECTIVES[name]}(ncclWorkElem)"
        api = self.launch if self.job.dialect == "old" else self.launch_ex
        return Kernel(name, kernel, "kernel", "communication", 0, api, (24, 1, 1), (512, 1, 1), 96, 0)

    def _kernel(self, key: str, ns: int, grid: tuple[int, int, int]) -> Kernel:
        if (key, ns, grid) not in self._cache:
            _, registers, shared, threads = NAMES[key]
            name = self.renamed.get(key) or self._name(key)
            early = self.job.dependent_launch and key in ("layer_norm", "add", "gelu")
            api = self.launch_ex if early else self.launch
            api = self.launch_triton if key == "extra" else api
            self._cache[key, ns, grid] = Kernel(
                key, name, "kernel", "computation", max(ns, LEAST_NS), api, grid, (threads, 1, 1), registers,
                shared, early_ns=600 if early else 0,
            )  # fmt: skip
        return self._cache[key, ns, grid]


VOCABULARY = 32_000


class Variant(Struct, frozen=True):
    """The program of a step: its pipeline stage and the faults that change it.

    `elementwise`: the kind, size of the tensor in MB, number of operators and share of the bandwidth;
    `compiled`: how often the forward pass was compiled again, None if it is not compiled.
    """

    stage: int
    removed: frozenset[str] = frozenset()
    extra_ns: int = 0
    item: bool = False
    overlap: bool = True
    leak_bytes: int = 0
    copied_bytes: int = 0
    is_blocked: bool = False
    elementwise: tuple[tuple[str, float, int, float], ...] = ()
    compiled: int | None = None
    compile_ns: int = 0
    tokens: float = 1.0
    calls: int = 1


class Model:
    """The model of a job: its kernels and collectives."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.kernels = Kernels(job)
        self.tokens = job.batch * (job.sequence if job.mode == "training" else 1)
        self.first, self.last = 0, job.pipeline - 1
        self._collectives: dict[tuple[str, str, int, int], Collective] = {}

    def collective(self, name: str, scope: str, elements: int, edge: int = 0) -> Collective:
        """A collective over groups of a scope; `elements` are those of the complete message."""
        key = (name, scope, elements, edge)
        if key not in self._collectives:
            size = {TENSOR: self.job.tensor, DATA: self.job.data}.get(scope, 2)
            sent = elements // size if name == "all_gather" else elements
            received = elements // size if name == "reduce_scatter" else elements
            self._collectives[key] = Collective(
                name, scope, self.kernels.collective(name), elements * ELEMENT_BYTES, sent, received, edge
            )
        return self._collectives[key]


# Why a fault of one rank makes it late; of slow ranks by what is slow.
_CAUSES = {
    "compute": "computation",
    "host": "host",
    "data": "data",
    "copies": "copies",
    "slow-kernel": "computation",
    "extra-kernel": "computation",
    "dataloader-stall": "data",
    "blocking-item": "host",
    "recompilation": "host",
    "startup": "host",
    "exposed-copies": "copies",
}
_CAUSES |= dict.fromkeys(("slow-elementwise", "fusible-chain", "more-work", "slow-stage"), "computation")


class Faults:
    """The injections of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.all = job.injections

    def of(self, kind: str, rank: int, step: int) -> list[Injection]:
        """The injections of a kind that apply to a rank in a step (zero-based)."""
        faults = [fault for fault in self.all if fault.kind == kind and fault.applies_to(rank, step)]
        stages = (None, self.job.coordinates(rank)[0])
        return [fault for fault in faults if fault.values.get("stage") in stages]

    def ever(self, kind: str, rank: int) -> Injection | None:
        """The first injection of a kind that applies to a rank in any step."""
        return next((fault for fault in self.all if fault.kind == kind and fault.rank in (None, rank)), None)

    def variant(self, stage: int, rank: int, step: int) -> Variant:
        """The program variant that the rank runs in a step."""
        return Variant(
            stage,
            frozenset(fault.text_value("kernel") for fault in self.of("removed-kernel", rank, step)),
            sum(round(fault.number("us") * 1_000) for fault in self.of("extra-kernel", rank, step)),
            bool(self.of("blocking-item", rank, step)),
            not self.of("no-overlap", rank, step),
            self.additional("growing-memory", rank, step, "mb"),
            self.additional("exposed-copies", rank, step, "mb"),
            bool(self.of("host-blocked", rank, step)),
            tuple(
                (kind, fault.number("mb"), round(fault.number("count")), fault.number("bandwidth"))
                for kind in ("slow-elementwise", "fusible-chain")
                for fault in self.of(kind, rank, step)
            ),
            self._recompilations(rank, step),
            self.additional("recompilation", rank, step),
            self.factor("tokens", rank, step, "more-work"),
            math.ceil(self.factor("calls", rank, step, "more-work")),
        )

    def _recompilations(self, rank: int, step: int) -> int | None:
        """How often the forward pass was compiled again up to a step; None if it is not compiled."""
        faults = [fault for fault in self.all if fault.kind == "recompilation" and fault.rank in (None, rank)]
        return sum((fault.step or 0) <= step for fault in faults) if faults else None

    def factor(self, what: str, rank: int, step: int, kind: str = "slow-rank") -> float:
        """Slowdown of a rank in `compute`, `host`, `data` or `copies`, or how much more work it has."""
        faults = [fault for fault in self.of(kind, rank, step) if fault.values.get("what") in (None, what)]
        return math.prod((fault.number("factor") for fault in faults), start=1.0)

    def compute_factor(self, rank: int, step: int) -> float:
        """Slowdown of the computation of a rank, by itself and by its stage."""
        return self.factor("compute", rank, step) * self.factor("compute", rank, step, "slow-stage")

    def without(self, kind: str) -> Faults:
        """The other injections of the job."""
        return Faults(replace(self.job, injections=tuple(fault for fault in self.all if fault.kind != kind)))

    def kernel_factors(self, rank: int, step: int) -> dict[str, float]:
        """Slowdown of kernels by key."""
        factors: dict[str, float] = {}
        for fault in self.of("slow-kernel", rank, step):
            key = fault.text_value("kernel")
            factors[key] = factors.get(key, 1.0) * (1 + fault.number("percent") / 100)
        return factors

    def additional(self, kind: str, rank: int, step: int, key: str = "ms") -> int:
        """The time in ns or the bytes (`mb`) that injections of a kind add."""
        return sum(round(fault.number(key) * 1_000_000) for fault in self.of(kind, rank, step))

    def share(self, kind: str, rank: int, step: int) -> float:
        """Share of a rank's activities of a step that is lost."""
        return max((fault.number("share") for fault in self.of(kind, rank, step)), default=0.0)

    def late_ranks(self) -> list[tuple[int, str]]:
        """(rank, cause) of each rank that a fault makes late at collectives, if its trace is written."""
        late = set()
        for fault in self.all:
            cause = fault.text_value("what") if fault.kind == "slow-rank" else fault.kind
            for rank in range(self.job.ranks) if cause in _CAUSES else ():
                is_late = rank == fault.rank or self.job.coordinates(rank)[0] == fault.values.get("stage")
                if is_late and not self.ever("drop-ranks", rank):
                    late.add((rank, _CAUSES[cause]))
        return sorted(late)

    def _of_group(self, kind: str, group: str) -> list[Injection]:
        return [fault for fault in self.all if fault.kind == kind and fault.text_value("group") == group]

    def link_factor(self, group: str) -> float:
        """Slowdown of the links of a group."""
        return math.prod((fault.number("factor") for fault in self._of_group("slow-link", group)), start=1.0)

    def longer_ns(self, group: str, number: int) -> int:
        """Additional time of the n-th collective of a group (zero-based)."""
        faults = self._of_group("long-collective", group)
        longer = (fault for fault in faults if fault.number("collective") == number)
        return sum(round(fault.number("ms") * 1_000_000) for fault in longer)

    def clock(self, rank: int) -> tuple[int, int]:
        """Offset in ns and drift in parts per 10^9 of a rank's clock."""
        clocks = [fault for fault in self.all if fault.kind == "clock" and fault.rank in (None, rank)]
        offset = sum(fault.number("offset_us") for fault in clocks)
        restart = self.ever("restart", rank)
        offset += 1_000_000 * restart.number("s") if restart else 0
        drift = sum(fault.number("drift_ppm") for fault in clocks)
        return round(offset * 1_000), round(drift * 1_000)


ONE = 1 << 20  # fixed-point factors, so that times are integers
TABLE = 997  # number of kernel factors, drawn once and used in rotation


class Noise:
    """The random factors of one run."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.run = math.exp(job.noise.run * Random(f"{job.seed}/run").gauss(0, 1))
        draw = Random(f"{job.seed}/kernel")
        self.table = [scaled(math.exp(job.noise.kernel * draw.gauss(0, 1))) for _ in range(TABLE)]
        self._steps = [self._step(step) for step in range(job.steps)]

    def step(self, step: int) -> float:
        """The factor of a step, including that of the run."""
        return self._steps[step]

    def _step(self, step: int) -> float:
        draw = Random(f"{self.job.seed}/step/{step}")
        spread = _student(draw) if draw.random() < self.job.noise.outliers else draw.gauss(0, 1)
        return self.run * math.exp(self.job.noise.step * spread)


def _student(draw: Random) -> float:
    """A value of Student's t distribution with three degrees of freedom, which has heavy tails."""
    return draw.gauss(0, 1) / math.sqrt(sum(draw.gauss(0, 1) ** 2 for _ in range(3)) / 3)


def scaled(factor: float) -> int:
    """A factor as a fixed-point number."""
    return round(factor * ONE)


LATENCY_NS = 9_000  # of a collective of any size


class Group(Struct, frozen=True):
    """Ranks that communicate, in order; injections use `name`."""

    name: str
    scope: str
    ranks: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)


def expert_split(job: Job, collective: Collective, group: Group) -> tuple[int, ...]:
    """Elements that each rank sends to each rank of the group, in order; empty if all get the same.

    With an imbalance, the experts of some ranks get more tokens in each all-to-all.
    """
    factors = [(fault.rank, fault.number("factor")) for fault in job.injections if fault.kind == "imbalance"]
    if collective.name != "all_to_all" or not factors:
        return ()
    weights = [math.prod(factor for rank, factor in factors if rank == member) for member in group.ranks]
    shares = [int(collective.in_elements * weight / sum(weights)) for weight in weights]
    return (*shares[:-1], collective.in_elements - sum(shares[:-1]))


def message_bytes(job: Job, collective: Collective, group: Group) -> int:
    """The message size; of an uneven all-to-all the most that a rank sends to or receives from others."""
    split = expert_split(job, collective, group)
    if not split:
        return collective.bytes
    most_elements = max(max(sum(split) - share, (group.size - 1) * share) for share in split)
    return most_elements * collective.bytes // collective.in_elements


class Groups:
    """All process groups of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._by_key: dict[tuple[str, tuple[int, ...]], Group] = {}  # shared by its ranks, which may be many
        self._of_rank: dict[tuple[int, str, int], Group] = {}

    def of(self, rank: int, scope: str, edge: int = 0) -> Group:
        """The group of a rank for a scope; `edge` is the lower stage of a pair."""
        key = (rank, scope, edge)
        if key not in self._of_rank:
            self._of_rank[key] = self._find(rank, scope, edge)
        return self._of_rank[key]

    def names(self) -> list[str]:
        """The names of all groups that communicate."""
        job = self.job
        counts = {
            TENSOR: job.pipeline * job.data if job.tensor > 1 else 0,
            DATA: job.pipeline * job.tensor if job.data > 1 else 0,
            STAGE: (job.pipeline - 1) * job.data * job.tensor,
        }
        return [f"{scope}{number}" for scope, count in counts.items() for number in range(count)]

    def forget(self, rank: int) -> None:
        """Drops cached groups of a finished rank, so that memory does not grow with the number of ranks."""
        for key in [key for key in self._of_rank if key[0] == rank]:
            del self._of_rank[key]

    def all_of(self, rank: int) -> list[Group]:
        """The groups of a rank."""
        job, groups = self.job, []
        if job.tensor > 1:
            groups.append(self.of(rank, TENSOR))
        if job.data > 1:
            groups.append(self.of(rank, DATA))
        stage = job.coordinates(rank)[0]
        if stage > 0:
            groups.append(self.of(rank, STAGE, stage - 1))
        if stage < job.pipeline - 1:
            groups.append(self.of(rank, STAGE, stage))
        return groups

    def _find(self, rank: int, scope: str, edge: int) -> Group:
        job = self.job
        stage, copy, part = job.coordinates(rank)
        if scope == TENSOR:
            number = stage * job.data + copy
            ranks = tuple(job.rank_at(stage, copy, position) for position in range(job.tensor))
        elif scope == DATA:
            number = stage * job.tensor + part
            ranks = tuple(job.rank_at(stage, position, part) for position in range(job.data))
        else:
            number = (edge * job.data + copy) * job.tensor + part
            ranks = (job.rank_at(edge, copy, part), job.rank_at(edge + 1, copy, part))
        return self._by_key.setdefault((scope, ranks), Group(f"{scope}{number}", scope, ranks))


class Rendezvous:
    """Arrival of the last rank at each collective, and the duration of its transfer."""

    def __init__(self, job: Job, faults: Faults) -> None:
        self.job, self.faults = job, faults
        self._last: dict[str, array[int]] = {}
        self._open: dict[str, tuple[int, int]] = {}
        self._transfers: dict[tuple[str, Collective], int] = {}
        self._has_long = any(fault.kind == "long-collective" for fault in faults.all)

    def arrive(self, group: Group, at_ns: int) -> bool:
        """Adds an arrival at the group's next collective; returns whether it was the last one."""
        count, last_ns = self._open.get(group.name, (0, 0))
        count, last_ns = count + 1, max(last_ns, at_ns)
        if count < group.size:
            self._open[group.name] = (count, last_ns)
            return False
        self._open.pop(group.name, None)
        self._last.setdefault(group.name, array("q")).append(last_ns)
        return True

    def count(self, group: str) -> int:
        """Number of collectives of a group."""
        return len(self._last.get(group, ()))

    def last(self, group: Group, number: int) -> int:
        """Time at which the last rank arrived at the n-th collective of a group."""
        return self._last[group.name][number]

    def transfer_ns(self, group: Group, collective: Collective, number: int) -> int:
        """Duration of the n-th collective of a group after the last arrival."""
        key = (group.name, collective)
        if key not in self._transfers:
            job, size = self.job, group.size
            nodes = {rank // job.ranks_per_node for rank in group.ranks}
            bytes_per_ns = job.link_bytes_per_ns if len(nodes) == 1 else job.network_gb_per_s
            share = 1.0 if expert_split(job, collective, group) else _share(collective.name, size)
            moved = message_bytes(job, collective, group) * share / bytes_per_ns
            slowed_ns = (LATENCY_NS + moved) * self.faults.link_factor(group.name)
            self._transfers[key] = round(slowed_ns)
        longer_ns = self.faults.longer_ns(group.name, number) if self._has_long else 0
        return self._transfers[key] + longer_ns


def _share(name: str, size: int) -> float:
    """Share of the message that crosses a link, by the usual convention of each collective."""
    if name == "allreduce":
        return 2 * (size - 1) / size
    if name in ("all_gather", "reduce_scatter", "all_to_all"):
        return (size - 1) / size
    return 1.0
