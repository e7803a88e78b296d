"""Rows of a result for Python prompts and notebooks: a text table, and an HTML table."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from tracewarehouse.present.render.names import short_names
from tracewarehouse.present.render.table import Field, facts_of, is_number, shortened, table, values
from tracewarehouse.present.render.text import one_line, show

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_CHARACTERS = 60  # of a cell in HTML; the rest is in its tooltip


_ROWS_SHOWN = 20


def text(title: str, fields: Sequence[Field], rows: pa.Table, notes: Sequence[str]) -> str:
    """The first rows as a text table that fits the terminal, with title, number of other rows, and notes."""
    width = shutil.get_terminal_size((120, 24)).columns
    first = values(rows.slice(0, _ROWS_SHOWN))
    lines = table(fields, first, width, facts=facts_of(rows)).lines() if first else ["(no rows)"]
    return "\n".join([title, *lines, *_below(rows, notes)])


def html(title: str, fields: Sequence[Field], rows: pa.Table, notes: Sequence[str]) -> str:
    """The first rows as an HTML table; the tooltip of a shortened name is the entire name."""
    columns = [
        _cells([one_line(show(value, field.unit)) for value in column.to_pylist(maps_as_pydicts="lossy")])
        for field, column in zip(fields, rows.slice(0, _ROWS_SHOWN).columns, strict=True)
    ]
    sides = ["right" if is_number(field) else "left" for field in fields]
    head = "".join(_tag("th", side, escape(field.name)) for field, side in zip(fields, sides, strict=True))
    body = "".join(
        "<tr>" + "".join(_tag("td", side, cell) for cell, side in zip(row, sides, strict=True)) + "</tr>"
        for row in zip(*columns, strict=True)
    )
    below = "".join(f"<div>{escape(one_line(line))}</div>" for line in _below(rows, notes))
    heading = f"<div>{escape(one_line(title))}</div>"
    return f"{heading}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def _below(rows: pa.Table, notes: Sequence[str]) -> list[str]:
    more = [f"… {len(rows) - _ROWS_SHOWN:,} more rows"] if len(rows) > _ROWS_SHOWN else []
    return [*more, *map(one_line, notes)]


def _cells(texts: Sequence[str]) -> list[str]:
    """The cells of a column: short names, with the entire text as the tooltip where it differs."""
    short = short_names(texts)
    shown = [shortened(short[each], _MOST_CHARACTERS) for each in texts]
    return [
        escape(cell) if cell == full else f'<span title="{escape(full)}">{escape(cell)}</span>'
        for cell, full in zip(shown, texts, strict=True)
    ]


def _tag(tag: str, side: str, content: str) -> str:
    return f'<{tag} style="text-align: {side}">{content}</{tag}>'
