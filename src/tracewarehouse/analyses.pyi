"""The analyses as typed methods. Written by `tw dev sync` from `sql/analyses`; not by hand."""

from typing import Generic, TypeVar

from tracewarehouse.contracts.catalog import Catalog

T_co = TypeVar("T_co", covariant=True)

class Analyses(Generic[T_co]):
    """One method per analysis, in its newest version; `run` takes any name and version."""

    catalog: Catalog

    def run(self, name: str, version: int | None = None, **params: object) -> T_co:
        """The rows of an analysis. Raises UnknownName, ParamError."""
    def __dir__(self) -> list[str]: ...
    def allocator_calls(self, *, warning_share: float = 0.01, critical_share: float = 0.05) -> T_co:
        """Detects driver calls that allocate or free memory after the first complete step."""
    def annotation_breakdown(self) -> T_co:
        """Count and duration statistics of each annotation, on the host or as the profiler's copy on a
        GPU."""
    def blocking_copies(self, *, warning_share: float = 0.05, critical_share: float = 0.2) -> T_co:
        """Detects GPU idle time caused by copies that block the host."""
    def blocking_syncs(self, *, warning_share: float = 0.05, critical_share: float = 0.2) -> T_co:
        """Detects GPU idle time caused by synchronizing calls that block the host."""
    def collective_waits(self) -> T_co:
        """Wait time, transfer time and lateness of each rank at each collective."""
    def comm_by_group(self) -> T_co:
        """Communication time of each process group per device, and how much of it is overlapped with
        computation."""
    def comm_comp_overlap(self) -> T_co:
        """Share of each device's communication time that is overlapped with computation."""
    def coverage(self) -> T_co:
        """Share of each device's GPU time with a known launch, and with a known operator."""
    def critical_path_breakdown(self) -> T_co:
        """Critical path of each step or other derived scope, by category."""
    def critical_path_by_op(self) -> T_co:
        """Critical path of each scope by operator, host call and kernel."""
    def cupti_counters(self) -> T_co:
        """Hardware counters of each kernel, measured by the CUPTI range profiler, with the operators that
        launched it."""
    def exposed_comm(self, *, warning_share: float = 0.1, critical_share: float = 0.3) -> T_co:
        """Detects a large share of exposed communication."""
    def host_bound(
        self, *, warning_share: float = 0.1, critical_share: float = 0.3, short_gap_ns: int | str = 100000
    ) -> T_co:
        """Detects long GPU idle gaps in which the host is busy with work other than launching."""
    def idle_breakdown(self, *, kernel_wait_ns: int | str = 30000) -> T_co:
        """Idle time of each device by cause: waiting for the host, between kernels, or other."""
    def idle_intervals(self, *, kernel_wait_ns: int | str = 30000) -> T_co:
        """Idle intervals of each device: cause, GPU activities before and after, and the call that launched
        the one after."""
    def input_bound(self, *, warning_share: float = 0.05, critical_share: float = 0.2) -> T_co:
        """Detects GPU idle time while the training thread waits for the data loader."""
    def kernel_sequences(
        self,
        *,
        operator: str | None = None,
        min_kernels: int = 3,
        by_stream: bool = False,
        with_memory: bool = True,
    ) -> T_co:
        """Sequences of GPU activities that operators launch, with count, GPU time and operator time."""
    def kernel_summary(self) -> T_co:
        """Count and duration statistics of each kernel, memcpy and memset per device."""
    def kernel_type_breakdown(self) -> T_co:
        """Busy time of each device by the combination of kinds of GPU activity running at once."""
    def kernels_by_annotation(self) -> T_co:
        """GPU activities with all annotations enclosing the launch of each."""
    def launch_bound(
        self, *, warning_share: float = 0.1, critical_share: float = 0.3, short_gap_ns: int | str = 100000
    ) -> T_co:
        """Detects short GPU idle gaps because the host cannot launch kernels fast enough (launch-bound)."""
    def launch_stats(self) -> T_co:
        """GPU activities with the host call that launched each, and the launch delays."""
    def launch_summary(
        self, *, runtime_cutoff_ns: int | str = 50000, delay_cutoff_ns: int | str = 100000
    ) -> T_co:
        """Launch statistics by host function: counts, short kernels, slow calls, long delays."""
    def low_gpu_use(self, *, warning_share: float = 0.5, critical_share: float = 0.8) -> T_co:
        """Detects GPUs that are idle most of the time."""
    def memory_bandwidth(self, *, by_stream: bool = False) -> T_co:
        """Memcpy and memset bandwidth of each device by direction, over time."""
    def memory_bandwidth_summary(self, *, by_stream: bool = False) -> T_co:
        """Bytes and bandwidth of memcpy and memset on each device, by direction."""
    def memory_by_category(self) -> T_co:
        """Memory by category of a memory timeline: at the peak, at the end, and the maximum of each
        category."""
    def memory_by_op(self) -> T_co:
        """Memory that each operator allocated and freed, and the net change."""
    def memory_category_curve(self) -> T_co:
        """Memory by category (parameters, gradients, activations, …) after each moment of a memory
        timeline."""
    def memory_curve(self) -> T_co:
        """Allocated and reserved memory of each device after each allocation and free."""
    def memory_live(self) -> T_co:
        """Allocations live at the peak memory of each device, with operator and age, and the rest of the
        peak."""
    def memory_peak(self) -> T_co:
        """Peak allocated and reserved memory of each device, with time and step."""
    def memory_pressure(self, *, warning_share: float = 0.9, critical_share: float = 0.97) -> T_co:
        """Detects GPU memory that was nearly full."""
    def name_summary(self, *, by_step: bool = False) -> T_co:
        """Count and total time of each operator, host call and annotation, and of each GPU kernel; used to
        compare two traces."""
    def op_kernel_delays(self, *, with_memory: bool = True) -> T_co:
        """Delay from the start of an operator to its first GPU activity, by operator and launched
        activities."""
    def op_summary(self, *, by_shapes: bool = False) -> T_co:
        """Number of calls and self and total time of each operator, on host and GPU."""
    def pageable_copies(self, *, warning_share: float = 0.02, critical_share: float = 0.1) -> T_co:
        """Detects exposed copies from or to pageable memory."""
    def quality(self) -> T_co:
        """Data-quality rules that fired, with the rows and time affected."""
    def queue_blocked(self, *, max_length: int = 1024) -> T_co:
        """Time during which each stream's queue of launched GPU activities was full, so that the host had to
        wait."""
    def queue_length(self) -> T_co:
        """Queue depth of each stream over time: activities launched but not yet started."""
    def queue_length_summary(self) -> T_co:
        """Queue depth statistics of each stream, over its changes and over time."""
    def slow_collectives(
        self,
        *,
        warning_share: float = 0.02,
        critical_share: float = 0.1,
        min_count: int = 5,
        factor: float = 2.0,
        min_excess_ns: int | str = 100000,
    ) -> T_co:
        """Detects outlier collectives that took far longer than the median of their kind and size."""
    def slow_rank(self, *, warning_share: float = 0.05, critical_share: float = 0.2) -> T_co:
        """Detects stragglers: ranks that the other ranks wait for at collectives."""
    def step_account(self, *, kernel_wait_ns: int | str = 30000) -> T_co:
        """Breakdown of each step's period by GPU activity and idle cause; the parts sum to the period."""
    def step_kernels(self) -> T_co:
        """Contribution of each kernel to each step's period, with its count, by operator and module path."""
    def step_summary(self) -> T_co:
        """Duration of each profiler step on the host, on the device, and from step to step."""
    def stragglers(self) -> T_co:
        """Ranks that other ranks wait for at collectives, with count and total wait."""
    def stream_idle(self, *, kernel_wait_ns: int | str = 30000) -> T_co:
        """Idle time of each stream within its device's GPU window, by cause: waiting for the host, between
        kernels, or other."""
    def stream_idle_intervals(self, *, kernel_wait_ns: int | str = 30000) -> T_co:
        """Idle intervals of each stream: cause, GPU activities before and after, and the call that launched
        the one after."""
    def temporal_breakdown(self) -> T_co:
        """Breakdown of each device's GPU window: computation, exposed communication, exposed memory
        operations, other and idle."""
    def tensor_cores(
        self, *, warning_share: float = 0.1, critical_share: float = 0.5, compute_major: int = 7
    ) -> T_co:
        """Detects GEMMs and convolutions that do not use tensor cores on a GPU that has them."""
    def window_account(self, *, annotation: str | None = None, kernel_wait_ns: int | str = 30000) -> T_co:
        """Breakdown of each rank's GPU window, or of each occurrence of an annotation, by GPU activity and
        idle cause."""
    def window_kernels(self, *, annotation: str | None = None) -> T_co:
        """Contribution of each kernel to each rank's GPU window, or to each occurrence of an annotation, by
        operator and module path."""
