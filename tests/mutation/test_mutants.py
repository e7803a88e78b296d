"""What the mutation check makes of a SELECT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from listing import mutated
from mutants import mutants

SELECT = """
WITH
  lane AS (
    SELECT run_id, coalesce(max(end_ns) OVER earlier, 0) AS before_ns, end_ns, count(DISTINCT name) AS names
    FROM kernels
    LEFT JOIN runtime ON runtime.rank = kernels.rank AND runtime.event_id = kernels.runtime_id
    WHERE dur_ns BETWEEN $least_ns AND 1000 AND kind <> 'memory' OR NOT is_sync
    WINDOW earlier AS (PARTITION BY run_id, rank ORDER BY ts_ns DESC ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING)
    UNION ALL
    SELECT run_id, NULL, sum(end_ns) FILTER (kind = 'other'), 0 FROM kernels
  )
SELECT
  run_id,
  CASE WHEN before_ns IS NULL THEN 1 WHEN names > 2 THEN 3 ELSE 4 END AS word,
  greatest(end_ns, before_ns) AS x_ns
FROM lane
"""
COLUMNS = (("run_id", None), ("word", None), ("x_ns", "ns"))


def test_what_is_made_of_a_select(same_text: Callable[[str, str], None]) -> None:
    contract = next(each for each in mutated() if each.params and each.params[0].type == "BIGINT")
    columns = tuple(replace(contract.columns[0], name=name, unit=unit) for name, unit in COLUMNS)
    params = (replace(contract.params[0], name="least_ns"),)
    made = mutants(replace(contract, body=SELECT, columns=columns, params=params))
    assert len({mutant.contract.body for mutant in made}) == len(made)
    same_text("mutants.txt", "".join(f"{mutant.change} | {mutant.place}\n" for mutant in made))
