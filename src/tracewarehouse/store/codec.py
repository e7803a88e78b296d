"""Units as JSON and versions as Parquet: one row per rank, the run's facts in the file's metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tracewarehouse.errors import WarehouseError
from tracewarehouse.store.model import RunVersion, TableFile, Unit

_META = b"tracewarehouse.run"
_DAMAGED = "run tw verify; an older version of the run may still be whole: RUN@vN"


def dump(value: object) -> str:
    """Compact JSON; raises ValueError for NaN and infinities, which are no JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode_unit(unit: Unit) -> bytes:
    """A unit's manifest."""
    return dump(asdict(unit) | {"facts": dict(unit.facts)}).encode()


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

    rows = [asdict(unit) for unit in version.units]
    for row, unit in zip(rows, version.units, strict=True):
        row |= {"files": dump(row["files"]), "facts": dump(dict(unit.facts))}
    table = pa.Table.from_pylist(rows, schema=_schema(_meta(version)))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", store_schema=True)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _meta(version: RunVersion) -> bytes:
    head = {name: value for name, value in vars(version).items() if name != "units"}
    return dump(head | {"labels": dict(version.labels)}).encode()


def _schema(meta: bytes) -> Any:
    import pyarrow as pa

    texts = ("uid", "attempt", "digest", "status", "committed_at", "files", "facts")
    whole = (("rank", pa.int32()), ("reader", pa.int32()), ("text_bytes", pa.int64()))
    names = [("run", pa.string()), *whole, *((name, pa.string()) for name in texts)]
    return pa.schema(names, metadata={_META: meta})


def decode_version(data: bytes, path: str) -> RunVersion:
    """The version in Parquet bytes; raises WarehouseError naming the path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # A buffer and one thread: a Python file object with threads aborts pyarrow at exit.
        table = pq.read_table(pa.BufferReader(data), use_threads=False)
        head = json.loads(table.schema.metadata[_META])
        units = (_unit(_opened(row)) for row in table.to_pylist())
        return RunVersion(**{**head, "units": tuple(units), "dropped": tuple(head["dropped"])})
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise WarehouseError(f"{path}: damaged version: {_first_line(error)}", _DAMAGED) from error


def _opened(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"files": json.loads(row["files"]), "facts": json.loads(row["facts"])}


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
