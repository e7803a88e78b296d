"""Rows as a table for eyes: numbers to the right, never cut; names shortened to what the terminal holds."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tracewarehouse.render.text import one_line, show
from tracewarehouse.result import Field, Result

_GAP = "  "
_SHORTEST_NAME = 28  # shorter, and different kernels look alike
_NUMBERS = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
    + ("FLOAT", "DOUBLE", "DECIMAL")
)


@dataclass
class _Column:
    name: str
    cells: list[str]
    is_number: bool
    is_key: bool
    width: int


@dataclass(frozen=True)
class Table:
    """Lines ready to print: what is the same in every row, the heading, the body, what did not fit."""

    same: str
    heading: str
    body: tuple[str, ...]
    left_out: tuple[str, ...]

    def lines(self, *, bold: bool = False) -> list[str]:
        """All of it, in the order of reading; `bold` marks the heading for a terminal."""
        lines = [self.same, ""] if self.same else []
        if self.heading:
            lines.append(f"\x1b[1m{self.heading}\x1b[0m" if bold else self.heading)
        lines += self.body
        if self.left_out:
            names = ", ".join(self.left_out)
            more = "1 more column" if len(self.left_out) == 1 else f"{len(self.left_out)} more columns"
            lines.append(f"… {more}: {names} (a wider terminal, or --format csv)")
        return lines


def table(
    fields: Sequence[Field],
    rows: Sequence[Sequence[object]],
    width: int | None = None,
    keys: Collection[str] = (),
) -> Table:
    """`rows` laid out in at most `width` cells (None: as wide as it gets).

    To fit, columns with one value are told once above, then names are shortened, then the last columns that
    are no `keys` are left out and named.
    """
    columns = [_column(each, [row[at] for row in rows], each.name in keys) for at, each in enumerate(fields)]
    same: list[_Column] = []
    if width is not None and _total(columns) > width:
        if len(rows) == 1:
            return _upright(columns, width)
        same = [column for column in columns if len(rows) > 1 and len(set(column.cells)) == 1]
        columns = [column for column in columns if column not in same] or columns
        # What alone names a row is typed again into the next command: it stays whole.
        _shorten(columns, width, keep=keys if len(keys) == 1 else ())
    shown, left_out = _fitting(columns, width)
    return Table(
        same=_same(same, width),
        heading=_row(shown, [column.name for column in shown]),
        body=tuple(_row(shown, [column.cells[at] for column in shown]) for at in range(len(rows))),
        left_out=tuple(column.name for column in left_out),
    )


def upright(fields: Sequence[Field], row: Sequence[object], width: int) -> Table:
    """One row as a list of names and values, a line each."""
    columns = [_column(field, [value], False) for field, value in zip(fields, row, strict=True)]
    return _upright(columns, width)


def values(result: Result) -> list[tuple[object, ...]]:
    """The rows of `result` as tuples; a query may name two columns alike, so dictionaries will not do."""
    columns = [column.to_pylist(maps_as_pydicts="lossy") for column in result.table.columns]
    return list(zip(*columns, strict=True))


def markdown(fields: Sequence[Field], rows: Sequence[Sequence[object]]) -> str:
    """`rows` as a Markdown table, printed as in `table`; a name in it stays text."""
    sides = ["---:" if is_number(each) else "---" for each in fields]
    lines = [[each.name for each in fields], sides]
    for row in rows:
        shown = [show(value, each.unit) for each, value in zip(fields, row, strict=True)]
        lines.append([_plain(one_line(text)) for text in shown])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def shortened(text: str, width: int) -> str:
    """`text` in at most `width` cells: of a sentence its start, of a name both ends."""
    if _width(text) <= width:
        return text
    if text.endswith("."):
        return _take(text, width - 1) + "…"
    tail = (width - 1) // 3
    return _take(text, width - 1 - tail) + "…" + _take(text[::-1], tail)[::-1]


def _same(columns: Sequence[_Column], width: int | None) -> str:
    told = ", ".join(f"{column.name} {column.cells[0]}" for column in columns)
    return shortened(f"in every row: {told}", width or len(told)) if told else ""


def _column(field: Field, values: Sequence[object], is_key: bool) -> _Column:
    cells = [one_line(show(value, field.unit)) for value in values]
    return _Column(field.name, cells, is_number(field), is_key, max(map(_width, (field.name, *cells))))


def is_number(field: Field) -> bool:
    """Whether the cells of a column stand to the right and may not be shortened."""
    return field.unit is not None or field.type.partition("(")[0] in _NUMBERS


def _plain(text: str) -> str:
    """`text` without meaning for Markdown or HTML."""
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\|`*_\[\]~])", r"\\\1", text)


def _upright(columns: list[_Column], width: int) -> Table:
    """One row as a list of names and values."""
    names = max(_width(column.name) for column in columns)
    room = max(width - names - len(_GAP), _SHORTEST_NAME)
    body = [
        _pad(column.name, names, right=False)
        + _GAP
        + (column.cells[0] if column.is_number else shortened(column.cells[0], room))
        for column in columns
    ]
    return Table("", "", tuple(body), ())


def _shorten(columns: list[_Column], width: int, keep: Collection[str]) -> None:
    """Takes from the widest names but those to keep until all columns fit or every name is short."""
    names = [column for column in columns if not column.is_number and column.name not in keep]
    for column in names:
        column.width = min(column.width, max(width, _SHORTEST_NAME))
    while names and _total(columns) > width:
        widest = max(names, key=lambda column: column.width)
        if widest.width <= _SHORTEST_NAME:
            return
        widest.width -= 1


def _fitting(columns: list[_Column], width: int | None) -> tuple[list[_Column], list[_Column]]:
    """The columns there is room for, and the rest; the last ones go first, those that name the row never."""
    shown, left_out = list(columns), list[_Column]()
    while width is not None and _total(shown) > width:
        measures = [column for column in shown if not column.is_key]
        if not measures or len(shown) == 1:
            break
        shown.remove(measures[-1])
        left_out.insert(0, measures[-1])
    return shown, left_out


def _row(columns: Sequence[_Column], cells: Sequence[str]) -> str:
    parts = [
        _pad(shortened(cell, column.width), column.width, right=column.is_number)
        for column, cell in zip(columns, cells, strict=True)
    ]
    return _GAP.join(parts).rstrip()


def _total(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns) + len(_GAP) * max(len(columns) - 1, 0)


def _pad(text: str, width: int, *, right: bool) -> str:
    room = " " * (width - _width(text))
    return room + text if right else text + room


def _take(text: str, width: int) -> str:
    taken = text[:width]
    while _width(taken) > width:
        taken = taken[:-1]
    return taken


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
