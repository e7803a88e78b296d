"""Unusual content: deep nesting, very long strings, times in nanoseconds, begin and end events."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from conftest import deep
from trace_reading import ReadTrace
from trace_texts import EVENT, event, gz, trace, write
from tracewarehouse.formats import json_text
from tracewarehouse.formats.json_text import LongStrings
from tracewarehouse.formats.kineto import format, scanner
from tracewarehouse.formats.kineto.activities import BeginEndEvents, match_pairs

EXACT = pytest.mark.parametrize("exact", [False, True], ids=["native", "rows"])


@EXACT
@pytest.mark.parametrize(
    ("place", "depth"),
    [(place, depth) for place in ("args", "key", "header", "tail") for depth in (400, 1000)]
    + [("args", 100_000), ("header", 100_000), *deep(("key", 100_000), ("tail", 100_000))],
)
def test_deep_nesting_is_kept(tmp_path: Path, depth: int, place: str, exact: bool) -> None:
    deep = b"[" * depth + b"]" * depth
    value = {"args": b',"args":{"correlation":7,"a":%b}', "key": b',"z":%b'}.get(place, b"")
    odd = EVENT[:-1] + (value % deep if value else b"") + b"}"
    head = b'"h":' + deep + b"," if place == "header" else b""
    tail = b',"h":' + deep if place == "tail" else b""
    text = b'{%b"traceEvents":[%b]%b}' % (head, b",".join([EVENT, odd, EVENT]), tail)
    found = ReadTrace(write(tmp_path, text), exact=exact)
    assert (found.outcome.status, found.outcome.events) == ("intact", 3)
    held = "".join(filter(None, [*found.column("args"), *found.column("extra"), found.outcome.header_json]))
    assert deep.decode() in held
    assert found.column("correlation")[1] == (7 if place == "args" else None)


@pytest.mark.parametrize("size", range(1, 40, 3))
def test_long_strings_are_replaced_with_any_piece_size(size: int) -> None:
    value = {"a": "x" * 50, "b": ['\\"' * 30, "short", '"' * 9, {"k\\": "\\" * 41}], "x" * 60: '\\\\"'}
    text = json.dumps(value).encode()
    strings = LongStrings(b"salt", 20)
    out = json.loads(b"".join(strings.feed(text[at : at + size]) for at in range(0, len(text), size)))
    assert strings.replaced == [50, 120, 82, 60] and not strings.inside
    assert out["b"][1:3] == ["short", '"' * 9] and list(out)[2].startswith("[replaced: 60 bytes, sha256 ")
    assert out["a"].startswith("[replaced: 50 bytes, sha256 ")
    assert LongStrings(b"other", 20).feed(text) != LongStrings(b"salt", 20).feed(text)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings of more than 256 KB are too long."""
    for module in (json_text, format):
        monkeypatch.setattr(module, "LONGEST_BYTES", 1 << 18)
    monkeypatch.setattr(LongStrings.__init__, "__defaults__", (1 << 18,))
    monkeypatch.setattr(scanner, "CHUNK_BYTES", 1 << 16)


@EXACT
@pytest.mark.parametrize("place", ["args", "name", "header", "tail"])
@pytest.mark.usefixtures("short")
def test_an_event_with_a_long_string_is_kept(tmp_path: Path, place: str, exact: bool) -> None:
    long = 'x"' * (1 << 20)
    big = (
        event(args={"a": long, "correlation": 3})
        if place == "args"
        else event(name=long if place == "name" else "op")
    )
    events = [event()] * 10 + [big] + [event()] * 10
    header = {"h": long} if place == "header" else {}
    data = trace(events, **header)
    if place == "tail":
        data = data[:-1] + b', "h": ' + json.dumps(long).encode() + b"}"
    found = ReadTrace(write(tmp_path, data), exact=exact)
    assert (found.outcome.status, found.outcome.events) == ("intact", 21)
    (finding,) = found.outcome.findings
    assert (finding.rule, finding.rows) == ("replaced_value", 1) and str(3 << 20) in finding.example
    held = "".join(filter(None, [*found.column("args"), *found.column("name"), found.outcome.header_json]))
    assert f"[replaced: {3 << 20} bytes, sha256 " in held and len(held) < 10_000


@EXACT
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("lead", "zipped"),
    [(0, False), (150_000, True), *deep((0, True), (150_000, False), (700_000, False), (700_000, True))],
)
def test_a_long_string_is_detected_anywhere(tmp_path: Path, lead: int, zipped: bool, exact: bool) -> None:
    """One byte above the limit, after many short strings of the same event or of others."""
    for size, replaced in ((1 << 18, []), ((1 << 18) + 1, [1])):
        args = {"short": ["abc"] * (lead // 7), "a": "x" * size, "b": "y" * 1000}
        for before in (10, 2000):
            data = trace([event()] * before + [event(args=args)] + [event()] * 3000)
            found = ReadTrace(write(tmp_path, gz(data) if zipped else data), exact=exact)
            assert [finding.rows for finding in found.outcome.findings] == replaced
            assert (found.outcome.status, found.outcome.events) == ("intact", before + 3001)


@EXACT
def test_times_in_nanoseconds_are_reported_and_read_on_request(tmp_path: Path, exact: bool) -> None:
    start = 1712195495521311104
    path = write(tmp_path, trace([event(ts=start, dur=1500), event(ts=start + 7, dur=20)]))
    found = ReadTrace(path, exact=exact)
    assert found.column("ts_ns") == [None, None]
    (finding,) = found.outcome.findings
    assert finding.rule == "time_unit" and finding.rows == 2 and "--time-unit ns" in finding.example
    right = ReadTrace(path, exact=exact, time_unit="ns")
    assert right.column("ts_ns") == [start, start + 7] and right.column("dur_ns") == [1500, 20]
    assert right.column("ts_text") == [str(start), str(start + 7)]


@EXACT
@pytest.mark.parametrize("scale, reported", [(1, False), (1000, True), (0.001, True)])
def test_copy_bandwidth_reveals_the_time_unit(
    tmp_path: Path, scale: float, reported: bool, exact: bool
) -> None:
    args = {"bytes": 1_200_000, "memory bandwidth (GB/s)": 10.0}
    copies = [event(cat="gpu_memcpy", ts=1000 * at, dur=100.0 * scale, args=args) for at in range(5)]
    found = ReadTrace(write(tmp_path, trace(copies)), exact=exact)
    assert [finding.rule for finding in found.outcome.findings] == ["time_unit"] * reported
    if scale == 1000:
        right = ReadTrace(tmp_path / "trace.json", exact=exact, time_unit="ns")
        assert right.outcome.findings == () and right.column("dur_ns") == [100_000] * 5


def paired(events: list[tuple[str, int, int]]) -> dict[int, int]:
    """Begin → end of (phase, track, time), computed event by event."""
    order = sorted(range(len(events)), key=lambda at: (events[at][1], events[at][2], at))
    found: dict[int, int] = {}
    last: dict[tuple[int, int], int] = {}
    level: dict[int, int] = {}
    for at in order:
        phase, track, _ = events[at]
        if phase == "B":
            level[track] = level.get(track, 0) + 1
            last[track, level[track]] = at
        else:
            here = level.get(track, 0)
            before = last.pop((track, here), None)
            if before is not None:
                found[before] = at
            level[track] = here - 1
    return found


@pytest.mark.parametrize("seed", range(40))
def test_pairs_match_a_walk_over_the_events(seed: int) -> None:
    rng = random.Random(seed)
    events = [(rng.choice("BE"), rng.randrange(3), rng.randrange(12)) for _ in range(rng.randrange(1, 60))]
    ids = np.arange(len(events), dtype=np.int64) * 3
    tracks = pa.array([str(track) for _, track, _ in events])
    found = match_pairs([
        BeginEndEvents(
            ids, np.array([phase == "B" for phase, _, _ in events]),
            np.array([time for _, _, time in events], np.int64), np.zeros(len(events), np.int64),
            np.zeros(len(events), np.int32), tracks, tracks,
        )
    ])  # fmt: skip
    assert dict(zip((found.begins // 3).tolist(), (found.ends // 3).tolist(), strict=True)) == paired(events)
    assert found.begins.tolist() == sorted(found.begins.tolist())
