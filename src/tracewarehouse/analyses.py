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
        """Whether the host goes on calling the driver for memory after the first complete step.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: allocations. A rank with fewer than two complete steps has no row.
            severity (VARCHAR): critical, warning, info (over the threshold, but the trace has no complete
                step, so it may not show the usual) or none.
            share (DOUBLE, ratio): Time in calls that allocate or free over judged_ns.
            threshold (DOUBLE, ratio): From this share on it is a finding.
            count (BIGINT, count): Such calls.
            steps (BIGINT, count): Complete steps by which the rank is judged; 0 where it has none.
            judged_ns (BIGINT, ns): The periods of the complete steps after the first, added up: in the first
                one allocations may be needed.
            saving_ns (BIGINT, ns): At most this can be saved in the stretch: the time in these calls.
            bound (VARCHAR): Why it cannot be more. Savings of several findings do not add up.
            confidence (VARCHAR): high, medium or low: how far the trace can tell that it is so.
            seen (VARCHAR): What is seen, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis whose rows show it.
            evidence_filter (VARCHAR): Which of its rows, as a condition in SQL; null for all.
            event_id (BIGINT, id): The longest such call.
            from_ns (BIGINT, ts): Where the worst instance begins.
            to_ns (BIGINT, ts): Where it ends.

        Parameters:
            warning_share: A share from here on is a finding.
            critical_share: From here on it is critical.
        """
        return self.run("allocator_calls", warning_share=warning_share, critical_share=critical_share)

    def annotation_breakdown(self) -> T_co:
        """How often each annotation was set, on the host or as the profiler's copy on a GPU, and how long it
        lasted.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank; one without annotations has no rows.
            on_gpu (BOOLEAN): The profiler's copies on a GPU: each from the first to the last kernel launched
                inside, so gaps between them count.
            device (BIGINT, id): The device of the copies, -1 where the trace does not say; null on the host.
            name (VARCHAR): The name given.
            count (BIGINT, count): Annotations of that name.
            sum_ns (BIGINT, ns): Their lengths added up, also where they overlap: within one another, on
                several threads or streams.
            union_ns (BIGINT, ns): Time in which at least one of them lasted, on any thread or stream.
            min_ns (BIGINT, ns): The shortest.
            p50_ns (BIGINT, ns): Half of them lasted no longer; a length that was measured, never one in
                between.
            max_ns (BIGINT, ns): The longest.
            mean_ns (DOUBLE, ns): sum_ns over count.
            std_ns (DOUBLE, ns): Standard deviation of the sample (n - 1); null for a single one.
        """
        return self.run("annotation_breakdown")

    def blocking_copies(self, *, warning_share: float = 0.05, critical_share: float = 0.2) -> T_co:
        """Whether the GPU runs dry because the host waits until copies are done.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: copies.
            severity (VARCHAR): critical, warning, info (over the threshold, but the trace has no complete
                step, so it may not show the usual) or none.
            share (DOUBLE, ratio): Idle time after copies in which the host waits, over judged_ns.
            threshold (DOUBLE, ratio): From this share on it is a finding.
            count (BIGINT, count): Such pieces of time.
            steps (BIGINT, count): Complete steps by which the rank is judged; 0 where it has none.
            judged_ns (BIGINT, ns): How long the stretch is by which the rank is judged: its complete steps,
                else its GPU rows from first to last.
            saving_ns (BIGINT, ns): At most this can be saved in the stretch: all such time.
            bound (VARCHAR): Why it cannot be more. Savings of several findings do not add up.
            confidence (VARCHAR): high, medium or low: how far the trace can tell that it is so.
            seen (VARCHAR): What is seen, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis whose rows show it.
            evidence_filter (VARCHAR): Which of its rows, as a condition in SQL; null for all.
            event_id (BIGINT, id): The call before the longest such piece.
            from_ns (BIGINT, ts): Where the worst instance begins.
            to_ns (BIGINT, ts): Where it ends.

        Parameters:
            warning_share: A share from here on is a finding.
            critical_share: From here on it is critical.
        """
        return self.run("blocking_copies", warning_share=warning_share, critical_share=critical_share)

    def blocking_syncs(self, *, warning_share: float = 0.05, critical_share: float = 0.2) -> T_co:
        """Whether the GPU runs dry because the host waits for it in synchronising calls.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: synchronising calls.
            severity (VARCHAR): critical, warning, info (over the threshold, but the trace has no complete
                step, so it may not show the usual) or none.
            share (DOUBLE, ratio): Idle time after synchronising calls over judged_ns.
            threshold (DOUBLE, ratio): From this share on it is a finding.
            count (BIGINT, count): Such pieces of time.
            steps (BIGINT, count): Complete steps by which the rank is judged; 0 where it has none.
            judged_ns (BIGINT, ns): How long the stretch is by which the rank is judged: its complete steps,
                else its GPU rows from first to last.
            saving_ns (BIGINT, ns): At most this can be saved in the stretch: all such time.
            bound (VARCHAR): Why it cannot be more. Savings of several findings do not add up.
            confidence (VARCHAR): high, medium or low: how far the trace can tell that it is so.
            seen (VARCHAR): What is seen, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis whose rows show it.
            evidence_filter (VARCHAR): Which of its rows, as a condition in SQL; null for all.
            event_id (BIGINT, id): The call before the longest such piece.
            from_ns (BIGINT, ts): Where the worst instance begins.
            to_ns (BIGINT, ts): Where it ends.

        Parameters:
            warning_share: A share from here on is a finding.
            critical_share: From here on it is critical.
        """
        return self.run("blocking_syncs", warning_share=warning_share, critical_share=critical_share)

    def collective_waits(self) -> T_co:
        """How long each rank waited at each collective for the last rank, how long the transfer took, and how
        late it came.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            event_id (BIGINT, id): The collective on this rank: a GPU row, or on the host (gloo, MPI) the
                backend's annotation.
            collective (VARCHAR): all_reduce, all_gather, …; other where no name tells.
            process_group (VARCHAR): Name of the process group; null where the trace does not say, and all
                ranks are taken for it.
            sequence (BIGINT, id): Number of the collective in its process group, as the trace gives it.
            step (BIGINT, id): The profiler step.
            bytes (BIGINT, bytes): The larger of what this rank gives and gets.
            meeting (VARCHAR): What names the collective on all its ranks: group, collective with its number
                or step and size, place among its like; null where it is not matched.
            state (VARCHAR): whole: all ranks of the group are there; partial: two or more. Not matched:
                alone; ambiguous (ranks show different numbers of such collectives in the same step, or a rank
                shows two at one place); apart (not all ranks are there at one moment).
            members (BIGINT, count): Ranks that take part; 1 where it is not matched.
            dur_ns (BIGINT, ns): How long this rank was there.
            wait_ns (BIGINT, ns): What it was there longer than the rank that was there shortest: no clocks
                are compared. Null where it is not matched, and where a rank may leave before the last one
                came (broadcast, send, receive, …).
            transfer_ns (BIGINT, ns): The shortest length on any rank; wait_ns and transfer_ns make dur_ns.
                Where the state is partial, the transfer took at most this.
            waited_for (INTEGER): The rank that was there shortest, so came last; the lowest of equal ones.
            late_ns (BIGINT, ns): Start after that of the first rank, on aligned clocks (`clock_offsets`).
            reason (VARCHAR): Why late_ns is null: not matched; clock offset not known; clock uncertainty not
                known; under twice the clock uncertainty.
        """
        return self.run("collective_waits")

    def comm_by_group(self) -> T_co:
        """How much time each process group's communication took on a device, and how much of it computation
        hid.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 where the trace does not say.
            process_group (VARCHAR): The name of the process group; null for all communication of which the
                trace does not say. A device without communication has no row.
            comm_ns (BIGINT, ns): Time with communication of the group running, on any stream. Where groups
                communicate at once, their times add up to more than that of the device.
            overlap_ns (BIGINT, ns): Of comm_ns, the time with computation running too.
            exposed_ns (BIGINT, ns): Of comm_ns, the time without: comm_ns minus overlap_ns.
            overlap (DOUBLE, ratio): overlap_ns over comm_ns; null where comm_ns is 0.
        """
        return self.run("comm_by_group")

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

    def critical_path_breakdown(self) -> T_co:
        """What the critical path of each step, or of another derived scope, is made of.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            scope (VARCHAR): `step N`, `annotation NAME#K` or `trace`: from its start on the host to its end
                there, or of the last GPU row launched in it.
            category (VARCHAR): host: in operators and host calls; host_gap: on the host outside of both;
                launch: from the start of a launching call to that of its GPU row; computation, communication,
                memory, other: GPU rows; kernel_gap: between a GPU row and the next that waited for it; sync:
                from the end of a GPU row to the return of the call that waited for it; earlier: until work
                launched before the scope was done; unknown_wait: nothing recorded explains it.
            parts (BIGINT, count): Parts of the path of that category.
            path_ns (BIGINT, ns): Their time; the categories of a scope add up to its length.
            share (DOUBLE, ratio): path_ns over the length of the scope; null where that is 0.
            inferred_ns (BIGINT, ns): Of path_ns, what follows from times alone: that one thing began right
                after another, or that nothing explains it.
        """
        return self.run("critical_path_breakdown")

    def critical_path_by_op(self) -> T_co:
        """Which operators, host calls and kernels the critical path of a scope goes through.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            scope (VARCHAR): The scope: see critical_path_breakdown.
            category (VARCHAR): What the time is: see critical_path_breakdown.
            op (VARCHAR): The innermost operator: itself, around the host call, or around the launch of the
                GPU row; null outside of operators.
            name (VARCHAR): The operator, host call or GPU row that the time belongs to: of launch and
                kernel_gap the row that starts; null between them.
            parts (BIGINT, count): Parts of the path.
            path_ns (BIGINT, ns): Their time; the rows of a scope add up to its length.
            share (DOUBLE, ratio): path_ns over the length of the scope; null where that is 0.
        """
        return self.run("critical_path_by_op")

    def cupti_counters(self) -> T_co:
        """Hardware counters of each kernel, as the CUPTI range profiler took them, with the operators that
        launched it.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            event_id (BIGINT, id): The profiler's range: one kernel.
            counter (VARCHAR): The counter's name.
            value (DOUBLE): What it counted; null where the trace has no number.
            place (BIGINT, count): The kernel's place among the rank's ranges, by start, then position in the
                file.
            name (VARCHAR): The kernel's name; the profiler writes __missing__ where it lost it.
            runtime_id (BIGINT, id): The call that launched it: ranges have no id of their own, so the n-th
                range is of the n-th call that launches a kernel, by start. Their times are made up.
            op_id (BIGINT, id): The innermost operator around that call.
            op (VARCHAR): Its name.
            top_op (VARCHAR): Name of the outermost operator around the call.
            op_stack (VARCHAR[]): Names of the operators around the call, outermost first; null where there is
                none.
            reason (VARCHAR): Why the call is not known: the rank has another number of launches than of
                ranges (both are named), or ranges of several devices, so that order tells nothing.
        """
        return self.run("cupti_counters")

    def exposed_comm(self, *, warning_share: float = 0.1, critical_share: float = 0.3) -> T_co:
        """Whether communication that no computation hides takes a large part of the time.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: communication.
            severity (VARCHAR): critical, warning, info (over the threshold, but the trace has no complete
                step, so it may not show the usual) or none.
            share (DOUBLE, ratio): Time with communication and no computation running over judged_ns.
            threshold (DOUBLE, ratio): From this share on it is a finding.
            count (BIGINT, count): Stretches of exposed communication.
            steps (BIGINT, count): Complete steps by which the rank is judged; 0 where it has none.
            judged_ns (BIGINT, ns): How long the stretch is by which the rank is judged: its complete steps,
                else its GPU rows from first to last.
            saving_ns (BIGINT, ns): At most this can be saved in the stretch: all such time.
            bound (VARCHAR): Why it cannot be more. Savings of several findings do not add up.
            confidence (VARCHAR): high, medium or low: how far the trace can tell that it is so.
            seen (VARCHAR): What is seen, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis whose rows show it.
            evidence_filter (VARCHAR): Which of its rows, as a condition in SQL; null for all.
            event_id (BIGINT, id): The communication that was exposed longest at a stretch.
            from_ns (BIGINT, ts): Where the worst instance begins.
            to_ns (BIGINT, ts): Where it ends.

        Parameters:
            warning_share: A share from here on is a finding.
            critical_share: From here on it is critical.
        """
        return self.run("exposed_comm", warning_share=warning_share, critical_share=critical_share)

    def host_bound(
        self, *, warning_share: float = 0.1, critical_share: float = 0.3, short_gap_ns: int | str = 100000
    ) -> T_co:
        """Whether the GPU stands idle for long because the host does something else than launching.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: host.
            severity (VARCHAR): critical, warning, info (over the threshold, but the trace has no complete
                step, so it may not show the usual) or none.
            share (DOUBLE, ratio): Idle time in long gaps before rows that were launched late over judged_ns.
            threshold (DOUBLE, ratio): From this share on it is a finding.
            count (BIGINT, count): Such gaps.
            steps (BIGINT, count): Complete steps by which the rank is judged; 0 where it has none.
            judged_ns (BIGINT, ns): How long the stretch is by which the rank is judged: its complete steps,
                else its GPU rows from first to last.
            saving_ns (BIGINT, ns): At most this can be saved in the stretch: all such time.
            bound (VARCHAR): Why it cannot be more. Savings of several findings do not add up.
            confidence (VARCHAR): high, medium or low: how far the trace can tell that it is so.
            seen (VARCHAR): What is seen, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis whose rows show it.
            evidence_filter (VARCHAR): Which of its rows, as a condition in SQL; null for all.
            event_id (BIGINT, id): The GPU row that ends the longest such gap.
            from_ns (BIGINT, ts): Where the worst instance begins.
            to_ns (BIGINT, ts): Where it ends.

        Parameters:
            warning_share: A share from here on is a finding.
            critical_share: From here on it is critical.
            short_gap_ns: A gap up to this long is short: the host was busy launching, not away.
        """
        return self.run(
            "host_bound",
            warning_share=warning_share,
            critical_share=critical_share,
            short_gap_ns=short_gap_ns,
        )

    def idle_breakdown(self, *, kernel_wait_ns: int | str = 30000) -> T_co:
        """Why each device stood idle: waiting for the host, between kernels, or otherwise.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 where the trace does not say.
            cause (VARCHAR): host_wait: the row after the gap was launched after the gap had begun;
                kernel_wait: it had been launched (before the recording counts), and the gap is short; other:
                it had been launched, and the gap is not short; unknown: its launch is not in the trace.
            idle_ns (BIGINT, ns): Length of such gaps: the causes add up to idle_ns of temporal_breakdown.
            count (BIGINT, count): Such gaps.
            share (DOUBLE, ratio): idle_ns over all idle time of the device.

        Parameters:
            kernel_wait_ns: A gap shorter than this, whose next row had been launched when it began, is a
                kernel_wait.
        """
        return self.run("idle_breakdown", kernel_wait_ns=kernel_wait_ns)

    def idle_intervals(self, *, kernel_wait_ns: int | str = 30000) -> T_co:
        """Each stretch in which a device stood idle, why, the GPU rows on both sides, and what launched the
        one after it.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 where the trace does not say.
            start_ns (BIGINT, ts): Where the gap begins.
            idle_ns (BIGINT, ns): How long it is: never 0.
            cause (VARCHAR): host_wait: the row after the gap was launched after the gap had begun;
                kernel_wait: it had been launched (before the recording counts), and the gap is short; other:
                it had been launched, and the gap is not short; unknown: its launch is not in the trace.
            before_id (BIGINT, id): event_id of the GPU row that ends where the gap begins; of several the
                last in the file.
            before_name (VARCHAR): Its name.
            after_id (BIGINT, id): event_id of the GPU row that ends the gap.
            after_name (VARCHAR): Its name.
            after_stream (BIGINT, id): Its stream; -1 where the trace does not say.
            step (BIGINT, id): The profiler step that it was launched in.
            call_id (BIGINT, id): event_id of the host call that launched it; null where it is not known.
            api (VARCHAR): The function that the host called.
            call_late_ns (BIGINT, ns): Start of that call minus start_ns: how long the host let the device
                wait, where above 0.
            op_id (BIGINT, id): event_id of the innermost operator around that call.
            op_name (VARCHAR): Its name.

        Parameters:
            kernel_wait_ns: A gap shorter than this, whose next row had been launched when it began, is a
                kernel_wait.
        """
        return self.run("idle_intervals", kernel_wait_ns=kernel_wait_ns)

    def input_bound(self, *, warning_share: float = 0.05, critical_share: float = 0.2) -> T_co:
        """Whether the GPU stands idle while the training loop waits for the data loader.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: data loader.
            severity (VARCHAR): critical, warning, info (over the threshold, but the trace has no complete
                step, so it may not show the usual) or none.
            share (DOUBLE, ratio): Idle time in waits for data over judged_ns.
            threshold (DOUBLE, ratio): From this share on it is a finding.
            count (BIGINT, count): Such pieces of time.
            steps (BIGINT, count): Complete steps by which the rank is judged; 0 where it has none.
            judged_ns (BIGINT, ns): How long the stretch is by which the rank is judged: its complete steps,
                else its GPU rows from first to last.
            saving_ns (BIGINT, ns): At most this can be saved in the stretch: all such time.
            bound (VARCHAR): Why it cannot be more. Savings of several findings do not add up.
            confidence (VARCHAR): high, medium or low: how far the trace can tell that it is so.
            seen (VARCHAR): What is seen, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis whose rows show it.
            evidence_filter (VARCHAR): Which of its rows, as a condition in SQL; null for all.
            event_id (BIGINT, id): The GPU row that ends the longest such gap.
            from_ns (BIGINT, ts): Where the worst instance begins.
            to_ns (BIGINT, ts): Where it ends.

        Parameters:
            warning_share: A share from here on is a finding.
            critical_share: From here on it is critical.
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
        """Which sequences of GPU rows operators launch, how often, and how long both take.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            name (VARCHAR): The operator. Empty where the trace gives no name.
            device (BIGINT, id): The device, -1 where the trace does not say; null without by_stream.
            stream (BIGINT, id): The stream, -1 where the trace does not say; null without by_stream.
            kernels (VARCHAR): All GPU rows that the operator and those it called launched: names in the order
                of launch, with | between; rows of one call by their start.
            kernel_count (BIGINT, count): GPU rows of the sequence.
            count (BIGINT, count): Times that an operator of that name launched just this.
            kernel_sum_ns (BIGINT, ns): Durations of their GPU rows added up, also where they overlap.
            op_sum_ns (BIGINT, ns): Durations of these operators on the host added up; with by_stream at each
                stream again.

        Parameters:
            operator: Operators whose name contains this; of those within one another the outermost. Without
                it the operators that stand in no other.
            min_kernels: Shorter sequences are left out.
            by_stream: A sequence per device and stream, instead of one over all.
            with_memory: Memory copies and sets are part of a sequence.
        """
        return self.run(
            "kernel_sequences",
            operator=operator,
            min_kernels=min_kernels,
            by_stream=by_stream,
            with_memory=with_memory,
        )

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

    def kernel_type_breakdown(self) -> T_co:
        """What each device was busy with: every instant in one class, named after all kinds of GPU rows that
        ran in it.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 where the trace does not say.
            class (VARCHAR): The kinds that ran at once, on any stream: computation, communication, memory,
                other, in this order with + between. A class that took no time has no row, nor has idle time.
            class_ns (BIGINT, ns): Time with just these kinds running; of a device they add up to the busy
                time of temporal_breakdown.
            share (DOUBLE, ratio): class_ns over the device's busy time.
        """
        return self.run("kernel_type_breakdown")

    def kernels_by_annotation(self) -> T_co:
        """Each GPU row with all annotations that stood around its launch.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            kernel_id (BIGINT, id): event_id of the GPU row.
            name (VARCHAR): The GPU row's name.
            kind (VARCHAR): computation, communication, memory or other.
            device (BIGINT, id): The device; -1 where the trace does not say.
            stream (BIGINT, id): The stream; -1 where the trace does not say.
            kernel_ns (BIGINT, ns): How long the GPU row took.
            launch_state (VARCHAR): linked; before_window or missing, where no launch is known and so no
                annotation.
            depth (BIGINT, depth): How many annotations of the launching thread held the start of the
                launching call; 0 for none.
            annotation_id (BIGINT, id): event_id of the innermost.
            annotation (VARCHAR): The innermost.
            path (VARCHAR): All of them, outermost first, with > between.
        """
        return self.run("kernels_by_annotation")

    def launch_bound(
        self, *, warning_share: float = 0.1, critical_share: float = 0.3, short_gap_ns: int | str = 100000
    ) -> T_co:
        """Whether the GPU runs dry between kernels because the host launches them one by one too slowly.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: launches.
            severity (VARCHAR): critical, warning, info (over the threshold, but the trace has no complete
                step, so it may not show the usual) or none.
            share (DOUBLE, ratio): Idle time in short gaps before rows that were launched late over judged_ns.
            threshold (DOUBLE, ratio): From this share on it is a finding.
            count (BIGINT, count): Such gaps.
            steps (BIGINT, count): Complete steps by which the rank is judged; 0 where it has none.
            judged_ns (BIGINT, ns): How long the stretch is by which the rank is judged: its complete steps,
                else its GPU rows from first to last.
            saving_ns (BIGINT, ns): At most this can be saved in the stretch: all such time.
            bound (VARCHAR): Why it cannot be more. Savings of several findings do not add up.
            confidence (VARCHAR): high, medium or low: how far the trace can tell that it is so.
            seen (VARCHAR): What is seen, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis whose rows show it.
            evidence_filter (VARCHAR): Which of its rows, as a condition in SQL; null for all.
            event_id (BIGINT, id): The GPU row that ends the longest such gap.
            from_ns (BIGINT, ts): Where the worst instance begins.
            to_ns (BIGINT, ts): Where it ends.

        Parameters:
            warning_share: A share from here on is a finding.
            critical_share: From here on it is critical.
            short_gap_ns: A gap up to this long is short: the host was busy launching, not away.
        """
        return self.run(
            "launch_bound",
            warning_share=warning_share,
            critical_share=critical_share,
            short_gap_ns=short_gap_ns,
        )

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

    def launch_summary(
        self, *, runtime_cutoff_ns: int | str = 50000, delay_cutoff_ns: int | str = 100000
    ) -> T_co:
        """Launches by the function that the host called: how many, and how many short kernels, slow calls and
        late starts among them.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device of the GPU rows, -1 where the trace does not say; null for calls
                without one.
            state (VARCHAR): linked; before_window and missing: GPU rows without a launch, as in kernels;
                no_gpu_row: calls that by their name launch, and no GPU row is linked to; same_id: such calls
                that share their id with a launch, mostly a driver call inside it.
            api (VARCHAR): The function that the host called; null for GPU rows without a launch.
            known (BOOLEAN): The function is known to launch by call_rules; false for one that we should
                learn; null without a call.
            launches (BIGINT, count): Calls; one with GPU rows on two devices counts on both.
            gpu_rows (BIGINT, count): GPU rows; of linked, before_window and missing together all that the
                device has.
            short_kernels (BIGINT, count): Calls of at most runtime_cutoff_ns that took longer than their GPU
                rows, of a graph all of them together.
            runtime_outliers (BIGINT, count): Calls longer than runtime_cutoff_ns.
            delay_outliers (BIGINT, count): Calls whose first GPU row started more than delay_cutoff_ns after
                the call returned: time in the queue included.
            call_ns (BIGINT, ns): Durations of the calls added up.
            gpu_ns (BIGINT, ns): Durations of the GPU rows added up, also where they overlap.

        Parameters:
            runtime_cutoff_ns: A call that takes longer is an outlier; a kernel is short only under a call
                that does not.
            delay_cutoff_ns: A GPU row that starts later than this after its call returned is an outlier.
        """
        return self.run(
            "launch_summary", runtime_cutoff_ns=runtime_cutoff_ns, delay_cutoff_ns=delay_cutoff_ns
        )

    def low_gpu_use(self, *, warning_share: float = 0.5, critical_share: float = 0.8) -> T_co:
        """Whether a rank's GPU stands idle for most of the time.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: GPU. A rank whose complete steps hold no GPU row has no row.
            severity (VARCHAR): critical, warning, info (over the threshold, but the trace has no complete
                step, so it may not show the usual) or none.
            share (DOUBLE, ratio): Idle time over judged_ns.
            threshold (DOUBLE, ratio): From this share on it is a finding.
            count (BIGINT, count): Stretches of idle time, cut where the cause changes.
            steps (BIGINT, count): Complete steps by which the rank is judged; 0 where it has none.
            judged_ns (BIGINT, ns): How long the stretch is by which the rank is judged: its complete steps,
                else its GPU rows from first to last.
            saving_ns (BIGINT, ns): At most this can be saved in the stretch: all such time.
            bound (VARCHAR): Why it cannot be more. Savings of several findings do not add up.
            confidence (VARCHAR): high, medium or low: how far the trace can tell that it is so.
            seen (VARCHAR): What is seen, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis whose rows show it.
            evidence_filter (VARCHAR): Which of its rows, as a condition in SQL; null for all.
            event_id (BIGINT, id): The GPU row that ends the longest stretch without a change of cause; null
                before the first and after the last row.
            from_ns (BIGINT, ts): Where the worst instance begins.
            to_ns (BIGINT, ts): Where it ends.

        Parameters:
            warning_share: A share from here on is a finding.
            critical_share: From here on it is critical.
        """
        return self.run("low_gpu_use", warning_share=warning_share, critical_share=critical_share)

    def memory_bandwidth(self, *, by_stream: bool = False) -> T_co:
        """How fast each device copied and set memory in each direction, over time.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 where the trace does not say.
            stream (BIGINT, id): The stream; -1 where the trace does not say; null where all streams are taken
                together.
            direction (VARCHAR): HtoD, DtoH, DtoD, PtoP, …; Memset; unknown where the name does not say.
            ts_ns (BIGINT, ts): When it changes: a copy starts or ends. Rows without length or without bytes
                change nothing; memory_bandwidth_summary counts them.
            copies (BIGINT, count): Copies and sets that run from then on, until held_ns later.
            bandwidth_bytes_per_ns (DOUBLE, bytes_per_ns): Their bytes over their lengths, added up; exactly 0
                where none runs.
            held_ns (BIGINT, ns): Time until the next change; 0 where there is none.

        Parameters:
            by_stream: Each stream for itself; else what runs at the same time on several streams is added up.
        """
        return self.run("memory_bandwidth", by_stream=by_stream)

    def memory_bandwidth_summary(self, *, by_stream: bool = False) -> T_co:
        """How much each device copied and set in each direction, and how fast while it did.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 where the trace does not say.
            stream (BIGINT, id): The stream; -1 where the trace does not say; null where all streams are taken
                together.
            direction (VARCHAR): HtoD, DtoH, DtoD, PtoP, …; Memset; unknown where the name does not say.
            count (BIGINT, count): Copies or sets.
            untimed (BIGINT, count): Those without length or without bytes: they are in no column below.
            bytes (BIGINT, bytes): Bytes of the others.
            active_ns (BIGINT, ns): Time with at least one of them running.
            mean_bytes_per_ns (DOUBLE, bytes_per_ns): bytes over active_ns: the mean over that time; null, as
                are all below, where it is 0.
            p50_bytes_per_ns (DOUBLE, bytes_per_ns): The lowest bandwidth, over all that run at once, that is
                not exceeded for half of active_ns.
            p95_bytes_per_ns (DOUBLE, bytes_per_ns): The same of 95 %.
            max_bytes_per_ns (DOUBLE, bytes_per_ns): The highest.

        Parameters:
            by_stream: Each stream for itself; else what runs at the same time on several streams is added up.
        """
        return self.run("memory_bandwidth_summary", by_stream=by_stream)

    def memory_by_category(self) -> T_co:
        """What the memory of a timeline was used for: at its peak, at the end, and the most of each category.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            category (VARCHAR): parameter, optimizer_state, input, temporary, activation, gradient,
                autograd_detail, unknown (torch could not tell); null for a number that torch does not use.
            changes (BIGINT, count): Rows of the timeline.
            preexisting_bytes (BIGINT, bytes): What was there before the first moment.
            at_peak_bytes (BIGINT, bytes): Bytes in it when all together were most, for the first time; the
                categories of a rank add up to the peak.
            peak_at_ns (BIGINT, ts): When that was, the same for all categories; null where it never rose
                above what was there before.
            most_bytes (BIGINT, bytes): The most bytes in it at any moment.
            most_at_ns (BIGINT, ts): When that was reached first; null where that was before the first moment.
            end_bytes (BIGINT, bytes): What is left after the last moment.
        """
        return self.run("memory_by_category")

    def memory_by_op(self) -> T_co:
        """How much memory each operator allocated and freed, and by how much it grew.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device_type (BIGINT, id): 0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType.
            device (BIGINT, id): The device; -1 for the CPU.
            op (VARCHAR): Name of the innermost operator open on the thread at that time: an operator has what
                it did itself, not what operators in it did. Null: outside every operator, as what Python or
                the autograd engine frees between two.
            calls (BIGINT, count): Calls of it that allocated or freed; 0 for null.
            allocations (BIGINT, count): Rows with 0 bytes or more.
            frees (BIGINT, count): Rows with fewer than 0 bytes. A free counts where it happens, not where the
                memory was allocated.
            allocated_bytes (BIGINT, bytes): Bytes of the allocations.
            freed_bytes (BIGINT, bytes): Bytes of the frees.
            net_bytes (BIGINT, bytes): allocated_bytes less freed_bytes; those of a device add up to net_bytes
                of memory_peak.
            largest_bytes (BIGINT, bytes): The largest allocation; null where there is none.
        """
        return self.run("memory_by_op")

    def memory_category_curve(self) -> T_co:
        """How much memory parameters, gradients, activations and the rest took, after each moment of a memory
        timeline.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            position (BIGINT, id): Number of the moment, 1 for the first: all changes of one time are one
                moment.
            ts_ns (BIGINT, ts): When; null for what was there before, which comes first.
            parameter_bytes (BIGINT, bytes): In parameters. A column below zero says that the file lets go
                what it never gave to that category.
            optimizer_state_bytes (BIGINT, bytes): In the state of optimizers.
            input_bytes (BIGINT, bytes): In inputs.
            temporary_bytes (BIGINT, bytes): In what is made and used up within a pass.
            activation_bytes (BIGINT, bytes): In activations.
            gradient_bytes (BIGINT, bytes): In gradients.
            autograd_detail_bytes (BIGINT, bytes): In what autograd keeps for itself.
            unknown_bytes (BIGINT, bytes): In what torch could not tell, or has no name for.
            total_bytes (BIGINT, bytes): The sum of the eight.
        """
        return self.run("memory_category_curve")

    def memory_curve(self) -> T_co:
        """How much memory of each device was allocated and reserved, after each allocation and free.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device_type (BIGINT, id): 0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType.
            device (BIGINT, id): The device; -1 for the CPU.
            position (BIGINT, id): Number of the allocation or free on its device: by time, at one instant by
                the profiler's number of the event, and where that does not tell, frees first.
            ts_ns (BIGINT, ts): When.
            bytes (BIGINT, bytes): Bytes allocated; negative: freed.
            net_bytes (BIGINT, bytes): Bytes allocated less bytes freed since the window began: below zero
                where more was freed.
            allocated_bytes (BIGINT, bytes): Allocated in all, what was there before the window too; null
                where the trace gives no totals.
            reserved_bytes (BIGINT, bytes): Reserved in all by the allocator; null where the trace gives no
                totals.
        """
        return self.run("memory_curve")

    def memory_live(self) -> T_co:
        """What was allocated on each device when its memory peaked: each allocation with operator and age,
        and the rest.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device_type (BIGINT, id): 0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType.
            device (BIGINT, id): The device; -1 for the CPU. One whose rows give no totals has no known peak,
                and no rows here.
            event_id (BIGINT, id): The allocation, up to and with the one that reaches peak_bytes of
                memory_peak first; null for the rest.
            origin (VARCHAR): window: allocated in the window, and nothing came at its address until after the
                peak. rest: the one row per device that makes up the total at the peak, what was allocated
                before the window and by rows without address.
            bytes (BIGINT, bytes): Its bytes; those of a device add up to its peak. Below zero for the rest
                only, where frees are missing in the trace, so that more looks allocated than is.
            address (BIGINT, id): Where it is; null for the rest.
            op (VARCHAR): The innermost operator that allocated it; null outside operators, and for the rest.
            op_id (BIGINT, id): The call of that operator.
            step (BIGINT, id): The profiler step of the allocation.
            allocated_ns (BIGINT, ts): When it was allocated; null for the rest.
            age_ns (BIGINT, ns): From then to the peak; null for the rest.
        """
        return self.run("memory_live")

    def memory_peak(self) -> T_co:
        """The most memory of each device that was allocated and reserved at once, when, and in which step.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device_type (BIGINT, id): 0 CPU, 1 CUDA, 6 HIP, as in c10::DeviceType.
            device (BIGINT, id): The device; -1 for the CPU.
            changes (BIGINT, count): Allocations and frees.
            unusable (BIGINT, count): Rows without time or bytes: they are in no other column, and in no other
                analysis of memory.
            peak_bytes (BIGINT, bytes): The largest total allocated that a row gives; null where no row gives
                one. What was allocated before the window counts.
            peak_at_ns (BIGINT, ts): When it was first reached.
            peak_step (BIGINT, id): The profiler step of that moment; null outside steps.
            peak_reserved_bytes (BIGINT, bytes): The largest total reserved that a row gives.
            reserved_at_ns (BIGINT, ts): When that was first reached.
            start_bytes (BIGINT, bytes): Allocated before the first row that gives a total: its total less its
                bytes.
            end_bytes (BIGINT, bytes): Allocated after the last row that gives a total.
            net_bytes (BIGINT, bytes): Bytes allocated less bytes freed.
            peak_net_bytes (BIGINT, bytes): The highest that bytes allocated less bytes freed rose above the
                start of the window; 0 where it never did. Needs no totals.
            unexplained_bytes (BIGINT, bytes): end_bytes less start_bytes less the bytes of the rows with
                totals: 0 where the trace holds every change, else what changed without a row.
        """
        return self.run("memory_peak")

    def memory_pressure(self, *, warning_share: float = 0.9, critical_share: float = 0.97) -> T_co:
        """Whether the memory of a GPU was nearly full.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): The GPU by its number. A GPU whose memory, or whose total of allocations, the
                trace does not tell has no row.
            severity (VARCHAR): critical, warning, info (over the threshold, but the trace has no complete
                step, so it may not show the usual) or none.
            share (DOUBLE, ratio): The most bytes that were allocated at once over the memory of the device.
            threshold (DOUBLE, ratio): From this share on it is a finding.
            count (BIGINT, count): Allocations and frees.
            steps (BIGINT, count): Complete steps by which the rank is judged; 0 where it has none.
            judged_ns (BIGINT, ns): How long the stretch is by which the rank is judged: its complete steps,
                else its GPU rows from first to last.
            saving_ns (BIGINT, ns): Always null: it is a risk, not time.
            bound (VARCHAR): Why it cannot be more. Savings of several findings do not add up.
            confidence (VARCHAR): high, medium or low: how far the trace can tell that it is so.
            seen (VARCHAR): What is seen, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis whose rows show it.
            evidence_filter (VARCHAR): Which of its rows, as a condition in SQL; null for all.
            event_id (BIGINT, id): The allocation that reached the most first.
            from_ns (BIGINT, ts): Where the worst instance begins.
            to_ns (BIGINT, ts): Where it ends.

        Parameters:
            warning_share: A share from here on is a finding.
            critical_share: From here on it is critical.
        """
        return self.run("memory_pressure", warning_share=warning_share, critical_share=critical_share)

    def name_summary(self, *, by_step: bool = False) -> T_co:
        """How often each operator, call and annotation ran on the host, and each kernel on the GPU, and how
        long: what two traces are compared by.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            step (BIGINT, id): The profiler step: of a host row the one that holds its start, of a GPU row
                that of its launch; null outside of any, and where all are taken together.
            on_gpu (BOOLEAN): GPU rows: kernels, copies and sets; else slices of host threads.
            category (VARCHAR): On the host the trace's category (cpu_op, cuda_runtime, user_annotation,
                python_function, …), of a GPU row its kind.
            name (VARCHAR): The name in full.
            count (BIGINT, count): Rows of that name.
            sum_ns (BIGINT, ns): Their lengths added up, also where they overlap or hold one another.

        Parameters:
            by_step: Each profiler step for itself; else all that was recorded.
        """
        return self.run("name_summary", by_step=by_step)

    def op_kernel_delays(self, *, with_memory: bool = True) -> T_co:
        """How long after an operator began the first of its GPU rows started, by operator and what it
        launched.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            name (VARCHAR): The operator, any: the innermost around the calls, on their thread. Empty where
                the trace gives no name.
            kernels (VARCHAR): The GPU rows that it launched itself, not those of operators it called: names
                in the order of launch, with | between; rows of one call by their start.
            kernel_count (BIGINT, count): GPU rows of one occurrence.
            count (BIGINT, count): Occurrences: operators of that name that launched just these.
            kernel_sum_ns (BIGINT, ns): Durations of all their GPU rows added up.
            op_to_kernel_ns (BIGINT, ns): From the start of the operator to the start of the first GPU row in
                that order, added up.
            launch_to_kernel_ns (BIGINT, ns): From the start of the call that launched it, added up: time in
                the queue included.
            mean_op_to_kernel_ns (DOUBLE, ns): op_to_kernel_ns over count.
            mean_launch_to_kernel_ns (DOUBLE, ns): launch_to_kernel_ns over count.

        Parameters:
            with_memory: Memory copies and sets count as GPU rows; without them an operator that only copies
                has no row.
        """
        return self.run("op_kernel_delays", with_memory=with_memory)

    def op_summary(self, *, by_shapes: bool = False) -> T_co:
        """How often each operator ran, and the time of host and GPU that it and what it called took.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            name (VARCHAR): The operator; null for all GPU rows that no operator launched, or whose launch is
                not known. Empty where the trace gives no name.
            shapes (VARCHAR): Shapes of its inputs; null without by_shapes, and where the trace has none.
            count (BIGINT, count): Times that it ran, within itself too.
            host_ns (BIGINT, ns): Time of host threads in it and all it called; within itself it counts once,
                threads add up.
            host_self_ns (BIGINT, ns): Of host_ns, the time in no operator that it called: calls of the
                runtime and Python count to it. Of all names it adds up to the time that threads spent in
                operators.
            kernel_self_count (BIGINT, count): GPU rows of which it is the innermost operator; all names
                together have every GPU row once. Null, as all columns below, where the rank has no GPU rows.
            kernel_self_sum_ns (BIGINT, ns): Their durations added up.
            kernel_self_union_ns (BIGINT, ns): Time in which at least one of them ran, on any stream; devices
                add up.
            kernel_count (BIGINT, count): GPU rows that it or an operator it called launched; each counts
                once, however often it stands within itself.
            kernel_sum_ns (BIGINT, ns): Their durations added up.
            kernel_union_ns (BIGINT, ns): Time in which at least one of them ran, on any stream; devices add
                up.

        Parameters:
            by_shapes: Tell operators of one name apart by the shapes of their inputs.
        """
        return self.run("op_summary", by_shapes=by_shapes)

    def pageable_copies(self, *, warning_share: float = 0.02, critical_share: float = 0.1) -> T_co:
        """Whether copies from or to pageable memory take time in which the GPU does nothing else.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: copies of pageable memory. A rank whose copies do not tell what memory
                they are of has no row.
            severity (VARCHAR): critical, warning, info (over the threshold, but the trace has no complete
                step, so it may not show the usual) or none.
            share (DOUBLE, ratio): Time with such a copy running, and no computation and no communication,
                over judged_ns.
            threshold (DOUBLE, ratio): From this share on it is a finding.
            count (BIGINT, count): Stretches of such time.
            steps (BIGINT, count): Complete steps by which the rank is judged; 0 where it has none.
            judged_ns (BIGINT, ns): How long the stretch is by which the rank is judged: its complete steps,
                else its GPU rows from first to last.
            saving_ns (BIGINT, ns): At most this can be saved in the stretch: all such time.
            bound (VARCHAR): Why it cannot be more. Savings of several findings do not add up.
            confidence (VARCHAR): high, medium or low: how far the trace can tell that it is so.
            seen (VARCHAR): What is seen, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis whose rows show it.
            evidence_filter (VARCHAR): Which of its rows, as a condition in SQL; null for all.
            event_id (BIGINT, id): The copy that was alone longest at a stretch.
            from_ns (BIGINT, ts): Where the worst instance begins.
            to_ns (BIGINT, ts): Where it ends.

        Parameters:
            warning_share: A share from here on is a finding.
            critical_share: From here on it is critical.
        """
        return self.run("pageable_copies", warning_share=warning_share, critical_share=critical_share)

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

    def queue_blocked(self, *, max_length: int = 1024) -> T_co:
        """How long each stream's queue of launched GPU rows was full, so that the host had to wait.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 where the trace does not say.
            stream (BIGINT, id): The stream; -1 where the trace does not say.
            span_ns (BIGINT, ns): From the first launch to the last start of a row whose launch is known; null
                where none is.
            blocked_ns (BIGINT, ns): Time with a full queue; null where no launch is known.
            share (DOUBLE, ratio): blocked_ns over span_ns; null where that is 0 or null.

        Parameters:
            max_length: Rows that the queue holds: it is full at this length or above.
        """
        return self.run("queue_blocked", max_length=max_length)

    def queue_length(self) -> T_co:
        """How many GPU rows each stream had been given and had not started, over time.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 where the trace does not say.
            stream (BIGINT, id): The stream; -1 where the trace does not say.
            ts_ns (BIGINT, ts): When the queue changes: a host call that launches starts, or a GPU row does.
            launched (BIGINT, count): Rows launched at that moment; each row of a graph launch counts. A row
                that starts before its call does (the clocks disagree) is launched when it starts; rows
                without a known launch are in no queue, queue_length_summary counts them.
            started (BIGINT, count): Rows that start at that moment.
            queue_length (BIGINT, count): Rows in the queue from then on, until held_ns later: launched and
                not started.
            held_ns (BIGINT, ns): Time until the queue changes again; 0 where it does not.
        """
        return self.run("queue_length")

    def queue_length_summary(self) -> T_co:
        """How long each stream's queue of launched GPU rows was: over its changes, and over time.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 where the trace does not say.
            stream (BIGINT, id): The stream; -1 where the trace does not say.
            launched (BIGINT, count): GPU rows with a known launch: they were in the queue from the start of
                the host call to their own; each row of a graph launch counts.
            unlinked (BIGINT, count): GPU rows without a known launch: they are in no queue.
            span_ns (BIGINT, ns): From the first launch to the last start of such a row: what the time-
                weighted columns are over; null where no launch is known, as are all below.
            queued_ns (BIGINT, ns): Waits of all rows added up: length times time.
            waiting_ns (BIGINT, ns): Time in which at least one row waited.
            waiting (DOUBLE, ratio): waiting_ns over span_ns; null where that is 0.
            max_length (BIGINT, count): The longest; launches of one moment come before its starts.
            change_mean (DOUBLE, count): Mean length after a change: each launch and each start counts once.
            change_p50 (BIGINT, count): The smallest length that half of the changes do not leave exceeded.
            change_p95 (BIGINT, count): The same of 95 %.
            change_p99 (BIGINT, count): The same of 99 %.
            time_mean (DOUBLE, count): Mean length over time: queued_ns over span_ns; null where that is 0.
            time_p50 (BIGINT, count): The smallest length that is not exceeded for half of the time; null
                where span_ns is 0.
            time_p95 (BIGINT, count): The same of 95 %.
            time_p99 (BIGINT, count): The same of 99 %.
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
        """Whether single collectives took far longer than the usual one of their kind and size.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: collectives. Only those are judged that wait for all ranks and are
                matched with another rank: of others it cannot be told what was transfer and what was wait.
            severity (VARCHAR): critical, warning, info (over the threshold, but the trace has no complete
                step, so it may not show the usual) or none.
            share (DOUBLE, ratio): What they took beyond the median, added up, over judged_ns.
            threshold (DOUBLE, ratio): From this share on it is a finding.
            count (BIGINT, count): Collectives that took too long.
            steps (BIGINT, count): Complete steps by which the rank is judged; 0 where it has none.
            judged_ns (BIGINT, ns): How long the stretch is by which the rank is judged: its complete steps,
                else its GPU rows from first to last.
            saving_ns (BIGINT, ns): At most this can be saved in the stretch: what these took beyond the
                median.
            bound (VARCHAR): Why it cannot be more. Savings of several findings do not add up.
            confidence (VARCHAR): high, medium or low: how far the trace can tell that it is so.
            seen (VARCHAR): What is seen, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis whose rows show it.
            evidence_filter (VARCHAR): Which of its rows, as a condition in SQL; null for all.
            event_id (BIGINT, id): The one that took longest beyond the median.
            from_ns (BIGINT, ts): Where the worst instance begins.
            to_ns (BIGINT, ts): Where it ends.

        Parameters:
            warning_share: A share from here on is a finding.
            critical_share: From here on it is critical.
            min_count: Fewer collectives of a kind and size tell no usual length.
            factor: Longer than this many times the median is too long.
            min_excess_ns: By less than this over the median none is too long.
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
        """Whether the other ranks wait for one rank at collectives.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: collectives.
            severity (VARCHAR): critical, warning, info (over the threshold, but the trace has no complete
                step, so it may not show the usual) or none.
            share (DOUBLE, ratio): The longest that another rank waited for this one over the judged_ns of
                that rank.
            threshold (DOUBLE, ratio): From this share on it is a finding.
            count (BIGINT, count): Collectives at which it came last and another rank waited.
            steps (BIGINT, count): Complete steps by which the rank is judged; 0 where it has none.
            judged_ns (BIGINT, ns): How long the stretch is of the rank that waited for it longest; where none
                did, its own.
            saving_ns (BIGINT, ns): At most this can be saved in the stretch: what the rank waited that waited
                for it longest.
            bound (VARCHAR): Why it cannot be more. Savings of several findings do not add up.
            confidence (VARCHAR): high, medium or low: how far the trace can tell that it is so.
            seen (VARCHAR): What is seen, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis whose rows show it.
            evidence_filter (VARCHAR): Which of its rows, as a condition in SQL; null for all.
            event_id (BIGINT, id): This rank's collective for which the others waited longest.
            from_ns (BIGINT, ts): Where the worst instance begins.
            to_ns (BIGINT, ts): Where it ends.

        Parameters:
            warning_share: A share from here on is a finding.
            critical_share: From here on it is critical.
        """
        return self.run("slow_rank", warning_share=warning_share, critical_share=critical_share)

    def step_account(self, *, kernel_wait_ns: int | str = 30000) -> T_co:
        """Where the time of each step's period went, part by part: the parts add up to the period.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank; its devices are taken together.
            step (BIGINT, id): The number of the step; one without length has no rows.
            part (VARCHAR): compute: computation runs; exposed_comm, exposed_memory, other: communication,
                memory copies and sets, rows of another kind run, and none before them in this list; else
                nothing runs. The row after the gap was launched after the gap had begun: idle_sync, where its
                thread was inside a blocking call as the gap began, for as long as that call took; then
                idle_dataloader, while that thread waits for data; else idle_host. It had been launched:
                idle_kernel_wait where the gap is short, idle_other where not. idle_unknown: its launch is not
                in the trace. idle_outside: before the first GPU row or after the last. Parts without time
                have no row.
            part_ns (BIGINT, ns): Time of the period that went there: the parts of a step add up to period_ns
                of step_summary.
            share (DOUBLE, ratio): part_ns over the period.

        Parameters:
            kernel_wait_ns: A gap shorter than this, whose next row had been launched when it began, is
                idle_kernel_wait.
        """
        return self.run("step_account", kernel_wait_ns=kernel_wait_ns)

    def step_kernels(self) -> T_co:
        """What each kernel added to each step's period, and how often it ran there, by operator and place in
        the model.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank; its devices are taken together.
            step (BIGINT, id): The number of the step whose period it is.
            kind (VARCHAR): computation, communication, memory (copies and sets) or other.
            name (VARCHAR): The kernel's name, in full.
            pass (VARCHAR): forward, backward, recompute, optimizer, data or other.
            op (VARCHAR): The innermost operator around its launch.
            op_sig (VARCHAR): That operator, with shapes and types of its inputs.
            path_sig (VARCHAR): Modules and operators around the launch, outermost first.
            is_graph (BOOLEAN): A graph launch replayed it.
            count (BIGINT, count): GPU rows of it that start in the period; 0 where only the rest of one
                reaches into it.
            sum_ns (BIGINT, ns): Whole lengths of the GPU rows that start in the period, whatever runs beside
                them.
            exclusive_ns (BIGINT, ns): Time of the period that it owns: where several run, computation comes
                before communication, memory and other, and within a kind who started first. So all rows of a
                kind add up to its part of step_account.
        """
        return self.run("step_kernels")

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

    def stragglers(self) -> T_co:
        """Which ranks the others wait for at collectives, how often, and how long.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            caused_wait_ns (BIGINT, ns): What the other ranks waited, added up, at collectives where this rank
                was there shortest. Over all ranks of a run it adds up to their wait_ns. Null, as all but the
                counts, where it is matched with no other rank.
            share (DOUBLE, ratio): caused_wait_ns over that of all ranks of the run; null where none waited.
            waited_for (BIGINT, count): Collectives at which this rank was there shortest, so came last; the
                lowest of equal ones.
            collectives (BIGINT, count): Its collectives that wait for all ranks and are matched with another
                rank.
            partial (BIGINT, count): Of these, collectives of which some ranks are not there: a rank that is
                missing may be the one that came last.
            assumed (BIGINT, count): Of these, collectives whose process group is not told: all ranks are
                taken for it.
            unmatched (BIGINT, count): Its other collectives that wait for all ranks (see `collective_waits`
                for why).
            wait_ns (BIGINT, ns): What it waited itself, added up over its collectives.
            waiting_ns (BIGINT, ns): Time in which it waited: collectives that wait at the same time count
                once.
            late_ns (BIGINT, ns): Its starts after those of the first ranks, on aligned clocks
                (`clock_offsets`), added up over its collectives.
            reason (VARCHAR): Why late_ns is null: no collectives matched; clock offset not known; clock
                uncertainty not known; under twice the clock uncertainty, added up likewise.
        """
        return self.run("stragglers")

    def stream_idle(self, *, kernel_wait_ns: int | str = 30000) -> T_co:
        """Why each stream stood idle within its device's window: waiting for the host, between kernels, or
        otherwise.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 where the trace does not say.
            stream (BIGINT, id): The stream; -1 where the trace does not say.
            cause (VARCHAR): host_wait: the row after the gap was launched after the gap had begun;
                kernel_wait: it had been launched (before the recording counts), and the gap is short; other:
                it had been launched, and the gap is not short; unknown: its launch is not in the trace;
                before_first and after_last: from the start of the device's window to the stream's first row,
                and from its last one to the window's end.
            idle_ns (BIGINT, ns): Length of such gaps: the causes of a stream add up to its device's window
                less the time in which the stream runs anything.
            count (BIGINT, count): Such gaps.
            share (DOUBLE, ratio): idle_ns over all idle time of the stream.

        Parameters:
            kernel_wait_ns: A gap shorter than this, whose next row had been launched when it began, is a
                kernel_wait.
        """
        return self.run("stream_idle", kernel_wait_ns=kernel_wait_ns)

    def stream_idle_intervals(self, *, kernel_wait_ns: int | str = 30000) -> T_co:
        """Each stretch in which a stream stood idle, why, the GPU rows on both sides, and what launched the
        one after it.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            device (BIGINT, id): The device; -1 where the trace does not say.
            stream (BIGINT, id): The stream; -1 where the trace does not say.
            start_ns (BIGINT, ts): Where the gap begins.
            idle_ns (BIGINT, ns): How long it is: never 0.
            cause (VARCHAR): host_wait: the row after the gap was launched after the gap had begun;
                kernel_wait: it had been launched (before the recording counts), and the gap is short; other:
                it had been launched, and the gap is not short; unknown: its launch is not in the trace;
                before_first and after_last: from the start of the device's window to the stream's first row,
                and from its last one to the window's end.
            before_id (BIGINT, id): event_id of the GPU row that ends where the gap begins; of several the
                last in the file; null before the stream's first row.
            before_name (VARCHAR): Its name.
            after_id (BIGINT, id): event_id of the GPU row that ends the gap; null after the stream's last
                row.
            after_name (VARCHAR): Its name.
            step (BIGINT, id): The profiler step that it was launched in.
            call_id (BIGINT, id): event_id of the host call that launched it; null where it is not known.
            api (VARCHAR): The function that the host called.
            call_late_ns (BIGINT, ns): Start of that call minus start_ns: how long the host let the device
                wait, where above 0.
            op_id (BIGINT, id): event_id of the innermost operator around that call.
            op_name (VARCHAR): Its name.

        Parameters:
            kernel_wait_ns: A gap shorter than this, whose next row had been launched when it began, is a
                kernel_wait.
        """
        return self.run("stream_idle_intervals", kernel_wait_ns=kernel_wait_ns)

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

    def tensor_cores(
        self, *, warning_share: float = 0.1, critical_share: float = 0.5, compute_major: int = 7
    ) -> T_co:
        """Whether matrix products run without tensor cores on a GPU that has them.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank.
            subject (VARCHAR): Always: matrix products. A rank without an NVIDIA GPU of compute capability 7.0
                or more, or without a kernel that is known to multiply matrices, has no row.
            severity (VARCHAR): critical, warning, info (over the threshold, but the trace has no complete
                step, so it may not show the usual) or none.
            share (DOUBLE, ratio): Computation time that matrix products and convolutions without tensor cores
                own, over all computation time.
            threshold (DOUBLE, ratio): From this share on it is a finding.
            count (BIGINT, count): Pieces of such time.
            steps (BIGINT, count): Complete steps by which the rank is judged; 0 where it has none.
            judged_ns (BIGINT, ns): How long the stretch is by which the rank is judged: its complete steps,
                else its GPU rows from first to last.
            saving_ns (BIGINT, ns): At most this can be saved in the stretch: all such time.
            bound (VARCHAR): Why it cannot be more. Savings of several findings do not add up.
            confidence (VARCHAR): high, medium or low: how far the trace can tell that it is so.
            seen (VARCHAR): What is seen, in one sentence.
            advice (VARCHAR): What to try.
            evidence (VARCHAR): The analysis whose rows show it.
            evidence_filter (VARCHAR): Which of its rows, as a condition in SQL; null for all.
            event_id (BIGINT, id): The kernel of the longest such piece.
            from_ns (BIGINT, ts): Where the worst instance begins.
            to_ns (BIGINT, ts): Where it ends.

        Parameters:
            warning_share: A share from here on is a finding.
            critical_share: From here on it is critical.
            compute_major: NVIDIA GPUs have tensor cores from this compute capability on.
        """
        return self.run(
            "tensor_cores",
            warning_share=warning_share,
            critical_share=critical_share,
            compute_major=compute_major,
        )

    def window_account(self, *, annotation: str | None = None, kernel_wait_ns: int | str = 30000) -> T_co:
        """Where the time of each rank's window went, or of each time it was inside an annotation, part by
        part.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank; its devices are taken together.
            occurrence (BIGINT, id): 1 for the window; of an annotation its number in time, from 1. One that
                begins within an earlier one of its name is not counted.
            part (VARCHAR): compute: computation runs; exposed_comm, exposed_memory, other: communication,
                memory copies and sets, rows of another kind run, and none before them in this list; else
                nothing runs. The row after the gap was launched after the gap had begun: idle_sync, where its
                thread was inside a blocking call as the gap began, for as long as that call took; then
                idle_dataloader, while that thread waits for data; else idle_host. It had been launched:
                idle_kernel_wait where the gap is short, idle_other where not. idle_unknown: its launch is not
                in the trace. idle_outside: before the first GPU row or after the last. Parts without time
                have no row.
            part_ns (BIGINT, ns): Time that went there: the parts add up to the window, from the first start
                to the last end of a GPU row, or to the annotation's length on the host.
            share (DOUBLE, ratio): part_ns over all parts.

        Parameters:
            annotation: The name of an annotation of the host: account for each time the rank was inside it;
                else for the rank's whole window.
            kernel_wait_ns: A gap shorter than this, whose next row had been launched when it began, is
                idle_kernel_wait.
        """
        return self.run("window_account", annotation=annotation, kernel_wait_ns=kernel_wait_ns)

    def window_kernels(self, *, annotation: str | None = None) -> T_co:
        """What each kernel added to each rank's window, or to each time it was inside an annotation, by
        operator and place in the model.

        Columns:
            run_id (VARCHAR): The run.
            rank (INTEGER): The rank; its devices are taken together.
            occurrence (BIGINT, id): 1 for the window; of an annotation its number in time, from 1. One that
                begins within an earlier one of its name is not counted.
            kind (VARCHAR): computation, communication, memory (copies and sets) or other.
            name (VARCHAR): The kernel's name, in full.
            pass (VARCHAR): forward, backward, recompute, optimizer, data or other.
            op (VARCHAR): The innermost operator around its launch.
            op_sig (VARCHAR): That operator, with shapes and types of its inputs.
            path_sig (VARCHAR): Modules and operators around the launch, outermost first.
            is_graph (BOOLEAN): A graph launch replayed it.
            count (BIGINT, count): GPU rows of it that start in the window, or within the annotation; 0 where
                only the rest of one reaches into it.
            sum_ns (BIGINT, ns): Whole lengths of the GPU rows that start in the window, or within the
                annotation, whatever runs beside them.
            exclusive_ns (BIGINT, ns): Time there that it owns: where several run, computation comes before
                communication, memory and other, and within a kind who started first. So all rows of a kind
                add up to its part of window_account.

        Parameters:
            annotation: The name of an annotation of the host: account for each time the rank was inside it;
                else for the rank's whole window.
        """
        return self.run("window_kernels", annotation=annotation)
