"""Small traces for tests: their bytes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
