-- /// tw
-- kind     = "analysis"
-- like     = "slow_operators_base@1"
-- name     = "fusible_chain"
-- version  = 1
-- summary  = "Detects elementwise operators that can read what the operator before them wrote, so that one kernel could do both."
-- requires = ["analyzed_segments@1", "op_limits@1", "op_work@1", "kernels@1"]
-- needs    = ["gpu"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = { default = 0.1 }
-- critical_share = { default = 0.3 }
-- min_bytes      = { type = "BIGINT", unit = "bytes", default = 1000000, min = 0, doc = "Smaller intermediate results are not counted." }
-- min_kernel_ns  = { type = "BIGINT", unit = "ns", default = 5000, min = 0, doc = "Without input shapes, shorter kernels end a chain." }
--
-- [columns]
-- subject   = { doc = "Always: chains of elementwise operators: of one kernel each, directly one after the other on a stream, where the second reads at least as many bytes as the first writes. Without input shapes, kernels with `elementwise` in their names count, if three or more of them follow one another. Ranks without elementwise operators or kernels have no row." }
-- share     = { doc = "Time that the operators take to read the result of the one before and to write their own for the next, at the bandwidth that they reach, as a share of analyzed_ns. Without shapes: all time of a chain of n kernels but one n-th." }
-- count     = { doc = "Number of operators, without shapes kernels, in such chains." }
-- culprit   = { doc = "The operator and its shapes, or the kernel, in chains, that loses most." }
-- confidence = { doc = "medium: that an operator reads the result of the one before follows from sizes alone. low without shapes or if a reason of `recording` limits it, or without a complete step." }
-- event_id  = { doc = "The main kernel of the longest one." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  shaped AS (
    SELECT run_id, rank, bool_or(bytes IS NOT NULL) AS is_shaped
    FROM op_limits
    GROUP BY run_id, rank
  ),
  -- Every kernel of a stream in order, with its elementwise operator, if it has one of a single kernel.
  ordered AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.event_id,
      op.name || ' ' || op.shapes AS label,
      op.bytes,
      work.write_bytes,
      lag(work.write_bytes) OVER in_stream AS before_bytes,
      lead(work.read_bytes) OVER in_stream AS next_read_bytes,
      work.read_bytes,
      coalesce(kernels.short_name, kernels.name)[:80] AS kernel_name,
      kernels.dur_ns >= $min_kernel_ns AND contains(kernels.name, 'elementwise') AS is_elementwise,
      count_if(is_elementwise IS NOT TRUE) OVER so_far AS run_number,
      kernels.device,
      kernels.stream
    FROM kernels
    LEFT JOIN op_limits AS op
      ON op.run_id = kernels.run_id
      AND op.rank = kernels.rank
      AND op.kernel_id = kernels.event_id
      AND kernels.kind = 'computation'
      AND op.family IN ('elementwise', 'norm', 'softmax', 'copy')
    LEFT JOIN op_work AS work
      ON work.run_id = op.run_id AND work.rank = op.rank AND work.event_id = op.event_id AND work.kernel_count = 1
    WHERE kernels.kind IN ('computation', 'memory')
    WINDOW
      in_stream AS (PARTITION BY kernels.run_id, kernels.rank, kernels.device, kernels.stream ORDER BY kernels.ts_ns, kernels.event_id),
      so_far AS (
        PARTITION BY kernels.run_id, kernels.rank, kernels.device, kernels.stream
        ORDER BY kernels.ts_ns, kernels.event_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      )
  ),
  chained AS (
    SELECT
      run_id,
      rank,
      event_id,
      label,
      bytes,
      CASE WHEN before_bytes >= $min_bytes AND read_bytes >= before_bytes THEN before_bytes ELSE 0 END
      + CASE WHEN write_bytes >= $min_bytes AND next_read_bytes >= write_bytes THEN write_bytes ELSE 0 END AS saved_bytes
    FROM ordered
    WHERE label IS NOT NULL AND bytes > 0 AND write_bytes IS NOT NULL
  ),
  -- What remains of each: at the bandwidth that it reaches, time is proportional to bytes.
  fused AS (
    SELECT run_id, rank, event_id, label, TRUE AS is_shaped, 1 - least(saved_bytes / bytes, 1) AS roofline
    FROM chained
    UNION ALL
    -- Without sizes, one kernel of each chain remains.
    SELECT
      ordered.run_id,
      ordered.rank,
      event_id,
      kernel_name,
      FALSE,
      1 / count(*) OVER (PARTITION BY ordered.run_id, ordered.rank, device, stream, run_number)
    FROM ordered
    ANTI JOIN shaped ON shaped.run_id = ordered.run_id AND shaped.rank = ordered.rank AND shaped.is_shaped
    WHERE is_elementwise
  )
SELECT
  run_id,
  rank,
  event_id AS kernel_id,
  label,
  roofline,
  roofline < 1 AND (is_shaped OR roofline <= 1 / 3) AS matches,
  TRUE AS is_known,
  NULL::VARCHAR AS device_name,
  CASE WHEN is_shaped THEN 0 ELSE 1 END AS doubt,
  0 AS min_share,
  {
    subject: 'chains of elementwise operators',
    saving_limit: 'the time to write and read the intermediate results, if each chain becomes one kernel and nothing else reads them',
    observation: CASE
      WHEN is_shaped
        THEN 'Elementwise operators follow one another, each large enough to read the result of the one before. Writing and reading such intermediate results takes {lost}.'
      ELSE 'Three or more elementwise kernels follow one another. All of them but one per chain take {lost}.'
    END || ' The largest part is {culprit} ({detail}).',
    advice: 'Fuse them: torch.compile, or a fused kernel of the library (norm with residual, bias with activation, fused optimizer).',
    evidence: CASE WHEN is_shaped THEN 'op_work_summary' ELSE 'kernel_summary' END,
    evidence_filter: CASE WHEN is_shaped THEN 'family IN (''elementwise'', ''norm'', ''softmax'', ''copy'')' ELSE 'name LIKE ''%elementwise%''' END
  } AS words
FROM fused
