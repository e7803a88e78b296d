"""Small traces and short ways through the reader, for its tests."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracewarehouse import engine, reader
from tracewarehouse.reader.document import Document
from tracewarehouse.reader.source import read_text
from tracewarehouse.reader.strict import elements, minify

SALT = b"salt"

SMALL = """
{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9
    }
  ],
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1751410836000000000,
  "traceEvents": [
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::add \\"quoted\\" \\u00e9 {", "pid": 7, "tid": 8,
    "ts": 1712195495521311.104, "dur": 19.890,
    "args": {
      "External id": 36, "Input Dims": [[77, 1], [], [[2, 3]]], "Concrete Inputs": ["", "[1, 2]"]
    }
  },
  {
    "ph": "s", "id": 6, "pid": 7, "tid": 8, "ts": 3520313170064.908,
    "cat": "ac2g", "name": "ac2g"
  },
  {
    "ph": "X", "cat": "kernel", "name": "gemm<float, [2]>(int*)", "pid": 0, "tid": 7,
    "ts": 3520313170133.29012345678901, "dur": 0,
    "args": {"correlation": 18446744073709551615, "grid": [77, 1, 1], "occ": 0.30, "tiny": 1e-7}
  },
  {
    "ph": "f", "id": 6, "pid": 0, "tid": 7, "ts": 3520313170133.290,
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  },
  {
    "name": "process_name", "ph": "M", "ts": 3520313000000.000, "pid": 7, "tid": 0,
    "args": {
      "name": "python \u00fc"
    }
  },
  {
    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 7, "tid": 8,
    "ts": "3520313170133", "args": {"Bytes": -512}
  }
  ],
  "traceName": "out ] } .json"
}
"""
SMALL_BYTES = SMALL.encode()
HEADER_KEYS = 6

KINETO_HEAD = b'{"schemaVersion": 1, "traceEvents": ['
EVENT = b'{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 2, "ts": 5.000, "dur": 2.500}'


def event(**fields: Any) -> dict[str, Any]:
    """A slice with the given fields changed."""
    plain = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 2, "ts": 5.0, "dur": 2.5}
    return {**plain, **fields}


def trace(events: Sequence[Any], **header: Any) -> bytes:
    """A trace file's bytes."""
    return json.dumps({**header, "traceEvents": list(events)}).encode()


def write(folder: Path, data: bytes, name: str = "trace.json") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def gz(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


class Loaded:
    """A file after the reader: its survey, and queries over the four relations."""

    def __init__(self, path: Path, *, trust: bool = True, salt: bytes = SALT) -> None:
        self.con = engine.connect(threads=1)
        self.survey = reader.load(self.con, path, run_id="r", rank=0, salt=salt, trust=trust)
        self.header = json.loads(self.survey.header_json)

    def rows(self, columns: str, where: str = "true") -> list[tuple[Any, ...]]:
        return self.con.execute(f"SELECT {columns} FROM raw WHERE {where} ORDER BY event_id").fetchall()

    def column(self, name: str) -> list[Any]:
        return [row[0] for row in self.rows(name)]

    def relation(self) -> list[tuple[Any, ...]]:
        return self.rows("* EXCLUDE (repaired)")


def load(folder: Path, data: bytes, name: str = "trace.json") -> Loaded:
    return Loaded(write(folder, data, name))


def saved(path: Path, *, trust: bool = True) -> tuple[Document, list[str]]:
    """The document and the texts of its events, without tables: quick enough for thousands of files."""
    document = Document(read_text(path), trust)
    texts: list[str] = []
    for chunk in document.chunks():
        small = minify(chunk.array)
        assert small is not None
        texts += [bytes(raw).decode() for raw in elements(small) or []]
    assert len(texts) == document.events
    return document, texts
