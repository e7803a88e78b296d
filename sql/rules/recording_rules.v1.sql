-- /// tw
-- kind      = "table"
-- name      = "recording_rules"
-- version   = 1
-- summary   = "Reasons why a recording cannot carry a claim, in words, and what to change when recording."
-- grain     = ["reason"]
-- order     = ["reason"]
-- transient = true
--
-- [columns]
-- reason = { type = "VARCHAR", doc = "Name of the reason." }
-- text   = { type = "VARCHAR", doc = "What the recording lacks, with numbers of `recording` in braces." }
-- advice = { type = "VARCHAR", doc = "What to change when recording." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  reason,
  text,
  advice
FROM (
  VALUES
    ('lost_records', 'GPU records of launches are lost ({rows}, {share})', 'record fewer steps at a time, or enlarge the buffers of the profiler'),
    ('malformed_duration', 'durations reach beyond the start of later activities on their stream ({rows}, by {affected}); they are cut there', 'report it to the vendor of the profiler; another driver version may be sound'),
    ('several_processes', 'GPU activities of several processes in one file ({rows} of further ones)', 'record each process into its own file'),
    ('graph_gap', 'the GPU is idle for {affected} inside graph launches: no host call and no launch explains it', 'record with node-level graph tracing, and look for host nodes and dependencies in the graph'),
    ('work_before', 'complete steps include GPU work that was launched before the recording ({rows}, {affected})', 'record more steps, or call torch.cuda.synchronize() before the first'),
    ('no_complete_step', 'no complete step among {of_steps}', 'record 3 more steps: schedule(active=5)'),
    ('no_gpu_work', 'steps without GPU activities, although there are some outside of steps', 'call the step of the profiler in the process and thread that launch the work'),
    ('no_work', 'the profiler stopped before the work of the last step began', 'record as many steps as the schedule says, or call schedule(repeat=1)'),
    ('lost_events', 'the file is damaged; lost events: {rows} or more', 'write the file again, and copy it only when it is complete'),
    ('ranks_missing', 'not in the run: {named} of {of_ranks}', 'record and ingest all ranks of a process group'),
    ('implausible_world_size', 'the file says that there are {of_ranks} ranks, which is ignored: whether ranks are missing is not known', 'find out what wrote the number, and record again'),
    ('late_start', 'the recording starts {affected} after that of the first rank; only what all ranks recorded is compared', 'start the profiler of all ranks in the same step'),
    ('mixed_attempts', 'the recording does not overlap with those of other ranks: {ranks}; they are of another attempt, or the clocks differ', 'ingest the files of each attempt under a separate name: tw ingest --run NAME'),
    ('host_only', 'no GPU activities', 'record activities of the GPU: activities=[CPU, CUDA]'),
    ('no_steps', 'no steps', 'call prof.step() after each step, or mark steps: --step-pattern PATTERN'),
    ('no_shapes', 'no shapes of inputs', 'record_shapes=True'),
    ('no_stacks', 'no Python stacks', 'with_stack=True'),
    ('no_memory', 'no memory events', 'profile_memory=True')
) AS rules (reason, text, advice)
