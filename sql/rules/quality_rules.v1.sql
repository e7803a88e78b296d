-- /// tw
-- kind      = "table"
-- name      = "quality_rules"
-- version   = 1
-- summary   = "Data-quality rules and their severity."
-- grain     = ["rule"]
-- order     = ["rule"]
-- transient = true
--
-- [columns]
-- rule     = { type = "VARCHAR", doc = "Name of the rule." }
-- severity = { type = "VARCHAR", doc = "error: data is lost; warning: a number can be misleading; info: for information." }
-- source   = { type = "VARCHAR", doc = "file: known only while the file is read; events: computed from the stored events; work: computed by analysis `quality` from `op_work` and the peaks of `device_specs`." }
-- meaning  = { type = "VARCHAR", doc = "What an affected row is." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  rule,
  severity,
  source,
  meaning
FROM (
  VALUES
    ('lost_events', 'error', 'file', 'an event that could not be recovered'),
    ('skipped_bytes', 'warning', 'file', 'bytes of the file outside events and header'),
    ('repaired_file', 'warning', 'file', 'a position in the file that was repaired to be readable'),
    ('repaired_event', 'warning', 'file', 'an event repaired to be valid JSON'),
    ('redacted_value', 'info', 'file', 'a value that looked like a secret'),
    ('replaced_value', 'info', 'file', 'a text too long to store, replaced by a salted hash and its length'),
    ('time_unit', 'warning', 'file', 'times that are plausibly in nanoseconds; --time-unit ns reads them as such'),
    ('rank_assumed', 'warning', 'file', 'a rank number that follows from the order of devices and processes in the file'),
    ('clock_not_utc', 'info', 'file', 'times with an unknown origin: not comparable with other files'),
    ('callchain_copy', 'info', 'file', 'a copy of an API call that only carries its call chain; not counted as a call'),
    ('graph_level_trace', 'warning', 'file', 'a replay of a CUDA graph whose kernels were not recorded: communication beside it may be overlapped, although it counts as exposed'),
    ('table_not_read', 'info', 'file', 'a table of the file that is not read'),
    ('newer_schema', 'warning', 'file', 'a file schema that is newer than any tested one'),
    ('kind_unknown', 'warning', 'file', 'a record with an unknown value of an enumeration'),
    ('unusable_value', 'warning', 'file', 'a value of the wrong type, read as null'),
    ('snapshot_overrun', 'warning', 'file', 'an entry of a memory snapshot that contradicts the entry before it or the blocks at the end'),
    ('snapshot_segments_disagree', 'warning', 'file', 'a segment of a memory snapshot whose active bytes are not the sum of its active blocks'),
    ('open_range', 'warning', 'file', 'an NVTX range without an end, stored as an instant'),
    ('process_not_read', 'info', 'file', 'a record of a process without GPU activities, which belongs to no rank'),
    ('joined', 'info', 'file', 'a GPU activity of a trace of torch and a recording of the same process by Nsight Systems or NCCL''s plug-in: operators, stacks and shapes are those of torch, as are the activities that both have'),
    ('not_joined', 'warning', 'file', 'a GPU activity that only one of a trace of torch and a recording of the same process by another tool has: the recording is not joined with the trace'),
    ('non_event', 'info', 'events', 'an array element that is not an event'),
    ('unknown_category', 'info', 'events', 'an event of an unknown category'),
    ('duplicate_slice', 'info', 'events', 'a duplicate of a slice: same name, times, thread and category'),
    ('invalid_time', 'warning', 'events', 'a slice without valid start or duration'),
    ('negative_duration', 'warning', 'events', 'a slice with negative duration'),
    ('epoch_zero', 'warning', 'events', 'a slice at time 0 although all others are hours later'),
    ('steps_inferred', 'info', 'events', 'an annotation that marks a step by its name: the trace has no profiler steps'),
    ('unpaired_begin_end', 'warning', 'events', 'a begin without an end, or an end without a begin'),
    ('crossing_slice', 'info', 'events', 'a host slice that ends after its enclosing slice; time is the excess'),
    ('dangling_frame', 'info', 'events', 'a Python frame whose caller is not in the file'),
    ('flow_without_start', 'info', 'events', 'a flow whose start is not in the file'),
    ('before_window', 'info', 'events', 'a GPU activity launched before the profiling window'),
    ('missing_launch', 'warning', 'events', 'a GPU activity inside the window without a launch'),
    ('launch_by_flow', 'info', 'events', 'a GPU activity matched by flow because it has no correlation ID'),
    ('unknown_launch', 'info', 'events', 'a call that launched a GPU activity but is not recognized as a launch'),
    ('launch_without_gpu_activity', 'info', 'events', 'a launch call without a GPU activity'),
    ('many_activities_per_launch', 'info', 'events', 'a further GPU activity of a call that does not launch a graph'),
    ('correlation_reused', 'warning', 'events', 'a further call with the same correlation ID that is not inside the first'),
    ('start_before_launch', 'warning', 'events', 'a GPU activity that starts before its launch; time is the difference'),
    ('stream_overlap', 'info', 'events', 'a GPU activity that starts before an earlier one of its stream ended; time is the overlap'),
    ('multiple_processes', 'warning', 'events', 'a GPU activity of another process than the first that used its device or its correlation ids: ranks were merged into one file'),
    ('invalid_block_size', 'warning', 'events', 'a GPU activity with an invalid block size'),
    ('sentinel_id', 'info', 'events', 'an event with a correlation or external ID that means none: -1, 4294967295 or 2^63-1; it is not paired'),
    ('over_peak', 'info', 'work', 'an operator that appears faster than the device can be; its work or the peak is not what is assumed')
) AS rules (rule, severity, source, meaning)
