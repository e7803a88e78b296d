"""What the rules of `data_quality` look at, and what each gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns, Ints
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Calls, Launches, Nesting, StepMarks

    Positions = NDArray[np.integer]
    Numbers = NDArray[np.int64]


class Hits(NamedTuple):
    """The rows that fall under a rule, and the time that each concerns; None where none does."""

    rows: Positions
    ns: Ints | Numbers | None = None


@dataclass(frozen=True)
class Evidence:
    """What the rules look at: the activities and what builders made of them.

    `startless` are the rows of `flows` without a start.
    """

    columns: Columns
    rules: Rules
    nesting: Nesting
    calls: Calls
    launches: Launches
    startless: Positions
    marks: StepMarks | None = None
