"""The grammar of the `.sql` files: a full example, and the message for each mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

import pytest

from conftest import ROOT
from tracewarehouse.contracts.contract import Column, Contract, Param, Ref
from tracewarehouse.contracts.parse import parse
from tracewarehouse.errors import ContractError

BUSY = "analyses/gpu/gpu_busy.v2.sql"
VIEW = "views/kernel_ends.v1.sql"
TABLE = "tables/kernels.v1.sql"
WITHOUT_SELECT = "tables/parsed.v1.sql"
FILLED = "tables/parsed.v1.sql"
TRANSIENT = "-- transient = true\n"
KEPT = TRANSIENT + '-- grain     = ["run_id", "rank", "event_id"]\n'
GAP = 'gap_ns = { type = "BIGINT", default = 0, unit = "ns", doc = "Idle'
SPAN = 'span_ns = { type = "BIGINT", unit = "ns", better'


def example(file: str) -> str:
    return (ROOT / "tests" / "data" / "sql" / file).read_text()


def parsed(text: str, file: str = BUSY) -> Contract:
    return parse(text, PurePosixPath("sql", file))


def test_the_full_example() -> None:
    contract = parsed(example(BUSY))
    assert (contract.kind, contract.scope, contract.group) == ("analysis", "rank", "gpu")
    assert (str(contract.ref), contract.requires) == ("gpu_busy@2", (Ref("kernels", 1),))
    assert contract.grain == contract.order == ("run_id", "rank")
    doc = "Idle gaps up to this long count as busy; a zero-length kernel ends a gap."
    assert contract.params == (Param("gap_ns", "BIGINT", 0, doc, "ns"),)
    assert [column.name for column in contract.columns] == ["run_id", "rank", "span_ns", "busy_ns", "busy"]
    assert contract.columns[1] == Column("rank", "INTEGER", "The rank.")
    assert (contract.columns[4].better, contract.columns[4].null) == ("higher", True)
    assert [change.version for change in contract.changes] == [2, 1]
    assert contract.body.startswith("WITH\n") and contract.body.endswith("GROUP BY run_id, rank")
    assert example(BUSY).split("\n")[contract.body_line - 1] == "WITH"
    assert contract.source == "sql/analyses/gpu/gpu_busy.v2.sql"


def test_a_table_without_select_is_filled_by_the_program() -> None:
    contract = parsed(example(FILLED) + "-- The reader fills it.\n", FILLED)
    assert contract.filled_by_program and contract.transient and contract.requires == ()


@pytest.mark.parametrize(
    "type_", ["VARCHAR[]", "MAP(VARCHAR, INTEGER)", "DECIMAL(28,9)", "JSON", "BIGINT[][]"]
)
def test_types_beyond_the_scalars(type_: str) -> None:
    text = example(VIEW).replace(
        'event_id = { type = "BIGINT", unit = "id"', f'event_id = {{ type = "{type_}"'
    )
    assert parsed(text, VIEW).columns[2].type == type_


@pytest.mark.parametrize("need", ["gpu", "collective_args", "steps>=2", "ranks>=16"])
def test_needs_from_the_list(need: str) -> None:
    text = example(BUSY).replace("-- grain ", f'-- needs = ["{need}"]\n-- grain ')
    assert parsed(text).needs == (need,)


def test_a_parameter_may_have_no_default() -> None:
    contract = parsed(example(BUSY).replace("default = 0, ", ""))
    assert contract.params[0].default is None


# name of the case: file, text to replace, its replacement
BAD = {
    "no block": (BUSY, "-- /// tw\n", ""),
    "no end": (BUSY, "-- ///\n", ""),
    "a line that is not a comment": (BUSY, '-- name     = "gpu_busy"', 'name = "gpu_busy"'),
    "not TOML": (BUSY, '-- name     = "gpu_busy"', "-- name = gpu_busy"),
    "a key twice": (BUSY, "-- version  = 2", "-- version  = 2\n-- version  = 2"),
    "an open text": (BUSY, "-- order    =", '-- deprecated = """\n-- order    ='),
    "unknown key": (BUSY, "-- version ", '-- owner = "me"\n-- version '),
    "unknown section": (BUSY, "-- [changes]", "-- [tags]\n-- [changes]"),
    "head key under [params]": (BUSY, "-- [params]", '-- [params]\n-- scope = "run"'),
    "missing key": (BUSY, '-- grain    = ["run_id", "rank"]\n', ""),
    "unknown kind": (BUSY, '"analysis"', '"metric"'),
    "kind against folder": (BUSY, '"analysis"', '"view"'),
    "unknown scope": (BUSY, "-- version ", '-- scope = "step"\n-- version '),
    "name against file": (BUSY, '"gpu_busy"', '"gpu_idle"'),
    "version against file": (BUSY, "version  = 2", "version  = 3"),
    "version is not a number": (BUSY, "version  = 2", 'version  = "2"'),
    "summary without a full stop": (BUSY, "kernel running.", "kernel running"),
    "requires without a version": (BUSY, "kernels@1", "kernels"),
    "requires two versions": (BUSY, '"kernels@1"', '"kernels@1", "kernels@2"'),
    "requires itself": (TABLE, "parsed@1", "kernels@1"),
    "requires no list": (BUSY, '["kernels@1"]', '"kernels@1"'),
    "definition of a SELECT": (TABLE, "-- version  = 1", "-- version  = 1\n-- definition = 1"),
    "definition is not a number": (WITHOUT_SELECT, "-- transient = true", '-- definition = "1"'),
    "definition 0": (WITHOUT_SELECT, "-- transient = true", "-- definition = 0"),
    "neither SELECT nor definition": (WITHOUT_SELECT, "-- transient = true\n", ""),
    "requires nothing": (BUSY, '-- requires = ["kernels@1"]\n', ""),
    "unknown need": (BUSY, "-- grain ", '-- needs = ["cuda"]\n-- grain '),
    "need of no steps": (BUSY, "-- grain ", '-- needs = ["steps>=0"]\n-- grain '),
    "needs of a view": (VIEW, "-- grain ", '-- needs = ["gpu"]\n-- grain '),
    "optional tables of a view": (VIEW, "-- grain ", '-- optional = ["kernels"]\n-- grain '),
    "grain not a column": (BUSY, 'grain    = ["run_id", "rank"]', 'grain    = ["run_id", "rank", "device"]'),
    "grain without the rank": (BUSY, 'grain    = ["run_id", "rank"]', 'grain    = ["run_id"]'),
    "empty grain": (BUSY, 'grain    = ["run_id", "rank"]', "grain    = []"),
    "order not a column": (BUSY, 'order    = ["run_id", "rank"]', 'order    = ["-idle_ns"]'),
    "order twice": (BUSY, 'order    = ["run_id", "rank"]', 'order    = ["rank", "rank"]'),
    "in order, descending": (BUSY, 'order    = ["run_id"', 'in_order = true\n-- order    = ["-run_id"'),
    "in order, nullable": (BUSY, '["run_id", "rank"]\n--\n', '["busy"]\n-- in_order = true\n--\n'),
    "a view in order": (VIEW, "-- grain ", "-- in_order = true\n-- grain "),
    "no columns": (VIEW, '-- run_id   = { type = "VARCHAR", doc = "The run." }\n', ""),
    "key of another type": (BUSY, '"INTEGER"', '"BIGINT"'),
    "column without doc": (BUSY, ', doc = "The rank."', ""),
    "column that is a text": (BUSY, '{ type = "INTEGER", doc = "The rank." }', '"INTEGER"'),
    "column not in snake case": (BUSY, "-- busy    =", "-- Busy    ="),
    "unknown column key": (BUSY, "null = true", "nullable = true"),
    "unknown type": (BUSY, '"DOUBLE"', '"FLOAT"'),
    "unknown unit": (BUSY, '"ratio"', '"percent"'),
    "name without its unit": (BUSY, "-- span_ns =", "-- span ="),
    "unit that the name denies": (BUSY, SPAN, SPAN.replace('"ns"', '"bytes"')),
    "ns without a unit": (BUSY, SPAN, SPAN.replace('unit = "ns", ', "")),
    "unknown goal": (BUSY, '"higher"', '"more"'),
    "goal of no measure": (BUSY, 'unit = "ratio", better', "better"),
    "goal of an instant": (BUSY, SPAN, SPAN.replace('"ns"', '"ts"')),
    "signed without a unit": (BUSY, 'doc = "The rank."', 'doc = "The rank.", signed = true'),
    "aggregate of another kind": (BUSY, SPAN, SPAN.replace('unit = "ns"', 'unit = "ns", aggregate = "mean"')),
    "aggregate of what is not summed": (BUSY, "null = true", 'null = true, aggregate = "busy_ns/span_ns"'),
    "aggregate of a text": (BUSY, 'doc = "The run."', 'doc = "The run.", aggregate = "max"'),
    "null is a word": (BUSY, "null = true", 'null = "yes"'),
    "parameter of a view": (VIEW, "-- [columns]", f"-- [params]\n-- {GAP} gaps.\" }}\n-- [columns]"),
    "parameter of a wide type": (BUSY, GAP, GAP.replace("BIGINT", "HUGEINT")),
    "parameter named like an option": (BUSY, "gap_ns", "limit"),
    "parameter named like an argument": (BUSY, "gap_ns", "version"),
    "parameter that is a keyword": (BUSY, "gap_ns", "lambda"),
    "parameter named like an alias": (BUSY, "gap_ns", "idle_ns"),
    "parameter that is not used": (BUSY, "<= $gap_ns", "<= 0"),
    "parameter that is not declared": (BUSY, "<= $gap_ns", "<= $gap_ns + $more_ns"),
    "value without a name": (BUSY, "<= $gap_ns", "<= $gap_ns + ?"),
    "default of another type": (BUSY, "default = 0", 'default = "30us"'),
    "default beyond its limit": (BUSY, "default = 0", "default = 0, min = 1"),
    "default outside its choices": (BUSY, "default = 0", "default = 0, choices = [1, 2]"),
    "choice of another type": (BUSY, "default = 0", 'default = 0, choices = [0, "a"]'),
    "limit that is a text": (BUSY, "default = 0", 'default = 0, min = "0"'),
    "changes lack a version": (BUSY, '-- 1 = "First version."\n', ""),
    "changes oldest first": (BUSY, '-- [changes]\n', '-- [changes]\n-- 1 = "First version."\n'),
    "change without words": (BUSY, '-- 1 = "First version."', '-- 1 = ""'),
    "transient analysis": (BUSY, "-- grain ", "-- transient = true\n-- grain "),
    "transient is a word": (FILLED, "= true", '= "yes"'),
    "table of run scope": (TABLE, "-- grain ", '-- scope = "run"\n-- grain '),
    "analysis without SELECT": (BUSY, "-- ///\nWITH", "-- ///\n-- Later.\n"),
    "filled table that requires": (FILLED, KEPT, f'{KEPT[len(TRANSIENT):]}-- requires = ["raw@1"]\n'),
    "body that is a comment": (VIEW, "-- ///\nSELECT", "-- ///\n/* SELECT"),
    "two statements": (VIEW, "FROM kernels", "FROM kernels; SELECT 1"),
    "not a SELECT": (VIEW, "-- ///\nSELECT", "-- ///\nCREATE TABLE x AS SELECT"),
}  # fmt: skip


def broken(case: str) -> ContractError:
    file, old, new = BAD[case]
    text = example(file)
    assert old in text, case
    if case == "no columns":
        begin, end = text.index("-- run_id   ="), text.index("--\n-- [changes]")
        text = text[:begin] + text[end:]
    elif case == "analysis without SELECT":
        text = text[: text.index(old)] + new
    elif case == "body that is a comment":
        text = text.replace(old, new) + "*/\n"
    elif case == "changes oldest first":
        text = text.replace('-- 1 = "First version."\n', "").replace(old, new)
    else:
        text = text.replace(old, new)
    with pytest.raises(ContractError) as error:
        parsed(text, file)
    return error.value


def test_message_for_each_mistake(same_text: Callable[[str, str], None]) -> None:
    lines = []
    for case in BAD:
        error = broken(case)
        lines += [f"# {case}", error.message, f"hint: {error.hint}", ""]
    same_text("messages/contract.txt", "\n".join(lines))


@pytest.mark.parametrize("case", BAD)
def test_each_mistake_names_its_line(case: str) -> None:
    error = broken(case)
    place, line, _ = error.message.split(":", 2)
    assert place == f"sql/{BAD[case][0]}" and int(line) >= 1 and error.hint


def test_path_must_be_of_the_tree() -> None:
    for file in (
        "gpu_busy.v2.sql",
        "analyses/gpu_busy.v2.sql",
        "analyses/gpu/gpu_busy.sql",
        "views/Gpu.v1.sql",
    ):
        with pytest.raises(ContractError, match="path and kind"):
            parsed(example(BUSY), file)
