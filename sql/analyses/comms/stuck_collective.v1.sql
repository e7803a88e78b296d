-- /// tw
-- kind     = "analysis"
-- scope    = "run"
-- name     = "stuck_collective"
-- version  = 1
-- summary  = "The collective at which each process group is stuck, and the ranks that did not arrive, from flight recorder dumps."
-- requires = ["stuck_groups@1"]
-- needs    = ["flight_records"]
-- grain    = ["run_id", "process_group"]
-- order    = ["run_id", "waiting_since_ns", "process_group"]
--
-- [columns]
-- run_id           = { type = "VARCHAR", doc = "The run." }
-- process_group    = { type = "VARCHAR", doc = "Name of the process group. A group whose ranks all called the same collectives, and completed them as far as recorded, has no row." }
-- group_desc       = { type = "VARCHAR", null = true, doc = "Description of the process group." }
-- collective_seq   = { type = "BIGINT", unit = "id", doc = "Number of the stuck collective in its process group." }
-- collective       = { type = "VARCHAR", null = true, doc = "all_reduce, all_gather, …, on most ranks that called it." }
-- cause            = { type = "VARCHAR", doc = "missing: ranks did not call it; type: ranks called different collectives; not_completed: all ranks called it, but it did not complete." }
-- missing_ranks    = { type = "INTEGER[]", doc = "Ranks that did not arrive; for type the ranks that called another collective; empty for not_completed." }
-- waiting_ranks    = { type = "INTEGER[]", doc = "Ranks that called it and did not complete it, as far as recorded." }
-- without_dump     = { type = "INTEGER[]", doc = "Ranks of the group without a dump: they may be the ones that did not arrive." }
-- waiting_since_ns = { type = "BIGINT", unit = "ts", null = true, signed = true, doc = "When the first rank called it, UTC. The group with the earliest time got stuck first." }
-- last_call        = { type = "VARCHAR", null = true, doc = "The last collective that the first missing rank called, in any group." }
-- explanation      = { type = "VARCHAR", doc = "Which collective is stuck and which rank did not arrive, in one sentence." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  process_group,
  group_desc,
  collective_seq,
  collective,
  cause,
  missing_ranks,
  waiting_ranks,
  without_dump,
  waiting_since_ns,
  last_call,
  explanation
FROM stuck_groups
