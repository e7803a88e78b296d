"""Reports: one HTML page about a run, or about what changed between two."""

from tracewarehouse.report.document import Page
from tracewarehouse.report.one_run import one_run
from tracewarehouse.report.two_runs import two_runs

__all__ = ["Page", "one_run", "two_runs"]
