"""Rows as a text table: numbers right-aligned and never cut, names shortened to fit the terminal."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from os.path import commonprefix
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.exact_text import Field
from tracewarehouse.present.render.text import REPLACED, one_line, short_names, show

if TYPE_CHECKING:
    import pyarrow as pa


_GAP = "  "
_NAMED = 8  # omitted columns that are listed
_FEW_ROWS = 1_000  # whose values are compared one by one
_SHORTEST_NAME = 28  # below that, different kernels look alike
_LEAST_NAME = 14  # where columns with the answer would not fit otherwise
_SMALLEST_Q = 1e-4  # an adjusted p
_NUMBERS = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
    + ("FLOAT", "DOUBLE", "DECIMAL")
)


class Facts(Struct, frozen=True):
    """Columns without any value, and with the same one in all rows, of which a table may show only some."""

    empty: frozenset[str] = frozenset()
    constant: frozenset[str] = frozenset()


class _Column(Struct):
    name: str
    cells: list[str]
    is_number: bool
    is_key: bool
    width: int


class Table(Struct, frozen=True):
    """Lines ready to print: columns with one value, the heading, the body, columns without space."""

    constants: str
    heading: str
    body: tuple[str, ...]
    omitted: tuple[str, ...]
    width: int | None = None

    def lines(self, *, bold: bool = False) -> list[str]:
        """All lines; `bold` prints the heading in bold."""
        lines = [*self.constants.splitlines(), ""] if self.constants else []
        if self.heading:
            lines.append(f"\x1b[1m{self.heading}\x1b[0m" if bold else self.heading)
        lines += self.body
        if self.omitted:
            names = ", ".join([*self.omitted[:_NAMED], *(["…"] if len(self.omitted) > _NAMED else [])])
            how_many = "1 more column" if len(self.omitted) == 1 else f"{len(self.omitted)} more columns"
            note = f"… {how_many}: {names} (--wide shows all)"
            lines += wrap(note, self.width or len(note), subsequent_indent="  ", break_long_words=False)
        return lines


def table(
    fields: Sequence[Field],
    rows: Sequence[Sequence[object]],
    width: int | None = None,
    keys: Collection[str] = (),
    facts: Facts | None = None,
    answer: Sequence[str] = (),
) -> Table:
    """`rows` in at most `width` terminal columns (None: no limit); several rows have no empty columns.

    To fit, columns with one value are printed once above, then names are shortened, then the last columns
    that are not `keys` are omitted and listed; those with the `answer` last. `facts` are those of all rows,
    if these are only some.
    """
    columns = [
        _column(each, [row[nth] for row in rows], each.name in keys) for nth, each in enumerate(fields)
    ]
    if len(rows) == 1 and width is not None and _total(columns) > width:
        return _vertical(columns, width)
    facts = facts or _facts(fields, rows)
    if len(rows) > 1:
        columns = [each for each in columns if each.name not in facts.empty] or columns
    constants, shown, omitted = list[_Column](), columns, list[_Column]()
    if width is not None and _total(columns) > width:
        constants = [each for each in columns if len(rows) > 1 and each.name in facts.constant]
        columns = [column for column in columns if column not in constants] or columns
        # A single key is typed into the next command, so it is never shortened.
        keep = keys if len(keys) == 1 else ()
        shown, omitted = _fitting(_short_names(columns, width, keep), width, keep, answer)
    # The columns with one value are on several lines if they do not fit; long values are shortened.
    values = [shortened(column.cells[0], _SHORTEST_NAME).replace(" ", "\xa0") for column in constants]
    texts = [f"{column.name}\xa0{value}" for column, value in zip(constants, values, strict=True)]
    text = f"same in all rows: {', '.join(texts)}" if texts else ""
    lines = wrap(text, width or len(text) or 1, subsequent_indent="  ", break_on_hyphens=False)
    return Table(
        constants="\n".join(lines).replace("\xa0", " "),
        heading=_row(shown, [column.name for column in shown]),
        body=tuple(_row(shown, [column.cells[nth] for column in shown]) for nth in range(len(rows))),
        omitted=tuple(column.name for column in omitted if rows),
        width=width,
    )


def _facts(fields: Sequence[Field], rows: Sequence[Sequence[object]]) -> Facts:
    """The facts of these rows."""
    columns = {field.name: [row[position] for row in rows] for position, field in enumerate(fields)}
    empty = {name for name, cells in columns.items() if all(cell is None for cell in cells)}
    constant = {name for name, cells in columns.items() if all(cell == cells[0] for cell in cells)}
    return Facts(frozenset(empty), frozenset(constant - empty))


def facts_of(rows: pa.Table) -> Facts:
    """The facts of all rows of a result."""
    empty, constant = set(), set()
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if column.null_count == len(column):
            empty.add(name)
        elif not column.null_count and _is_constant(column):
            constant.add(name)
    return Facts(frozenset(empty), frozenset(constant))


def _is_constant(column: pa.ChunkedArray) -> bool:
    # `unique` imports pyarrow.compute and NumPy, 0.1 s: it is for many rows, and for NaN, unlike itself.
    is_float = str(column.type) in ("float", "double", "halffloat")
    if column.type.num_fields or len(column) <= _FEW_ROWS and not is_float:
        rows = column.to_pylist()
        return all(row == rows[0] for row in rows)
    return len(column.unique()) == 1


def vertical(fields: Sequence[Field], row: Sequence[object], width: int) -> Table:
    """One row as a list of names and values, one per line."""
    columns = [_column(field, [value], False) for field, value in zip(fields, row, strict=True)]
    return _vertical(columns, width)


def values(rows: pa.Table) -> list[tuple[object, ...]]:
    """The rows as tuples; a query may have two columns of the same name."""
    columns = [column.to_pylist(maps_as_pydicts="lossy") for column in rows.columns]
    return list(zip(*columns, strict=True))


def markdown(fields: Sequence[Field], rows: Sequence[Sequence[object]], code: Collection[str] = ()) -> str:
    """`rows` as a Markdown table with the same cell texts, escaped; those of columns in `code` as code."""
    sides = ["---:" if is_number(field) else "---" for field in fields]
    lines = [[_escaped(one_line(each.name)) for each in fields], sides]
    for row in rows:
        shown = [_cell(each, value) for each, value in zip(fields, row, strict=True)]
        lines.append(
            [
                _code(one_line(text)) if each.name in code else _escaped(one_line(text))
                for each, text in zip(fields, shown, strict=True)
            ]
        )
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def shortened(text: str, width: int) -> str:
    """`text` in at most `width` terminal columns: the start of a sentence, both ends of a name."""
    if _width(text) <= width:
        return text
    if text.endswith("."):
        return _start(text, width - 1) + "…"
    old, arrow, new = text.partition(REPLACED)
    if arrow:
        half = (width - len(arrow)) // 2
        return f"{shortened(old, half)}{arrow}{shortened(new, half)}"
    tail = (width - 1) // 3
    return _start(text, width - 1 - tail) + "…" + _start(text[::-1], tail)[::-1]


def _column(field: Field, values: Sequence[object], is_key: bool) -> _Column:
    name, cells = one_line(field.name), [one_line(_cell(field, value)) for value in values]
    return _Column(name, cells, is_number(field), is_key, max(map(_width, (name, *cells))))


def _cell(field: Field, value: object) -> str:
    """The value with its unit; a q far below any level of significance is `<0.01 %`."""
    is_tiny = field.name == "q" and isinstance(value, float) and value < _SMALLEST_Q
    return "<0.01 %" if is_tiny else show(value, field.unit)


def is_number(field: Field) -> bool:
    """Whether the cells of a column are right-aligned and never shortened."""
    return field.unit is not None or field.type.partition("(")[0] in _NUMBERS


def _code(text: str) -> str:
    """`text` as a code span; the fence is longer than any in it, and `|` would end the cell."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    edge = " " if "`" in text else ""
    return f"{fence}{edge}{text.replace('|', chr(92) + '|')}{edge}{fence}"


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


def _short_names(columns: list[_Column], width: int, keep: Collection[str]) -> list[_Column]:
    """The columns with names shortened by meaning, except those to keep."""
    for column in columns:
        if not column.is_number and column.name not in keep:
            short = short_names(column.cells)
            column.cells = [short[cell] for cell in column.cells]
            widest = max(map(_width, (column.name, *column.cells)))
            column.width = min(widest, max(width, _SHORTEST_NAME))
    return columns


def _narrowed(columns: Sequence[_Column], width: int, least: int, keep: Collection[str]) -> list[_Column]:
    """The columns with the widest names cut, to `least` at most, until all fit."""
    columns = [replace(column) for column in columns]
    names = [column for column in columns if not column.is_number and column.name not in keep]
    while names and _total(columns) > width:
        widest = max(names, key=lambda column: column.width)
        if widest.width <= least:
            break
        widest.width -= 1
    return columns


def distinguished(cells: Sequence[str], width: int) -> list[str]:
    """The cells in at most `width` columns; those that would look alike show where they begin to differ."""
    cut = {cell: shortened(cell, width) for cell in dict.fromkeys(cells)}
    counts = Counter(cut.values())
    groups: dict[str, list[str]] = {}
    for cell, text in cut.items():
        if counts[text] > 1:
            groups.setdefault(text, []).append(cell)
    for members in groups.values():
        common = len(commonprefix(members))
        head = width // 3
        cut |= {cell: shortened(cell[:head] + "…" + cell[max(common - 3, head) :], width) for cell in members}
    return [cut[cell] for cell in cells]


def _fitting(
    columns: list[_Column], width: int, keep: Collection[str], answer: Sequence[str]
) -> tuple[list[_Column], list[_Column]]:
    """The columns that fit, and the others; keys are never omitted, names are cut before an answer is."""
    shown = columns
    # Columns are omitted in this order: the last first, answers last.
    not_keys = [column for column in columns if not column.is_key]
    by_rank_of_omission = [column for column in reversed(not_keys) if column.name not in answer]
    by_rank_of_omission += [column for name in reversed(answer) for column in not_keys if column.name == name]
    for column in by_rank_of_omission:
        least = _LEAST_NAME if column.name in answer else _SHORTEST_NAME
        if len(shown) == 1 or _total(_narrowed(shown, width, least, keep)) <= width:
            break
        shown = [each for each in shown if each is not column]
    omitted = [each for each in columns if not any(each is other for other in shown)]
    fits = not answer or _total(_narrowed(shown, width, _SHORTEST_NAME, keep)) <= width
    shown = _narrowed(shown, width, _SHORTEST_NAME if fits else _LEAST_NAME, keep)
    for column in shown:
        if not column.is_number and column.name not in keep:
            column.cells = distinguished(column.cells, column.width)
    return shown, omitted


def _row(columns: Sequence[_Column], cells: Sequence[str]) -> str:
    padded = [
        _pad(shortened(cell, column.width), column.width, right=column.is_number)
        for column, cell in zip(columns, cells, strict=True)
    ]
    return _GAP.join(padded).rstrip()


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


_MOST_CHARACTERS = 60  # of a cell in HTML; the rest is in its tooltip
_ROWS_SHOWN = 20


def text(title: str, fields: Sequence[Field], rows: pa.Table, notes: Sequence[str]) -> str:
    """The first rows as a text table that fits the terminal, with title, number of other rows, and notes."""
    width = shutil.get_terminal_size((120, 24)).columns
    first_rows = values(rows.slice(0, _ROWS_SHOWN))
    lines = table(fields, first_rows, width, facts=facts_of(rows)).lines() if first_rows else ["(no rows)"]
    return "\n".join([title, *lines, *_below(rows, notes)])


def html(title: str, fields: Sequence[Field], rows: pa.Table, notes: Sequence[str]) -> str:
    """The first rows as an HTML table; the tooltip of a shortened name is the entire name."""
    from html import escape

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
    more_rows = [f"… {len(rows) - _ROWS_SHOWN:,} more rows"] if len(rows) > _ROWS_SHOWN else []
    return [*more_rows, *map(one_line, notes)]


def _cells(texts: Sequence[str]) -> list[str]:
    """The cells of a column: short names, with the entire text as the tooltip where it differs."""
    from html import escape

    short = short_names(texts)
    cells = [shortened(short[each], _MOST_CHARACTERS) for each in texts]
    return [
        escape(cell) if cell == full else f'<span title="{escape(full)}">{escape(cell)}</span>'
        for cell, full in zip(cells, texts, strict=True)
    ]


def _tag(tag: str, side: str, content: str) -> str:
    return f'<{tag} style="text-align: {side}">{content}</{tag}>'


_WIDTH: Final = 12
_LONGEST_NAME: Final = 55
_LONGEST_SHAPES: Final = 80
_TIMES_US: Final = ((1e6, "s"), (1e3, "ms"))
_FLOPS: Final = ("", "K", "M", "G", "T", "P")
_SIZES: Final = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))

Row = Mapping[str, Any]


def profiler_tables(rows: Iterable[Row], all_rows: Iterable[Row]) -> str:
    """A table for each rank, with a line that names it if there are several; totals are those of all rows."""
    ranks, totals = _by_rank(rows), _by_rank(all_rows)
    texts = [
        (f"{run} rank {rank}\n" if len(ranks) > 1 else "") + _table(rank_rows, totals[run, rank])
        for (run, rank), rank_rows in ranks.items()
    ]
    return "\n".join(texts) or "(no rows)\n"


def _by_rank(rows: Iterable[Row]) -> dict[tuple[str, int], list[Row]]:
    rows_by_rank: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        rows_by_rank.setdefault((row["run_id"], row["rank"]), []).append(row)
    return rows_by_rank


def _table(rows: Sequence[Row], all_rows: Sequence[Row]) -> str:
    cpu_ns = sum(row["self_cpu_ns"] for row in all_rows)
    # None if the rank has no GPU activities. Annotations on the GPU would repeat their time.
    device_ns = None
    if any(row["self_device_ns"] is not None for row in all_rows):
        on_gpu = [row for row in all_rows if row["on_gpu"] and not row["is_annotation"]]
        device_ns = sum(int(row["self_device_ns"]) for row in on_gpu)
    columns = [
        _texts("Name", [row["name"] for row in rows], _LONGEST_NAME),
        *_time_columns(rows, "Self CPU", "self_cpu_ns", cpu_ns),
        *_time_columns(rows, "CPU total", "cpu_total_ns", cpu_ns),
        _mean("CPU time avg", "cpu_total_ns", rows),
    ]
    if device_ns is not None:
        columns += _time_columns(rows, "Self device", "self_device_ns", device_ns)[::-1]
        columns += [
            _profiler_column("Device total", [time(row["device_total_ns"]) for row in rows]),
            _mean("Device time avg", "device_total_ns", rows),
        ]
    columns += _memory_columns(rows)
    columns.append(_profiler_column("# of Calls", [str(row["count"]) for row in rows]))
    for name, key in (("Input Shapes", "shapes"), ("Source Location", "stack")):
        if any(row[key] is not None for row in rows):
            columns.append(_texts(name, [row[key] or "" for row in rows], _LONGEST_SHAPES))
    columns += _flop_column(rows, all_rows)
    totals = [f"Self CPU time total: {time(cpu_ns)}"]
    if device_ns is not None:
        totals.append(f"Self device time total: {time(device_ns)}")
    ruler = _GAP.join("-" * len(column[0]) for column in columns)
    heading, *body = [_GAP.join(cells) for cells in zip(*columns, strict=True)]
    return "\n".join([ruler, heading, ruler, *body, ruler, *totals, ""])


def _time_columns(rows: Sequence[Row], name: str, key: str, total_ns: int) -> list[list[str]]:
    return [
        _profiler_column(f"{name} %", [_percent(row[key], total_ns) for row in rows]),
        _profiler_column(name, [time(row[key]) for row in rows]),
    ]


def _mean(name: str, key: str, rows: Sequence[Row]) -> list[str]:
    return _profiler_column(name, [time(row[key] / row["count"]) for row in rows])


def _memory_columns(rows: Sequence[Row]) -> list[list[str]]:
    if all(row["cpu_memory_bytes"] is None for row in rows):
        return []
    columns = [
        ("CPU Mem", "cpu_memory_bytes"),
        ("Self CPU Mem", "self_cpu_memory_bytes"),
        ("Device Mem", "device_memory_bytes"),
        ("Self Device Mem", "self_device_memory_bytes"),
    ]
    if all(row["self_device_ns"] is None for row in rows):
        del columns[2:]
    return [_profiler_column(name, [size(row[key]) for row in rows]) for name, key in columns]


def _flop_column(rows: Sequence[Row], all_rows: Sequence[Row]) -> list[list[str]]:
    """FLOP in the unit of the smallest number, as PyTorch prints them; none if they are unknown."""
    known_flops = [row["flops"] for row in all_rows if row["flops"]]
    if not known_flops:
        return []
    power = min((len(str(min(known_flops))) - 1) // 3, len(_FLOPS) - 1)
    cells = [f"{row['flops'] / 1000**power:8.3f}" if row["flops"] else "--" for row in rows]
    return [_profiler_column(f"Total {_FLOPS[power]}FLOPs", cells)]


def _profiler_column(name: str, cells: Sequence[str]) -> list[str]:
    """Heading and cells, right-aligned."""
    width = max(_WIDTH, len(name), *map(len, cells))
    return [cell.rjust(width) for cell in (name, *cells)]


def _texts(name: str, cells: Sequence[str], longest: int) -> list[str]:
    """Heading and cells, long ones cut."""
    cut = [cell if len(cell) <= longest else cell[: longest - 3] + "..." for cell in cells]
    return _profiler_column(name, cut)


def _percent(ns: int, total_ns: int) -> str:
    return f"{100 * ns / total_ns:.2f}%" if total_ns else "0.00%"


def time(ns: float) -> str:
    """A time in PyTorch's units, always with three digits after the point."""
    us = ns / 1000
    return next((f"{us / scale:.3f}{unit}" for scale, unit in _TIMES_US if us >= scale), f"{us:.3f}us")


def size(count: int) -> str:
    """A number of bytes in PyTorch's units."""
    return next(
        (f"{count / scale:.2f} {unit}" for scale, unit in _SIZES if abs(count) >= scale), f"{count} B"
    )


AS_PRINTED: Final[Mapping[str, Callable[[Iterable[Row], Iterable[Row]], str]]] = {
    "key_averages": profiler_tables
}
