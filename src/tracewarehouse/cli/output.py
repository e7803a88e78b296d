"""Output of a command: to stdout or a file, in one of six formats or in the JSON envelope.

Only rows go to stdout or the file; notices and errors go to stderr.
"""

from __future__ import annotations

import gzip
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.errors import TwError
from tracewarehouse.hints import cli_text
from tracewarehouse.present.render.table import Facts, facts_of, markdown, table, values
from tracewarehouse.present.render.text import for_terminal, one_line
from tracewarehouse.result import Result, enveloped, replacing, unfinished_file

Cells = Sequence[object]


def folded(result: Result, count: int) -> Result:
    """The result with `fold_below_top`; a key of another type becomes text, for the `(3 more)` in it."""
    from tracewarehouse.duck.arrow import table_of

    contract = result.contract
    assert contract is not None
    name_column = _named(contract)
    columns = tuple(
        replace(each, type="VARCHAR", unit=None) if each.name == name_column else each
        for each in contract.columns
    )
    names = [column.name for column in columns]
    index = names.index(name_column)
    rows = [
        (*row[:index], None if row[index] is None else str(row[index]), *row[index + 1 :])
        for row in fold_below_top(contract, values(result.table), count)
    ]
    contract = replace(contract, columns=columns)
    table = table_of(contract, [dict(zip(names, row, strict=True)) for row in rows])
    return replace(result, table=table, contract=contract)


def _named(contract: Contract) -> str:
    """The column with the number of folded rows: the name, or the last of the grain within a group."""
    groups = ranking_groups(contract) or ()
    keys = [name for name in contract.grain if name not in groups]
    return "name" if "name" in keys else keys[-1]


def ranking_groups(contract: Contract) -> tuple[str, ...] | None:
    """The columns within which rows are sorted by a measure, largest first; None if they are not."""
    for number, key in enumerate(contract.order):
        if key.startswith("-"):
            return contract.order[:number]
    return None


def fold_below_top(contract: Contract, rows: Sequence[Cells], count: int) -> list[Cells]:
    """The first `count` rows of each group in the contract's order, the others of a group folded into one.

    A single remaining row is not folded. The folded row is empty in columns that declare no `aggregate`
    or have a null.
    """
    groups = ranking_groups(contract) or ()
    keys = [position for position, column in enumerate(contract.columns) if column.name in groups]
    shown: list[Cells] = []
    for _, members in groupby(rows, key=lambda row: [row[position] for position in keys]):
        group = list(members)
        shown_count = count if len(group) > count + 1 else len(group)
        shown += group[:shown_count]
        if group[shown_count:]:
            shown.append(tuple(_folded_row(contract, group[shown_count:], groups)))
    return shown


def _folded_row(contract: Contract, rows: Sequence[Cells], groups: Sequence[str]) -> Iterator[object]:
    """The cells of one row that summarizes `rows`."""
    name_column = _named(contract)
    cells = {column.name: [row[position] for row in rows] for position, column in enumerate(contract.columns)}
    for column in contract.columns:
        if column.name == name_column:
            yield f"({len(rows):,} more)"
        elif column.aggregate is not None:
            yield _aggregate(column.aggregate, cells, column.name)
        else:  # an identifier that all rows share
            first, *other_values = cells[column.name]
            is_shared = column.unit in (None, "id") and all(value == first for value in other_values)
            yield first if is_shared else None


def _aggregate(aggregate: str, cells: dict[str, list[object]], name: str) -> float | None:
    over, _, under = aggregate.partition("/")
    if under:
        numerator, denominator = _aggregate("sum", cells, over), _aggregate("sum", cells, under)
        return numerator / denominator if numerator is not None and denominator else None
    values = [value for value in cells[name] if isinstance(value, int | float)]
    if len(values) < len(cells[name]):
        return None
    if aggregate == "sum":
        return sum(values)
    return min(values) if aggregate == "min" else max(values)


FORMAT_OF_EXTENSION = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".md": "md",
    ".parquet": "parquet",
    ".svg": "svg",
    ".txt": "table",
}
_TEXT_FORMATS = ("table", "md")
_TABLE_ROWS = 50  # about a screen; --limit shows more


class OutputError(TwError):
    """A format that is unknown, or not possible for this destination."""

    exit_code = 2


class Output(Struct, frozen=True, dict=True):
    """Prints what one command returns; one of the `print_` methods is called once.

    Its fields are options of the `Session`; with `json`, it prints the envelope.
    """

    command: str = ""
    format: str | None = None
    output: Path | None = None
    limit: int | None = None
    top: int | None = None
    json: bool = False
    spreadsheet: bool = False
    wide: bool = False
    where: tuple[str, ...] = ()
    sort: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    left_out: dict[str, str] = {}  # run → why, of the runs that answers of the call left out

    def print_result(
        self,
        result: Result,
        error: TwError | None = None,
        of_ranks: int | None = None,
        as_text: Callable[[Result], str] | None = None,
    ) -> None:
        """Prints rows, then notices about them, then the error they amount to.

        `of_ranks` is the number of selected ranks, including skipped ones; `as_text` formats the rows for
        table and Markdown output in place of a table.
        """
        from tracewarehouse.runs.readable import missing_derivations

        if self.spreadsheet and (self.json or self.resolved_format != "csv"):
            raise OutputError("--spreadsheet applies to CSV output only", "add --format csv")
        result = self._chosen(result)
        shown = result if self.limit is None else result.head(self.limit)
        if self.json:
            self._write([shown.envelope(self.command, error, self.left_out)])
        elif as_text is not None and self.resolved_format in _TEXT_FORMATS:
            self._write([for_terminal(as_text(shown))])
        else:
            self._rows(shown, self.resolved_format, result)
        if len(shown) < len(result) and (self.json or as_text is not None or self.resolved_format != "table"):
            self.notice(_more_rows(len(result) - len(shown)))
        for notice in (*_skipped(result, of_ranks), *result.notices):
            self.notice(notice)
        for command in missing_derivations(result.skipped) if result.skipped else ():
            self.notice(hints.fill("hint: {}", command))
        self._print_error(error)

    def print_text(
        self, text: str, rows: Sequence[Mapping[str, object]], error: TwError | None = None
    ) -> None:
        """Prints text; the envelope contains `rows` instead."""
        if self.json:
            self._write([enveloped(self.command, rows, error, self.left_out)])
        else:
            self._write([for_terminal(text if text.endswith("\n") or not text else text + "\n")])
        self._print_error(error)

    def print_stream(self, chunks: Iterable[str], facts: Mapping[str, object]) -> None:
        """Prints a long text in chunks; if it went to a file, a summary with `facts` goes to stdout."""
        self._write(chunks)
        if self.output is not None:
            replace(self, output=None).print_text(
                f"wrote {self.output}", [{"path": str(self.output), **facts}]
            )

    def print_failure(self, kind: str, message: str, hint: str | None) -> None:
        """Prints the envelope of an error; the caller prints to stderr."""
        error = {"class": kind, "message": message, "hint": hint}
        sys.stdout.write(enveloped(self.command, error=error))

    def _print_error(self, error: TwError | None) -> None:
        if error is not None:
            sys.stderr.write(error_lines(cli_text(error.message), error.hint and cli_text(error.hint)))

    def notice(self, text: str) -> None:
        """Prints one line to stderr."""
        print(one_line(cli_text(text)), file=sys.stderr)

    @cached_property
    def resolved_format(self) -> str:
        """The requested format, or the default for the destination; raises OutputError."""
        if self.format is not None:
            return self.format
        if self.output is None:
            return "table" if sys.stdout.isatty() else "csv"
        format_ = FORMAT_OF_EXTENSION.get(self.output.suffix.lower())
        if format_ is None:
            raise OutputError(
                f"{self.output}: cannot infer the format from the file extension",
                f"use one of {', '.join(FORMAT_OF_EXTENSION)}, or --format",
            )
        return format_

    def check_top(self, contract: Contract | None) -> None:
        """Raises OutputError if `--top` is not possible: it needs an analysis that is sorted by a measure."""
        if self.top is not None and contract is not None and ranking_groups(contract) is None:
            raise OutputError(f"{contract.ref} is not sorted by a measure", "use --limit instead of --top")
        if self.top is not None and self.sort:
            raise OutputError("--top folds rows in the order of the analysis", "use --limit with --sort")

    def _chosen(self, result: Result) -> Result:
        """The rows and columns that `--where`, `--sort`, `--top` and `--columns` select."""
        self.check_top(result.contract)
        if self.where:
            result = result.where(*self.where)
        if self.sort:
            result = result.sort(*self.sort)
        if self.top is not None and result.contract is not None:
            result = folded(result, self.top)
        return result.select(*self.columns) if self.columns else result

    def _rows(self, shown: Result, format_: str, result: Result) -> None:
        """Prints `shown`, the first rows of `result`."""
        if format_ == "parquet":
            if self.output is None and sys.stdout.isatty():
                hint = "add --output FILE.parquet, or redirect stdout"
                raise OutputError("cannot print Parquet to a terminal", hint)
            if self.output is None:
                sys.stdout.buffer.write(shown.parquet())
            else:
                with replacing(self.output) as unfinished:
                    unfinished.write_bytes(shown.parquet())
        elif format_ == "svg":
            assert self.output is not None  # the format is that of a file extension
            with replacing(self.output) as unfinished:
                shown.plot().save(str(unfinished), format="svg")
        elif format_ == "table":
            on_terminal = self.output is None and sys.stdout.isatty()
            has_style = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
            lines = table_lines(result, self, bold=on_terminal and has_style)
            # Cells are already escaped; the rest is our own layout.
            self._write((line + "\n" for line in lines), is_escaped=True)
        elif format_ == "md":
            self._write([markdown(shown.columns(), values(shown.table))])
        elif format_ == "csv":
            self._write(shown.csv(spreadsheet=self.spreadsheet))
        else:
            self._write({"json": shown.json, "jsonl": shown.jsonl}[format_]())

    def _write(self, chunks: Iterable[str], is_escaped: bool = False) -> None:
        """Writes text that may come from traces; on a terminal, control characters are escaped."""
        if self.output is None:
            escapes = sys.stdout.isatty() and not is_escaped
            sys.stdout.writelines(map(for_terminal, chunks) if escapes else chunks)
            return
        with replacing(self.output) as unfinished:
            compressed = self.output.suffix == ".gz"
            with (gzip.open if compressed else open)(unfinished, "wt", encoding="utf-8", newline="") as file:
                file.writelines(chunks)


def table_text(result: Result, out: Output) -> str:
    """Rows as a table or Markdown table, for output with several tables."""
    result = out._chosen(result)
    if out.resolved_format == "md":
        return markdown(result.columns(), values(_first(result, out).table))
    return "\n".join(table_lines(result, out)) + "\n"


def table_lines(result: Result, out: Output, bold: bool = False) -> list[str]:
    """The first rows as a table, and the number of others."""
    shown = _first(result, out)
    keys = out.columns or (result.contract.grain if result.contract else ())
    facts = Facts() if out.columns else facts_of(result.table)
    width = None if out.wide else line_width(out)
    answer = _answer(result.contract, out)
    lines = table(shown.columns(), values(shown.table), width, keys, facts, answer).lines(bold=bold)
    if not len(result):
        lines.append("(no rows)")
    if len(shown) < len(result):
        lines.append(_more_rows(len(result) - len(shown)))
    return lines


def _answer(contract: Contract | None, out: Output) -> list[str]:
    """Columns that stay in a narrow table: those that rows are sorted by, largest first, and a goal."""
    order = out.sort or (contract.order if contract else ())
    columns = contract.columns if contract else ()
    goals = [column.name for column in columns if column.unit == "ratio" and column.better]
    return [*(key[1:] for key in order if key.startswith("-")), *goals[:1]]


def _first(result: Result, out: Output) -> Result:
    """The rows of `--limit`, else about a screen."""
    if out.limit is None and out.top is not None:
        return result
    return result.head(_TABLE_ROWS if out.limit is None else out.limit)


def line_width(out: Output) -> int | None:
    """Columns of the terminal; None if lines may have any length."""
    on_terminal = out.output is None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if on_terminal or "COLUMNS" in os.environ else None


def check_writable(path: Path) -> None:
    """Raises TwError if `path` cannot be written: a check before long work."""
    with unfinished_file(path) as unfinished:
        unfinished.touch()


def write_text(path: Path, text: str) -> None:
    """Writes a file at once; raises TwError if it cannot be written."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def error_lines(message: str, hint: str | None) -> str:
    """An error as printed: one line, then its hint with its own line breaks."""
    hints = [one_line(line) for line in (hint or "").splitlines() if line.strip()]
    lines = [f"tw: {one_line(message)}"]
    if hints:
        lines.append("hint: " + "\n      ".join(hints))
    return "\n".join(lines) + "\n"


def _skipped(result: Result, of_ranks: int | None) -> Iterator[str]:
    """A line per reason for which ranks were skipped."""
    of_all = "" if of_ranks is None else f" of {of_ranks}"
    for reason, ranks in Counter(cli_text(rank.reason) for rank in result.skipped).items():
        yield f"skipped {ranks}{of_all} rank{'s' if (of_ranks or ranks) != 1 else ''}: {reason}"


def _more_rows(count: int) -> str:
    return f"… {count:,} more row{'s' if count > 1 else ''} (use --limit N)"
