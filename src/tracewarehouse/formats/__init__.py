"""Trace files of any profiler to the columns of activities: one package per format."""
