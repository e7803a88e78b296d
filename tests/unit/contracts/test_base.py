"""`like`: contracts that inherit grain, order, parameters, columns and a SELECT from a base."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath, PurePosixPath

import pytest

from tracewarehouse.contracts.catalog import Catalog, own_hash
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.parse import parse
from tracewarehouse.contracts.sql_tokens import tokens
from tracewarehouse.errors import ContractError

BASE = """\
-- /// tw
-- grain = ["run_id", "rank"]
-- order = ["-busy_ns"]
-- [params]
-- least_ns = { type = "BIGINT", unit = "ns", min = 0, doc = "Shortest time." }
-- [columns]
-- run_id  = { type = "VARCHAR", doc = "The run." }
-- rank    = { type = "INTEGER", doc = "The rank." }
-- busy_ns = { type = "BIGINT", unit = "ns", better = "lower", doc = "Time." }
-- ///
SELECT run_id, rank, busy_ns
FROM base_input
WHERE busy_ns >= $least_ns
"""
OWN = """\
-- /// tw
-- kind     = "analysis"
-- like     = "busy_base@1"
-- name     = "busy"
-- version  = 1
-- summary  = "Time with kernels."
-- requires = ["kernels@1"]
-- [params]
-- least_ns = { default = 5 }
-- [columns]
-- busy_ns  = { doc = "Time with kernels." }
-- [changes]
-- 1 = "First version."
-- ///
SELECT run_id, rank, sum(dur_ns)::BIGINT AS busy_ns
FROM kernels
GROUP BY run_id, rank
"""
WRITTEN_OUT = """\
-- /// tw
-- kind     = "analysis"
-- name     = "busy"
-- version  = 1
-- summary  = "Time with kernels."
-- requires = ["kernels@1"]
-- grain    = ["run_id", "rank"]
-- order    = ["-busy_ns"]
-- [params]
-- least_ns = { default = 5, type = "BIGINT", unit = "ns", min = 0, doc = "Shortest time." }
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- busy_ns  = { type = "BIGINT", unit = "ns", better = "lower", doc = "Time with kernels." }
-- [changes]
-- 1 = "First version."
-- ///
WITH base_input AS (
SELECT run_id, rank, sum(dur_ns)::BIGINT AS busy_ns
FROM kernels
GROUP BY run_id, rank
)
SELECT run_id, rank, busy_ns
FROM base_input
WHERE busy_ns >= $least_ns
"""
PATH = PurePosixPath("sql/analyses/gpu/busy.v1.sql")


def bases(text: str) -> Callable[[PurePath], str]:
    def read(path: PurePath) -> str:
        if path.name != "busy_base.v1.sql":
            raise FileNotFoundError(path)
        return text

    return read


def parsed(own: str = OWN, base: str = BASE) -> Contract:
    return parse(own, PATH, bases(base))


def test_a_contract_like_a_base_equals_one_that_is_written_out() -> None:
    inherited, written_out = parsed(), parse(WRITTEN_OUT, PATH)
    assert inherited.columns == written_out.columns
    assert inherited.params == written_out.params
    assert (inherited.grain, inherited.order) == (written_out.grain, written_out.order)
    assert own_hash(inherited) == own_hash(written_out)


def test_own_columns_come_after_those_of_the_base_and_own_keys_replace_the_base() -> None:
    own = OWN.replace(
        "-- [changes]", '-- kernels = { type = "BIGINT", unit = "count", doc = "Kernels." }\n-- [changes]'
    )
    own = own.replace("-- [params]", '-- order    = ["run_id"]\n-- [params]')
    contract = parsed(own, BASE.replace("rank, busy_ns\n", "rank, busy_ns, kernels\n"))
    assert [column.name for column in contract.columns] == ["run_id", "rank", "busy_ns", "kernels"]
    assert (contract.grain, contract.order) == (("run_id", "rank"), ("run_id",))


def test_a_change_of_the_base_changes_the_hash() -> None:
    assert own_hash(parsed(base=BASE.replace(">=", ">"))) != own_hash(parsed())


def test_lines_of_the_own_select_keep_their_numbers() -> None:
    contract = parsed()
    line = next(token.line for token in tokens(contract.body, contract.body_line) if token.text == "kernels")
    assert OWN.split("\n")[line - 1] == "FROM kernels"


MIDDLE = """-- /// tw
-- like = "busy_base@1"
-- summary = "Doubles the time."
-- ///
SELECT run_id, rank, 2 * busy_ns AS busy_ns
FROM base_input
"""


def test_a_base_may_be_like_another_one() -> None:
    texts = {"busy_base.v1.sql": BASE, "middle.v1.sql": MIDDLE}
    contract = parse(OWN.replace("busy_base@1", "middle@1"), PATH, lambda path: texts[path.name])
    assert (contract.columns, contract.params) == (parsed().columns, parsed().params)
    places = [contract.body.index(text) for text in ("sum(dur_ns)", "2 * busy_ns", "$least_ns")]
    assert places == sorted(places)
    line = next(token.line for token in tokens(contract.body, contract.body_line) if token.text == "kernels")
    assert OWN.split("\n")[line - 1] == "FROM kernels"


def test_a_base_like_itself_is_an_error() -> None:
    with pytest.raises(ContractError, match="bases are like each other") as error:
        parsed(base=MIDDLE)
    assert error.value.hint


# name of the case: the own text, the base, the error
BAD = {
    "no version": (
        OWN.replace("busy_base@1", "busy_base"),
        BASE,
        f"{PATH}:3: like 'busy_base' is not a reference to a base",
    ),
    "no text": (OWN.replace('"busy_base@1"', "1"), BASE, f"{PATH}:3: like 1 is not a reference to a base"),
    "unknown base": (OWN.replace("busy_base@1", "idle@1"), BASE, f"{PATH}:3: base idle@1 does not exist"),
    "no own SELECT": (OWN[: OWN.index("SELECT")], BASE, f"{PATH}:1: the SELECT is missing"),
    "a base that reads nothing": (
        OWN,
        BASE.replace("base_input", "kernels"),
        "sql/bases/busy_base.v1.sql:1: the base does not read base_input",
    ),
    "a key that a base does not have": (
        OWN,
        BASE.replace("-- grain", "-- version = 1\n-- grain"),
        "sql/bases/busy_base.v1.sql:2: unknown key `version`",
    ),
    "an own column without a type": (
        OWN.replace("-- busy_ns  =", "-- idle_ns  ="),
        BASE,
        f"{PATH}:11: `columns.idle_ns.type` is missing",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_name_file_and_line(case: str) -> None:
    own, base, message = BAD[case]
    with pytest.raises(ContractError) as error:
        parsed(own, base)
    assert error.value.message == message
    assert error.value.hint


def test_a_catalog_reads_the_bases_of_its_folder(tmp_path: Path) -> None:
    rules = [each for each in Catalog.load().analyses() if each.group == "findings"]
    assert len({tuple((column.name, column.type) for column in rule.columns) for rule in rules}) == 1
    (tmp_path / "analyses" / "gpu").mkdir(parents=True)
    (tmp_path / "analyses" / "gpu" / "busy.v1.sql").write_text(OWN.replace("kernels@1", "runs@1"))
    (tmp_path / "bases").mkdir()
    (tmp_path / "bases" / "busy_base.v1.sql").write_text(BASE)
    catalog, errors = Catalog.scan(tmp_path)
    assert [column.name for column in catalog.get("busy").columns] == ["run_id", "rank", "busy_ns"]
    assert [error.message for error in errors] == [
        "sql/analyses/gpu/busy.v1.sql:1: requires runs@1, which does not exist"
    ]


def test_added_columns_are_placed_before_an_empty_entry() -> None:
    column = '-- kernel = { type = "VARCHAR", doc = "The kernel." }\n'
    placed = OWN.replace("-- busy_ns  = {", f"{column}-- busy_ns = {{}}\n-- # {{")
    at_end = OWN.replace("-- [changes]", f"{column}-- [changes]", 1)
    names = [[column.name for column in parsed(text).columns] for text in (placed, at_end)]
    assert names == [["run_id", "rank", "kernel", "busy_ns"], ["run_id", "rank", "busy_ns", "kernel"]]
    assert parsed(placed).columns[-1].doc == "Time."
