"""One HTML page on a run: sentences, pictures and tables."""

from tracewarehouse.report.model import Page
from tracewarehouse.report.one_run import one_run

__all__ = ["Page", "one_run"]
