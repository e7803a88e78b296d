"""Units as JSON and versions as Parquet: one row per rank, the run's facts in the file's metadata."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from tracewarehouse.errors import WarehouseError
from tracewarehouse.store.model import Brief, RunVersion, TableFile, Unit

_META = b"tracewarehouse.run"
_BRIEF = b"tracewarehouse.brief"
_DAMAGED = "run tw verify; an older version of the run may still be whole: RUN@vN"


def dump(value: object) -> str:
    """Compact JSON; raises ValueError for NaN and infinities, which are no JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode_unit(unit: Unit) -> bytes:
    """A unit's manifest."""
    return dump(_row(unit)).encode()


def _row(unit: Unit) -> dict[str, Any]:
    """A unit's fields, ready for JSON."""
    # Not asdict: it copies deeply, and ten thousand ranks have a hundred thousand files.
    return vars(unit) | {"files": [vars(file) for file in unit.files], "facts": dict(unit.facts)}


def decode_unit(data: bytes, path: str) -> Unit:
    """The unit of a manifest; raises WarehouseError naming the path."""
    try:
        return _unit(json.loads(data))
    except (ValueError, TypeError, KeyError) as error:
        raise WarehouseError(f"{path}: damaged unit manifest: {error}", _DAMAGED) from error


def _unit(row: Mapping[str, Any]) -> Unit:
    files = tuple(TableFile(**file) for file in row["files"])
    return Unit(**{**row, "files": files})


def encode_version(version: RunVersion) -> bytes:
    """A version as Parquet bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [_closed(_row(unit)) for unit in version.units]
    schema = _schema(_meta(version), dump(vars(version.brief) | {"labels": dict(version.labels)}).encode())
    columns = [_column(field.type, [row[field.name] for row in rows]) for field in schema]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _column(kind: Any, values: Sequence[Any]) -> Any:
    """An Arrow array without nulls, from buffers: `pa.array` would import pandas where it is installed."""
    import pyarrow as pa

    if kind != pa.large_string():
        numbers = array("q", values)
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(numbers)])
    texts = [value.encode() for value in values]
    ends = array("q", accumulate(map(len, texts), initial=0))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(kind, len(texts), buffers)


def _meta(version: RunVersion) -> bytes:
    head = {name: value for name, value in vars(version).items() if name != "units"}
    return dump(head | {"labels": dict(version.labels)}).encode()


def _schema(meta: bytes, brief: bytes) -> Any:
    import pyarrow as pa

    numbers = ("rank", "reader", "text_bytes")
    texts = ("run", "uid", "attempt", "digest", "status", "committed_at", "files", "facts")
    fields = [(name, pa.int64()) for name in numbers] + [(name, pa.large_string()) for name in texts]
    return pa.schema(fields, metadata={_META: meta, _BRIEF: brief})


def decode_version(data: bytes, path: str) -> RunVersion:
    """The version in Parquet bytes; raises WarehouseError naming the path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # A buffer and one thread: a Python file object with threads aborts pyarrow at exit.
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
        head = json.loads(table.schema.metadata[_META])
        units = (_unit(_opened(row)) for row in table.to_pylist())
        return RunVersion(**{**head, "units": tuple(units), "dropped": tuple(head["dropped"])})
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise WarehouseError(f"{path}: damaged version: {_first_line(error)}", _DAMAGED) from error


def decode_brief(data: bytes, path: str) -> Brief:
    """A version in brief, from its footer alone where that tells it; raises WarehouseError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        told = (pq.read_metadata(pa.BufferReader(data)).metadata or {}).get(_BRIEF)
        return Brief(**json.loads(told)) if told is not None else decode_version(data, path).brief
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise WarehouseError(f"{path}: damaged version: {_first_line(error)}", _DAMAGED) from error


def _closed(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"files": dump(row["files"]), "facts": dump(row["facts"])}


def _opened(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"files": json.loads(row["files"]), "facts": json.loads(row["facts"])}


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
