"""Where the answer of a command goes: stdout or a file, in one of six formats or in the JSON envelope.

Rows go to stdout or the file and nothing else does; what people must be told beside them goes to stderr.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from uuid import uuid4

from tracewarehouse.contracts.columns import Column
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.errors import TwError
from tracewarehouse.hints import cli_text
from tracewarehouse.render.table import markdown, table, values
from tracewarehouse.render.text import for_terminal, one_line

if TYPE_CHECKING:
    from tracewarehouse.contracts.contract import Contract
    from tracewarehouse.result import Result


ENDINGS = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".md": "md",
    ".parquet": "parquet",
    ".txt": "table",
}
_FOR_EYES = ("table", "md")
_TABLE_ROWS = 50  # a screen or so; who wants more says --head


class OutputError(TwError):
    """A format that cannot be told, or cannot go where it was sent."""

    exit_code = 2


@dataclass(frozen=True)
class Output:
    """The way out of one command. `show`, `say` or `failed` is called once."""

    command: str
    format: str | None = None
    path: Path | None = None
    head: int | None = None
    top: int | None = None
    envelope: bool = False

    def show(
        self,
        result: Result,
        error: TwError | None = None,
        of_ranks: int | None = None,
        words: Callable[[Result], str] | None = None,
    ) -> None:
        """Prints rows, then what must be told about them, at last the error that they are.

        `of_ranks` is how many ranks were looked at, those that abstained among them; `words` puts rows for
        eyes into text in the place of a table.
        """
        self.check_top(result.contract)
        cut = result if self.head is None else result.head(self.head)
        if self.envelope:
            self._write([self._envelope(cut, error)])
        elif words is not None and self.chosen_format in _FOR_EYES:
            self._write([words(cut)])
        else:
            self._rows(cut, self.chosen_format, total=len(result))
        if len(cut) < len(result) and (self.envelope or words is not None or self.chosen_format != "table"):
            self.notice(_more_rows(len(result) - len(cut)))
        for notice in (*_abstained(result, of_ranks), *result.notices):
            self.notice(notice)
        self._fault(error)

    def say(self, text: str, rows: Sequence[Mapping[str, object]], error: TwError | None = None) -> None:
        """Prints text for people; in the envelope `rows` stand in its place."""
        if self.envelope:
            self._write([_enveloped(self.command, rows=_dump(rows), error=error)])
        else:
            self._write([text if text.endswith("\n") or not text else text + "\n"])
        self._fault(error)

    def pour(self, pieces: Iterable[str], fact: Mapping[str, object]) -> None:
        """Writes a long text in pieces; what it was is told on stdout where it went to a file."""
        self._write(pieces)
        if self.path is not None:
            replace(self, path=None).say(f"wrote {self.path}", [{"path": str(self.path), **fact}])

    def failed(self, kind: str, message: str, hint: str | None) -> None:
        """Prints the envelope of an error; stderr is told by the caller."""
        sys.stdout.write(_enveloped(self.command, error={"class": kind, "message": message, "hint": hint}))

    def _fault(self, error: TwError | None) -> None:
        if error is not None:
            sys.stderr.write(error_lines(cli_text(error.message), error.hint and cli_text(error.hint)))

    def notice(self, text: str) -> None:
        """Tells people something on stderr, in one line."""
        print(one_line(cli_text(text)), file=sys.stderr)

    @cached_property
    def chosen_format(self) -> str:
        """The format that was asked for, or that suits where the rows go; raises OutputError."""
        if self.format is not None:
            return self.format
        if self.path is None:
            return "table" if sys.stdout.isatty() else "csv"
        known = ENDINGS.get(self.path.suffix.lower())
        if known is None:
            raise OutputError(
                f"{self.path}: its ending tells no format", f"one of {', '.join(ENDINGS)}, or give --format"
            )
        return known

    def check_top(self, contract: Contract | None) -> None:
        """Raises OutputError where `--top` cannot be: folded rows are for eyes, and need an order by size."""
        if self.top is None:
            return
        if self.envelope or self.chosen_format not in _FOR_EYES:
            raise OutputError(
                "--top folds rows for a table, not for data", "add --format table or md, or cut with --head"
            )
        if contract is not None and groups_of(contract) is None:
            raise OutputError(f"{contract.ref} has no order by size", "cut with --head")

    def _rows(self, result: Result, format_: str, total: int) -> None:
        if format_ == "parquet":
            self._parquet(result)
        elif format_ == "table":
            shown = result if self.head is not None or self.top is not None else result.head(_TABLE_ROWS)
            self._table(shown, more=total - len(shown))
        elif format_ == "md":
            self._write([markdown(result.columns(), self._folded(result))])
        else:
            self._write({"csv": result.csv, "json": result.json, "jsonl": result.jsonl}[format_]())

    def _table(self, result: Result, more: int) -> None:
        on_terminal = self.path is None and sys.stdout.isatty()
        grain = result.contract.grain if result.contract else ()
        laid_out = table(result.columns(), self._folded(result), width=width_of(self), keys=grain)
        lines = laid_out.lines(bold=on_terminal and _has_style())
        if not len(result) and not more:
            lines.append("(no rows)")
        if more:
            lines.append(_more_rows(more))
        # Its cells are escaped already; what is left are our own line ends and marks.
        self._put(line + "\n" for line in lines)

    def _folded(self, result: Result) -> Sequence[Sequence[object]]:
        """The rows; with `--top` the first of each group, and what is left of it as one."""
        if self.top is None or result.contract is None:
            return values(result)
        return top(result.contract, values(result), self.top)

    def _parquet(self, result: Result) -> None:
        if self.path is None and sys.stdout.isatty():
            raise OutputError(
                "Parquet is not for a terminal", "add --output FILE.parquet, or send it to a pipe"
            )
        with TemporaryDirectory() as folder:
            data = result.write(Path(folder, "rows.parquet")).read_bytes()
        if self.path is None:
            sys.stdout.buffer.write(data)
        else:
            with _replacing(self.path) as unfinished:
                unfinished.write_bytes(data)

    def _envelope(self, result: Result, error: TwError | None) -> str:
        return _enveloped(
            self.command,
            error=error,
            # The rows keep the one spelling that --format json gives them.
            rows="".join(result.json()).rstrip("\n"),
            columns=[{"name": each.name, "type": each.type, "unit": each.unit} for each in result.columns()],
            provenance=vars(result.provenance),
            abstained=[{**vars(each), "reason": cli_text(each.reason)} for each in result.abstained],
            quality=list(map(cli_text, result.notices)),
        )

    def _write(self, pieces: Iterable[str]) -> None:
        """Writes text that came from traces; on a terminal its control characters are escaped."""
        if self.path is None and sys.stdout.isatty():
            pieces = map(for_terminal, pieces)
        self._put(pieces)

    def _put(self, pieces: Iterable[str]) -> None:
        if self.path is None:
            sys.stdout.writelines(pieces)
            return
        with _replacing(self.path) as unfinished:
            packed = self.path.suffix == ".gz"
            with (gzip.open if packed else open)(unfinished, "wt", encoding="utf-8", newline="") as file:
                file.writelines(pieces)


def laid_out(result: Result, out: Output) -> str:
    """Rows as a table, or as Markdown where that is asked for, to be said among others."""
    shown = result if out.head is not None or out.top is not None else result.head(_TABLE_ROWS)
    rows = out._folded(shown if out.head is None else result.head(out.head))
    if out.chosen_format == "md":
        return markdown(result.columns(), rows)
    keys = result.contract.grain if result.contract else ()
    lines = table(result.columns(), rows, width=width_of(out), keys=keys).lines()
    if len(shown) < len(result):
        lines.append(_more_rows(len(result) - len(shown)))
    return "\n".join(lines) + "\n"


def width_of(out: Output) -> int | None:
    """The cells of a line; None where lines may be as long as they get."""
    on_terminal = out.path is None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if on_terminal or "COLUMNS" in os.environ else None


def check_writable(path: Path) -> None:
    """Raises TwError where no file can be put at `path`: told before long work, not after it."""
    with _unfinished(path) as unfinished:
        unfinished.touch()


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` that takes its place when all is written; what is no plain file is written to."""
    with _unfinished(path) as unfinished:
        yield unfinished
        if unfinished != path:
            unfinished.replace(path)


@contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """A name beside `path`, whose file does not stay; of a device, a pipe or a link itself."""
    in_place = path.exists() and (path.is_symlink() or not path.is_file())
    unfinished = path if in_place else path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        yield unfinished
    except OSError as error:
        raise TwError(
            f"{path}: cannot be written: {error.strerror or error}",
            "name a file in a folder that is there and may be written",
        ) from error
    finally:
        if not in_place:
            with suppress(OSError):  # where nothing could be made, nothing is to be taken away
                unfinished.unlink()


def _enveloped(
    command: str,
    rows: str = "[]",
    error: TwError | Mapping[str, object] | None = None,
    **parts: object,
) -> str:
    """The envelope, in the order people read it; every key is always there."""
    if isinstance(error, TwError):
        error = {
            "class": type(error).__name__,
            "message": cli_text(error.message),
            "hint": error.hint and cli_text(error.hint),
        }
    first = {"tw": 1, "command": command, "ok": error is None}
    rest: dict[str, object] = {
        "columns": [],
        "provenance": {},
        "abstained": [],
        "quality": [],
        "error": error,
    }
    return f'{_dump(first)[:-1]}, "result": {rows}, {_dump({**rest, **parts})[1:]}\n'


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _has_style() -> bool:
    return "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def error_lines(message: str, hint: str | None) -> str:
    """An error as people see it: one line, then its hint, whose lines are kept."""
    hints = [one_line(line) for line in (hint or "").splitlines() if line.strip()]
    lines = [f"tw: {one_line(message)}"]
    if hints:
        lines.append("hint: " + "\n      ".join(hints))
    return "\n".join(lines) + "\n"


def _abstained(result: Result, of_ranks: int | None) -> Iterator[str]:
    """A line per reason for which ranks were left out."""
    of = "" if of_ranks is None else f" of {of_ranks}"
    for reason, ranks in Counter(cli_text(each.reason) for each in result.abstained).items():
        yield f"abstained: {ranks}{of} rank{'s' if (of_ranks or ranks) != 1 else ''} ({reason})"


def _more_rows(count: int) -> str:
    return f"… {count:,} more row{'s' if count > 1 else ''} (--head)"


Cells = Sequence[object]


def groups_of(contract: Contract) -> tuple[str, ...] | None:
    """The columns within whose values the rows stand by size, largest first; None where they do not."""
    for at, key in enumerate(contract.order):
        if key.startswith("-"):
            return contract.order[:at]
    return None


def top(contract: Contract, rows: Sequence[Cells], count: int) -> list[Cells]:
    """The first `count` rows of each group of rows in the contract's order, and the rest of it in one.

    A rest of one row stays as it is. Of a column that declares no `fold`, or where a value is null, the rest
    is blank.
    """
    groups = groups_of(contract) or ()
    keys = [at for at, column in enumerate(contract.columns) if column.name in groups]
    shown: list[Cells] = []
    for _, members in groupby(rows, key=lambda row: [row[at] for at in keys]):
        group = list(members)
        kept = count if len(group) > count + 1 else len(group)
        shown += group[:kept]
        if group[kept:]:
            shown.append(tuple(_rest(contract, group[kept:], groups)))
    return shown


def _rest(contract: Contract, rows: Sequence[Cells], groups: Sequence[str]) -> Iterator[object]:
    """The cells of one row that stands for `rows`."""
    named = [name for name in contract.grain if name not in groups][-1]
    cells = {column.name: [row[at] for row in rows] for at, column in enumerate(contract.columns)}
    for column in contract.columns:
        if column.name == named:
            yield f"({len(rows):,} more)"
        elif column.fold is None:
            yield _common(column, cells[column.name])
        else:
            yield _folded(column.fold, cells, column.name)


def _common(column: Column, values: Sequence[object]) -> object:
    """What all have in common, of a column that tells rows apart; a measure has nothing in common."""
    is_measure = column.unit not in (None, "id")
    return values[0] if not is_measure and all(value == values[0] for value in values) else None


def _folded(fold: str, cells: dict[str, list[object]], name: str) -> float | None:
    over, _, under = fold.partition("/")
    if under:
        total, parts = _folded("sum", cells, over), _folded("sum", cells, under)
        return total / parts if total is not None and parts else None
    values = [value for value in cells[name] if isinstance(value, int | float)]
    if len(values) < len(cells[name]):
        return None
    if fold == "sum":
        return sum(values)
    return min(values) if fold == "min" else max(values)
