"""A report as a document: sections of text, charts, tables and findings, and the HTML page made of them."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from math import ceil, log10
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.contracts.contract import Column, Contract
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.display_names import category_name
from tracewarehouse.exact_text import rank_list
from tracewarehouse.late_regex import late_regex
from tracewarehouse.present.pages import render_page
from tracewarehouse.present.plot.charts import Bar, bar_chart
from tracewarehouse.present.plot.parts import Chart, Scale, format_short
from tracewarehouse.present.render.table import is_number, shortened
from tracewarehouse.present.render.text import REPLACED, for_terminal, one_line, short_names, show
from tracewarehouse.present.report.data import ReportData, Row
from tracewarehouse.result import Field, Result
from tracewarehouse.runs.recording import NO_BASIS

_MAX_LABEL = 40  # characters of a name above a bar
# What most kernel names contain, and what therefore does not help to recognize one.
_BOILERPLATE = late_regex(r"^void |at::native::|\(anonymous (?:namespace|class)\)::|<unnamed>::")
_BUILT_IN = late_regex(r"^<built-in (?:method|function) (\S+?)(?: of .*)?>$")


def label(name: str | None) -> str:
    """A name from a trace as a chart label: on one line, shortened, without C++ arguments and boilerplate."""
    if not name:
        return "(no name)"
    if REPLACED in name:
        return shortened(REPLACED.join(map(label, name.split(REPLACED))), _MAX_LABEL)
    name = _BUILT_IN.sub(r"\1 (built-in)", name)
    return shortened(one_line(_BOILERPLATE.sub("", _without_arguments(name))), _MAX_LABEL)


def distinct_labels(names: Sequence[str | None]) -> list[str]:
    """The names as `label`, and those that would look alike with the part in which they differ."""
    texts = [label(name) for name in names]
    for text in {each for each in texts if texts.count(each) > 1}:
        indices = [at for at, each in enumerate(texts) if each == text]
        full_names = [one_line(_BOILERPLATE.sub("", names[at] or "")) for at in indices]
        start = len(os.path.commonprefix(full_names))
        half = _MAX_LABEL // 2
        for at, name in zip(indices, full_names, strict=True):
            # The part begins at a word.
            begin = 1 + max(name.rfind(separator, 0, start) for separator in "<>(),: ")
            if begin > half - 2:
                texts[at] = f"{name[: half - 2]}…{name[begin : begin + half]}"
    return texts


def _without_arguments(name: str) -> str:
    """A C++ name without its argument list."""
    depth = 0
    for at in range(len(name) - 1, 0, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if not depth:
            return name[:at] if name[-1] == ")" and name[at - 1] != " " else name
    return name


def percent(value: float, total: float) -> str:
    """`value` as a percentage of `total`."""
    if 0 < value < 0.001 * total:
        return "< 0.1 %"
    return format_short(value / total, "ratio") if total else "0 %"


def finding_percent(value: float, total: float) -> str:
    """The same with one decimal, as in the sentences of findings."""
    if not total or 0 < value < 0.001 * total:
        return percent(value, total)
    return f"{100 * value / total:.1f} %"


def duration(ns: float | None) -> str:
    """A duration in three significant digits."""
    return "-" if ns is None else format_short(float(ns), "ns")


def distinct_durations(base: float, head: float) -> tuple[str, str]:
    """Two durations, with more digits if they differ by less than three digits show."""
    if base == head or duration(base) != duration(head):
        return duration(base), duration(head)
    scale = Scale.of([base, head], "ns")
    decimals = min(max(ceil(-log10(abs(head - base) / scale.divisor)), 1), 9)
    first, second = (f"{each / scale.divisor:,.{decimals}f} {scale.unit}" for each in (base, head))
    return first, second


def and_list(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def shell_quoted(text: str) -> str:
    """A text as a word of a shell command, in double quotes if it contains single ones."""
    if "'" in text and not re.search(r'["$`\\!]', text):
        return f'"{text}"'
    return shlex.quote(text)


def diff_command(base: Sequence[str], head: Sequence[str]) -> str:
    """The command that compares two groups of runs."""
    return f"tw diff {shlex.quote(','.join(base))} {shlex.quote(','.join(head))}"


def sentence(text: str) -> str:
    """A notice as a sentence: capitalized, with a period."""
    return f"{text[:1].upper()}{text[1:]}."


Legend = tuple[tuple[str, str], ...]  # color keys that need words, and the words


class Figure(Struct, frozen=True):
    """A chart with a caption."""

    title: str
    chart: Chart
    legend: Legend = ()


class Table(Struct, frozen=True):
    """The first rows of a relation; `total` is its row count, `command` prints all of it in a terminal."""

    name: str
    caption: str
    fields: tuple[Field, ...]
    docs: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    total: int
    command: str
    notes: tuple[str, ...] = ()

    @property
    def headings(self) -> tuple[str, ...]:
        """The names of the columns in words; those with the words of another one also have their unit."""
        words = [_words(field.name) for field in self.fields]
        units = {"ratio": " share", "ns": " time"}
        return tuple(
            word + units.get(field.unit or "", "") if words.count(word) > 1 else word
            for field, word in zip(self.fields, words, strict=True)
        )

    def packed(self, names: dict[str, int]) -> str:
        """The cells as JSON text, by column; the script of the page makes rows of them.

        Texts that are not of numbers are numbers of `names`, to which the new ones are added.
        """
        columns = zip(*self.rows, strict=True) if self.rows else ((),) * len(self.fields)
        packed = (_packed(field, column, names) for field, column in zip(self.fields, columns, strict=True))
        return script_json([*packed])


def _packed(field: Field, values: Sequence[object], names: dict[str, int]) -> dict[str, Sequence[object]]:
    """The texts of numbers with the place of each in their order; other texts with short names."""
    texts = [for_terminal(show(value, field.unit)) for value in values]
    if is_number(field):
        known = [value if isinstance(value, int | float | Decimal) else None for value in values]
        order_of = {value: at for at, value in enumerate(sorted(each for each in known if each is not None))}
        return {"texts": texts, "order": ["" if value is None else order_of[value] for value in known]}
    short = short_names(text for text, value in zip(texts, values, strict=True) if isinstance(value, str))
    numbers = {
        text: [names.setdefault(each, len(names)) for each in dict.fromkeys((short.get(text, text), text))]
        for text in dict.fromkeys(texts)
    }
    at = {text: number for number, text in enumerate(numbers)}
    return {"names": [*numbers.values()], "rows": [at[text] for text in texts]}


def script_json(value: object) -> str:
    """The value as JSON text, safe inside a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


# Parts of column names that are abbreviations, or units that the values have themselves.
_WORDS = {
    **{name: name.upper() for name in ("flop", "mfu", "hfu", "gpu", "cpu", "sm", "api", "id")},
    "op": "operator",
    "comm": "communication",
    "dur": "duration",
    "flops": "FLOP",
    "ns": "",
    "is": "",
}


def _words(column: str) -> str:
    """`host self` for `host_self_ns`."""
    column = column.replace("bytes_per_ns", "bandwidth").replace("per_ns", "rate")
    return " ".join(filter(None, (_WORDS.get(part, part) for part in column.split("_")))) or column


class Card(Struct, frozen=True):
    """A title, a sentence and the charts that show it."""

    title: str
    text: str
    figures: tuple[Figure, ...] = ()


def bar_card(
    title: str, text: str, caption: str, bars: Sequence[Bar], high: float | None = None, legend: Legend = ()
) -> Card:
    """A card with one bar chart; with `high` the bars are parts of that whole."""
    return chart_card(title, text, caption, bar_chart(bars, high=high), legend)


def chart_card(title: str, text: str, caption: str, chart: Chart, legend: Legend = ()) -> Card:
    """A card with one chart."""
    return Card(title, text, (Figure(caption, chart, legend),))


_MAX_CHANGES = 12  # bars of a card of changes


def changes_card(
    title: str,
    caption: str,
    kinds: str,
    rows: Sequence[tuple[str, float, str]],
    signed: Callable[[float], str],
    changed: str = "that changed",
) -> Card:
    """The first of the changed rows (name, change, tooltip), and the sum of the others.

    `kinds` is what the rows are, in the plural; `signed` prints a change.
    """
    if not rows:
        return Card(title, "No changes.")
    labels = distinct_labels([name for name, _, _ in rows[:_MAX_CHANGES]])
    bars = [
        Bar(name, delta, "longer" if delta > 0 else "shorter", signed(delta), description)
        for name, (_, delta, description) in zip(labels, rows, strict=False)
    ]
    text = f"All {kinds} {changed} are shown."
    if len(rows) > _MAX_CHANGES:
        sum_of_rest = signed(sum(delta for _, delta, _ in rows[_MAX_CHANGES:]))
        text = f"{len(bars)} of {len(rows):,} {kinds} shown; the rest sum to {sum_of_rest}."
    return bar_card(title, text, caption, bars)


class Command(Struct, frozen=True):
    """A command that a reader can copy, and what it shows."""

    text: str
    shows: str


class Finding(Struct, frozen=True):
    """A finding with its saving and advice; the commands show its evidence, `rows` are its ranks."""

    severity: str
    observation: str
    saving: str
    advice: str
    commands: tuple[Command, ...]
    rows: Table
    jump: str = ""  # the key of its place on the timeline


class TimelineView(Struct, frozen=True):
    """A timeline: its data as JSON text, and the text for readers without a picture."""

    data: str
    label: str
    note: str = ""


class FlameView(Struct, frozen=True):
    """A flame view: its data as JSON text, what it shows, and the command that prints its rows."""

    data: str
    label: str
    command: str


class Share(Struct, frozen=True):
    """A part of a whole, drawn as a segment of a stacked bar."""

    category: str
    share: float
    description: str


class MetricValue(Struct, frozen=True):
    """A metric of a run, as text and as the number that sorts; None if it is unknown, for the `note`."""

    metric: str
    text: str
    value: float | None
    note: str = ""


class RunRow(Struct, frozen=True):
    """A run in a table of runs; `width` is its time as a share of the longest, `link` its page.

    `time_of` is what takes the time, if it is not the same as in most rows.
    All rows of a table have the same metrics.
    """

    name: str
    labels: tuple[str, ...]
    ranks: int
    time: str
    time_ns: float | None
    change: str
    width: float
    steps: tuple[float, ...]
    shares: tuple[Share, ...]
    severity: str
    finding: str
    command: str
    metrics: tuple[MetricValue, ...] = ()
    link: str = ""
    time_of: str = ""


class TreeNode(Struct, frozen=True):
    """A node of a collapsible tree; `total` and `own` are shares of everything, drawn as bars."""

    name: str
    text: str
    total: float
    own: float
    note: str = ""
    children: tuple[TreeNode, ...] = ()
    is_open: bool = False


class Section(Struct, frozen=True):
    """A section of the page: a summary, findings or statements, commands, cards, and tables."""

    key: str
    title: str
    summary: str
    cards: Sequence[Card] = ()
    tables: tuple[Table, ...] = ()
    findings: tuple[Finding, ...] = ()
    statements: tuple[str, ...] = ()
    timelines: tuple[TimelineView, ...] = ()
    runs: tuple[RunRow, ...] = ()
    trees: tuple[TreeNode, ...] = ()
    flames: tuple[FlameView, ...] = ()
    commands: tuple[Command, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is only a summary."""
        return not any(getattr(self, name) for name in self.__struct_fields__[3:])


class Tile(Struct, frozen=True):
    """A key number at the top of the page, linked to the section with its details.

    `share` draws a bar from 0 to 100 %; `steps` draws a small bar per step, as shares of the largest one.
    """

    name: str
    value: str
    note: str = ""
    section: str = ""
    category: str = "plain"
    share: float | None = None
    steps: tuple[float, ...] = ()


class Verdict(Struct, frozen=True):
    """The answer of the page: one sentence, its price, what to try, and commands that lead to the evidence.

    `severity` is empty if there is no finding; `rows` are those of the finding; `others` are further
    findings, each (severity, text).
    """

    sentence: str
    severity: str = ""
    price: str = ""
    advice: str = ""
    commands: tuple[Command, ...] = ()
    others: tuple[tuple[str, str], ...] = ()
    rest: str = ""
    word: str = ""  # printed instead of the severity
    jump: str = ""  # the key of the first finding's place on the timeline
    rows: Table | None = None


class Page(Struct, frozen=True):
    """A report, made by `Warehouse.report` or `Warehouse.report_runs`.

    Attributes:
        name: Its default file name without the suffix.
        subtitle: One line below the title.
        facts: Names and values at the top.
        verdict: The answer: a sentence, what it costs, and what to try.
        tiles: Key numbers, linked to the sections with their details.
        legend: Categories whose colors the table of runs uses.
        recording: What the recordings can carry, in one line.
        place: The option that selects the warehouse, at the end of each command.

    Example:
        >>> page = wh.report_runs()
        >>> page.name
    """

    name: str
    title: str
    subtitle: str
    facts: tuple[tuple[str, str], ...]
    verdict: Verdict
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]
    footer: str
    legend: tuple[str, ...] = ()  # the categories whose colors the table of runs uses
    recording: str = ""  # what the recordings can carry, in one line
    place: str = ""  # the option that selects the warehouse, at the end of each command

    @property
    def is_basis(self) -> bool:
        """Whether the recordings carry some claim.

        Example:
            >>> page.is_basis
            True
        """
        return not self.recording.startswith(NO_BASIS)

    def linked(self, folder: Path) -> Page:
        """Adds links from the runs of the page to their pages in a folder, as far as these exist.

        Example:
            >>> page = page.linked(Path())
        """

        def with_link(row: RunRow) -> RunRow:
            exists = (folder / f"{row.name}.html").is_file()
            return replace(row, link=quote(f"{row.name}.html")) if exists else row

        return replace(
            self,
            sections=tuple(replace(each, runs=tuple(map(with_link, each.runs))) for each in self.sections),
        )

    def html(self) -> Iterator[str]:
        """Returns the page as one self-contained HTML file, in chunks.

        Example:
            >>> _ = Path("report.html").write_text("".join(page.html()))
        """
        legend = [(key, category_name(key)) for key in self.legend]
        names: dict[str, int] = {}  # texts in tables → their numbers
        context = {"page": self, "legend": legend, "place": self.place, "names": names, "json": script_json}
        return render_page("report.html", **context)


MAX_ROWS = 50
_LOCATION = ("run_id", "rank", "device", "stream")


class Listing(Struct, frozen=True):
    """An analysis to print as a table, by its own order or `order`, with ranks combined or not.

    The order of combined rows is that of the rows of a rank.
    """

    name: str
    caption: str
    order: str = ""
    is_combined: bool = False


def tables(data: ReportData, *listings: Listing) -> tuple[Table, ...]:
    """A table for each analysis that has rows."""
    return tuple(_listed(data, listing) for listing in listings if data.has_rows(listing.name))


def _listed(data: ReportData, listing: Listing) -> Table:
    """The first rows of an analysis, or of all ranks combined into one row per key."""
    contract = contract_of(data.result(listing.name))
    location = [key for key in _LOCATION if key in contract.grain]
    counted = f"SELECT count(DISTINCT ({', '.join(location)})) AS count FROM {listing.name}"
    order = listing.order
    if listing.is_combined:
        in_rank = (key for key in contract.order if key.removeprefix("-") not in _LOCATION)
        order = order or ", ".join(f"{key[1:]} DESC" if key[0] == "-" else key for key in in_rank)
        if data.row(counted)["count"] > 1:
            return _combined(data, contract, listing, order, location)
    order_by = f" ORDER BY {order}" if order else ""
    rows = data.rows(f"SELECT * FROM {listing.name}{order_by} LIMIT {MAX_ROWS}")
    columns = [column for column in contract.columns if column.name != "run_id"]
    return _table(data, contract, listing.caption, columns, rows, len(data.result(listing.name)))


def _combined(
    data: ReportData, contract: Contract, listing: Listing, order: str, location: Sequence[str]
) -> Table:
    keys = [
        column for column in contract.columns if column.name in contract.grain and column.name not in location
    ]
    aggregates = [(column, sql) for column in contract.columns if (sql := _aggregate(column)) is not None]
    key_names = ", ".join(quote_name(key.name) for key in keys)
    selected = ", ".join(f"{sql} AS {quote_name(column.name)}" for column, sql in aggregates)
    select = f"SELECT {key_names}, count(DISTINCT rank) AS ranks, {selected}"
    grouped = f"{select} FROM {listing.name} GROUP BY {key_names}"
    counted = f"SELECT *, count(*) OVER () AS total_rows FROM ({grouped})"
    rows = data.rows(f"{counted} ORDER BY {order} LIMIT {MAX_ROWS}")
    ranks = Column("ranks", "BIGINT", "Number of ranks with such rows.", "count")
    columns = [*keys, ranks, *(column for column, _ in aggregates)]
    note = f"{data.ranks} ranks combined into sums, minima and maxima; the command lists each rank"
    return _table(data, contract, listing.caption, columns, rows, rows[0]["total_rows"], note)


def contract_of(result: Result) -> Contract:
    """The contract, which every analysis has."""
    assert result.contract is not None
    return result.contract


def _table(
    data: ReportData,
    contract: Contract,
    caption: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    total: int,
    *notes: str,
) -> Table:
    """The rows, without ids and columns that are null in all of them; a note has those with one value."""
    columns = [
        column
        for column in columns
        if not column.name.endswith("_id") and any(row[column.name] is not None for row in rows)
    ]
    constants = {
        column.name: f"{_words(column.name)} {show(rows[0][column.name], column.unit)}"
        for column in columns
        if len(rows) > 1
        and column.unit != "ts"
        and all(row[column.name] == rows[0][column.name] for row in rows)
    }
    columns = [column for column in columns if column.name not in constants] or columns
    missing = data.missing_reason(contract.name)
    notes = (*notes, *([f"not included: {missing}"] if missing else []), *data.result(contract.name).notices)
    notes = (*([f"the same in all rows: {', '.join(constants.values())}"] if constants else []), *notes)
    ranks = (data.result(contract.name).provenance.ranks or {}).get(data.run)
    rank_option = f" --rank {rank_list(ranks).replace(' ', '')}" if ranks else ""
    if any(column.unit == "ts" for column in columns):
        notes = (*notes, "timestamps are relative to the first event of the run")
    return Table(
        name=contract.name,
        caption=caption,
        fields=relative_fields(columns),
        docs=tuple(column.doc for column in columns),
        rows=relative_rows(columns, rows, data.start_ns),
        total=total,
        command=f"tw show {contract.name} --run {shlex.quote(data.run)}{rank_option}",
        notes=notes,
    )


def relative_fields(columns: Sequence[Column | Field]) -> tuple[Field, ...]:
    """The columns, with timestamps as durations since the start of the run."""
    return tuple(Field(each.name, each.type, "ns" if each.unit == "ts" else each.unit) for each in columns)


def relative_rows(
    columns: Sequence[Column | Field], rows: Sequence[Row], start_ns: int
) -> list[list[object]]:
    """The cells of these columns, timestamps as durations since the start."""

    def cell(row: Row, column: Column | Field) -> object:
        value = row[column.name]
        return value - start_ns if column.unit == "ts" and isinstance(value, int) else value

    return [[cell(row, column) for column in columns] for row in rows]


def result_table(
    result: Result,
    name: str,
    caption: str,
    command: str,
    fields: Sequence[Field] | None = None,
    most: int = MAX_ROWS,
) -> Table:
    """The first rows of a result that has a contract: all columns, or these."""
    fields = result.columns() if fields is None else fields
    docs = {column.name: column.doc for column in contract_of(result).columns}
    return Table(
        name=name,
        caption=caption,
        fields=tuple(fields),
        docs=tuple(docs[field.name] for field in fields),
        rows=[[row[field.name] for field in fields] for row in result.head(most).rows()],
        total=len(result),
        command=command,
    )


def _aggregate(column: Column) -> str | None:
    """SQL that combines a column over ranks; None if it cannot be combined."""
    if column.aggregate is None or column.unit == "ratio" and column.aggregate == "sum":
        return None  # the denominator of a share is the total of its rank
    name = quote_name(column.name)
    over, _, under = column.aggregate.partition("/")
    if under:
        return f"sum({quote_name(over)}) / nullif(sum({quote_name(under)}), 0)"
    sql = f"sum({name})::BIGINT" if over == "sum" and column.type != "DOUBLE" else f"{over}({name})"
    return f"CASE WHEN count({name}) = count(*) THEN {sql} END"
