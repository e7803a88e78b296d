"""Statistics of comparisons: pure functions on numbers, which know neither runs nor warehouses."""

from tracewarehouse.stats.rows import RowTest, rows
from tracewarehouse.stats.shift import ENOUGH, shifted
from tracewarehouse.stats.verdict import Steps, Verdict, blocks, runs_needed, verdict

__all__ = ["ENOUGH", "RowTest", "Steps", "Verdict", "blocks", "rows", "runs_needed", "shifted", "verdict"]
