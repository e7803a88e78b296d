"""Invariants of every real trace: categories sum to their total, nothing is counted twice or lost.

A few traces by default, all of them under `-m deep`. Each invariant is a query for rows that violate it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import deep, real_traces

QUICK = (
    "amd-misc/mi300_normalization_layer_test.json.gz",
    "h100-vs-mi300-hf/h100_bert-small.json.gz",
    "hta-singles/a100_nccl_pg_config_rank0of2.json.gz",
    "amd-misc/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "inference-graphs-mi300/sglang_decode__Qwen3-8B_decode.json.gz",
    "odd/kineto_gpu_metrics_input.json",
    "odd/cpu_only_rank-34of300.pt.trace.json.gz",
)

RULES = {
    "idle and busy time sum to the window": "FROM temporal_breakdown WHERE busy_ns + idle_ns <> window_ns",
    "the categories sum to busy time": """FROM temporal_breakdown
        WHERE compute_ns + exposed_comm_ns + exposed_memory_ns + other_ns <> busy_ns""",
    "no category is negative": """FROM temporal_breakdown
        WHERE least(compute_ns, exposed_comm_ns, exposed_memory_ns, other_ns, idle_ns) < 0""",
    "the window is first start to last end": """FROM temporal_breakdown ANTI JOIN (
        SELECT run_id, rank, device, max(ts_ns + dur_ns) - min(ts_ns) AS window_ns FROM kernels GROUP BY ALL
        ) USING (run_id, rank, device, window_ns)""",
    "busy time is the union of all activities": """FROM temporal_breakdown ANTI JOIN (
        SELECT run_id, rank, device, sum(greatest(end_ns - greatest(ts_ns, before_ns), 0))::BIGINT AS busy_ns
        FROM (
            SELECT run_id, rank, device, ts_ns, ts_ns + dur_ns AS end_ns, coalesce(max(ts_ns + dur_ns) OVER (
                PARTITION BY run_id, rank, device ORDER BY ts_ns, event_id
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), ts_ns) AS before_ns
            FROM kernels)
        GROUP BY ALL) USING (run_id, rank, device, busy_ns)""",
    "every device has a row": """FROM (SELECT DISTINCT run_id, rank, device FROM kernels) ANTI JOIN
        temporal_breakdown USING (run_id, rank, device)""",
    "overlapped and exposed communication sum to it": """FROM comm_comp_overlap JOIN temporal_breakdown
        USING (run_id, rank, device)
        WHERE overlap_ns + exposed_ns <> comm_ns OR exposed_ns <> exposed_comm_ns
            OR overlap_ns > compute_ns""",
    "causes sum to the idle time of a device": """FROM temporal_breakdown LEFT JOIN (
        SELECT run_id, rank, device, sum(idle_ns)::BIGINT AS caused_ns FROM idle_breakdown GROUP BY ALL
        ) USING (run_id, rank, device)
        WHERE coalesce(caused_ns, 0) <> idle_ns""",
    "causes sum to the idle time of a stream": """FROM (
        SELECT run_id, rank, device, stream,
            sum(greatest(end_ns - greatest(ts_ns, before_ns), 0))::BIGINT AS busy_ns
        FROM (
            SELECT run_id, rank, device, stream, ts_ns, ts_ns + dur_ns AS end_ns, coalesce(
                max(ts_ns + dur_ns) OVER (
                    PARTITION BY run_id, rank, device, stream ORDER BY ts_ns, event_id
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
                ts_ns) AS before_ns
            FROM kernels)
        GROUP BY ALL) AS lane JOIN temporal_breakdown USING (run_id, rank, device) LEFT JOIN (
        SELECT run_id, rank, device, stream, sum(idle_ns)::BIGINT AS caused_ns FROM stream_idle GROUP BY ALL
        ) USING (run_id, rank, device, stream)
        WHERE coalesce(caused_ns, 0) <> window_ns - lane.busy_ns""",
    "causes are sums over the gaps": """FROM (
        SELECT run_id, rank, device, NULL AS stream, cause, idle_ns, count FROM idle_breakdown
        UNION ALL SELECT run_id, rank, device, stream, cause, idle_ns, count FROM stream_idle
        EXCEPT (
            SELECT run_id, rank, device, NULL, part, sum(part_ns)::BIGINT, count(*)
            FROM (
                SELECT run_id, rank, device, unnest(['host', 'call', 'latency', 'queued', cause]) AS part,
                    unnest([host_ns, call_ns, latency_ns, queued_ns,
                        idle_ns - host_ns - call_ns - latency_ns - queued_ns]) AS part_ns
                FROM idle_intervals)
            WHERE part_ns > 0 GROUP BY ALL
            UNION ALL SELECT run_id, rank, device, stream, cause, sum(idle_ns)::BIGINT, count(*)
            FROM stream_idle_intervals GROUP BY ALL))""",
    "no gap is empty, the next activity ends it": """FROM stream_idle_intervals AS gap LEFT JOIN kernels
        ON kernels.run_id = gap.run_id AND kernels.rank = gap.rank AND event_id = after_id
        WHERE idle_ns <= 0 OR (cause = 'after_last') <> (ts_ns IS NULL) OR start_ns + idle_ns <> ts_ns""",
    "queues are never negative and end empty": """FROM (
        SELECT queue_length, dur_ns, row_number() OVER (
            PARTITION BY run_id, rank, device, stream ORDER BY ts_ns DESC, change, queue_length) AS from_last
        FROM queue_changes)
        WHERE queue_length < 0 OR dur_ns < 0 OR (from_last = 1 AND (queue_length > 0 OR dur_ns > 0))""",
    "queued time is the wait of all activities": """FROM (
        SELECT run_id, rank, device, stream, count(runtime_id) AS launched, count(*) AS rows,
            (sum(greatest(call_to_start_ns, 0)) FILTER (runtime_id IS NOT NULL))::BIGINT AS waits_ns
        FROM launch_stats GROUP BY ALL) AS launches JOIN queue_length_summary AS queue
        USING (run_id, rank, device, stream)
        WHERE (queue.launched, queue.launched + queue.launch_unknown) <> (launches.launched, rows)
            OR queued_ns IS DISTINCT FROM waits_ns OR queued_ns < waiting_ns OR span_ns < waiting_ns""",
    "every memcpy and memset has a direction": """FROM (
        SELECT run_id, rank, device, count(*) AS rows FROM kernels WHERE kind = 'memory' GROUP BY ALL
        ) LEFT JOIN (
        SELECT run_id, rank, device, sum(count)::BIGINT AS counted, bool_and(unusable <= count) AS fits
        FROM memory_bandwidth_summary GROUP BY ALL) USING (run_id, rank, device)
        WHERE counted IS DISTINCT FROM rows OR NOT fits""",
    "bandwidth is zero without copies": """FROM memory_bandwidth
        WHERE copies < 0 OR copies = 0 AND bandwidth_bytes_per_ns <> 0 OR bandwidth_bytes_per_ns < 0""",
    "launch states sum to GPU time": """FROM coverage
        WHERE launch_known_ns + before_window_ns + missing_ns <> gpu_ns OR with_op_ns > launch_known_ns
            OR graph_ns > launch_known_ns OR graph_attributed_ns > least(graph_ns, with_op_ns)""",
    "graph replays add up": """FROM graph_replays
        WHERE busy_ns + gap_ns <> end_ns - start_ns OR busy_ns > gpu_ns OR gap_ns < 0
            OR order_in_step > replays_in_step""",
    "every GPU activity has a launch state": """FROM kernels
        WHERE launch_state IS NULL OR launch_state NOT IN ('known', 'before_window', 'missing')""",
    "the state is known with a launch": """FROM launch_stats JOIN kernels
        ON kernels.run_id = launch_stats.run_id AND kernels.rank = launch_stats.rank AND event_id = kernel_id
        WHERE (launch_state = 'known') <> (launch_stats.runtime_id IS NOT NULL)""",
    "every GPU activity is one row of launch_stats": """FROM (
        SELECT run_id, rank, event_id AS kernel_id FROM kernels
        SEMI JOIN (SELECT run_id, rank FROM ranks WHERE launches) USING (run_id, rank)) ANTI JOIN (
        SELECT run_id, rank, kernel_id FROM launch_stats GROUP BY ALL HAVING count(*) = 1
        ) USING (run_id, rank, kernel_id)""",
    "names sum to all activities and their time": """FROM (
        SELECT run_id, rank, device, sum(count)::BIGINT AS rows, sum(sum_ns)::BIGINT AS gpu_ns
        FROM kernel_summary GROUP BY ALL) ANTI JOIN (
        SELECT run_id, rank, device, count(*) AS rows, sum(dur_ns)::BIGINT AS gpu_ns FROM kernels GROUP BY ALL
        ) USING (run_id, rank, device, rows, gpu_ns)""",
    "quantiles are in order": """FROM kernel_summary
        WHERE NOT (min_ns <= p50_ns AND p50_ns <= p95_ns AND p95_ns <= p99_ns AND p99_ns <= max_ns)""",
    "every GPU activity is in kernels once": """FROM (
        SELECT run_id, rank, event_id FROM events
        WHERE category IN ('kernel', 'gpu_memcpy', 'gpu_memset') AND dur_ns IS NOT NULL) ANTI JOIN (
        SELECT run_id, rank, event_id FROM kernels GROUP BY ALL HAVING count(*) = 1
        ) USING (run_id, rank, event_id)""",
    "no duration and no depth is negative": "FROM events WHERE dur_ns < 0 OR depth < 1",
    "a parent encloses its child, or the child is marked": """FROM events AS child JOIN events AS parent
        ON parent.run_id = child.run_id AND parent.rank = child.rank AND parent.event_id = child.parent_id
        WHERE NOT coalesce(child.crosses, false) AND (child.ts_ns < parent.ts_ns
            OR child.ts_ns + child.dur_ns > parent.ts_ns + parent.dur_ns)""",
    "segments tile the time of a rank": """FROM (
        SELECT start_ns, lag(start_ns + segment_ns) OVER (
            PARTITION BY run_id, rank ORDER BY start_ns) AS before_ns
        FROM device_segments)
        WHERE start_ns <> before_ns""",
    "categories of a step sum to its period": """FROM step_summary LEFT JOIN (
        SELECT run_id, rank, step, sum(category_ns)::BIGINT AS parts_ns FROM step_account GROUP BY ALL
        ) USING (run_id, rank, step)
        WHERE coalesce(parts_ns, 0) <> period_ns
            AND (run_id, rank) IN (SELECT (run_id, rank) FROM kernels)""",
    "kernels of a step sum to its busy time": """FROM (
        SELECT run_id, rank, step, sum(exclusive_ns)::BIGINT AS kernels_ns FROM step_kernels GROUP BY ALL
        ) FULL JOIN (
        SELECT run_id, rank, step, sum(category_ns)::BIGINT AS busy_ns FROM step_account
        WHERE NOT starts_with(category, 'idle') GROUP BY ALL) USING (run_id, rank, step)
        WHERE coalesce(kernels_ns, 0) <> coalesce(busy_ns, 0)""",
    "computation of an operator with a rule is that of its kernels": """FROM op_work LEFT JOIN (
        SELECT run_id, rank, work_id AS event_id, sum(dur_ns)::BIGINT AS kernels_ns
        FROM kernel_work JOIN kernels USING (run_id, rank, event_id)
        WHERE kind = 'computation' AND work_id IS NOT NULL GROUP BY ALL) USING (run_id, rank, event_id)
        WHERE coalesce(kernels_ns, 0) <> gpu_union_ns + gpu_overlap_ns - other_sum_ns""",
    "work counts once, for the main kernel": """FROM (
        SELECT run_id, rank, sum(work)::HUGEINT AS work FROM kernel_work WHERE work_unit = 'flop'
        GROUP BY ALL)
        FULL JOIN (SELECT op_work.run_id, op_work.rank, sum(hardware_flop)::HUGEINT AS flop FROM op_work
        JOIN kernels ON kernels.run_id = op_work.run_id AND kernels.rank = op_work.rank
        AND kernels.event_id = main_kernel_id AND kind <> 'communication'
        WHERE hardware_flop > 0 GROUP BY ALL) USING (run_id, rank)
        WHERE coalesce(work, 0) <> coalesce(flop, 0)""",
    "each GPU activity starts in at most one step": """FROM (
        SELECT run_id, rank, sum(count)::BIGINT AS starts FROM step_kernels GROUP BY ALL) JOIN (
        SELECT run_id, rank, count(*) AS rows FROM kernels GROUP BY ALL) USING (run_id, rank)
        WHERE starts > rows""",
    "segments of a rank with one device are its breakdown": """FROM (
        SELECT run_id, rank,
            coalesce(sum(segment_ns) FILTER (kind = 'computation'), 0)::BIGINT AS compute_ns,
            coalesce(sum(segment_ns) FILTER (kind = 'communication'), 0)::BIGINT AS exposed_comm_ns,
            coalesce(sum(segment_ns) FILTER (kind = 'memory'), 0)::BIGINT AS exposed_memory_ns,
            coalesce(sum(segment_ns) FILTER (kind = 'other'), 0)::BIGINT AS other_ns,
            coalesce(sum(segment_ns) FILTER (cause <> 'outside'), 0)::BIGINT AS idle_ns
        FROM device_segments GROUP BY ALL) AS segments RIGHT JOIN (
        SELECT * FROM temporal_breakdown QUALIFY count(*) OVER (PARTITION BY run_id, rank) = 1
        ) AS split USING (run_id, rank, compute_ns, exposed_comm_ns, exposed_memory_ns, other_ns, idle_ns)
        WHERE window_ns > 0 AND segments.run_id IS NULL""",
    "causes of a rank with one device are those of its gaps": """FROM (
        SELECT run_id, rank, CASE WHEN cause IN ('sync', 'dataloader') THEN 'host' ELSE cause END AS cause,
            sum(segment_ns)::BIGINT AS idle_ns
        FROM device_segments WHERE cause <> 'outside' GROUP BY ALL) AS segments FULL JOIN (
        SELECT run_id, rank, device, cause, idle_ns FROM idle_breakdown
        ) AS gaps USING (run_id, rank, cause, idle_ns)
        WHERE (segments.run_id IS NULL OR gaps.run_id IS NULL) AND (run_id, rank) IN (
            SELECT (run_id, rank) FROM kernels GROUP BY run_id, rank HAVING count(DISTINCT device) = 1)""",
    "modules themselves sum to all GPU activities and their time": """FROM (
        SELECT run_id, rank, sum(kernel_self_count)::BIGINT AS rows,
            sum(kernel_self_sum_ns)::BIGINT AS gpu_ns,
            round(sum(share) FILTER (depth IS NULL OR depth = 1), 6) AS share
        FROM module_summary GROUP BY ALL) RIGHT JOIN (
        SELECT run_id, rank, count(*) AS rows, sum(dur_ns)::BIGINT AS gpu_ns FROM kernels GROUP BY ALL
        ) AS device USING (run_id, rank, rows, gpu_ns)
        WHERE share IS NULL AND gpu_ns > 0 OR share <> 1""",
    "a module's total includes itself": """FROM module_summary
        WHERE kernel_self_sum_ns > kernel_sum_ns OR kernel_self_count > kernels
            OR kernel_union_ns > kernel_sum_ns OR kernel_union_ns < greatest(
                forward_ns, backward_ns, recompute_ns, optimizer_ns, communication_ns)
            OR host_self_ns NOT BETWEEN 0 AND host_ns OR calls = 0 AND kernels = 0""",
    "classes of modules are sums of their instances": """FROM (
        SELECT run_id, rank, regexp_replace(module_path, '_\\d+( > |$)', '\\1', 'g') AS module_path,
            sum(calls)::BIGINT AS calls, sum(host_self_ns)::BIGINT AS host_self_ns,
            sum(kernel_self_sum_ns)::BIGINT AS kernel_self_sum_ns, sum(kernels)::BIGINT AS kernels,
            sum(kernel_sum_ns)::BIGINT AS kernel_sum_ns
        FROM module_summary GROUP BY ALL
        EXCEPT SELECT
            run_id, rank, module_path, calls, host_self_ns, kernel_self_sum_ns, kernels, kernel_sum_ns
        FROM module_summary(by_class := true))""",
    "every GPU activity of a rank with modules is in kernel_modules": """FROM kernels
        LEFT JOIN kernel_modules AS owner ON owner.run_id = kernels.run_id AND owner.rank = kernels.rank
            AND owner.kernel_id = kernels.event_id
        SEMI JOIN modules ON modules.run_id = kernels.run_id AND modules.rank = kernels.rank
        WHERE owner.kernel_id IS NULL
            OR owner.attribution_method = 'enclosing' AND owner.module_id <> kernels.module_id
            OR (owner.pass = 'communication') <> (kernels.kind = 'communication')
            OR kernels.pass = 'forward' AND kernels.kind <> 'communication'
            AND owner.module_id IS DISTINCT FROM kernels.module_id""",
    "averages of GPU activities are those of kernels": """FROM (
        SELECT run_id, rank, count(*) AS rows, sum(dur_ns)::BIGINT AS gpu_ns FROM kernels GROUP BY ALL
        ) ANTI JOIN (
        SELECT run_id, rank, sum(count)::BIGINT AS rows, sum(self_device_ns)::BIGINT AS gpu_ns
        FROM key_averages WHERE on_gpu AND NOT is_annotation GROUP BY ALL
        ) USING (run_id, rank, rows, gpu_ns)""",
    "averages of operators sum to the launches within operators": """FROM (
        SELECT run_id, rank, sum(self_device_ns)::BIGINT AS gpu_ns
        FROM key_averages WHERE NOT on_gpu GROUP BY ALL) JOIN (
        SELECT run_id, rank, coalesce(sum(dur_ns) FILTER (op_id IS NOT NULL), 0)::BIGINT AS op_ns
        FROM kernels GROUP BY ALL) USING (run_id, rank) WHERE gpu_ns > op_ns""",
    "self values of averages are within total ones": """FROM key_averages
        WHERE self_cpu_ns > cpu_total_ns OR self_device_ns > device_total_ns OR count < 1""",
    "work counts once": """FROM (
        SELECT pre, max(post) OVER (PARTITION BY run_id, rank ORDER BY pre
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
        FROM op_work JOIN events USING (run_id, rank, event_id))
        WHERE pre <= reached""",
    "the pass of work is that of its kernel": """FROM op_work JOIN kernels
        ON kernels.run_id = op_work.run_id AND kernels.rank = op_work.rank
            AND kernels.event_id = op_work.main_kernel_id
        WHERE kernels.pass <> op_work.pass""",
    "GPU times of work are parts of each other": """FROM op_work
        WHERE gpu_overlap_ns < 0 OR other_sum_ns > gpu_union_ns + gpu_overlap_ns
            OR (kernel_count > 0) <> (main_kernel_id IS NOT NULL) OR model_flop > hardware_flop""",
    "computation in operators is part of all": """FROM work_coverage WHERE covered_ns > computation_ns""",
    "operators and kernels have the same work": """FROM (
        SELECT run_id, rank, coalesce(sum(hardware_flop), 0) AS flop, sum(gpu_union_ns) AS ns
        FROM op_work_summary GROUP BY ALL
        ) ANTI JOIN (
        SELECT run_id, rank, coalesce(sum(hardware_flop), 0) AS flop, sum(gpu_union_ns) AS ns
        FROM roofline GROUP BY ALL
        ) USING (run_id, rank, flop, ns)""",
    "every operator above its peak is listed": """FROM (
        SELECT run_id, rank FROM op_work_summary WHERE best_roofline > 1 GROUP BY ALL
        ) ANTI JOIN (SELECT run_id, rank FROM quality WHERE rule = 'over_peak') USING (run_id, rank)""",
    "periods tile the steps": """FROM (
        SELECT period_start_ns, lag(period_start_ns + period_ns) OVER (
            PARTITION BY run_id, rank ORDER BY host_start_ns, step) AS before_ns
        FROM steps)
        WHERE period_start_ns <> before_ns""",
    "periods end with the steps": """FROM (
        SELECT run_id, rank, sum(period_ns)::BIGINT AS periods_ns, max(greatest(
            host_start_ns, coalesce(device_start_ns + device_ns, host_start_ns + host_ns)
        )) - min(host_start_ns) AS span_ns
        FROM steps GROUP BY ALL)
        WHERE periods_ns <> span_ns""",
}


def sources(folder: Path, quick: bool) -> list[Path]:
    """The files to ingest; other files are refused by name, which has separate tests."""
    if quick:
        return [folder / name for name in QUICK]
    return sorted(path for path in folder.rglob("*") if path.name.endswith((".json", ".json.gz")))


SETS = [pytest.param(True, id="quick"), pytest.param(False, id="all", marks=pytest.mark.deep)]


@pytest.fixture(scope="module", params=SETS)
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A warehouse of real traces, ingested with one call: many runs, some with several ranks."""
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces here")
    warehouse = tw.open(tmp_path_factory.mktemp("real"))
    files = sources(folder, request.param)
    report = warehouse.ingest(*files, jobs=1 if request.param else None)
    assert sum(file.state != "refused" for file in report.files) > 0.7 * len(files)
    return warehouse


# Sums within one analysis, which the laws and golden files of that analysis would show, too.
RARE = (
    "a module's total includes itself",
    "averages of GPU activities are those of kernels",
    "averages of operators sum to the launches within operators",
    "causes of a rank with one device are those of its gaps",
    "classes of modules are sums of their instances",
    "computation in operators is part of all",
    "each GPU activity starts in at most one step",
    "every operator above its peak is listed",
    "operators and kernels have the same work",
    "quantiles are in order",
    "queued time is the wait of all activities",
    "self values of averages are within total ones",
)


@pytest.mark.parametrize("rule", [*(rule for rule in RULES if rule not in RARE), *deep(*RARE)])
def test_rule_holds(rule: str, real: Any) -> None:
    rows = real.query(f"SELECT count(*) AS violations {RULES[rule]}", limits=None).rows()
    assert rows == [{"violations": 0}]
