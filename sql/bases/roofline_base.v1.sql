-- /// tw
-- summary = "Work of operators on the GPU, summed by some keys, and how close each row comes to the limits of the device."
--
-- [params]
-- peak_flop_per_ns    = { type = "DOUBLE", unit = "flop_per_ns", doc = "Peak rate for all types, instead of those of `device_specs`." }
-- memory_bytes_per_ns = { type = "DOUBLE", unit = "bytes_per_ns", doc = "Peak memory bandwidth, instead of that of `device_specs`." }
-- low_roofline        = { type = "DOUBLE", unit = "ratio", default = 0.3, min = 0, max = 1, doc = "Below this roofline, neither compute nor memory is called the limit." }
--
-- [columns]
-- run_id              = { type = "VARCHAR", doc = "The run." }
-- rank                = { type = "INTEGER", doc = "The rank." }
-- count               = { type = "BIGINT", unit = "count", aggregate = "sum", doc = "Number of operators with GPU activity." }
-- model_flop          = { type = "BIGINT", unit = "flop", null = true, doc = "Sum of the FLOP that the model needs; null if none is known." }
-- hardware_flop       = { type = "BIGINT", unit = "flop", null = true, doc = "Sum of the FLOP that the hardware does, including recomputation." }
-- bytes               = { type = "BIGINT", unit = "bytes", null = true, doc = "Sum of the bytes read and written, if every operand is moved once." }
-- gpu_union_ns        = { type = "BIGINT", unit = "ns", aggregate = "sum", better = "lower", doc = "Sum of the times in which GPU activities of each operator ran." }
-- flop_per_ns         = { type = "DOUBLE", unit = "flop_per_ns", null = true, better = "higher", doc = "hardware_flop / gpu_union_ns." }
-- bytes_per_ns        = { type = "DOUBLE", unit = "bytes_per_ns", null = true, better = "higher", doc = "bytes / gpu_union_ns." }
-- intensity           = { type = "DOUBLE", null = true, doc = "FLOP per byte: hardware_flop / bytes." }
-- limit_flop_per_ns   = { type = "DOUBLE", unit = "flop_per_ns", null = true, doc = "Peak rate for the type of the arithmetic; null without FLOP, or as limit_reason says. `checked` in `device_specs` says whether the figure was compared with the vendor's documentation." }
-- limit_bytes_per_ns  = { type = "DOUBLE", unit = "bytes_per_ns", null = true, doc = "Peak memory bandwidth." }
-- limit_reason        = { type = "VARCHAR", null = true, doc = "Why a limit is null: `device_specs` does not have it for the device, which is named here." }
-- roofline            = { type = "DOUBLE", unit = "ratio", null = true, better = "higher", doc = "Share of the nearer limit that was reached: FLOP / peak rate or bytes / peak bandwidth, whichever is longer, divided by gpu_union_ns. Never clipped: above 1, see quality rule `over_peak`. Null if work or peak is not known." }
-- bound_by            = { type = "VARCHAR", null = true, doc = "compute or memory: the nearer limit; neither if less than low_roofline of it is reached; over above 1." }
-- best_roofline       = { type = "DOUBLE", unit = "ratio", null = true, better = "higher", doc = "The highest roofline of a single operator." }
-- bound               = { type = "VARCHAR", null = true, doc = "exact; upper or lower if the work of some operators is only bounded; null if it is not known." }
-- reason              = { type = "VARCHAR", null = true, doc = "Why the work is not known exactly." }
-- over_reason         = { type = "VARCHAR", null = true, doc = "If best_roofline is above 1: why an operator can appear faster than the device." }
-- flop_coverage       = { type = "DOUBLE", unit = "ratio", null = true, better = "higher", doc = "Share of the rank's computation time in operators of known FLOP: what all rows together account for. Null without computation." }
-- ///
-- An analysis requires op_limits and work_coverage and returns, for each operator in `op_limits`, run_id, rank,
-- family, compute_dtype, model_flop, hardware_flop, bytes, gpu_union_ns, bound, reason, device_name, limit_flop_per_ns,
-- limit_bytes_per_ns, and keys: a STRUCT of the columns that it sums by, which it declares between rank and count.
SELECT
  summed.run_id,
  summed.rank,
  unnest(summed.keys),
  summed.count,
  summed.model_flop,
  summed.hardware_flop,
  summed.bytes,
  summed.gpu_union_ns,
  CASE WHEN summed.hardware_flop > 0 THEN summed.hardware_flop / summed.gpu_union_ns END AS flop_per_ns,
  summed.bytes / summed.gpu_union_ns AS bytes_per_ns,
  CASE WHEN summed.hardware_flop > 0 AND summed.bytes > 0 THEN summed.hardware_flop / summed.bytes END AS intensity,
  summed.limit_flop_per_ns,
  summed.limit_bytes_per_ns,
  summed.limit_reason,
  summed.roofline,
  CASE
    WHEN summed.roofline > 1 THEN 'over'
    WHEN summed.roofline < $low_roofline THEN 'neither'
    WHEN summed.roofline IS NOT NULL THEN CASE WHEN summed.compute_ns >= summed.memory_ns THEN 'compute' ELSE 'memory' END
  END AS bound_by,
  summed.best_roofline,
  summed.bound,
  summed.reason,
  summed.over_reason,
  coverage.flop_coverage
FROM (
  WITH
    single AS (
      SELECT
        run_id,
        rank,
        keys,
        family,
        model_flop,
        hardware_flop,
        bytes,
        gpu_union_ns,
        bound,
        reason,
        CASE WHEN hardware_flop > 0 THEN coalesce(nullif(greatest($peak_flop_per_ns, 0), 0), limit_flop_per_ns) END AS known_flop_per_ns,
        coalesce(nullif(greatest($memory_bytes_per_ns, 0), 0), limit_bytes_per_ns) AS known_bytes_per_ns,
        CASE
          WHEN hardware_flop > 0 AND known_flop_per_ns IS NULL
            THEN coalesce('no peak rate of ' || device_name || ' is known', 'no device name was recorded, so no peak rate is known') || coalesce(' for ' || compute_dtype, '')
          WHEN bytes > 0 AND known_bytes_per_ns IS NULL
            THEN coalesce('no memory bandwidth of ' || device_name || ' is known', 'no device name was recorded, so no memory bandwidth is known')
        END AS limit_reason,
        hardware_flop / known_flop_per_ns AS compute_ns,
        bytes / known_bytes_per_ns AS memory_ns,
        -- FLOP without a known peak have no roofline, even if their bytes have one.
        CASE WHEN hardware_flop > 0 AND compute_ns IS NULL THEN NULL ELSE greatest(compute_ns, memory_ns) END AS limit_ns,
        CASE
          WHEN compute_ns > gpu_union_ns AND family = 'conv' THEN 'algorithm with fewer FLOP (Winograd, FFT)'
          WHEN compute_ns > gpu_union_ns AND bound = 'upper' THEN 'FLOP are an upper bound'
          WHEN compute_ns > gpu_union_ns THEN 'wrong type, peak or rule'
          WHEN memory_ns > gpu_union_ns AND bound = 'upper' THEN 'data in a cache, or bytes are an upper bound'
          WHEN memory_ns > gpu_union_ns THEN 'data in a cache'
        END AS over_reason
      FROM base_input
    )
  SELECT
    run_id,
    rank,
    keys,
    count(*) AS count,
    sum(model_flop)::BIGINT AS model_flop,
    sum(hardware_flop)::BIGINT AS hardware_flop,
    sum(bytes)::BIGINT AS bytes,
    sum(gpu_union_ns)::BIGINT AS gpu_union_ns,
    max(known_flop_per_ns) AS limit_flop_per_ns,
    max(known_bytes_per_ns) AS limit_bytes_per_ns,
    min(limit_reason) AS limit_reason,
    -- Ordered, so that rounding does not depend on threads.
    coalesce(sum(compute_ns ORDER BY compute_ns), 0) AS compute_ns,
    coalesce(sum(memory_ns ORDER BY memory_ns), 0) AS memory_ns,
    CASE WHEN count(limit_ns) = count(*) THEN greatest(sum(compute_ns ORDER BY compute_ns), sum(memory_ns ORDER BY memory_ns)) / sum(gpu_union_ns) END AS roofline,
    max(limit_ns / gpu_union_ns) AS best_roofline,
    coalesce(min(bound) FILTER (bound <> 'exact'), min(bound)) AS bound,
    min(reason) AS reason,
    arg_max(over_reason, (limit_ns / gpu_union_ns, over_reason)) AS over_reason
  FROM single
  GROUP BY run_id, rank, keys
) AS summed
LEFT JOIN work_coverage AS coverage
  ON coverage.run_id = summed.run_id AND coverage.rank = summed.rank AND coverage.step IS NULL
