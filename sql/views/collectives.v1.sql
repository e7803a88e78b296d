-- /// tw
-- kind     = "view"
-- name     = "collectives"
-- version  = 1
-- summary  = "Collectives per rank: bytes, process group, times, and a key that matches them across ranks."
-- requires = ["kernels@1", "annotations@1", "collective_rules@1", "dtypes@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "start_ns"]
--
-- [columns]
-- run_id        = { type = "VARCHAR", doc = "The run." }
-- rank          = { type = "INTEGER", doc = "The rank." }
-- event_id      = { type = "BIGINT", unit = "id", doc = "The GPU activity; for host collectives (gloo, MPI) and without GPU activities of collectives the backend's annotation, which lasts until the collective is done." }
-- on_gpu        = { type = "BOOLEAN", doc = "True if it ran on the GPU." }
-- device        = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The device; null for host collectives." }
-- stream        = { type = "BIGINT", null = true, signed = true, unit = "id", doc = "The stream; null for host collectives." }
-- name          = { type = "VARCHAR", null = true, doc = "Name of the GPU activity or annotation." }
-- collective    = { type = "VARCHAR", doc = "all_reduce, all_gather, … (from `collective_rules`); other if no rule matches the name." }
-- waits_for_all = { type = "BOOLEAN", doc = "True if no rank can leave it before the last one arrives (a synchronizing collective)." }
-- process_group = { type = "VARCHAR", null = true, doc = "Process group name; null if unknown." }
-- group_size    = { type = "BIGINT", null = true, unit = "count", doc = "Number of ranks in the process group; null if unknown." }
-- group_key     = { type = "VARCHAR", null = true, doc = "Name, size and ranks of the process group (of a long list the MD5 hash), equal on all its ranks; null if the trace records none of them." }
-- group_ranks   = { type = "VARCHAR", null = true, doc = "Ranks of the process group as the arguments list them, without blanks; PyTorch truncates the list after 30." }
-- dtype         = { type = "VARCHAR", null = true, doc = "Element type." }
-- in_elements   = { type = "BIGINT", null = true, unit = "count", doc = "Number of input elements on this rank." }
-- out_elements  = { type = "BIGINT", null = true, unit = "count", doc = "Number of output elements on this rank." }
-- bytes         = { type = "BIGINT", null = true, unit = "bytes", doc = "Larger of in_elements and out_elements, in bytes." }
-- sequence      = { type = "BIGINT", null = true, unit = "id", doc = "Sequence number within the process group, as recorded in the trace. Untested on real data: the traces at hand record none." }
-- step          = { type = "BIGINT", null = true, unit = "id", doc = "The profiler step of its launch; for host collectives, of its start." }
-- start_ns      = { type = "BIGINT", signed = true, unit = "ts", doc = "Start on this rank's clock." }
-- end_ns        = { type = "BIGINT", signed = true, unit = "ts", doc = "End on this rank's clock." }
-- dur_ns        = { type = "BIGINT", unit = "ns", doc = "end_ns minus start_ns; includes the wait for other ranks." }
-- signature     = { type = "VARCHAR", doc = "Collective and sequence number; without a sequence number: collective, step, element type and, if all ranks pass the same size, number of elements." }
-- occurrence    = { type = "BIGINT", unit = "count", doc = "Position among this rank's collectives of the same group and signature, by start, then end; equal ones share a position." }
-- occurrences   = { type = "BIGINT", unit = "count", doc = "Number of this rank's collectives of the same group and signature." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  note AS (
    -- Backend annotations: `nccl:all_reduce` encloses the launch, `gloo:all_reduce` the entire collective, and
    -- so do those that a backend's own profiler records, `xccl::allreduce`.
    SELECT
      run_id,
      rank,
      event_id,
      name,
      regexp_matches(name, '^(gloo|mpi):') AS on_host,
      regexp_matches(name, '^\w+::') AS by_backend,
      regexp_extract(name, '^\w+::?(\w+)', 1) AS label,
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
    WHERE regexp_matches(name, '^(nccl|rccl|hccl|xccl|ucc|gloo|mpi)::?\w') AND NOT on_gpu
  ),
  recorded AS (
    SELECT
      kernels.run_id,
      kernels.rank,
      kernels.event_id,
      TRUE AS on_gpu,
      kernels.device,
      kernels.stream,
      kernels.name,
      -- In old traces annotations are recorded as operators.
      coalesce(
        kernels.collective,
        note.label,
        nullif(regexp_extract(kernels.op_sig, '^(?:nccl|rccl|hccl|xccl|ucc):(\w+)', 1), ''),
        kernels.short_name,
        ''
      ) AS label,
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
      label,
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
    WHERE on_host OR by_backend AND (run_id, rank) NOT IN (SELECT (run_id, rank) FROM kernels WHERE kind = 'communication')
  ),
  classified AS (
    SELECT
      named.label,
      arg_min(rule.collective, rule.rule_id) AS collective,
      arg_min(rule.waits_for_all, rule.rule_id) AS waits_for_all,
      arg_min(rule.same_sizes, rule.rule_id) AS same_sizes
    FROM (SELECT DISTINCT label FROM recorded) AS named
    JOIN collective_rules AS rule ON regexp_matches(named.label, rule.pattern)
    GROUP BY named.label
  ),
  named AS (
    SELECT
      recorded.run_id,
      recorded.rank,
      recorded.event_id,
      recorded.on_gpu,
      recorded.device,
      recorded.stream,
      recorded.name,
      coalesce(classified.collective, 'other') AS collective,
      coalesce(classified.waits_for_all, FALSE) AS waits_for_all,
      recorded.process_group,
      recorded.group_size,
      -- The name alone is not enough: in some jobs each rank numbers its groups independently.
      nullif(
        concat_ws(
          ' ',
          recorded.process_group,
          'of ' || recorded.group_size,
          -- A hash in place of a long list.
          CASE
            WHEN length(recorded.group_ranks) < length(md5(recorded.group_ranks)) THEN recorded.group_ranks
            ELSE md5(recorded.group_ranks)
          END
        ),
        ''
      ) AS group_key,
      recorded.group_ranks,
      recorded.dtype,
      recorded.in_elements,
      recorded.out_elements,
      greatest(recorded.in_elements, recorded.out_elements) * dtypes.element_bytes AS bytes,
      recorded.sequence,
      recorded.step,
      recorded.ts_ns AS start_ns,
      recorded.ts_ns + recorded.dur_ns AS end_ns,
      recorded.dur_ns,
      CASE
        WHEN recorded.sequence IS NOT NULL THEN concat_ws(' ', coalesce(classified.collective, 'other'), '#' || recorded.sequence)
        ELSE
          concat_ws(
            ' ',
            coalesce(classified.collective, 'other'),
            'step ' || recorded.step,
            recorded.dtype,
            CASE WHEN classified.same_sizes THEN 'x' || recorded.in_elements END
          )
      END AS signature
    FROM recorded
    LEFT JOIN classified USING (label)
    LEFT JOIN dtypes ON dtypes.dtype = replace(lower(recorded.dtype), 'c10::', '')
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
  group_ranks,
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
  rank() OVER (alike ORDER BY start_ns, end_ns) AS occurrence,
  count(*) OVER alike AS occurrences
FROM named
WINDOW alike AS (PARTITION BY run_id, rank, group_key, signature)
