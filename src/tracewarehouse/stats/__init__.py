"""Statistics of comparisons: pure functions on numbers, which know neither runs nor warehouses."""

from tracewarehouse.stats.blocks import blocks
from tracewarehouse.stats.needed import runs_needed
from tracewarehouse.stats.relative import shifted
from tracewarehouse.stats.rows import RowTest, rows
from tracewarehouse.stats.shift import ENOUGH
from tracewarehouse.stats.steps import Steps
from tracewarehouse.stats.verdict import Verdict, verdict

__all__ = ["ENOUGH", "RowTest", "Steps", "Verdict", "blocks", "rows", "runs_needed", "shifted", "verdict"]
