-- /// tw
-- kind      = "table"
-- name      = "quality_rules"
-- version   = 1
-- summary   = "What `data_quality` may say of a rank, and how grave it is."
-- grain     = ["rule"]
-- order     = ["rule"]
-- transient = true
--
-- [columns]
-- rule     = { type = "VARCHAR", doc = "The rule's name." }
-- severity = { type = "VARCHAR", doc = "error: something is lost; warning: a number may mislead; info: good to know." }
-- source   = { type = "VARCHAR", doc = "file: known only while the file is read; events: known from its events." }
-- meaning  = { type = "VARCHAR", doc = "What a row that falls under it is." }
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
    ('lost_events', 'error', 'file', 'an event that could not be saved'),
    ('skipped_bytes', 'warning', 'file', 'bytes of the file that are in no event and in no header'),
    ('mended_file', 'warning', 'file', 'a place of the file that had to be mended to be read'),
    ('repaired_event', 'warning', 'file', 'an event that had to be mended to be JSON'),
    ('redacted_value', 'info', 'file', 'a value that looked like a secret'),
    ('replaced_value', 'info', 'file', 'a text too long to be kept: a salted hash and its length stand in its place'),
    ('time_unit', 'warning', 'file', 'times that are plausibly in nanoseconds; --time-unit ns reads them so'),
    ('non_event', 'info', 'events', 'an element that is no event'),
    ('unknown_category', 'info', 'events', 'an event of a category that we do not know'),
    ('duplicate_slice', 'info', 'events', 'a further copy of a slice: same name, times, thread and category'),
    ('unusable_time', 'warning', 'events', 'a slice without usable start or length'),
    ('negative_duration', 'warning', 'events', 'a slice of negative length'),
    ('epoch_zero', 'warning', 'events', 'a slice at time 0 where all others are hours later'),
    ('open_bracket', 'warning', 'events', 'a begin without an end, or an end without a begin'),
    ('crossing_slice', 'info', 'events', 'a host slice that ends after the slice around it; time is what stands out'),
    ('dangling_frame', 'info', 'events', 'a Python frame whose caller is not in the file'),
    ('flow_without_start', 'info', 'events', 'an arrow whose start is not in the file'),
    ('before_window', 'info', 'events', 'a GPU row that was launched before the window'),
    ('missing_launch', 'warning', 'events', 'a GPU row inside the window without a launch'),
    ('launch_by_flow', 'info', 'events', 'a GPU row linked by an arrow, for want of an id'),
    ('unknown_launch', 'info', 'events', 'a call that launched a GPU row and that we do not know as a launch'),
    ('launch_without_gpu_row', 'info', 'events', 'a call that puts work on the GPU without a GPU row'),
    ('many_rows_per_launch', 'info', 'events', 'a further GPU row of one call that launches no graph'),
    ('correlation_reused', 'warning', 'events', 'a further call of the same id that is not inside the first'),
    ('start_before_launch', 'warning', 'events', 'a GPU row that starts before its launch; time is how far'),
    ('stream_overlap', 'info', 'events', 'a GPU row that starts before an earlier one of its stream ended; time is the overlap'),
    ('several_processes', 'warning', 'events', 'a GPU row of a device that another process used too: ranks merged into one file cannot be told apart'),
    ('impossible_value', 'warning', 'events', 'a GPU row with more threads in a block than there can be, or none'),
    ('sentinel_id', 'info', 'events', 'an event with a correlation or external id that stands for none: -1, 4294967295 or 2^63-1; it pairs with nothing')
) AS rules (rule, severity, source, meaning)
