-- /// tw
-- kind     = "view"
-- name     = "collectives"
-- version  = 1
-- summary  = "A collective as one rank saw it: what it moved, between whom, when, and what finds it on the other ranks."
-- requires = ["kernels@1", "annotations@1", "collective_rules@1", "dtypes@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- event_id      = { type = "BIGINT", unit = "id", doc = "The GPU row; on the host (gloo, MPI) the backend's annotation, which lasts until the collective is done." }
-- on_gpu        = { type = "BOOLEAN", doc = "It ran on the GPU." }
-- device        = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device; null on the host." }
-- stream        = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The stream; null on the host." }
-- name          = { type = "VARCHAR", null = true, doc = "The row's name." }
-- collective    = { type = "VARCHAR", doc = "all_reduce, all_gather, … (`collective_rules`); other where no name tells." }
-- waits_for_all = { type = "BOOLEAN", doc = "No rank can leave it before the last one came." }
-- process_group = { type = "VARCHAR", null = true, doc = "Name of the process group; null where the trace does not say." }
-- group_size    = { type = "BIGINT", null = true, unit = "count", doc = "Ranks in the process group." }
-- group_key     = { type = "VARCHAR", null = true, doc = "Name, size and ranks of the process group: the same on all its ranks; null where the trace names none." }
-- dtype         = { type = "VARCHAR", null = true, doc = "Type of the elements." }
-- in_elements   = { type = "BIGINT", null = true, unit = "count", doc = "Elements that this rank gives." }
-- out_elements  = { type = "BIGINT", null = true, unit = "count", doc = "Elements that this rank gets." }
-- bytes         = { type = "BIGINT", null = true, unit = "bytes", doc = "The larger of the two, in bytes." }
-- sequence      = { type = "BIGINT", null = true, unit = "id", doc = "Number of the collective in its process group, as the trace gives it." }
-- step          = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step of its launch; on the host of its start." }
-- start_ns      = { type = "BIGINT", signed = true, unit = "ts", doc = "When this rank was there, by its own clock." }
-- end_ns        = { type = "BIGINT", signed = true, unit = "ts", doc = "When it was done." }
-- dur_ns        = { type = "BIGINT", unit = "ns", doc = "end_ns minus start_ns: waiting for the other ranks is in it." }
-- signature     = { type = "VARCHAR", doc = "Collective and sequence number; where that is missing, collective, step, type and, if all ranks give as many, elements." }
-- place         = { type = "BIGINT", unit = "count", doc = "Its place among the rank's collectives of the same group and signature, by start, then end; equal ones share a place." }
-- places        = { type = "BIGINT", unit = "count", doc = "How many of the same group and signature the rank has." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  note AS (
    -- What a backend says of a collective: `nccl:all_reduce` around the launch, `gloo:all_reduce` until it is done.
    SELECT
      run_id,
      rank,
      event_id,
      name,
      regexp_extract(name, '^(\w+):', 1) IN ('gloo', 'mpi') AS on_host,
      regexp_extract(name, '^\w+:(\w+)', 1) AS said,
      dtypes ->> 0 AS dtype,
      list_sum(
        list_transform(
          json_transform(shapes, '[["BIGINT"]]'),
          LAMBDA shape: list_reduce(list_prepend(1::BIGINT, shape), LAMBDA product, size: product * size)
        )
      )::BIGINT AS elements,
      step,
      ts_ns,
      dur_ns
    FROM annotations
    WHERE regexp_matches(name, '^(nccl|rccl|hccl|xccl|ucc|gloo|mpi):\w') AND NOT on_gpu
  ),
  told AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.event_id,
      TRUE AS on_gpu,
      kernels.device,
      kernels.stream,
      kernels.name,
      -- In old traces annotations are operators.
      coalesce(
        kernels.collective,
        note.said,
        nullif(regexp_extract(kernels.op_sig, '^(?:nccl|rccl|hccl|xccl|ucc):(\w+)', 1), ''),
        kernels.short_name,
        ''
      ) AS said,
      kernels.process_group,
      kernels.group_size,
      replace(kernels.group_ranks, ' ', '') AS group_ranks,
      coalesce(kernels.dtype, note.dtype) AS dtype,
      coalesce(kernels.in_elements, note.elements) AS in_elements,
      kernels.out_elements,
      kernels.sequence,
      kernels.step,
      kernels.ts_ns,
      kernels.dur_ns
    FROM kernels
    LEFT JOIN note
      ON note.run_id = kernels.run_id AND note.rank = kernels.rank AND note.event_id = kernels.annotation_id
    WHERE kernels.kind = 'communication'
    UNION ALL
    SELECT
      run_id,
      rank,
      event_id,
      FALSE AS on_gpu,
      NULL AS device,
      NULL AS stream,
      name,
      said,
      NULL AS process_group,
      NULL AS group_size,
      NULL AS group_ranks,
      dtype,
      elements AS in_elements,
      NULL AS out_elements,
      NULL AS sequence,
      step,
      ts_ns,
      dur_ns
    FROM note
    WHERE on_host
  ),
  ruled AS (
    SELECT
      named.said,
      arg_min(rule.collective, rule.rule_id) AS collective,
      arg_min(rule.waits_for_all, rule.rule_id) AS waits_for_all,
      arg_min(rule.same_sizes, rule.rule_id) AS same_sizes
    FROM (SELECT DISTINCT said FROM told) AS named
    JOIN collective_rules AS rule ON regexp_matches(named.said, rule.pattern)
    GROUP BY named.said
  ),
  named AS (
    SELECT
      told.run_id,
      told.rank,
      told.event_id,
      told.on_gpu,
      told.device,
      told.stream,
      told.name,
      coalesce(ruled.collective, 'other') AS collective,
      coalesce(ruled.waits_for_all, FALSE) AS waits_for_all,
      told.process_group,
      told.group_size,
      -- Names alone do not do: in some jobs each rank counts its groups for itself.
      nullif(concat_ws(' ', told.process_group, 'of ' || told.group_size, told.group_ranks), '') AS group_key,
      told.dtype,
      told.in_elements,
      told.out_elements,
      greatest(told.in_elements, told.out_elements) * dtypes.element_bytes AS bytes,
      told.sequence,
      told.step,
      told.ts_ns AS start_ns,
      told.ts_ns + told.dur_ns AS end_ns,
      told.dur_ns,
      CASE
        WHEN told.sequence IS NOT NULL THEN concat_ws(' ', coalesce(ruled.collective, 'other'), '#' || told.sequence)
        ELSE
          concat_ws(
            ' ',
            coalesce(ruled.collective, 'other'),
            'step ' || told.step,
            told.dtype,
            CASE WHEN ruled.same_sizes THEN 'x' || told.in_elements END
          )
      END AS signature
    FROM told
    LEFT JOIN ruled ON ruled.said = told.said
    LEFT JOIN dtypes ON dtypes.dtype = replace(lower(told.dtype), 'c10::', '')
  )
SELECT
  run_id,
  rank,
  event_id,
  on_gpu,
  device,
  stream,
  name,
  collective,
  waits_for_all,
  process_group,
  group_size,
  group_key,
  dtype,
  in_elements,
  out_elements,
  bytes,
  sequence,
  step,
  start_ns,
  end_ns,
  dur_ns,
  signature,
  rank() OVER (alike ORDER BY start_ns, end_ns) AS place,
  count(*) OVER alike AS places
FROM named
WINDOW alike AS (PARTITION BY run_id, rank, group_key, signature)
