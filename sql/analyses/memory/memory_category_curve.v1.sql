-- /// tw
-- kind     = "analysis"
-- name     = "memory_category_curve"
-- version  = 1
-- summary  = "Memory by category (parameters, gradients, activations, …) after each moment of a memory timeline."
-- requires = ["memory_timeline@1"]
-- needs    = ["memory_timeline"]
-- grain    = ["run_id", "rank", "position"]
-- order    = ["run_id", "rank", "position"]
--
-- [columns]
-- run_id                = { type = "VARCHAR", doc = "The run." }
-- rank                  = { type = "INTEGER", doc = "The rank." }
-- position              = { type = "BIGINT", unit = "id", doc = "Sequence number of the moment, starting at 1; all changes with the same timestamp are one moment." }
-- ts_ns                 = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "Timestamp; null for preexisting memory, which comes first." }
-- parameter_bytes       = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes in parameters. A negative value in a column means that the file frees more than it allocated in that category." }
-- optimizer_state_bytes = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes in optimizer state." }
-- input_bytes           = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes in inputs." }
-- temporary_bytes       = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes in temporaries, which are created and consumed within a pass." }
-- activation_bytes      = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes in activations." }
-- gradient_bytes        = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes in gradients." }
-- autograd_detail_bytes = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes that autograd keeps internally." }
-- unknown_bytes         = { type = "BIGINT", signed = true, unit = "bytes", doc = "Bytes not classified by torch, or in a category without a name." }
-- total_bytes           = { type = "BIGINT", signed = true, unit = "bytes", better = "lower", doc = "Sum of the eight columns." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  moment AS (
    SELECT
      run_id,
      rank,
      ts_ns,
      coalesce(sum(bytes) FILTER (category = 'parameter'), 0)::BIGINT AS parameter,
      coalesce(sum(bytes) FILTER (category = 'optimizer_state'), 0)::BIGINT AS optimizer_state,
      coalesce(sum(bytes) FILTER (category = 'input'), 0)::BIGINT AS input,
      coalesce(sum(bytes) FILTER (category = 'temporary'), 0)::BIGINT AS temporary,
      coalesce(sum(bytes) FILTER (category = 'activation'), 0)::BIGINT AS activation,
      coalesce(sum(bytes) FILTER (category = 'gradient'), 0)::BIGINT AS gradient,
      coalesce(sum(bytes) FILTER (category = 'autograd_detail'), 0)::BIGINT AS autograd_detail,
      sum(bytes)::BIGINT AS total
    FROM memory_timeline
    GROUP BY run_id, rank, ts_ns
  ),
  running AS (
    SELECT
      run_id,
      rank,
      row_number() OVER so_far AS position,
      ts_ns,
      (sum(parameter) OVER so_far)::BIGINT AS parameter_bytes,
      (sum(optimizer_state) OVER so_far)::BIGINT AS optimizer_state_bytes,
      (sum(input) OVER so_far)::BIGINT AS input_bytes,
      (sum(temporary) OVER so_far)::BIGINT AS temporary_bytes,
      (sum(activation) OVER so_far)::BIGINT AS activation_bytes,
      (sum(gradient) OVER so_far)::BIGINT AS gradient_bytes,
      (sum(autograd_detail) OVER so_far)::BIGINT AS autograd_detail_bytes,
      (sum(total) OVER so_far)::BIGINT AS total_bytes
    FROM moment
    WINDOW so_far AS (PARTITION BY run_id, rank ORDER BY ts_ns NULLS FIRST)
  )
SELECT
  run_id,
  rank,
  position,
  ts_ns,
  parameter_bytes,
  optimizer_state_bytes,
  input_bytes,
  temporary_bytes,
  activation_bytes,
  gradient_bytes,
  autograd_detail_bytes,
  total_bytes - parameter_bytes - optimizer_state_bytes - input_bytes - temporary_bytes - activation_bytes
    - gradient_bytes - autograd_detail_bytes AS unknown_bytes,
  total_bytes
FROM running
