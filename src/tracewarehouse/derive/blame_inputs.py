"""What blame is computed from: collectives, activities and steps of all ranks of a run, as arrays.

Ranks are numbered from 0 in ascending order, collectives by their start on aligned clocks. Times are ns on
aligned clocks since the first start, separately for each set of ranks with a common clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.derive.waits import NO_STREAM
from tracewarehouse.duck.engine import Connection, connect
from tracewarehouse.ingest import resources
from tracewarehouse.query.connections import create
from tracewarehouse.query.relations import Dependencies, Relations
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Versions
from tracewarehouse.temp_folders import temporary_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Columns = dict[str, NDArray[Any]]

NO_STEP = -(1 << 62)  # outside of all steps

_ARRIVALS = """
SELECT
  rank, stream, instance_id, waits_for_all, step, last_rank,
  reference_rank, aligned_start_ns, dur_ns, wait_ns,
  coalesce(wait_ns, pair_wait_ns, possible_wait_ns, 0) AS any_wait_ns,
  possible_wait_ns IS NOT NULL AS is_possible,
  start_ns - aligned_start_ns AS offset_ns,
FROM collective_arrivals
"""
_INSTANCES = """
SELECT
  instance_id,
  row_number() OVER (ORDER BY start_ns, instance_id) - 1 AS number,
  dense_rank() OVER (ORDER BY ranks) - 1 AS rank_set,
  first_ns
FROM (
  SELECT
    instance_id,
    min(aligned_start_ns) AS start_ns,
    list(rank ORDER BY rank) AS ranks,
    -- The first start of all ranks with this common clock.
    min(min(aligned_start_ns)) OVER (PARTITION BY any_value(reference_rank)) AS first_ns
  FROM arrival
  WHERE reference_rank IS NOT NULL
  GROUP BY instance_id
) AS instance
"""
_ROWS = """
SELECT
  instance.number AS instance,
  instance.rank_set,
  arrival.rank,
  coalesce(arrival.stream, $no_stream) AS stream,
  arrival.last_rank,
  arrival.waits_for_all,
  arrival.is_possible,
  coalesce(arrival.step, $no_step) AS step,
  arrival.aligned_start_ns - instance.first_ns AS start_ns,
  arrival.dur_ns,
  arrival.any_wait_ns AS wait_ns,
  instance.first_ns + arrival.offset_ns AS zero_ns
FROM arrival
JOIN instance ON instance.instance_id = arrival.instance_id
WHERE arrival.last_rank IS NOT NULL
ORDER BY instance.number, arrival.rank
"""
_BASIS = """
WITH
  period AS (
    SELECT rank, sum(end_ns - start_ns)::BIGINT AS period_ns
    FROM activity
    WHERE kind = 'step'
    GROUP BY rank
  ),
  own AS (
    SELECT
      rank,
      bool_or(waits_for_all) AS synchronizes,
      coalesce(sum(wait_ns) FILTER (reference_rank IS NOT NULL), 0)::BIGINT AS wait_ns,
      coalesce(sum(wait_ns) FILTER (reference_rank IS NULL), 0)::BIGINT AS not_charged_ns,
      coalesce(sum(any_wait_ns) FILTER (is_possible), 0)::BIGINT AS possible_wait_ns,
      count(*) FILTER (waits_for_all AND instance_id IS NULL) AS unmatched,
      coalesce(sum(dur_ns) FILTER (waits_for_all AND instance_id IS NULL), 0)::BIGINT AS unmatched_ns
    FROM arrival
    GROUP BY rank
  )
SELECT
  own.rank,
  period.period_ns,
  own.wait_ns,
  own.not_charged_ns,
  own.possible_wait_ns,
  own.unmatched,
  own.unmatched_ns
FROM own
LEFT JOIN period ON period.rank = own.rank
WHERE own.synchronizes
ORDER BY own.rank
"""
_ACTIVITIES = "SELECT rank, kind, start_ns, end_ns, on_gpu FROM rank_activities"
# What DuckDB takes before it writes to disk: enough for 1,024 ranks with 2,000 collectives each.
_MEMORY_BYTES = 1 << 30
_READS = ("collective_arrivals", "rank_activities")


@dataclass(frozen=True)
class Arrivals:
    """A row per collective and rank of it, by both, where all its ranks have a common clock."""

    instance: Integers
    rank_set: Integers  # the same number for collectives of the same ranks
    rank: Integers
    stream: Integers  # NO_STREAM on the host
    last: Integers  # the rank that the others waited for
    synchronizes: Flags
    is_possible: Flags
    step: Integers
    start_ns: Integers
    dur_ns: Integers
    wait_ns: Integers

    @property
    def instances(self) -> int:
        """The number of collectives."""
        return int(self.instance.max(initial=-1)) + 1

    @property
    def span_ns(self) -> int:
        """A time after all others."""
        return int((self.start_ns + self.dur_ns).max(initial=0)) + 1


@dataclass(frozen=True)
class Activities:
    """What ranks did: the kind is computation, communication, copies or data."""

    rank: Integers
    kind: NDArray[Any]
    start_ns: Integers
    end_ns: Integers


@dataclass(frozen=True)
class Inputs:
    """All that blame is computed from. `ranks` and `instances` map its numbers to ranks and collectives."""

    ranks: Integers
    instances: NDArray[Any]
    arrivals: Arrivals
    activities: Activities
    on_gpu: Flags  # rank → whether it has GPU activities
    basis: Columns

    @classmethod
    def read(cls, store: Versions, catalog: Catalog, selected: SelectedRun) -> Inputs:
        """Reads a run. Raises WarehouseError if a file is missing."""
        with _opened(store, catalog, selected) as con:
            rows = con.execute(_ROWS, {"no_step": NO_STEP, "no_stream": NO_STREAM}).fetchnumpy()
            instances = con.execute("SELECT instance_id FROM instance ORDER BY number").fetchnumpy()
            basis = con.execute(_BASIS).fetchnumpy()
            ranks = np.array(selected.ranks, dtype=np.int64)
            zero = np.zeros(len(ranks), dtype=np.int64)
            number = np.searchsorted(ranks, rows["rank"])
            zero[number] = rows["zero_ns"]
            known = np.zeros(len(ranks), dtype=bool)
            known[number] = True
            activities = con.execute("SELECT * FROM activity WHERE kind <> 'step'").fetchnumpy()
        return cls(
            ranks,
            instances["instance_id"],
            _arrivals(rows, ranks),
            _activities(activities, ranks, zero, known),
            np.isin(ranks, activities["rank"][activities["on_gpu"].astype(bool)]),
            basis,
        )

    def why_nothing(self) -> str:
        """Why no wait is charged to a rank, for a run without blame."""
        waits, apart, possible, unmatched = (
            int(self.basis[name].sum())
            for name in ("wait_ns", "not_charged_ns", "possible_wait_ns", "unmatched")
        )
        if waits + apart == 0 and unmatched and not self.arrivals.synchronizes.any():
            return f"no collective is matched with another rank ({unmatched} are not)"
        if apart:
            return "ranks wait for one another, but have no common clock"
        if possible:
            return (
                "ranks may have waited for one another in broadcasts only, which is not charged (wait_matrix)"
            )
        return "no rank waited for another one at a collective"


def _arrivals(rows: Columns, ranks: Integers) -> Arrivals:
    integers = {
        name: rows[name].astype(np.int64)
        for name in ("instance", "rank_set", "stream", "step", "start_ns", "dur_ns", "wait_ns")
    }
    return Arrivals(
        rank=np.searchsorted(ranks, rows["rank"]),
        last=np.searchsorted(ranks, rows["last_rank"]),
        synchronizes=rows["waits_for_all"].astype(bool),
        is_possible=rows["is_possible"].astype(bool),
        **integers,
    )


def _activities(rows: Columns, ranks: Integers, zero_ns: Integers, known: Flags) -> Activities:
    """Those of ranks that have collectives, without which a rank has no place in time."""
    number = np.searchsorted(ranks, rows["rank"])
    kept = known[number]
    number = number[kept]
    start, end = (rows[name][kept].astype(np.int64) - zero_ns[number] for name in ("start_ns", "end_ns"))
    return Activities(number, rows["kind"][kept], start, end)


@contextmanager
def _opened(store: Versions, catalog: Catalog, selected: SelectedRun) -> Iterator[Connection]:
    """A connection with the tables `arrival`, `instance` and `activity`."""
    contracts = [catalog.get(name) for name in _READS]
    relations = Relations(store, (selected,), Dependencies.of(catalog, contracts))
    needed = relations.dependencies.contracts
    limit = f"{min(_MEMORY_BYTES, resources.memory_bytes(1))}B"
    with (
        temporary_folder() as folder,
        closing(connect(memory_limit=limit, temp_directory=folder)) as con,
    ):
        for contract in needed:
            if contract.kind == "table":
                create(con, relations, contract)
        views = [contract for contract in needed if contract.kind == "view"]
        for name, query in (("arrival", _ARRIVALS), ("activity", _ACTIVITIES)):
            con.execute(f"CREATE TEMP TABLE {name} AS {relations.with_clause(views, query)}{query}")
        con.execute(f"CREATE TEMP TABLE instance AS {_INSTANCES}")
        yield con
