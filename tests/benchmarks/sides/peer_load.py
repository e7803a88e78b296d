"""A user's script that only loads traces into HTA: `python peer_load.py FILE...`, one file per rank."""

import sys

from hta.trace_analysis import TraceAnalysis

files = dict(enumerate(sys.argv[1:]))
analysis = TraceAnalysis(trace_files=files, include_last_profiler_step=True)
print(sum(len(table) for table in analysis.t.traces.values()))
