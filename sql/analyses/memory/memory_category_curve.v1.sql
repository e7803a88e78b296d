-- /// tw
-- kind     = "analysis"
-- name     = "memory_category_curve"
-- version  = 1
-- summary  = "How much memory parameters, gradients, activations and the rest took, after each moment of a memory timeline."
-- requires = ["memory_timeline@1"]
-- needs    = ["memory_timeline"]
-- grain    = ["run_id", "rank", "position"]
-- order    = ["run_id", "rank", "position"]
--
-- [columns]
-- run_id                = { type = "VARCHAR", doc = "The run." }
-- rank                  = { type = "INTEGER", doc = "The rank." }
-- position              = { type = "BIGINT", unit = "id", doc = "Number of the moment, 1 for the first: all changes of one time are one moment." }
-- ts_ns                 = { type = "BIGINT", null = true, signed = true, unit = "ts", doc = "When; null for what was there before, which comes first." }
-- parameter_bytes       = { type = "BIGINT", signed = true, unit = "bytes", doc = "In parameters. A column below zero says that the file lets go what it never gave to that category." }
-- optimizer_state_bytes = { type = "BIGINT", signed = true, unit = "bytes", doc = "In the state of optimizers." }
-- input_bytes           = { type = "BIGINT", signed = true, unit = "bytes", doc = "In inputs." }
-- temporary_bytes       = { type = "BIGINT", signed = true, unit = "bytes", doc = "In what is made and used up within a pass." }
-- activation_bytes      = { type = "BIGINT", signed = true, unit = "bytes", doc = "In activations." }
-- gradient_bytes        = { type = "BIGINT", signed = true, unit = "bytes", doc = "In gradients." }
-- autograd_detail_bytes = { type = "BIGINT", signed = true, unit = "bytes", doc = "In what autograd keeps for itself." }
-- unknown_bytes         = { type = "BIGINT", signed = true, unit = "bytes", doc = "In what torch could not tell, or has no name for." }
-- total_bytes           = { type = "BIGINT", signed = true, unit = "bytes", better = "lower", doc = "The sum of the eight." }
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
