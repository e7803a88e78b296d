"""Rows as a text table: numbers right-aligned and never cut, names shortened to fit the terminal."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tracewarehouse.render.text import one_line, show
from tracewarehouse.result import Field, Result

_GAP = "  "
_SHORTEST_NAME = 28  # below that, different kernels look alike
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
    """Lines ready to print: columns with one value, the heading, the body, columns without space."""

    constants: str
    heading: str
    body: tuple[str, ...]
    omitted: tuple[str, ...]

    def lines(self, *, bold: bool = False) -> list[str]:
        """All lines; `bold` prints the heading in bold."""
        lines = [self.constants, ""] if self.constants else []
        if self.heading:
            lines.append(f"\x1b[1m{self.heading}\x1b[0m" if bold else self.heading)
        lines += self.body
        if self.omitted:
            names = ", ".join(self.omitted)
            more = "1 more column" if len(self.omitted) == 1 else f"{len(self.omitted)} more columns"
            lines.append(f"… {more}: {names} (use a wider terminal, or --format csv)")
        return lines


def table(
    fields: Sequence[Field],
    rows: Sequence[Sequence[object]],
    width: int | None = None,
    keys: Collection[str] = (),
) -> Table:
    """`rows` in at most `width` terminal columns (None: no limit).

    To fit, columns with one value are printed once above, then names are shortened, then the last columns
    that are not `keys` are omitted and listed.
    """
    columns = [_column(each, [row[at] for row in rows], each.name in keys) for at, each in enumerate(fields)]
    constants: list[_Column] = []
    if width is not None and _total(columns) > width:
        if len(rows) == 1:
            return _vertical(columns, width)
        constants = [column for column in columns if len(rows) > 1 and len(set(column.cells)) == 1]
        columns = [column for column in columns if column not in constants] or columns
        # A single key is typed into the next command, so it is never shortened.
        _shorten(columns, width, keep=keys if len(keys) == 1 else ())
    shown, omitted = _fitting(columns, width)
    return Table(
        constants=_constants(constants, width),
        heading=_row(shown, [column.name for column in shown]),
        body=tuple(_row(shown, [column.cells[at] for column in shown]) for at in range(len(rows))),
        omitted=tuple(column.name for column in omitted),
    )


def vertical(fields: Sequence[Field], row: Sequence[object], width: int) -> Table:
    """One row as a list of names and values, one per line."""
    columns = [_column(field, [value], False) for field, value in zip(fields, row, strict=True)]
    return _vertical(columns, width)


def values(result: Result) -> list[tuple[object, ...]]:
    """The rows of `result` as tuples; a query may have two columns of the same name."""
    columns = [column.to_pylist(maps_as_pydicts="lossy") for column in result.table.columns]
    return list(zip(*columns, strict=True))


def markdown(fields: Sequence[Field], rows: Sequence[Sequence[object]]) -> str:
    """`rows` as a Markdown table with the same cell texts; names are escaped."""
    sides = ["---:" if is_number(each) else "---" for each in fields]
    lines = [[_escaped(one_line(each.name)) for each in fields], sides]
    for row in rows:
        shown = [show(value, each.unit) for each, value in zip(fields, row, strict=True)]
        lines.append([_escaped(one_line(text)) for text in shown])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def shortened(text: str, width: int) -> str:
    """`text` in at most `width` terminal columns: the start of a sentence, both ends of a name."""
    if _width(text) <= width:
        return text
    if text.endswith("."):
        return _start(text, width - 1) + "…"
    tail = (width - 1) // 3
    return _start(text, width - 1 - tail) + "…" + _start(text[::-1], tail)[::-1]


def _constants(columns: Sequence[_Column], width: int | None) -> str:
    text = ", ".join(f"{column.name} {column.cells[0]}" for column in columns)
    return shortened(f"same in all rows shown: {text}", width or len(text)) if text else ""


def _column(field: Field, values: Sequence[object], is_key: bool) -> _Column:
    name, cells = one_line(field.name), [one_line(show(value, field.unit)) for value in values]
    return _Column(name, cells, is_number(field), is_key, max(map(_width, (name, *cells))))


def is_number(field: Field) -> bool:
    """Whether the cells of a column are right-aligned and never shortened."""
    return field.unit is not None or field.type.partition("(")[0] in _NUMBERS


def _escaped(text: str) -> str:
    """`text` escaped for Markdown and HTML."""
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\|`*_\[\]~])", r"\\\1", text)


def _vertical(columns: list[_Column], width: int) -> Table:
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
    """Shortens the widest names, except those to keep, until all columns fit or all names are short."""
    names = [column for column in columns if not column.is_number and column.name not in keep]
    for column in names:
        column.width = min(column.width, max(width, _SHORTEST_NAME))
    while names and _total(columns) > width:
        widest = max(names, key=lambda column: column.width)
        if widest.width <= _SHORTEST_NAME:
            return
        widest.width -= 1


def _fitting(columns: list[_Column], width: int | None) -> tuple[list[_Column], list[_Column]]:
    """The columns that fit, and the others; the last ones are omitted first, keys never."""
    shown, omitted = list(columns), list[_Column]()
    while width is not None and _total(shown) > width:
        measures = [column for column in shown if not column.is_key]
        if not measures or len(shown) == 1:
            break
        shown.remove(measures[-1])
        omitted.insert(0, measures[-1])
    return shown, omitted


def _row(columns: Sequence[_Column], cells: Sequence[str]) -> str:
    parts = [
        _pad(shortened(cell, column.width), column.width, right=column.is_number)
        for column, cell in zip(columns, cells, strict=True)
    ]
    return _GAP.join(parts).rstrip()


def _total(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns) + len(_GAP) * max(len(columns) - 1, 0)


def _pad(text: str, width: int, *, right: bool) -> str:
    padding = " " * (width - _width(text))
    return padding + text if right else text + padding


def _start(text: str, width: int) -> str:
    start = text[:width]
    while _width(start) > width:
        start = start[:-1]
    return start


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
