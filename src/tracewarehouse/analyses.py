"""The analyses as typed methods. Written by `tw dev sync` from `sql/analyses`; not by hand."""

from __future__ import annotations

from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Analyses(Generic[T_co]):
    """One method per analysis, in its newest version; `run` takes any name and version."""

    def run(self, name: str, version: int | None = None, **params: object) -> T_co:
        """What the analysis gives. Raises UnknownName, ParamError."""
        raise NotImplementedError

    def allocator_calls(self, *, warning_share: float = 0.01, critical_share: float = 0.05) -> T_co:
        """Detects driver calls that allocate or free memory after the first complete step.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: allocations. Ranks with fewer than two complete steps have no row.
            severity (VARCHAR): critical, warning, info (above the threshold, but the trace has no complete
                step, so it may not be representative) or none.
            share (DOUBLE, ratio): Time in calls that allocate or free memory, as a share of analyzed_ns.
            threshold (DOUBLE, ratio): Warning threshold.
            count (BIGINT, count): Number of such calls.
            steps (BIGINT, count): Complete steps analyzed; 0 if there are none.
            analyzed_ns (BIGINT, ns): Analyzed time: the total period of all complete steps but the first, in
                which allocations may be necessary.
            saving_ns (BIGINT, ns): Upper bound on the time saved in the analyzed interval: the time in these
                calls.
            saving_limit (VARCHAR): What limits the saving. Savings of different findings overlap and do not
                add up.
            confidence (VARCHAR): Confidence: high, medium or low.
            observation (VARCHAR): What was observed, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis that shows the evidence.
            evidence_filter (VARCHAR): SQL condition that selects the relevant rows; null for all rows.
            event_id (BIGINT, id): The longest such call.
            from_ns (BIGINT, ts): Start of the worst occurrence.
            to_ns (BIGINT, ts): End of the worst occurrence.

        Parameters:
            warning_share: Warning threshold: lowest share that is a finding.
            critical_share: Critical threshold.
        """
        return self.run("allocator_calls", warning_share=warning_share, critical_share=critical_share)

    def annotation_breakdown(self) -> T_co:
        """Count and duration statistics of each annotation, on the host or as the profiler's copy on a GPU.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank; ranks without annotations have no rows.
            on_gpu (BOOLEAN): True for the profiler's copies on a GPU: each from the first to the last kernel
                launched inside, including gaps.
            device (BIGINT, id): The device of the copies, -1 if unknown; null on the host.
            name (VARCHAR): Annotation name.
            count (BIGINT, count): Number of annotations with this name.
            sum_ns (BIGINT, ns): Sum of durations (overlaps counted multiple times: nested, on several threads
                or streams).
            union_ns (BIGINT, ns): Time with at least one of them open, on any thread or stream.
            min_ns (BIGINT, ns): Minimum duration.
            p50_ns (BIGINT, ns): Median duration (lower of the two middle values).
            max_ns (BIGINT, ns): Maximum duration.
            mean_ns (DOUBLE, ns): Mean duration: sum_ns / count.
            std_ns (DOUBLE, ns): Sample standard deviation (n - 1); null for a single annotation.
        """
        return self.run("annotation_breakdown")

    def blocking_copies(self, *, warning_share: float = 0.05, critical_share: float = 0.2) -> T_co:
        """Detects GPU idle time caused by copies that block the host.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: copies.
            severity (VARCHAR): critical, warning, info (above the threshold, but the trace has no complete
                step, so it may not be representative) or none.
            share (DOUBLE, ratio): Idle time after copies that block the host, as a share of analyzed_ns.
            threshold (DOUBLE, ratio): Warning threshold.
            count (BIGINT, count): Number of such idle segments.
            steps (BIGINT, count): Complete steps analyzed; 0 if there are none.
            analyzed_ns (BIGINT, ns): Analyzed time: the rank's complete steps, or its GPU window if there are
                none.
            saving_ns (BIGINT, ns): Upper bound on the time saved in the analyzed interval: all such time.
            saving_limit (VARCHAR): What limits the saving. Savings of different findings overlap and do not
                add up.
            confidence (VARCHAR): Confidence: high, medium or low.
            observation (VARCHAR): What was observed, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis that shows the evidence.
            evidence_filter (VARCHAR): SQL condition that selects the relevant rows; null for all rows.
            event_id (BIGINT, id): The call before the longest such segment.
            from_ns (BIGINT, ts): Start of the worst occurrence.
            to_ns (BIGINT, ts): End of the worst occurrence.

        Parameters:
            warning_share: Warning threshold: lowest share that is a finding.
            critical_share: Critical threshold.
        """
        return self.run("blocking_copies", warning_share=warning_share, critical_share=critical_share)

    def blocking_syncs(self, *, warning_share: float = 0.05, critical_share: float = 0.2) -> T_co:
        """Detects GPU idle time caused by synchronizing calls that block the host.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: synchronizing calls.
            severity (VARCHAR): critical, warning, info (above the threshold, but the trace has no complete
                step, so it may not be representative) or none.
            share (DOUBLE, ratio): Idle time after synchronizing calls, as a share of analyzed_ns.
            threshold (DOUBLE, ratio): Warning threshold.
            count (BIGINT, count): Number of such idle segments.
            steps (BIGINT, count): Complete steps analyzed; 0 if there are none.
            analyzed_ns (BIGINT, ns): Analyzed time: the rank's complete steps, or its GPU window if there are
                none.
            saving_ns (BIGINT, ns): Upper bound on the time saved in the analyzed interval: all such time.
            saving_limit (VARCHAR): What limits the saving. Savings of different findings overlap and do not
                add up.
            confidence (VARCHAR): Confidence: high, medium or low.
            observation (VARCHAR): What was observed, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis that shows the evidence.
            evidence_filter (VARCHAR): SQL condition that selects the relevant rows; null for all rows.
            event_id (BIGINT, id): The call before the longest such segment.
            from_ns (BIGINT, ts): Start of the worst occurrence.
            to_ns (BIGINT, ts): End of the worst occurrence.

        Parameters:
            warning_share: Warning threshold: lowest share that is a finding.
            critical_share: Critical threshold.
        """
        return self.run("blocking_syncs", warning_share=warning_share, critical_share=critical_share)

    def collective_waits(self) -> T_co:
        """Wait time, transfer time and lateness of each rank at each collective.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            event_id (BIGINT, id): The collective on this rank: a GPU activity or, on the host (gloo, MPI),
                the backend's annotation.
            collective (VARCHAR): all_reduce, all_gather, …; other if the name is not recognized.
            process_group (VARCHAR): Process group name; null if unknown, in which case all ranks are assumed
                to be members.
            sequence (BIGINT, id): Sequence number within the process group, as recorded in the trace.
            step (BIGINT, id): The profiler step.
            bytes (BIGINT, bytes): Larger of the input and output sizes on this rank.
            instance_id (VARCHAR): Key of the collective instance, equal on all its ranks: group, collective
                with its sequence number or step and size, and position among equal ones; null if not matched.
            state (VARCHAR): complete: all ranks of the group take part; partial: at least two. Not matched:
                unmatched (only this rank); ambiguous (ranks have different numbers of such collectives in the
                same step, or a rank has two at the same position); inconsistent_clocks (on no consistent
                clock offsets do all ranks overlap in it).
            members (BIGINT, count): Ranks that take part; 1 if not matched.
            dur_ns (BIGINT, ns): Duration on this rank.
            wait_ns (BIGINT, ns): Wait time: its duration minus the shortest duration of any rank, so no
                clocks are compared. Null if not matched, or if a rank can leave before the last one arrives
                (broadcast, send, receive, …).
            transfer_ns (BIGINT, ns): Shortest duration of any rank; wait_ns + transfer_ns = dur_ns. An upper
                bound on the transfer time if the state is partial.
            straggler_rank (INTEGER): The rank with the shortest duration, which arrived last; the lowest rank
                on ties.
            late_ns (BIGINT, ns): Start minus the start of the first rank, on aligned clocks
                (`clock_offsets`).
            reason (VARCHAR): Why late_ns is null: not matched; clock offset not known; clock uncertainty not
                known; under twice the clock uncertainty.
        """
        return self.run("collective_waits")

    def comm_by_group(self) -> T_co:
        """Communication time of each process group per device, and how much of it is overlapped with
        computation.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 if unknown.
            process_group (VARCHAR): Process group name; null for all communication whose group is unknown.
                Devices without communication have no row.
            comm_ns (BIGINT, ns): Time with communication of the group running, on any stream. If groups
                communicate concurrently, their times sum to more than that of the device.
            overlap_ns (BIGINT, ns): Part of comm_ns overlapped with computation.
            exposed_ns (BIGINT, ns): Exposed communication: comm_ns minus overlap_ns.
            overlap (DOUBLE, ratio): overlap_ns / comm_ns; null if comm_ns is 0.
        """
        return self.run("comm_by_group")

    def comm_comp_overlap(self) -> T_co:
        """Share of each device's communication time that is overlapped with computation.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 if unknown.
            comm_ns (BIGINT, ns): Time with communication running, on any stream.
            overlap_ns (BIGINT, ns): Part of comm_ns overlapped with computation.
            exposed_ns (BIGINT, ns): Exposed communication: comm_ns minus overlap_ns.
            overlap (DOUBLE, ratio): overlap_ns / comm_ns; null if there is no communication.
        """
        return self.run("comm_comp_overlap")

    def coverage(self) -> T_co:
        """Share of each device's GPU time with a known launch, and with a known operator.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 if unknown.
            gpu_ns (BIGINT, ns): Sum of durations of all GPU activities: the sum of the next three columns.
            launch_known_ns (BIGINT, ns): Activities whose launch is in the trace.
            before_window_ns (BIGINT, ns): Activities launched before the recording began: without a known
                launch, and earlier than the first activity of their stream that has one.
            missing_ns (BIGINT, ns): Activities whose launch should be in the trace but is missing.
            with_op_ns (BIGINT, ns): Activities of launch_known_ns that were launched within an operator.
            launch_known (DOUBLE, ratio): launch_known_ns / gpu_ns; null if gpu_ns is 0.
            before_window (DOUBLE, ratio): before_window_ns / gpu_ns.
            missing (DOUBLE, ratio): missing_ns / gpu_ns.
            with_op (DOUBLE, ratio): with_op_ns / gpu_ns.
        """
        return self.run("coverage")

    def critical_path_breakdown(self) -> T_co:
        """Critical path of each step or other derived scope, by category.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            scope (VARCHAR): `step N`, `annotation NAME#K` or `trace`: from its start on the host to its end
                there, or to the end of the last GPU activity launched in it.
            category (VARCHAR): host: in operators and host calls; host_gap: on the host outside of both;
                launch: from the start of a launch call to the start of its GPU activity; computation,
                communication, memory, other: GPU activities; kernel_gap: between a GPU activity and the next
                one that waited for it; sync: from the end of a GPU activity to the return of the call that
                waited for it; earlier: until work launched before the scope was done; unknown_wait: no
                recorded dependency explains it.
            segments (BIGINT, count): Number of segments of the path in that category.
            path_ns (BIGINT, ns): Their total time; the categories of a scope sum to its duration.
            share (DOUBLE, ratio): path_ns as a share of the scope's duration; null if that is 0.
            inferred_ns (BIGINT, ns): Part of path_ns that is inferred from times alone: something began right
                after something else, or nothing explains the wait.
        """
        return self.run("critical_path_breakdown")

    def critical_path_by_op(self) -> T_co:
        """Critical path of each scope by operator, host call and kernel.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            scope (VARCHAR): The scope, as in critical_path_breakdown.
            category (VARCHAR): The category, as in critical_path_breakdown.
            op (VARCHAR): The innermost operator: the slice itself, or the one enclosing the host call or the
                launch of the GPU activity; null outside operators.
            name (VARCHAR): The operator, host call or GPU activity that the time is attributed to; for launch
                and kernel_gap, the activity that starts; null between them.
            segments (BIGINT, count): Number of segments of the path.
            path_ns (BIGINT, ns): Their total time; the rows of a scope sum to its duration.
            share (DOUBLE, ratio): path_ns as a share of the scope's duration; null if that is 0.
        """
        return self.run("critical_path_by_op")

    def cupti_counters(self) -> T_co:
        """Hardware counters of each kernel, measured by the CUPTI range profiler, with the operators that
        launched it.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            event_id (BIGINT, id): The profiler range: one kernel.
            counter (VARCHAR): Counter name.
            value (DOUBLE): Counter value; null if the trace has no number.
            position (BIGINT, count): Position of the kernel among the rank's ranges, by start, then position
                in the file.
            name (VARCHAR): Kernel name; the profiler writes __missing__ if it lost the name.
            runtime_id (BIGINT, id): The host call that launched it. Ranges have no correlation ID and no real
                times: the n-th range is matched with the n-th call that launches a kernel, by start.
            op_id (BIGINT, id): The innermost operator enclosing that call.
            op (VARCHAR): Name of that operator.
            top_op (VARCHAR): Name of the outermost operator enclosing the call.
            op_stack (VARCHAR[]): Names of the operators enclosing the call, outermost first; null if there
                are none.
            reason (VARCHAR): Why the call is unknown: the rank's numbers of ranges and launches differ (both
                are given), or there are ranges of several devices, whose order does not identify the launch.
        """
        return self.run("cupti_counters")

    def exposed_comm(self, *, warning_share: float = 0.1, critical_share: float = 0.3) -> T_co:
        """Detects a large share of exposed communication.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: communication.
            severity (VARCHAR): critical, warning, info (above the threshold, but the trace has no complete
                step, so it may not be representative) or none.
            share (DOUBLE, ratio): Exposed communication as a share of analyzed_ns.
            threshold (DOUBLE, ratio): Warning threshold.
            count (BIGINT, count): Number of segments of exposed communication.
            steps (BIGINT, count): Complete steps analyzed; 0 if there are none.
            analyzed_ns (BIGINT, ns): Analyzed time: the rank's complete steps, or its GPU window if there are
                none.
            saving_ns (BIGINT, ns): Upper bound on the time saved in the analyzed interval: all such time.
            saving_limit (VARCHAR): What limits the saving. Savings of different findings overlap and do not
                add up.
            confidence (VARCHAR): Confidence: high, medium or low.
            observation (VARCHAR): What was observed, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis that shows the evidence.
            evidence_filter (VARCHAR): SQL condition that selects the relevant rows; null for all rows.
            event_id (BIGINT, id): The communication activity with the longest exposed segment.
            from_ns (BIGINT, ts): Start of the worst occurrence.
            to_ns (BIGINT, ts): End of the worst occurrence.

        Parameters:
            warning_share: Warning threshold: lowest share that is a finding.
            critical_share: Critical threshold.
        """
        return self.run("exposed_comm", warning_share=warning_share, critical_share=critical_share)

    def host_bound(
        self, *, warning_share: float = 0.1, critical_share: float = 0.3, short_gap_ns: int | str = 100000
    ) -> T_co:
        """Detects long GPU idle gaps in which the host is busy with work other than launching.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: host.
            severity (VARCHAR): critical, warning, info (above the threshold, but the trace has no complete
                step, so it may not be representative) or none.
            share (DOUBLE, ratio): Idle time in long gaps before activities that were launched late, as a
                share of analyzed_ns.
            threshold (DOUBLE, ratio): Warning threshold.
            count (BIGINT, count): Number of such gaps.
            steps (BIGINT, count): Complete steps analyzed; 0 if there are none.
            analyzed_ns (BIGINT, ns): Analyzed time: the rank's complete steps, or its GPU window if there are
                none.
            saving_ns (BIGINT, ns): Upper bound on the time saved in the analyzed interval: all such time.
            saving_limit (VARCHAR): What limits the saving. Savings of different findings overlap and do not
                add up.
            confidence (VARCHAR): Confidence: high, medium or low.
            observation (VARCHAR): What was observed, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis that shows the evidence.
            evidence_filter (VARCHAR): SQL condition that selects the relevant rows; null for all rows.
            event_id (BIGINT, id): The GPU activity that ends the longest such gap.
            from_ns (BIGINT, ts): Start of the worst occurrence.
            to_ns (BIGINT, ts): End of the worst occurrence.

        Parameters:
            warning_share: Warning threshold: lowest share that is a finding.
            critical_share: Critical threshold.
            short_gap_ns: Gaps up to this duration are short: the host was busy launching.
        """
        return self.run(
            "host_bound",
            warning_share=warning_share,
            critical_share=critical_share,
            short_gap_ns=short_gap_ns,
        )

    def idle_breakdown(self, *, kernel_wait_ns: int | str = 30000) -> T_co:
        """Idle time of each device by cause: waiting for the host, between kernels, or other.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 if unknown.
            cause (VARCHAR): host_wait: the activity after the gap was launched after the gap began;
                kernel_wait: it had been launched (possibly before the recording) and the gap is short; other:
                it had been launched and the gap is not short; unknown: its launch is missing from the trace.
            idle_ns (BIGINT, ns): Total duration of such gaps; the causes sum to idle_ns of
                temporal_breakdown.
            count (BIGINT, count): Number of such gaps.
            share (DOUBLE, ratio): idle_ns as a share of the device's idle time.

        Parameters:
            kernel_wait_ns: A gap shorter than this is a kernel_wait if the next activity had been launched
                when the gap began.
        """
        return self.run("idle_breakdown", kernel_wait_ns=kernel_wait_ns)

    def idle_intervals(self, *, kernel_wait_ns: int | str = 30000) -> T_co:
        """Idle intervals of each device: cause, GPU activities before and after, and the call that launched
        the one after.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 if unknown.
            start_ns (BIGINT, ts): Start of the gap.
            idle_ns (BIGINT, ns): Duration of the gap; always positive.
            cause (VARCHAR): host_wait: the activity after the gap was launched after the gap began;
                kernel_wait: it had been launched (possibly before the recording) and the gap is short; other:
                it had been launched and the gap is not short; unknown: its launch is missing from the trace.
            before_id (BIGINT, id): event_id of the GPU activity that ends where the gap begins; if several
                do, the last in the file.
            before_name (VARCHAR): Name of that activity.
            after_id (BIGINT, id): event_id of the GPU activity that ends the gap.
            after_name (VARCHAR): Name of that activity.
            after_stream (BIGINT, id): Its stream; -1 if unknown.
            step (BIGINT, id): The profiler step in which it was launched.
            call_id (BIGINT, id): event_id of the host call that launched it; null if unknown.
            api (VARCHAR): Name of that host function.
            launch_delay_ns (BIGINT, ns): Start of that call minus start_ns: how long the host kept the device
                waiting, if positive.
            op_id (BIGINT, id): event_id of the innermost operator enclosing that call.
            op_name (VARCHAR): Name of that operator.

        Parameters:
            kernel_wait_ns: A gap shorter than this is a kernel_wait if the next activity had been launched
                when the gap began.
        """
        return self.run("idle_intervals", kernel_wait_ns=kernel_wait_ns)

    def input_bound(self, *, warning_share: float = 0.05, critical_share: float = 0.2) -> T_co:
        """Detects GPU idle time while the training thread waits for the data loader.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: data loader.
            severity (VARCHAR): critical, warning, info (above the threshold, but the trace has no complete
                step, so it may not be representative) or none.
            share (DOUBLE, ratio): Idle time during waits for data, as a share of analyzed_ns.
            threshold (DOUBLE, ratio): Warning threshold.
            count (BIGINT, count): Number of such idle segments.
            steps (BIGINT, count): Complete steps analyzed; 0 if there are none.
            analyzed_ns (BIGINT, ns): Analyzed time: the rank's complete steps, or its GPU window if there are
                none.
            saving_ns (BIGINT, ns): Upper bound on the time saved in the analyzed interval: all such time.
            saving_limit (VARCHAR): What limits the saving. Savings of different findings overlap and do not
                add up.
            confidence (VARCHAR): Confidence: high, medium or low.
            observation (VARCHAR): What was observed, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis that shows the evidence.
            evidence_filter (VARCHAR): SQL condition that selects the relevant rows; null for all rows.
            event_id (BIGINT, id): The GPU activity that ends the longest such gap.
            from_ns (BIGINT, ts): Start of the worst occurrence.
            to_ns (BIGINT, ts): End of the worst occurrence.

        Parameters:
            warning_share: Warning threshold: lowest share that is a finding.
            critical_share: Critical threshold.
        """
        return self.run("input_bound", warning_share=warning_share, critical_share=critical_share)

    def kernel_sequences(
        self,
        *,
        operator: str | None = None,
        min_kernels: int = 3,
        by_stream: bool = False,
        with_memory: bool = True,
    ) -> T_co:
        """Sequences of GPU activities that operators launch, with count, GPU time and operator time.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            name (VARCHAR): Operator name; empty if the trace gives none.
            device (BIGINT, id): The device, -1 if unknown; null without by_stream.
            stream (BIGINT, id): The stream, -1 if unknown; null without by_stream.
            kernels (VARCHAR): All GPU activities launched by the operator and the operators it called: names
                in launch order, joined with |; activities of one call are ordered by start.
            kernel_count (BIGINT, count): Number of GPU activities in the sequence.
            count (BIGINT, count): How many times an operator of that name launched exactly this sequence.
            kernel_sum_ns (BIGINT, ns): Sum of GPU activity durations (overlaps counted multiple times).
            op_sum_ns (BIGINT, ns): Sum of the host durations of these operators; with by_stream, counted once
                per stream.

        Parameters:
            operator: Operators whose name contains this text; the outermost of nested ones. Default:
                operators not enclosed by another.
            min_kernels: Minimum length; shorter sequences are left out.
            by_stream: One sequence per device and stream instead of one across all.
            with_memory: Include memcpy and memset in sequences.
        """
        return self.run(
            "kernel_sequences",
            operator=operator,
            min_kernels=min_kernels,
            by_stream=by_stream,
            with_memory=with_memory,
        )

    def kernel_summary(self) -> T_co:
        """Count and duration statistics of each kernel, memcpy and memset per device.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 if unknown.
            kind (VARCHAR): computation, communication, memory or other.
            name (VARCHAR): Full name.
            count (BIGINT, count): Number of GPU activities with this name.
            sum_ns (BIGINT, ns): Sum of durations (overlaps counted multiple times).
            min_ns (BIGINT, ns): Minimum duration.
            p50_ns (BIGINT, ns): Median duration (lower of the two middle values).
            p95_ns (BIGINT, ns): 95th percentile of the durations; always a measured duration.
            p99_ns (BIGINT, ns): 99th percentile of the durations; always a measured duration.
            max_ns (BIGINT, ns): Maximum duration.
            mean_ns (DOUBLE, ns): Mean duration: sum_ns / count.
            std_ns (DOUBLE, ns): Sample standard deviation (n - 1); null for a single activity.
        """
        return self.run("kernel_summary")

    def kernel_type_breakdown(self) -> T_co:
        """Busy time of each device by the combination of kinds of GPU activity running at once.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 if unknown.
            class (VARCHAR): The kinds running at once, on any stream: computation, communication, memory,
                other, in this order, joined with +. Combinations without time, and idle time, have no row.
            class_ns (BIGINT, ns): Time with exactly these kinds running; the classes of a device sum to
                busy_ns of temporal_breakdown.
            share (DOUBLE, ratio): class_ns as a share of the device's busy time.
        """
        return self.run("kernel_type_breakdown")

    def kernels_by_annotation(self) -> T_co:
        """GPU activities with all annotations enclosing the launch of each.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            kernel_id (BIGINT, id): event_id of the GPU activity.
            name (VARCHAR): Name of the GPU activity.
            kind (VARCHAR): computation, communication, memory or other.
            device (BIGINT, id): The device; -1 if unknown.
            stream (BIGINT, id): The stream; -1 if unknown.
            kernel_ns (BIGINT, ns): Duration of the GPU activity.
            launch_state (VARCHAR): known; before_window or missing: the launch is unknown, and so are its
                annotations.
            depth (BIGINT, depth): Number of annotations on the launching thread that enclose the start of the
                launch call; 0 if none.
            annotation_id (BIGINT, id): event_id of the innermost annotation.
            annotation (VARCHAR): Name of the innermost annotation.
            path (VARCHAR): All enclosing annotations, outermost first, joined with >.
        """
        return self.run("kernels_by_annotation")

    def launch_bound(
        self, *, warning_share: float = 0.1, critical_share: float = 0.3, short_gap_ns: int | str = 100000
    ) -> T_co:
        """Detects short GPU idle gaps because the host cannot launch kernels fast enough (launch-bound).

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: launches.
            severity (VARCHAR): critical, warning, info (above the threshold, but the trace has no complete
                step, so it may not be representative) or none.
            share (DOUBLE, ratio): Idle time in short gaps before activities that were launched late, as a
                share of analyzed_ns.
            threshold (DOUBLE, ratio): Warning threshold.
            count (BIGINT, count): Number of such gaps.
            steps (BIGINT, count): Complete steps analyzed; 0 if there are none.
            analyzed_ns (BIGINT, ns): Analyzed time: the rank's complete steps, or its GPU window if there are
                none.
            saving_ns (BIGINT, ns): Upper bound on the time saved in the analyzed interval: all such time.
            saving_limit (VARCHAR): What limits the saving. Savings of different findings overlap and do not
                add up.
            confidence (VARCHAR): Confidence: high, medium or low.
            observation (VARCHAR): What was observed, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis that shows the evidence.
            evidence_filter (VARCHAR): SQL condition that selects the relevant rows; null for all rows.
            event_id (BIGINT, id): The GPU activity that ends the longest such gap.
            from_ns (BIGINT, ts): Start of the worst occurrence.
            to_ns (BIGINT, ts): End of the worst occurrence.

        Parameters:
            warning_share: Warning threshold: lowest share that is a finding.
            critical_share: Critical threshold.
            short_gap_ns: Gaps up to this duration are short: the host was busy launching.
        """
        return self.run(
            "launch_bound",
            warning_share=warning_share,
            critical_share=critical_share,
            short_gap_ns=short_gap_ns,
        )

    def launch_stats(self) -> T_co:
        """GPU activities with the host call that launched each, and the launch delays.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            kernel_id (BIGINT, id): event_id of the GPU activity.
            runtime_id (BIGINT, id): event_id of the host call; null if the launch is unknown.
            api (VARCHAR): Name of the host function; a graph launch is repeated for each of its GPU
                activities.
            name (VARCHAR): Name of the GPU activity.
            kind (VARCHAR): computation, communication, memory or other.
            device (BIGINT, id): The device; -1 if unknown.
            stream (BIGINT, id): The stream; -1 if unknown.
            call_ns (BIGINT, ns): Duration of the host call.
            kernel_ns (BIGINT, ns): Duration of the GPU activity.
            return_to_start_ns (BIGINT, ns): GPU start minus end of the host call, including time in the
                queue; negative if the activity started before the call returned.
            call_to_start_ns (BIGINT, ns): GPU start minus start of the host call; negative only if the clocks
                disagree.
        """
        return self.run("launch_stats")

    def launch_summary(
        self, *, runtime_cutoff_ns: int | str = 50000, delay_cutoff_ns: int | str = 100000
    ) -> T_co:
        """Launch statistics by host function: counts, short kernels, slow calls, long delays.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device of the GPU activities, -1 if unknown; null for calls without GPU
                activity.
            state (VARCHAR): known; before_window and missing: GPU activities without a known launch, as in
                kernels; no_gpu_activity: launch calls, by name, without a GPU activity; shared_id: such calls
                that share their correlation ID with another launch, usually a driver call inside it.
            api (VARCHAR): Name of the host function; null for GPU activities without a known launch.
            recognized (BOOLEAN): True if call_rules recognizes the function as a launch; null without a call.
            launches (BIGINT, count): Calls; a call with GPU activities on two devices counts on both.
            gpu_activities (BIGINT, count): GPU activities; known, before_window and missing together are all
                activities of the device.
            short_kernels (BIGINT, count): Calls of at most runtime_cutoff_ns that took longer than their GPU
                activities (for a graph launch, all of them together).
            runtime_outliers (BIGINT, count): Calls longer than runtime_cutoff_ns.
            delay_outliers (BIGINT, count): Calls whose first GPU activity started more than delay_cutoff_ns
                after the call returned, including time in the queue.
            call_ns (BIGINT, ns): Sum of call durations.
            gpu_ns (BIGINT, ns): Sum of GPU activity durations (overlaps counted multiple times).

        Parameters:
            runtime_cutoff_ns: Calls longer than this are outliers; kernels count as short only under calls
                that are not.
            delay_cutoff_ns: Activities that start later than this after their call returned are outliers.
        """
        return self.run(
            "launch_summary", runtime_cutoff_ns=runtime_cutoff_ns, delay_cutoff_ns=delay_cutoff_ns
        )

    def low_gpu_use(self, *, warning_share: float = 0.5, critical_share: float = 0.8) -> T_co:
        """Detects GPUs that are idle most of the time.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: GPU. Ranks without GPU activity in their complete steps have no row.
            severity (VARCHAR): critical, warning, info (above the threshold, but the trace has no complete
                step, so it may not be representative) or none.
            share (DOUBLE, ratio): Idle time as a share of analyzed_ns.
            threshold (DOUBLE, ratio): Warning threshold.
            count (BIGINT, count): Number of idle segments, split where the cause changes.
            steps (BIGINT, count): Complete steps analyzed; 0 if there are none.
            analyzed_ns (BIGINT, ns): Analyzed time: the rank's complete steps, or its GPU window if there are
                none.
            saving_ns (BIGINT, ns): Upper bound on the time saved in the analyzed interval: all such time.
            saving_limit (VARCHAR): What limits the saving. Savings of different findings overlap and do not
                add up.
            confidence (VARCHAR): Confidence: high, medium or low.
            observation (VARCHAR): What was observed, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis that shows the evidence.
            evidence_filter (VARCHAR): SQL condition that selects the relevant rows; null for all rows.
            event_id (BIGINT, id): The GPU activity that ends the gap with the longest idle segment of one
                cause; null before the first and after the last activity.
            from_ns (BIGINT, ts): Start of the worst occurrence.
            to_ns (BIGINT, ts): End of the worst occurrence.

        Parameters:
            warning_share: Warning threshold: lowest share that is a finding.
            critical_share: Critical threshold.
        """
        return self.run("low_gpu_use", warning_share=warning_share, critical_share=critical_share)

    def memory_bandwidth(self, *, by_stream: bool = False) -> T_co:
        """Memcpy and memset bandwidth of each device by direction, over time.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 if unknown.
            stream (BIGINT, id): The stream; -1 if unknown; null if all streams are combined.
            direction (VARCHAR): HtoD, DtoH, DtoD, PtoP, …; Memset; unknown if the name does not match.
            ts_ns (BIGINT, ts): Time of the change: a copy starts or ends. Activities without duration or
                bytes are excluded; memory_bandwidth_summary counts them.
            copies (BIGINT, count): Memcpy and memset activities that run from then on, for dur_ns.
            bandwidth_bytes_per_ns (DOUBLE, bytes_per_ns): Sum of their bandwidths (bytes / duration); exactly
                0 if none runs.
            dur_ns (BIGINT, ns): Time until the next change; 0 if there is none.

        Parameters:
            by_stream: One series per stream; otherwise concurrent copies on several streams are summed.
        """
        return self.run("memory_bandwidth", by_stream=by_stream)

    def memory_bandwidth_summary(self, *, by_stream: bool = False) -> T_co:
        """Bytes and bandwidth of memcpy and memset on each device, by direction.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 if unknown.
            stream (BIGINT, id): The stream; -1 if unknown; null if all streams are combined.
            direction (VARCHAR): HtoD, DtoH, DtoD, PtoP, …; Memset; unknown if the name does not match.
            count (BIGINT, count): Number of memcpy or memset activities.
            unusable (BIGINT, count): Activities without duration or bytes; they are excluded from the columns
                below.
            bytes (BIGINT, bytes): Bytes of the others.
            active_ns (BIGINT, ns): Time with at least one of them running.
            mean_bytes_per_ns (DOUBLE, bytes_per_ns): Mean bandwidth: bytes / active_ns; null, like all
                columns below, if active_ns is 0.
            p50_bytes_per_ns (DOUBLE, bytes_per_ns): Time-weighted median bandwidth of all concurrent copies:
                the lowest that is not exceeded for half of active_ns.
            p95_bytes_per_ns (DOUBLE, bytes_per_ns): 95th percentile of the bandwidth over active_ns.
            max_bytes_per_ns (DOUBLE, bytes_per_ns): Maximum bandwidth.

        Parameters:
            by_stream: One series per stream; otherwise concurrent copies on several streams are summed.
        """
        return self.run("memory_bandwidth_summary", by_stream=by_stream)

    def memory_by_category(self) -> T_co:
        """Memory by category of a memory timeline: at the peak, at the end, and the maximum of each category.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            category (VARCHAR): parameter, optimizer_state, input, temporary, activation, gradient,
                autograd_detail, unknown (not classified by torch); null for a number that torch does not use.
            changes (BIGINT, count): Number of timeline rows.
            preexisting_bytes (BIGINT, bytes): Bytes allocated before the first timestamp.
            at_peak_bytes (BIGINT, bytes): Bytes of the category when the total first peaked; the categories
                of a rank sum to the peak.
            peak_at_ns (BIGINT, ts): Time of the peak, the same for all categories; null if the total never
                exceeded what was allocated before the first timestamp.
            max_bytes (BIGINT, bytes): Maximum bytes of the category.
            max_at_ns (BIGINT, ts): When the maximum was first reached; null if it was before the first
                timestamp.
            end_bytes (BIGINT, bytes): Bytes after the last timestamp.
        """
        return self.run("memory_by_category")

    def memory_by_op(self) -> T_co:
        """Memory that each operator allocated and freed, and the net change.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device_type (BIGINT, id): 0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType.
            device (BIGINT, id): The device; -1 for the CPU.
            op (VARCHAR): Name of the innermost operator open on the thread at that time; operators nested in
                it count separately. Null outside all operators, for example for frees by Python or the
                autograd engine.
            calls (BIGINT, count): Operator calls that allocated or freed; 0 for null.
            allocations (BIGINT, count): Number of events with 0 bytes or more.
            frees (BIGINT, count): Number of events with negative bytes. A free counts where it happens, not
                where the memory was allocated.
            allocated_bytes (BIGINT, bytes): Bytes allocated.
            freed_bytes (BIGINT, bytes): Bytes freed.
            net_bytes (BIGINT, bytes): allocated_bytes minus freed_bytes; the operators of a device sum to
                net_bytes of memory_peak.
            largest_bytes (BIGINT, bytes): Largest allocation; null if there is none.
        """
        return self.run("memory_by_op")

    def memory_category_curve(self) -> T_co:
        """Memory by category (parameters, gradients, activations, …) after each moment of a memory timeline.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            position (BIGINT, id): Sequence number of the moment, starting at 1; all changes with the same
                timestamp are one moment.
            ts_ns (BIGINT, ts): Timestamp; null for preexisting memory, which comes first.
            parameter_bytes (BIGINT, bytes): Bytes in parameters. A negative value in a column means that the
                file frees more than it allocated in that category.
            optimizer_state_bytes (BIGINT, bytes): Bytes in optimizer state.
            input_bytes (BIGINT, bytes): Bytes in inputs.
            temporary_bytes (BIGINT, bytes): Bytes in temporaries, which are created and consumed within a
                pass.
            activation_bytes (BIGINT, bytes): Bytes in activations.
            gradient_bytes (BIGINT, bytes): Bytes in gradients.
            autograd_detail_bytes (BIGINT, bytes): Bytes that autograd keeps internally.
            unknown_bytes (BIGINT, bytes): Bytes not classified by torch, or in a category without a name.
            total_bytes (BIGINT, bytes): Sum of the eight columns.
        """
        return self.run("memory_category_curve")

    def memory_curve(self) -> T_co:
        """Allocated and reserved memory of each device after each allocation and free.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device_type (BIGINT, id): 0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType.
            device (BIGINT, id): The device; -1 for the CPU.
            position (BIGINT, id): Sequence number of the event on its device: by time, then by the profiler's
                event number, then frees first.
            ts_ns (BIGINT, ts): Timestamp.
            bytes (BIGINT, bytes): Bytes allocated; negative for frees.
            net_bytes (BIGINT, bytes): Bytes allocated minus bytes freed since the start of the profiling
                window; negative if more was freed.
            allocated_bytes (BIGINT, bytes): Total allocated, including allocations from before the profiling
                window; null if totals are not recorded.
            reserved_bytes (BIGINT, bytes): Total reserved by the allocator; null if totals are not recorded.
        """
        return self.run("memory_curve")

    def memory_live(self) -> T_co:
        """Allocations live at the peak memory of each device, with operator and age, and the rest of the
        peak.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device_type (BIGINT, id): 0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType.
            device (BIGINT, id): The device; -1 for the CPU. Devices without recorded totals have no known
                peak and no rows.
            event_id (BIGINT, id): The allocation, up to the one that first reaches peak_bytes of memory_peak;
                null for the rest.
            origin (VARCHAR): window: allocated in the profiling window, with no other event at its address
                until after the peak. rest: one row per device with the rest of the peak: allocations from
                before the window and events without an address.
            bytes (BIGINT, bytes): Its bytes; the rows of a device sum to its peak. Negative only for the
                rest, if frees are missing from the trace and more seems allocated than is.
            address (BIGINT, id): Its address; null for the rest.
            op (VARCHAR): Name of the innermost operator that allocated it; null outside operators and for the
                rest.
            op_id (BIGINT, id): event_id of that operator.
            step (BIGINT, id): The profiler step of the allocation.
            allocated_ns (BIGINT, ts): Time of the allocation; null for the rest.
            age_ns (BIGINT, ns): Time from the allocation to the peak; null for the rest.
        """
        return self.run("memory_live")

    def memory_peak(self) -> T_co:
        """Peak allocated and reserved memory of each device, with time and step.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device_type (BIGINT, id): 0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType.
            device (BIGINT, id): The device; -1 for the CPU.
            changes (BIGINT, count): Number of allocations and frees.
            unusable (BIGINT, count): Events without time or bytes; they are excluded from all other columns
                and memory analyses.
            peak_bytes (BIGINT, bytes): Peak allocated memory: the largest recorded total, including
                allocations from before the profiling window; null if totals are not recorded.
            peak_at_ns (BIGINT, ts): When the peak was first reached.
            peak_step (BIGINT, id): The profiler step at that time; null outside steps.
            peak_reserved_bytes (BIGINT, bytes): Peak reserved memory: the largest recorded total.
            reserved_at_ns (BIGINT, ts): When that was first reached.
            start_bytes (BIGINT, bytes): Allocated before the first event with a total: its total minus its
                bytes.
            end_bytes (BIGINT, bytes): Allocated after the last event with a total.
            net_bytes (BIGINT, bytes): Bytes allocated minus bytes freed.
            peak_net_bytes (BIGINT, bytes): Maximum of bytes allocated minus bytes freed since the start of
                the profiling window; 0 if never positive. Does not need totals.
            unexplained_bytes (BIGINT, bytes): end_bytes minus start_bytes minus the bytes of the events with
                totals: 0 if the trace records every change, otherwise the unrecorded change.
        """
        return self.run("memory_peak")

    def memory_pressure(self, *, warning_share: float = 0.9, critical_share: float = 0.97) -> T_co:
        """Detects GPU memory that was nearly full.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): The GPU by number. GPUs whose memory size or total allocation is not recorded
                have no row.
            severity (VARCHAR): critical, warning, info (above the threshold, but the trace has no complete
                step, so it may not be representative) or none.
            share (DOUBLE, ratio): Peak allocated bytes as a share of the device's memory.
            threshold (DOUBLE, ratio): Warning threshold.
            count (BIGINT, count): Number of allocations and frees.
            steps (BIGINT, count): Complete steps analyzed; 0 if there are none.
            analyzed_ns (BIGINT, ns): Analyzed time: the rank's complete steps, or its GPU window if there are
                none.
            saving_ns (BIGINT, ns): Always null: this is a risk, not lost time.
            saving_limit (VARCHAR): What limits the saving. Savings of different findings overlap and do not
                add up.
            confidence (VARCHAR): Confidence: high, medium or low.
            observation (VARCHAR): What was observed, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis that shows the evidence.
            evidence_filter (VARCHAR): SQL condition that selects the relevant rows; null for all rows.
            event_id (BIGINT, id): The allocation that first reached the peak.
            from_ns (BIGINT, ts): Start of the worst occurrence.
            to_ns (BIGINT, ts): End of the worst occurrence.

        Parameters:
            warning_share: Warning threshold: lowest share that is a finding.
            critical_share: Critical threshold.
        """
        return self.run("memory_pressure", warning_share=warning_share, critical_share=critical_share)

    def name_summary(self, *, by_step: bool = False) -> T_co:
        """Count and total time of each operator, host call and annotation, and of each GPU kernel; used to
        compare two traces.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            step (BIGINT, id): The profiler step: for host slices the one that contains the start, for GPU
                activities that of the launch; null outside steps and without by_step.
            on_gpu (BOOLEAN): True for GPU activities (kernel, memcpy, memset); false for slices on host
                threads.
            category (VARCHAR): On the host the trace's category (cpu_op, cuda_runtime, user_annotation,
                python_function, …); for GPU activities the kind.
            name (VARCHAR): Full name.
            count (BIGINT, count): Number of slices or GPU activities with this name.
            sum_ns (BIGINT, ns): Sum of durations (overlapping and nested time counted multiple times).

        Parameters:
            by_step: Break down by profiler step; otherwise over the entire trace.
        """
        return self.run("name_summary", by_step=by_step)

    def op_kernel_delays(self, *, with_memory: bool = True) -> T_co:
        """Delay from the start of an operator to its first GPU activity, by operator and launched activities.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            name (VARCHAR): Name of the operator: the innermost enclosing the calls, on their thread. Empty if
                the trace gives none.
            kernels (VARCHAR): GPU activities launched by the operator itself, not by operators it called:
                names in launch order, joined with |; activities of one call are ordered by start.
            kernel_count (BIGINT, count): Number of GPU activities per occurrence.
            count (BIGINT, count): Occurrences: operators of that name that launched exactly these activities.
            kernel_sum_ns (BIGINT, ns): Sum of durations of all their GPU activities.
            op_to_kernel_ns (BIGINT, ns): Total time from the start of the operator to the start of the first
                GPU activity in that order.
            launch_to_kernel_ns (BIGINT, ns): Total time from the start of the call that launched that
                activity to its start, including time in the queue.
            mean_op_to_kernel_ns (DOUBLE, ns): op_to_kernel_ns / count.
            mean_launch_to_kernel_ns (DOUBLE, ns): launch_to_kernel_ns / count.

        Parameters:
            with_memory: Count memcpy and memset as GPU activities; without them, operators that only copy
                have no row.
        """
        return self.run("op_kernel_delays", with_memory=with_memory)

    def op_summary(self, *, by_shapes: bool = False) -> T_co:
        """Number of calls and self and total time of each operator, on host and GPU.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            name (VARCHAR): Operator name; null for all GPU activities with an unknown launch or launched
                outside operators. Empty if the trace gives none.
            shapes (VARCHAR): Input shapes; null without by_shapes or if not recorded.
            count (BIGINT, count): Number of calls, including recursive ones.
            host_ns (BIGINT, ns): Host time in the operator and everything it called; recursive calls count
                once, threads are summed.
            host_self_ns (BIGINT, ns): Self time: the part of host_ns outside operators that it called;
                runtime calls and Python count as self time. Over all names it sums to the time that threads
                spent in operators.
            kernel_self_count (BIGINT, count): GPU activities whose innermost operator it is; over all names,
                each GPU activity counts once. Null, like all columns below, if the rank has no GPU activity.
            kernel_self_sum_ns (BIGINT, ns): Sum of their durations.
            kernel_self_union_ns (BIGINT, ns): Time with at least one of them running, on any stream; devices
                are summed.
            kernel_count (BIGINT, count): GPU activities launched by it or by an operator that it called; each
                counts once, even in recursive calls.
            kernel_sum_ns (BIGINT, ns): Sum of their durations.
            kernel_union_ns (BIGINT, ns): Time with at least one of them running, on any stream; devices are
                summed.

        Parameters:
            by_shapes: Separate operators of the same name by their input shapes.
        """
        return self.run("op_summary", by_shapes=by_shapes)

    def pageable_copies(self, *, warning_share: float = 0.02, critical_share: float = 0.1) -> T_co:
        """Detects exposed copies from or to pageable memory.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: copies of pageable memory. Ranks whose copies do not record the memory
                type have no row.
            severity (VARCHAR): critical, warning, info (above the threshold, but the trace has no complete
                step, so it may not be representative) or none.
            share (DOUBLE, ratio): Time with such a copy running, and neither computation nor communication,
                as a share of analyzed_ns.
            threshold (DOUBLE, ratio): Warning threshold.
            count (BIGINT, count): Number of such segments.
            steps (BIGINT, count): Complete steps analyzed; 0 if there are none.
            analyzed_ns (BIGINT, ns): Analyzed time: the rank's complete steps, or its GPU window if there are
                none.
            saving_ns (BIGINT, ns): Upper bound on the time saved in the analyzed interval: all such time.
            saving_limit (VARCHAR): What limits the saving. Savings of different findings overlap and do not
                add up.
            confidence (VARCHAR): Confidence: high, medium or low.
            observation (VARCHAR): What was observed, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis that shows the evidence.
            evidence_filter (VARCHAR): SQL condition that selects the relevant rows; null for all rows.
            event_id (BIGINT, id): The copy with the longest exposed segment.
            from_ns (BIGINT, ts): Start of the worst occurrence.
            to_ns (BIGINT, ts): End of the worst occurrence.

        Parameters:
            warning_share: Warning threshold: lowest share that is a finding.
            critical_share: Critical threshold.
        """
        return self.run("pageable_copies", warning_share=warning_share, critical_share=critical_share)

    def quality(self) -> T_co:
        """Data-quality rules that fired, with the rows and time affected.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank; null if the rule is about the run.
            rule (VARCHAR): The rule.
            severity (VARCHAR): error, warning or info.
            rows (BIGINT, count): Number of rows affected.
            affected_ns (BIGINT, ns): Time covered by those rows; null if the rule is not about time.
            example (VARCHAR): One of the affected rows.
        """
        return self.run("quality")

    def queue_blocked(self, *, max_length: int = 1024) -> T_co:
        """Time during which each stream's queue of launched GPU activities was full, so that the host had to
        wait.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 if unknown.
            stream (BIGINT, id): The stream; -1 if unknown.
            span_ns (BIGINT, ns): From the first launch to the last start of an activity with a known launch;
                null if there is none.
            blocked_ns (BIGINT, ns): Time with a full queue; null if no launch is known.
            share (DOUBLE, ratio): blocked_ns / span_ns; null if span_ns is 0 or null.

        Parameters:
            max_length: Capacity of the queue: it is full at this depth or above.
        """
        return self.run("queue_blocked", max_length=max_length)

    def queue_length(self) -> T_co:
        """Queue depth of each stream over time: activities launched but not yet started.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 if unknown.
            stream (BIGINT, id): The stream; -1 if unknown.
            ts_ns (BIGINT, ts): Time of the change: a launching host call or a GPU activity starts.
            launched (BIGINT, count): Activities launched at that moment; a graph launch counts each of its
                activities. An activity that starts before its call (the clocks disagree) counts as launched
                when it starts. Activities without a known launch are excluded; queue_length_summary counts
                them.
            started (BIGINT, count): Activities that start at that moment.
            queue_length (BIGINT, count): Queue depth from then on, for dur_ns: activities launched but not
                yet started.
            dur_ns (BIGINT, ns): Time until the next change of the queue; 0 if there is none.
        """
        return self.run("queue_length")

    def queue_length_summary(self) -> T_co:
        """Queue depth statistics of each stream, over its changes and over time.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 if unknown.
            stream (BIGINT, id): The stream; -1 if unknown.
            launched (BIGINT, count): GPU activities with a known launch, queued from the start of the host
                call to their own start; a graph launch counts each of its activities.
            launch_unknown (BIGINT, count): GPU activities without a known launch, which are never queued.
            span_ns (BIGINT, ns): From the first launch to the last start of such an activity: the base of the
                time-weighted columns. Null, like all columns below, if no launch is known.
            queued_ns (BIGINT, ns): Total queueing time of all activities: depth times time.
            waiting_ns (BIGINT, ns): Time with at least one activity in the queue.
            waiting (DOUBLE, ratio): waiting_ns / span_ns; null if span_ns is 0.
            max_length (BIGINT, count): Maximum queue depth; at the same time, launches come before starts.
            change_mean (DOUBLE, count): Mean depth after a change; each launch and each start counts once.
            change_p50 (BIGINT, count): Median depth after a change (lower of the two middle values).
            change_p95 (BIGINT, count): 95th percentile of the depth after a change.
            change_p99 (BIGINT, count): 99th percentile of the depth after a change.
            time_mean (DOUBLE, count): Time-weighted mean depth: queued_ns / span_ns; null if span_ns is 0.
            time_p50 (BIGINT, count): Time-weighted median depth: the smallest depth not exceeded for half of
                the time; null if span_ns is 0.
            time_p95 (BIGINT, count): 95th percentile of the depth over time.
            time_p99 (BIGINT, count): 99th percentile of the depth over time.
        """
        return self.run("queue_length_summary")

    def slow_collectives(
        self,
        *,
        warning_share: float = 0.02,
        critical_share: float = 0.1,
        min_count: int = 5,
        factor: float = 2.0,
        min_excess_ns: int | str = 100000,
    ) -> T_co:
        """Detects outlier collectives that took far longer than the median of their kind and size.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: collectives. Only synchronizing collectives matched with another rank
                are analyzed; for others, transfer and wait cannot be separated.
            severity (VARCHAR): critical, warning, info (above the threshold, but the trace has no complete
                step, so it may not be representative) or none.
            share (DOUBLE, ratio): Total time of the outliers beyond the median, as a share of analyzed_ns.
            threshold (DOUBLE, ratio): Warning threshold.
            count (BIGINT, count): Number of outlier collectives.
            steps (BIGINT, count): Complete steps analyzed; 0 if there are none.
            analyzed_ns (BIGINT, ns): Analyzed time: the rank's complete steps, or its GPU window if there are
                none.
            saving_ns (BIGINT, ns): Upper bound on the time saved in the analyzed interval: the time of the
                outliers beyond the median.
            saving_limit (VARCHAR): What limits the saving. Savings of different findings overlap and do not
                add up.
            confidence (VARCHAR): Confidence: high, medium or low.
            observation (VARCHAR): What was observed, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis that shows the evidence.
            evidence_filter (VARCHAR): SQL condition that selects the relevant rows; null for all rows.
            event_id (BIGINT, id): The outlier that exceeds the median most.
            from_ns (BIGINT, ts): Start of the worst occurrence.
            to_ns (BIGINT, ts): End of the worst occurrence.

        Parameters:
            warning_share: Warning threshold: lowest share that is a finding.
            critical_share: Critical threshold.
            min_count: Minimum number of collectives of a kind and size; with fewer the median is not used.
            factor: Outliers take longer than this many times the median.
            min_excess_ns: Outliers exceed the median by at least this much.
        """
        return self.run(
            "slow_collectives",
            warning_share=warning_share,
            critical_share=critical_share,
            min_count=min_count,
            factor=factor,
            min_excess_ns=min_excess_ns,
        )

    def slow_rank(self, *, warning_share: float = 0.05, critical_share: float = 0.2) -> T_co:
        """Detects stragglers: ranks that the other ranks wait for at collectives.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: collectives.
            severity (VARCHAR): critical, warning, info (above the threshold, but the trace has no complete
                step, so it may not be representative) or none.
            share (DOUBLE, ratio): Longest total wait of another rank for this one, as a share of analyzed_ns
                of that rank.
            threshold (DOUBLE, ratio): Warning threshold.
            count (BIGINT, count): Collectives at which this rank arrived last and another rank waited.
            steps (BIGINT, count): Complete steps analyzed; 0 if there are none.
            analyzed_ns (BIGINT, ns): Analyzed time of the rank that waited longest for this one; its own if
                none waited.
            saving_ns (BIGINT, ns): Upper bound on the time saved in the analyzed interval: the wait of the
                rank that waited longest for this one.
            saving_limit (VARCHAR): What limits the saving. Savings of different findings overlap and do not
                add up.
            confidence (VARCHAR): Confidence: high, medium or low.
            observation (VARCHAR): What was observed, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis that shows the evidence.
            evidence_filter (VARCHAR): SQL condition that selects the relevant rows; null for all rows.
            event_id (BIGINT, id): This rank's collective at which the others waited longest in total.
            from_ns (BIGINT, ts): Start of the worst occurrence.
            to_ns (BIGINT, ts): End of the worst occurrence.

        Parameters:
            warning_share: Warning threshold: lowest share that is a finding.
            critical_share: Critical threshold.
        """
        return self.run("slow_rank", warning_share=warning_share, critical_share=critical_share)

    def step_account(self, *, kernel_wait_ns: int | str = 30000) -> T_co:
        """Breakdown of each step's period by GPU activity and idle cause; the parts sum to the period.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank; its devices are combined.
            step (BIGINT, id): Step number; steps without duration have no rows.
            category (VARCHAR): compute: computation runs; exposed_comm, exposed_memory, other: communication,
                memcpy or memset, or activities of another kind run, and none before them in this list;
                otherwise nothing runs. If the activity after the gap was launched after the gap began:
                idle_sync, if its thread was in a blocking call when the gap began, for the duration of that
                call; then idle_dataloader, while that thread waits for data; otherwise idle_host. If it had
                been launched: idle_kernel_wait if the gap is short, otherwise idle_other. idle_unknown: its
                launch is missing from the trace. idle_outside: before the first GPU activity or after the
                last. Parts without time have no row.
            category_ns (BIGINT, ns): Time of the period in this category; the parts of a step sum to
                period_ns of step_summary.
            share (DOUBLE, ratio): category_ns as a share of the period.

        Parameters:
            kernel_wait_ns: A gap shorter than this is idle_kernel_wait if the next activity had been launched
                when the gap began.
        """
        return self.run("step_account", kernel_wait_ns=kernel_wait_ns)

    def step_kernels(self) -> T_co:
        """Contribution of each kernel to each step's period, with its count, by operator and module path.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank; its devices are combined.
            step (BIGINT, id): Step number.
            kind (VARCHAR): computation, communication, memory (memcpy and memset) or other.
            name (VARCHAR): Full kernel name.
            pass (VARCHAR): forward, backward, recompute, optimizer, data or other.
            op (VARCHAR): The innermost operator enclosing its launch.
            op_sig (VARCHAR): That operator with the shapes and types of its inputs.
            path_sig (VARCHAR): Modules and operators enclosing the launch, outermost first.
            is_graph (BOOLEAN): True if it was replayed by a graph launch.
            count (BIGINT, count): Number of its GPU activities that start in the period; 0 if only the
                remainder of one extends into it.
            sum_ns (BIGINT, ns): Sum of the full durations of the GPU activities that start in the period,
                regardless of overlap.
            exclusive_ns (BIGINT, ns): Time of the period attributed to it: if several activities run,
                computation comes before communication, memory and other, and within a kind the one that
                started first. All rows of a kind sum to its part of step_account.
        """
        return self.run("step_kernels")

    def step_summary(self) -> T_co:
        """Duration of each profiler step on the host, on the device, and from step to step.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            step (BIGINT, id): Step number.
            host_ns (BIGINT, ns): Start to end of the step on the host.
            device_ns (BIGINT, ns): First start to last end of the GPU activities it launched; null if there
                are none.
            period_ns (BIGINT, ns): From the end of the previous step (for the first step, from its host
                start) to its own end: that of its last GPU activity or, without one, of the host. Periods are
                contiguous.
            partial (BOOLEAN): True if its host or device interval touches the edge of the profiling window,
                so the profiler may have truncated it.
        """
        return self.run("step_summary")

    def stragglers(self) -> T_co:
        """Ranks that other ranks wait for at collectives, with count and total wait.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            caused_wait_ns (BIGINT, ns): Wait caused: total time that other ranks waited at collectives where
                this rank had the shortest duration. Over all ranks of a run it sums to their wait_ns. Null,
                like all columns but the counts, if no collective is matched with another rank.
            share (DOUBLE, ratio): caused_wait_ns as a share of the run's total; null if no rank waited.
            arrived_last (BIGINT, count): Collectives at which this rank had the shortest duration, so it
                arrived last; the lowest rank on ties.
            collectives (BIGINT, count): Its synchronizing collectives that are matched with another rank.
            partial (BIGINT, count): Of these, collectives with missing ranks: a missing rank may be the one
                that arrived last.
            assumed (BIGINT, count): Of these, collectives with an unknown process group: all ranks are
                assumed to be members.
            unmatched (BIGINT, count): Its other synchronizing collectives (see `collective_waits` for the
                reason).
            wait_ns (BIGINT, ns): Time that it waited itself, summed over its collectives.
            waiting_ns (BIGINT, ns): Time in which it waited; concurrent waits count once.
            late_ns (BIGINT, ns): Its starts minus those of the first ranks, on aligned clocks
                (`clock_offsets`), summed over its collectives.
            reason (VARCHAR): Why late_ns is null: no collectives matched; clock offset not known; clock
                uncertainty not known; under twice the clock uncertainty, which is summed in the same way.
        """
        return self.run("stragglers")

    def stream_idle(self, *, kernel_wait_ns: int | str = 30000) -> T_co:
        """Idle time of each stream within its device's GPU window, by cause: waiting for the host, between
        kernels, or other.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 if unknown.
            stream (BIGINT, id): The stream; -1 if unknown.
            cause (VARCHAR): host_wait: the activity after the gap was launched after the gap began;
                kernel_wait: it had been launched (possibly before the recording) and the gap is short; other:
                it had been launched and the gap is not short; unknown: its launch is missing from the trace;
                before_first: from the start of the device's GPU window to the stream's first activity;
                after_last: from its last activity to the end of the window.
            idle_ns (BIGINT, ns): Total duration of such gaps; the causes of a stream sum to its device's GPU
                window minus the stream's busy time.
            count (BIGINT, count): Number of such gaps.
            share (DOUBLE, ratio): idle_ns as a share of the stream's idle time.

        Parameters:
            kernel_wait_ns: A gap shorter than this is a kernel_wait if the next activity had been launched
                when the gap began.
        """
        return self.run("stream_idle", kernel_wait_ns=kernel_wait_ns)

    def stream_idle_intervals(self, *, kernel_wait_ns: int | str = 30000) -> T_co:
        """Idle intervals of each stream: cause, GPU activities before and after, and the call that launched
        the one after.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 if unknown.
            stream (BIGINT, id): The stream; -1 if unknown.
            start_ns (BIGINT, ts): Start of the gap.
            idle_ns (BIGINT, ns): Duration of the gap; always positive.
            cause (VARCHAR): host_wait: the activity after the gap was launched after the gap began;
                kernel_wait: it had been launched (possibly before the recording) and the gap is short; other:
                it had been launched and the gap is not short; unknown: its launch is missing from the trace;
                before_first: from the start of the device's GPU window to the stream's first activity;
                after_last: from its last activity to the end of the window.
            before_id (BIGINT, id): event_id of the GPU activity that ends where the gap begins; if several
                do, the last in the file. Null before the stream's first activity.
            before_name (VARCHAR): Name of that activity.
            after_id (BIGINT, id): event_id of the GPU activity that ends the gap; null after the stream's
                last activity.
            after_name (VARCHAR): Name of that activity.
            step (BIGINT, id): The profiler step in which it was launched.
            call_id (BIGINT, id): event_id of the host call that launched it; null if unknown.
            api (VARCHAR): Name of that host function.
            launch_delay_ns (BIGINT, ns): Start of that call minus start_ns: how long the host kept the device
                waiting, if positive.
            op_id (BIGINT, id): event_id of the innermost operator enclosing that call.
            op_name (VARCHAR): Name of that operator.

        Parameters:
            kernel_wait_ns: A gap shorter than this is a kernel_wait if the next activity had been launched
                when the gap began.
        """
        return self.run("stream_idle_intervals", kernel_wait_ns=kernel_wait_ns)

    def temporal_breakdown(self) -> T_co:
        """Breakdown of each device's GPU window: computation, exposed communication, exposed memory
        operations, other and idle.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 if unknown.
            window_ns (BIGINT, ns): GPU window: first start to last end of the device's GPU activities;
                busy_ns + idle_ns.
            busy_ns (BIGINT, ns): Time with at least one GPU activity on any stream: the sum of the next four
                columns.
            compute_ns (BIGINT, ns): Time with computation running.
            exposed_comm_ns (BIGINT, ns): Time with communication and no computation running.
            exposed_memory_ns (BIGINT, ns): Time with a memcpy or memset, and neither computation nor
                communication, running.
            other_ns (BIGINT, ns): Time with only activities of other kinds running.
            idle_ns (BIGINT, ns): Time within the GPU window with nothing running.
        """
        return self.run("temporal_breakdown")

    def tensor_cores(
        self, *, warning_share: float = 0.1, critical_share: float = 0.5, compute_major: int = 7
    ) -> T_co:
        """Detects GEMMs and convolutions that do not use tensor cores on a GPU that has them.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: GEMMs and convolutions. Ranks without an NVIDIA GPU of compute
                capability 7.0 or higher (compute_major), or without a kernel recognized as GEMM or
                convolution, have no row.
            severity (VARCHAR): critical, warning, info (above the threshold, but the trace has no complete
                step, so it may not be representative) or none.
            share (DOUBLE, ratio): Computation time attributed to GEMMs and convolutions without tensor cores,
                as a share of all computation time.
            threshold (DOUBLE, ratio): Warning threshold.
            count (BIGINT, count): Number of such segments.
            steps (BIGINT, count): Complete steps analyzed; 0 if there are none.
            analyzed_ns (BIGINT, ns): Analyzed time: the rank's complete steps, or its GPU window if there are
                none.
            saving_ns (BIGINT, ns): Upper bound on the time saved in the analyzed interval: all such time.
            saving_limit (VARCHAR): What limits the saving. Savings of different findings overlap and do not
                add up.
            confidence (VARCHAR): Confidence: high, medium or low.
            observation (VARCHAR): What was observed, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis that shows the evidence.
            evidence_filter (VARCHAR): SQL condition that selects the relevant rows; null for all rows.
            event_id (BIGINT, id): The kernel of the longest such segment.
            from_ns (BIGINT, ts): Start of the worst occurrence.
            to_ns (BIGINT, ts): End of the worst occurrence.

        Parameters:
            warning_share: Warning threshold: lowest share that is a finding.
            critical_share: Critical threshold.
            compute_major: Lowest major compute capability of NVIDIA GPUs with tensor cores.
        """
        return self.run(
            "tensor_cores",
            warning_share=warning_share,
            critical_share=critical_share,
            compute_major=compute_major,
        )

    def window_account(self, *, annotation: str | None = None, kernel_wait_ns: int | str = 30000) -> T_co:
        """Breakdown of each rank's GPU window, or of each occurrence of an annotation, by GPU activity and
        idle cause.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank; its devices are combined.
            occurrence (BIGINT, id): 1 for the GPU window; for an annotation its number in time order,
                starting at 1. An occurrence that begins within an earlier one of the same name is not
                counted.
            category (VARCHAR): compute: computation runs; exposed_comm, exposed_memory, other: communication,
                memcpy or memset, or activities of another kind run, and none before them in this list;
                otherwise nothing runs. If the activity after the gap was launched after the gap began:
                idle_sync, if its thread was in a blocking call when the gap began, for the duration of that
                call; then idle_dataloader, while that thread waits for data; otherwise idle_host. If it had
                been launched: idle_kernel_wait if the gap is short, otherwise idle_other. idle_unknown: its
                launch is missing from the trace. idle_outside: before the first GPU activity or after the
                last. Parts without time have no row.
            category_ns (BIGINT, ns): Time in this category; the parts sum to the GPU window (first start to
                last end of GPU activities), or to the annotation's duration on the host.
            share (DOUBLE, ratio): category_ns as a share of all parts.

        Parameters:
            annotation: Name of a host annotation: analyze each of its occurrences instead of the rank's GPU
                window.
            kernel_wait_ns: A gap shorter than this is idle_kernel_wait if the next activity had been launched
                when the gap began.
        """
        return self.run("window_account", annotation=annotation, kernel_wait_ns=kernel_wait_ns)

    def window_kernels(self, *, annotation: str | None = None) -> T_co:
        """Contribution of each kernel to each rank's GPU window, or to each occurrence of an annotation, by
        operator and module path.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank; its devices are combined.
            occurrence (BIGINT, id): 1 for the GPU window; for an annotation its number in time order,
                starting at 1. An occurrence that begins within an earlier one of the same name is not
                counted.
            kind (VARCHAR): computation, communication, memory (memcpy and memset) or other.
            name (VARCHAR): Full kernel name.
            pass (VARCHAR): forward, backward, recompute, optimizer, data or other.
            op (VARCHAR): The innermost operator enclosing its launch.
            op_sig (VARCHAR): That operator with the shapes and types of its inputs.
            path_sig (VARCHAR): Modules and operators enclosing the launch, outermost first.
            is_graph (BOOLEAN): True if it was replayed by a graph launch.
            count (BIGINT, count): Number of its GPU activities that start in the window or annotation; 0 if
                only the remainder of one extends into it.
            sum_ns (BIGINT, ns): Sum of the full durations of the GPU activities that start in the window or
                annotation, regardless of overlap.
            exclusive_ns (BIGINT, ns): Time there attributed to it: if several activities run, computation
                comes before communication, memory and other, and within a kind the one that started first.
                All rows of a kind sum to its part of window_account.

        Parameters:
            annotation: Name of a host annotation: analyze each of its occurrences instead of the rank's GPU
                window.
        """
        return self.run("window_kernels", annotation=annotation)
