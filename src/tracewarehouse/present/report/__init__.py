"""Reports: one HTML page about a run, about what changed between two, or about many."""

from tracewarehouse.present.report.document import Page
from tracewarehouse.present.report.one_run import one_run
from tracewarehouse.present.report.several_runs import many_runs, two_runs

__all__ = ["Page", "many_runs", "one_run", "two_runs"]
