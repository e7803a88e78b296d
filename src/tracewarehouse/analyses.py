"""The analyses as typed methods. Written by `tw dev sync` from `sql/analyses`; not by hand."""

from __future__ import annotations

from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Analyses(Generic[T_co]):
    """One method per analysis, in its newest version; `run` takes any name and version."""

    def run(self, name: str, version: int | None = None, **params: object) -> T_co:
        """What the analysis gives. Raises UnknownName, ParamError."""
        raise NotImplementedError

    def comm_comp_overlap(self) -> T_co:
        """How much of each device's communication time computation hid.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 where the trace does not say.
            comm_ns (BIGINT, ns): Time with communication running, on any stream.
            overlap_ns (BIGINT, ns): Of comm_ns, the time with computation running too.
            exposed_ns (BIGINT, ns): Of comm_ns, the time without: comm_ns minus overlap_ns.
            overlap (DOUBLE, ratio): overlap_ns over comm_ns; null where there is no communication.
        """
        return self.run("comm_comp_overlap")

    def coverage(self) -> T_co:
        """How much of each device's GPU time has a known launch, and a known operator behind it.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 where the trace does not say.
            gpu_ns (BIGINT, ns): Durations of all GPU rows added up: the sum of the next three.
            linked_ns (BIGINT, ns): Of rows whose launch is in the trace.
            before_window_ns (BIGINT, ns): Of rows launched before the recording began: unlinked, and earlier
                than the first linked row of their stream.
            missing_ns (BIGINT, ns): Of rows whose launch should be in the trace and is not.
            with_op_ns (BIGINT, ns): Of linked rows whose launch lies within an operator.
            linked (DOUBLE, ratio): linked_ns over gpu_ns; null where gpu_ns is 0.
            before_window (DOUBLE, ratio): before_window_ns over gpu_ns.
            missing (DOUBLE, ratio): missing_ns over gpu_ns.
            with_op (DOUBLE, ratio): with_op_ns over gpu_ns.
        """
        return self.run("coverage")

    def kernel_summary(self) -> T_co:
        """How often each kernel, copy and set ran on a device, and how long it took.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 where the trace does not say.
            kind (VARCHAR): computation, communication, memory or other.
            name (VARCHAR): The name in full.
            count (BIGINT, count): GPU rows of that name.
            sum_ns (BIGINT, ns): Their durations added up, also where they overlap.
            min_ns (BIGINT, ns): The shortest.
            p50_ns (BIGINT, ns): Half of them took no longer; a duration that was measured, never one in
                between.
            p95_ns (BIGINT, ns): 95 of 100 took no longer.
            p99_ns (BIGINT, ns): 99 of 100 took no longer.
            max_ns (BIGINT, ns): The longest.
            mean_ns (DOUBLE, ns): sum_ns over count.
            std_ns (DOUBLE, ns): Standard deviation of the sample (n - 1); null for a single row.
        """
        return self.run("kernel_summary")

    def launch_stats(self) -> T_co:
        """Each GPU row with the host call that launched it, and the delays between the two.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            kernel_id (BIGINT, id): event_id of the GPU row.
            runtime_id (BIGINT, id): event_id of the host call; null where no launch is known.
            api (VARCHAR): The function that the host called; a graph launch stands at each of its GPU rows.
            name (VARCHAR): The GPU row's name.
            kind (VARCHAR): computation, communication, memory or other.
            device (BIGINT, id): The device; -1 where the trace does not say.
            stream (BIGINT, id): The stream; -1 where the trace does not say.
            call_ns (BIGINT, ns): How long the host call took.
            kernel_ns (BIGINT, ns): How long the GPU row took.
            return_to_start_ns (BIGINT, ns): GPU start minus end of the host call: time in the queue included;
                negative where the row started before the call returned.
            call_to_start_ns (BIGINT, ns): GPU start minus start of the host call; negative only where the
                clocks disagree.
        """
        return self.run("launch_stats")

    def quality(self) -> T_co:
        """Which data-quality rules fired, how often, and for how much time.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank; null where the rule is about the run.
            rule (VARCHAR): The rule.
            severity (VARCHAR): error, warning or info.
            rows (BIGINT, count): How many rows it concerns.
            ns_affected (BIGINT, ns): How much time those rows hold; null where the rule is not about time.
            example (VARCHAR): One of them.
        """
        return self.run("quality")

    def step_summary(self) -> T_co:
        """How long each profiler step took, on the host, on the device, and from step to step.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            step (BIGINT, id): The number of the step.
            host_ns (BIGINT, ns): Start to end of the step on the host.
            device_ns (BIGINT, ns): First start to last end of the GPU rows it launched; null where there are
                none.
            period_ns (BIGINT, ns): From the end of the step before (of the first from its host start) to its
                own: that of its last GPU row, of the host without one. Periods tile the time.
            partial (BOOLEAN): Its host or device span touches the edge of the window, so the profiler may
                have cut it.
        """
        return self.run("step_summary")

    def temporal_breakdown(self) -> T_co:
        """Where each device's time went: computation, communication and memory that nothing hid, and idle.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 where the trace does not say.
            window_ns (BIGINT, ns): First start to last end of the device's GPU rows: busy plus idle.
            busy_ns (BIGINT, ns): Time with any GPU row running, on any stream: the sum of the next four.
            compute_ns (BIGINT, ns): Time with computation running.
            exposed_comm_ns (BIGINT, ns): Time with communication and no computation running.
            exposed_memory_ns (BIGINT, ns): Time with a memory copy or set, and neither of the two, running.
            other_ns (BIGINT, ns): Time with rows of another kind only.
            idle_ns (BIGINT, ns): Time within the window with nothing running.
        """
        return self.run("temporal_breakdown")
