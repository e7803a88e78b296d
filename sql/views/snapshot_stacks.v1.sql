-- /// tw
-- kind     = "view"
-- name     = "snapshot_stacks"
-- version  = 1
-- summary  = "Each call stack of a memory snapshot: its innermost frame outside of PyTorch, and what the allocation is for."
-- requires = ["snapshot_frames@1", "stack_rules@1"]
-- grain    = ["run_id", "rank", "stack_id"]
-- order    = ["run_id", "rank", "stack_id"]
--
-- [columns]
-- run_id    = { type = "VARCHAR", doc = "The run." }
-- rank      = { type = "INTEGER", doc = "The rank." }
-- stack_id  = { type = "BIGINT", unit = "id", doc = "The call stack." }
-- top_frame = { type = "VARCHAR", null = true, doc = "Innermost Python frame outside of PyTorch as `file:line function`, the file without its folder; the innermost frame if there is none." }
-- category  = { type = "VARCHAR", doc = "backward, optimizer, collective, forward, data or setup, by the rules in stack_rules; other if none matches." }
--
-- [changes]
-- 1 = "First version."
-- ///
WITH
  frame AS (
    SELECT DISTINCT file, name
    FROM snapshot_frames
  ),
  known AS (
    SELECT
      frame.file,
      frame.name,
      min(rules.rule_id) AS rule_id,
      -- Native frames have no useful file; those of PyTorch are in its package.
      coalesce(
        frame.file = '??'
        OR regexp_matches(frame.file, '(^|/)torch/|^<|\.(cpp|cc|c|h|cu|so)(\.|$)|(^|/)(runpy|contextlib|threading)\.py$'),
        TRUE
      ) AS is_torch
    FROM frame
    LEFT JOIN stack_rules AS rules ON regexp_matches(coalesce(frame.file, '') || ':' || coalesce(frame.name, ''), rules.pattern)
    GROUP BY frame.file, frame.name
  ),
  per_stack AS (
    SELECT
      frames.run_id,
      frames.rank,
      frames.stack_id,
      min(known.rule_id) AS rule_id,
      arg_min(
        coalesce(parse_filename(frames.file), '?') || ':' || coalesce(frames.line, 0) || ' ' || coalesce(frames.name, '?'),
        (known.is_torch, frames.depth)
      ) AS top_frame
    FROM snapshot_frames AS frames
    JOIN known ON known.file IS NOT DISTINCT FROM frames.file AND known.name IS NOT DISTINCT FROM frames.name
    GROUP BY frames.run_id, frames.rank, frames.stack_id
  )
SELECT
  per_stack.run_id,
  per_stack.rank,
  per_stack.stack_id,
  per_stack.top_frame,
  coalesce(rules.category, 'other') AS category
FROM per_stack
LEFT JOIN stack_rules AS rules USING (rule_id)
