-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "recording"
-- version  = 1
-- summary  = "What the recording of each rank and run can carry, why, and what to change when recording."
-- requires = ["recording_reasons@1"]
-- grain    = ["run_id", "rank", "reason"]
-- order    = ["run_id", "level", "rank", "reason"]
--
-- [columns]
-- run_id      = { type = "VARCHAR", doc = "The run." }
-- rank        = { type = "INTEGER", null = true, doc = "The rank; null if the reason is about the run." }
-- state       = { type = "VARCHAR", doc = "sound: nothing limits what may be claimed about time; usable with limits: what the reason affects is left out, cut or unassigned; not a basis: nothing remains that it does not affect." }
-- reason      = { type = "VARCHAR", null = true, doc = "Name of the reason in `recording_rules`; null in the row of a sound rank." }
-- level       = { type = "VARCHAR", null = true, doc = "limit: it changes what may be claimed about time; not_recorded: the recording lacks it, which leaves the state sound. Null without a reason." }
-- rows        = { type = "BIGINT", unit = "count", null = true, doc = "Number of events or ranks affected." }
-- steps       = { type = "BIGINT", unit = "count", null = true, doc = "Number of steps that are left out because of it." }
-- ranks       = { type = "VARCHAR", null = true, doc = "The ranks that it is about, as in 0-3, 5, if it is not about this one." }
-- share       = { type = "DOUBLE", unit = "ratio", null = true, doc = "Share of the launches affected." }
-- affected_ns = { type = "BIGINT", unit = "ns", null = true, doc = "Time affected." }
-- text        = { type = "VARCHAR", null = true, doc = "The reason in words." }
-- advice      = { type = "VARCHAR", null = true, doc = "What to change when recording." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  state,
  reason,
  level,
  rows,
  steps,
  ranks,
  share,
  affected_ns,
  text,
  advice
FROM recording_reasons
