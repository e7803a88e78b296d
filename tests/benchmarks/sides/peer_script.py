"""A user's script for a first result of HTA on a folder: `python peer_script.py FOLDER`."""

import sys

from hta.trace_analysis import TraceAnalysis

analysis = TraceAnalysis(trace_dir=sys.argv[1])
print(analysis.get_temporal_breakdown(visualize=False).to_csv(index=False))
