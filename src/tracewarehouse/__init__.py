"""A SQL-backed warehouse for GPU profiler traces."""

__version__ = "0.1.0"
