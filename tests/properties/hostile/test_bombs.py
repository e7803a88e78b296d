"""Files that unpack to far more than they are, nest deeply or hold long values are bounded or refused."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile.corpus import GOOD, PLAIN
from hostile.test_numbers import measured
from xplane_writer import Event, Line, Plane, Value, xspace

_MOST_MB = 256 * 1.048576
_MOST_CPU_S = 10.0
_KERNELS = "start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT, shortName INT"


def _blanks(path: Path) -> None:
    """1.5 GB of blanks between the events and the end, in 1,500 gzip members."""
    member = gzip.compress(b" " * (1 << 20))
    path.write_bytes(gzip.compress(GOOD[:-1]) + member * 1_500 + gzip.compress(b"}"))


def _members(path: Path) -> None:
    """Two hundred thousand gzip members of a blank or nothing between the events and the end."""
    few = gzip.compress(b" ") + gzip.compress(b"")
    path.write_bytes(gzip.compress(GOOD[:-1]) + few * 100_000 + gzip.compress(b"}"))


def _numbers(path: Path) -> None:
    """A header of 30 million numbers before the events."""
    path.write_bytes(gzip.compress(b'{"h":[' + b"1," * 30_000_000 + b"1]," + GOOD[1:]))


def _objects(path: Path) -> None:
    """A header of 20 million empty objects behind the events."""
    path.write_bytes(gzip.compress(GOOD[:-1] + b',"h":[' + b"{}," * 20_000_000 + b"1]}"))


def _brackets(path: Path) -> None:
    path.write_bytes(b"[" * 300_000 + b"]" * 300_000)


def _long_field(path: Path) -> None:
    head = b'"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n"0","'
    path.write_bytes(head + b"x" * 200_000 + b'","m","u","1"\n')


def _long_line(path: Path) -> None:
    path.write_bytes(b'"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n"0","' + b"x" * 10**8)


def _zstd(path: Path) -> None:
    import pyarrow as pa

    with pa.CompressedOutputStream(str(path), "zstd") as out:
        out.write(b'{"traceEvents": [' + PLAIN.encode() + b"]")
        for _ in range(1_500):
            out.write(b" " * (1 << 20))
        out.write(b"}")


def _database(path: Path, bytes_: int, values: int) -> None:
    numbers = f"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {values}) SELECT n"
    with sqlite3.connect(path) as con:
        con.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL({_KERNELS})")
        con.execute("CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT)")
        con.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL {numbers}, n + 1, 0, 1, 7, n, 1 FROM s")
        con.execute(f"INSERT INTO StringIds {numbers}, zeroblob({bytes_}) FROM s")
    con.close()


def _few_long_blobs(path: Path) -> None:
    _database(path, 50_000_000, 20)


def _many_blobs(path: Path) -> None:
    _database(path, 5_000_000, 60)


def _statistics(path: Path) -> None:
    """A profile of 2,200 events with 900 statistics each."""
    values: dict[str, Value] = {f"statistic {number}": f"ref:name {number % 7}" for number in range(900)}
    events = [Event(f"k{at % 20}", 10_000_000 * at, 5_000_000, values) for at in range(2_200)]
    path.write_bytes(xspace(Plane("/device:GPU:0", [Line(17, "Stream #17", 0, events)])))


_BOMBS: tuple[tuple[str, Callable[[Path], None], int, str], ...] = (
    ("rank0.json.gz", _blanks, 1, "unpacks to more than 200 times its size"),
    ("rank0.json.gz", _members, 0, "ingested 1 rank"),
    ("rank0.json.gz", _numbers, 4, "lost 60,000,0"),
    ("rank0.json.gz", _objects, 4, "lost 60,000,0"),
    ("rank0.json", _brackets, 1, "JSON without trace events"),
    ("ncu.csv", _long_field, 1, "field larger than field limit"),
    ("ncu.csv", _long_line, 1, "a line of more than 1 MiB"),
    ("rank0.json.zst", _zstd, 1, "unpacks to more than 200 times its size"),
    ("a.xplane.pb", _statistics, 0, "ingested 1 rank"),
    ("report.sqlite", _few_long_blobs, 1, "string or blob too big"),
    ("report.sqlite", _many_blobs, 1, "more than 64 MiB of long texts"),
)


@pytest.mark.deep
@pytest.mark.parametrize(("name", "write", "code", "says"), _BOMBS, ids=lambda value: str(value))
def test_a_bomb_is_bounded(
    name: str, write: Callable[[Path], None], code: int, says: str, tmp_path: Path
) -> None:
    write(tmp_path / name)
    args = ("-w", tmp_path / "wh", "ingest", tmp_path / name, "--jobs", "1", "--min-age", "0s")
    found, output, mb, cpu_s = measured(*args)
    assert (found, says in output) == (code, True), output
    assert "internal error" not in output
    assert mb < _MOST_MB and cpu_s < _MOST_CPU_S, (mb, cpu_s)
