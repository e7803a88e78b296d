"""Bytes of a trace file to the raw relation."""

from tracewarehouse.reader.findings import Loss
from tracewarehouse.reader.load import READER_VERSION, Survey, load, not_a_trace, survey
from tracewarehouse.reader.source import prefix_digest
from tracewarehouse.reader.window import window

__all__ = [
    "READER_VERSION",
    "Loss",
    "Survey",
    "load",
    "not_a_trace",
    "prefix_digest",
    "survey",
    "window",
]
