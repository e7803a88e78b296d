"""Readers of trace files: one package per profiler format, all of which produce the same tables."""
