"""The mutants of a SELECT, and the list of checks that catch them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from listing import EQUIVALENT, NO_CHANGE, Line, Lines, is_current, mutated, read
from msgspec.structs import replace
from mutants import mutants

from tracewarehouse.contracts.contract import Contract

AGAIN = "PYTHONPATH=src python -m tests.properties.mutation --only"

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


@cache
def listed() -> Lines:
    """The list, read once."""
    return read()


def every() -> list[Line]:
    """Its lines."""
    return [line for lines in listed().values() for line in lines]


def test_mutants_of_a_select(same_text: Callable[[str, str], None]) -> None:
    contract = next(each for each in mutated() if each.params and each.params[0].type == "BIGINT")
    columns = tuple(replace(contract.columns[0], name=name, unit=unit) for name, unit in COLUMNS)
    params = (replace(contract.params[0], name="least_ns"),)
    drawn = replace(contract, body=SELECT, columns=columns, params=params)
    made, kept = mutants(drawn, every=True), {mutant.contract.body for mutant in mutants(drawn)}
    assert len({mutant.contract.body for mutant in made}) == len(made)
    assert len({(mutant.change, mutant.place) for mutant in made}) == len(made)
    marked = [("listed" if mutant.contract.body in kept else "more", mutant) for mutant in made]
    same_text("mutants.txt", "".join(f"{mark}: {one.change} | {one.place}\n" for mark, one in marked))


@pytest.mark.deep
@pytest.mark.parametrize("contract", [pytest.param(each, id=str(each.ref)) for each in mutated()])
def test_the_list_is_current(contract: Contract) -> None:
    known = listed().get(str(contract.ref), [])
    assert is_current(known, contract), f"its mutants are not listed: {AGAIN} {contract.ref}"


@pytest.mark.deep
def test_the_list_has_only_existing_contracts() -> None:
    assert set(listed()) <= {str(contract.ref) for contract in mutated()}


@pytest.mark.deep
def test_each_mutant_is_caught_or_has_a_reason() -> None:
    alive = [f"{line.contract}: {line.change} | {line.place}" for line in every() if not line.killed_by]
    assert not alive, "\n".join(
        ["add these cases to a golden file, then run the mutation check again:", *alive]
    )


@pytest.mark.deep
def test_each_reason_is_needed() -> None:
    equivalent = [line for line in every() if line.killed_by == NO_CHANGE]
    used = {(line.contract, f"{line.change} | {line.place}") for line in equivalent}
    assert used == {(ref, about) for ref, reasons in EQUIVALENT.items() for about in reasons}
