"""Query results: rows, contract and provenance."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from tracewarehouse.contracts.contract import ARGS, PRINTED, TEMPLATE
from tracewarehouse.errors import StoreUnavailable, TwError
from tracewarehouse.exact_text import Field as Field
from tracewarehouse.exact_text import csv_text, json_text, spreadsheet_text
from tracewarehouse.hints import cli_text
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    import altair
    import pandas
    import polars
    import pyarrow as pa

    from tracewarehouse.contracts.contract import Contract

METADATA_KEY = b"tracewarehouse"
_ROWS_PER_BATCH = 100_000


class Provenance(Struct, frozen=True):
    """Origin of the rows: enough to reproduce them."""

    tool: str
    runs: tuple[str, ...]  # as RUN@vN, a valid selector
    analysis: str | None = None
    version: int | None = None
    own_hash: str | None = None
    effective_hash: str | None = None
    params: dict[str, object] = field(default_factory=dict)
    tables: dict[str, int] = field(default_factory=dict)  # table -> schema version
    ranks: dict[str, list[int]] | None = None  # run -> ranks, if not all ranks of a run were selected
    sql: str | None = None


class Skipped(Struct, frozen=True):
    """A rank that was skipped because its trace lacks data that the analysis needs."""

    run_id: str
    rank: int
    reason: str


class Result(Struct, frozen=True):
    """The rows of an analysis or query, with what describes them.

    Attributes:
        table: The rows as an Arrow table.
        provenance: Where they come from: `runs`, `analysis`, `version`, `params`, `tables`, `sql`.
        contract: The analysis with its columns (None for a query).
        skipped: Ranks whose traces lack data that the analysis needs, each with `run_id`, `rank`, `reason`.
        notices: Lines for the reader, such as which damaged runs are left out.
        recording: What limits the recordings of the runs: rows of the table `recording`.
        left_out: Runs that are left out, each with the reason.

    Example:
        >>> result = wh.select("fp8-on", ranks=0).kernel_summary()
        >>> result.provenance.runs
        ('fp8-on@v2',)
    """

    table: pa.Table
    provenance: Provenance
    contract: Contract | None = None
    skipped: tuple[Skipped, ...] = ()
    notices: tuple[str, ...] = ()
    # What limits the recordings of the runs: rows of the table `recording`.
    recording: tuple[Mapping[str, Any], ...] = ()
    # Run → why it is left out.
    left_out: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """The first rows as a table, below a line with the analysis, the runs and the number of rows."""
        from tracewarehouse.present.render.table import text

        return text(self._title(), self.columns(), self.table, self._notes())

    def _repr_html_(self) -> str:
        """The first rows as an HTML table, for notebooks."""
        from tracewarehouse.present.render.table import html

        return html(self._title(), self.columns(), self.table, self._notes())

    def _title(self) -> str:
        analysis_name = self.provenance.analysis and f"{self.provenance.analysis}@{self.provenance.version}"
        kind = "result" if self.provenance.sql is None else "query"
        title = analysis_name or (self.contract.name if self.contract else kind)
        runs = self.provenance.runs
        shown = ", ".join(runs[:4]) + (f" and {len(runs) - 4} more" if len(runs) > 4 else "")
        return f"{title}: {len(self):,} row{'' if len(self) == 1 else 's'}" + (f" of {shown}" if runs else "")

    def _notes(self) -> list[str]:
        """The notices, and a line per reason for which ranks were skipped."""
        reasons = Counter(rank.reason for rank in self.skipped)
        skipped = [f"skipped {n} rank{'' if n == 1 else 's'}: {reason}" for reason, n in reasons.items()]
        return [*skipped, *self.notices]

    def arrow(self) -> pa.Table:
        """Returns the rows as an Arrow table; each column's unit and meaning are in its field metadata.

        Example:
            >>> result.arrow().num_rows
            12
        """
        return self.table

    def polars(self) -> polars.DataFrame:
        """Returns the rows as a Polars data frame.

        Example:
            >>> result.polars().select("name", "sum_ns").head(3)
        """
        import polars

        frame = polars.from_arrow(self.table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def pandas(self) -> pandas.DataFrame:
        """Returns the rows as a pandas data frame.

        Raises:
            TwError: pandas is not installed.

        Example:
            >>> result.pandas().shape[0]
            12
        """
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise TwError("pandas is not installed", "pip install 'tracewarehouse[pandas]'") from error
        return self.table.to_pandas()

    def plot(self, measure: str | None = None) -> altair.TopLevelMixin:
        """Draws the rows as an Altair chart: notebooks display it, `.save("file.svg")` writes it.

        Breakdowns are stacked bars, time series are lines, rows per event are distributions, and everything
        else is bars.

        Args:
            measure: The column to draw (default: the first measure).

        Raises:
            UnknownName: The column is not a measure.
            TwError: There is nothing to draw, or Altair is not installed.

        Example:
            >>> chart = result.plot("sum_ns")
        """
        from tracewarehouse.present.plot.chart_for_result import chart, chart_spec, shape_of

        return chart(chart_spec(shape_of(self.contract, self.columns()), self.rows(), measure))

    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows as dictionaries from column to value.

        Example:
            >>> result.rows()[0]["kind"]
            'communication'
        """
        return self.table.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def columns(self) -> tuple[Field, ...]:
        """Returns the name, type and unit of each column, in order.

        Example:
            >>> result.columns()[6]
            Field(name='sum_ns', type='BIGINT', unit='ns')
        """
        declared = {column.name: column for column in self.contract.columns} if self.contract else {}
        return tuple(
            Field(each.name, declared[each.name].type, declared[each.name].unit)
            if each.name in declared
            else Field(each.name, _type_name(each), _unit_name(each))
            for each in self.table.schema
        )

    def head(self, count: int) -> Result:
        """Returns the first rows.

        Args:
            count: Number of rows.

        Example:
            >>> len(result.head(5))
            5
        """
        return replace(self, table=self.table.slice(0, count))

    def where(self, *conditions: str) -> Result:
        """Returns the rows for which all conditions hold.

        Args:
            conditions: SQL conditions on the columns.

        Raises:
            ExpressionError: A text is not a condition.

        Example:
            >>> len(result.where("kind = 'communication'", "count > 3"))
            1
        """
        from tracewarehouse.duck.engine import rows_where

        return replace(self, table=rows_where(self.table, conditions))

    def sort(self, *keys: str) -> Result:
        """Returns the rows sorted by columns.

        Args:
            keys: Names of columns, with `-` descending.

        Raises:
            UnknownName: There is no such column.

        Example:
            >>> result.sort("-count", "name").head(3)
        """
        from tracewarehouse.duck.engine import rows_where

        return replace(self, table=rows_where(self.table, (), keys))

    def select(self, *columns: str) -> Result:
        """Returns only these columns, in this order.

        Raises:
            UnknownName: There is no such column.

        Example:
            >>> result.select("name", "count").rows()[0]
            {'name': 'ncclDevKernel_AllReduce_Sum_f32_RING_LL...', 'count': 9}
        """
        from tracewarehouse.duck.engine import known_column

        return replace(self, table=self.table.select([known_column(self.table, each) for each in columns]))

    def of_run(self, run: str, selector: str, notices: Sequence[str] = ()) -> Result:
        """Returns the rows of one run, as if only that run had been queried.

        Args:
            run: Its name, as in the column `run_id`.
            selector: `RUN@vN`, as in the provenance.
            notices: Its notices.

        Example:
            >>> len(wh.temporal_breakdown().of_run("fp8-on", "fp8-on@v2"))
            4
        """
        import pyarrow.compute as compute

        is_only_run = self.provenance.runs == (selector,)
        table = self.table if is_only_run else self.table.filter(compute.equal(self.table["run_id"], run))
        provenance = replace(self.provenance, runs=(selector,))
        skipped = tuple(rank for rank in self.skipped if rank.run_id == run)
        return Result(table, provenance, self.contract, skipped, tuple(notices))

    def parquet_schema(self) -> pa.Schema:
        """Returns the Arrow schema as written to Parquet, with contract and provenance in its metadata.

        Example:
            >>> result.parquet_schema().names[:2]
            ['run_id', 'rank']
        """
        text = json.dumps(self.metadata(), default=str)
        return self.table.schema.with_metadata(
            {**(self.table.schema.metadata or {}), METADATA_KEY: text.encode()}
        )

    def parquet(self) -> bytes:
        """Returns the rows as a Parquet file, with contract and provenance in its metadata.

        Example:
            >>> result.parquet()[:4]
            b'PAR1'
        """
        import pyarrow as pa
        import pyarrow.parquet as parquet

        file = pa.BufferOutputStream()
        metadata = self.parquet_schema().metadata
        parquet.write_table(self.table.replace_schema_metadata(metadata), file, compression="zstd")
        return file.getvalue().to_pybytes()  # type: ignore[no-any-return]

    def csv(self, *, spreadsheet: bool = False) -> Iterator[str]:
        """Returns the rows as CSV with a header, in chunks of complete lines. Values are exact.

        Args:
            spreadsheet: Puts `'` before texts that a spreadsheet would execute, and escapes control
                characters.

        Example:
            >>> text = "".join(result.csv())
        """
        write: Callable[[object], str] = spreadsheet_text if spreadsheet else csv_text
        yield ",".join(write(name) for name in self.table.column_names) + "\n"
        writers = [write] * self.table.num_columns
        for cells in self._cells(writers):
            yield "".join(",".join(row) + "\n" for row in zip(*cells, strict=True))

    def jsonl(self) -> Iterator[str]:
        """Returns the rows as one JSON object per line, in chunks of complete lines.

        Example:
            >>> text = "".join(result.jsonl())
        """
        for lines in self._objects():
            yield "".join(line + "\n" for line in lines)

    def json(self) -> Iterator[str]:
        """Returns the rows as one array of JSON objects, in chunks.

        Example:
            >>> text = "".join(result.json())
        """
        yield "["
        before = "\n"
        for lines in self._objects():
            yield before + ",\n".join(lines)
            before = ",\n"
        yield "\n]\n" if len(self) else "]\n"

    def envelope(
        self, command: str, error: TwError | None = None, left_out: Mapping[str, str] | None = None
    ) -> str:
        """Returns the JSON object that `tw COMMAND --json` prints: the rows, with what describes them.

        Args:
            command: Its name.
            error: What the rows amount to, such as a failed gate.
            left_out: Runs that are left out, with the reason (default: those of this result).

        Example:
            >>> result.envelope("show")[:40]
            '{"tw": 1, "command": "show", "ok": true,'
        """
        return enveloped(
            command,
            # The same text as with --format json.
            "".join(self.json()).rstrip("\n"),
            error,
            self.left_out if left_out is None else left_out,
            columns=[{"name": each.name, "type": each.type, "unit": each.unit} for each in self.columns()],
            provenance=asdict(self.provenance),
            skipped=[{**asdict(each), "reason": cli_text(each.reason)} for each in self.skipped],
            recording=self.recording,
            quality=list(map(cli_text, self.notices)),
        )

    def write(self, path: str | Path) -> Path:
        """Writes the rows to a file in the format of its extension: .parquet, .csv, .json or .jsonl.

        Contract and provenance are in the metadata of Parquet files.

        Returns:
            The path.

        Raises:
            TwError: The extension is not supported, or the file cannot be written.

        Example:
            >>> result.write("kernels.parquet").name
            'kernels.parquet'
        """
        path = Path(path)
        texts = {".csv": self.csv, ".json": self.json, ".jsonl": self.jsonl}
        suffix = path.suffix.lower()
        if suffix not in (".parquet", *texts):
            raise TwError(f"{path}: unsupported file extension", f"use one of .parquet, {', '.join(texts)}")
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            if suffix == ".parquet":
                file.write(self.parquet())
            else:
                file.writelines(map(str.encode, texts[suffix]()))
        return path

    def metadata(self) -> dict[str, object]:
        """Returns contract, provenance, skipped ranks and notices, as in the metadata of Parquet files.

        Example:
            >>> result.metadata()["provenance"]["analysis"]
            'kernel_summary'
        """
        contract = self.contract
        return {
            "contract": None
            if contract is None
            else {
                "name": contract.name,
                "version": contract.version,
                "summary": contract.summary,
                "grain": list(contract.grain),
                "order": list(contract.order),
                "columns": [asdict(column) for column in contract.columns],
            },
            "provenance": asdict(self.provenance),
            "skipped": [asdict(rank) for rank in self.skipped],
            "notices": list(self.notices),
        }

    def _objects(self) -> Iterator[list[str]]:
        fields = self.columns()
        keys = [json_text(each.name) + ": " for each in fields]
        writers = [partial(json_text, unit=each.unit, type_=each.type) for each in fields]
        for cells in self._cells(writers):
            pairs = [[key + cell for cell in column] for key, column in zip(keys, cells, strict=True)]
            yield ["{" + ", ".join(row) + "}" for row in zip(*pairs, strict=True)]

    def _cells(self, writers: Sequence[Callable[[object], str]]) -> Iterator[list[list[str]]]:
        """The text of every cell by column, in batches of rows."""
        for start in range(0, self.table.num_rows, _ROWS_PER_BATCH):
            part = self.table.slice(start, _ROWS_PER_BATCH).combine_chunks()
            yield [_texts(column, write) for column, write in zip(part.columns, writers, strict=True)]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file that replaces `path` once written; anything but a regular file is written in place."""
    with unfinished_file(path) as unfinished:
        yield unfinished
        if unfinished != path:
            unfinished.replace(path)


@contextmanager
def unfinished_file(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder, deleted at the end; a device, pipe or link itself."""
    in_place = path.exists() and (path.is_symlink() or not path.is_file())
    unfinished = path if in_place else path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        yield unfinished
    except OSError as error:
        hint = "use a file in an existing, writable folder"
        raise TwError(f"{path}: cannot be written: {error.strerror or error}", hint) from error
    finally:
        if not in_place:
            with suppress(OSError):  # it may never have been created
                unfinished.unlink()


def error_object(error: TwError | StoreUnavailable) -> dict[str, str | None]:
    """Class, message and hint of an error, as the command line prints them."""
    hint = error.hint and cli_text(error.hint)
    return {"class": type(error).__name__, "message": cli_text(error.message), "hint": hint}


def enveloped(
    command: str,
    rows: str | Sequence[Mapping[str, object]] = "[]",
    error: TwError | StoreUnavailable | Mapping[str, object] | None = None,
    left_out: Mapping[str, str] | None = None,
    **parts: object,
) -> str:
    """The JSON object of a command, in which every key is always present; `rows` may be JSON already."""
    if isinstance(error, TwError | StoreUnavailable):
        error = error_object(error)
    first = {"tw": 1, "command": command, "ok": error is None}
    rest: dict[str, object] = {
        "columns": [],
        "provenance": {},
        "skipped": [],
        "left_out": [{"run_id": run, "reason": cli_text(why)} for run, why in (left_out or {}).items()],
        "recording": [],
        "quality": [],
        "error": error,
    }
    result = rows if isinstance(rows, str) else _dump(rows)
    return f'{_dump(first)[:-1]}, "result": {result}, {_dump({**rest, **parts})[1:]}\n'


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


class FileGroup(Struct, frozen=True):
    """Parquet files read in the same way: `ranks` are kept (None: all), `missing` columns are null."""

    paths: tuple[str, ...]
    ranks: tuple[int, ...] | None = None
    missing: frozenset[str] = frozenset()


def lazy_frame(files: Iterable[FileGroup], more: pa.Table, prints_args: bool = False) -> polars.LazyFrame:
    """Parquet files as one Polars LazyFrame with the columns and types of `more`, whose rows come last.

    `prints_args`: the files have templates in the place of `args`.
    """
    import polars

    last = polars.from_arrow(more)
    assert isinstance(last, polars.DataFrame)
    frames = []
    for group in files:
        frame = polars.scan_parquet(list(group.paths), hive_partitioning=False, glob=False)
        frame = frame if group.ranks is None else frame.filter(polars.col("rank").is_in(list(group.ranks)))
        frame = frame.with_columns(**dict.fromkeys(group.missing, polars.lit(None)))
        if prints_args:
            frame = frame.with_columns(_printed_args().alias(ARGS))
        frames.append(frame.select(last.columns).cast(last.schema))
    return polars.concat([*frames, last.lazy()])


def _printed_args() -> polars.Expr:
    """`args` of rows in files, see `contracts.contract`; a template names each column at most once."""
    import polars

    text = polars.col(TEMPLATE).str.replace_all("%%", "\0", literal=True)
    for number, name in enumerate(PRINTED, 1):
        value = polars.col(name).fill_null(0).cast(polars.String)
        text = text.str.replace(f"%{number}$d", value, literal=True)
    return text.str.replace_all("\0", "%", literal=True)


def _texts(column: pa.ChunkedArray, write: Callable[[object], str]) -> list[str]:
    """The text of each value; repeated texts and nested values are formatted once."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.string())  # Python's datetime has no nanoseconds
    if column.null_count == len(column):
        return [write(None)] * len(column)
    values = [value for chunk in column.chunks for value in _values(chunk)]
    if not (pa.types.is_nested(column.type) or pa.types.is_string(column.type)):
        return list(map(write, values))
    known_texts: dict[str, str] = {}
    texts = []
    for value in values:
        key = value if isinstance(value, str) else repr(value)
        text = known_texts.get(key)
        if text is None:
            text = known_texts[key] = write(value)
        texts.append(text)
    return texts


def _values(array: pa.Array) -> list[object]:
    """The values of an array; lists and maps of them a column at a time, which is ten times as fast."""
    import pyarrow as pa

    is_map = isinstance(array, pa.MapArray)
    if not (is_map or isinstance(array, pa.ListArray)) or array.null_count:
        plain_values: list[object] = array.to_pylist(maps_as_pydicts="lossy")
        return plain_values
    ends = array.offsets.to_pylist()
    if is_map:
        pairs = list(zip(_values(array.keys), _values(array.items), strict=True))
        return [dict(pairs[start:end]) for start, end in pairwise(ends)]
    items = _values(array.values)
    return [items[start:end] for start, end in pairwise(ends)]


def _unit_name(field: pa.Field) -> str | None:
    unit = (field.metadata or {}).get(b"unit")
    return unit.decode() if unit else None


def _type_name(field: pa.Field) -> str:
    """DuckDB's name for an Arrow type, for the columns of a query."""
    import pyarrow as pa

    declared = (field.metadata or {}).get(b"type")
    if declared:
        return str(declared.decode())
    names = {
        pa.string(): "VARCHAR",
        pa.int8(): "TINYINT",
        pa.int16(): "SMALLINT",
        pa.int32(): "INTEGER",
        pa.int64(): "BIGINT",
        pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE",
        pa.bool_(): "BOOLEAN",
    }
    name: str = names.get(field.type, str(field.type).upper())
    return name


def from_rows(fields: Sequence[Field], rows: Sequence[Sequence[object]]) -> Result:
    """A result without a contract, from rows that do not come from SQL."""
    import pyarrow as pa

    types = {
        "VARCHAR": pa.string(),
        "INTEGER": pa.int32(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
    }
    schema = pa.schema(
        [
            pa.field(each.name, types[each.type], metadata={"type": each.type, "unit": each.unit or ""})
            for each in fields
        ]
    )
    columns = [[row[number] for row in rows] for number in range(len(fields))]
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
    provenance = Provenance(tool=__version__, runs=())
    return Result(pa.Table.from_arrays(arrays, schema=schema), provenance)


def contract_list(contracts: Iterable[Contract]) -> Result:
    """A row per contract, without what is in it."""
    fields = [Field("kind", "VARCHAR"), Field("group", "VARCHAR"), Field("name", "VARCHAR")]
    fields += [Field("version", "INTEGER"), Field("summary", "VARCHAR")]
    return from_rows(fields, [(c.kind, c.group, c.name, c.version, c.summary) for c in contracts])
