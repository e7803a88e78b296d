"""Trace files: compression, errors with offset and hint, JSON Lines, several documents."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import sqlite3
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from conftest import deep
from trace_reading import ReadTrace
from trace_texts import EVENT, KINETO_HEAD, SMALL_BYTES, event, gz, trace, write
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats import file_text
from tracewarehouse.formats.file_text import (
    Text,
    UnsupportedFormatError,
    digest_of,
    is_compressed_database,
    prefix_digest,
    read_text,
    unpack_database,
)
from tracewarehouse.formats.registry import detect

REFUSED = {
    "nothing": (b"", "byte 0: the file is empty"),
    "blanks": (b" \n\0 ", "byte 0: the file is empty"),
    "html": (b"<!DOCTYPE html><html>503</html>", "byte 0: this is an HTML page, not JSON"),
    "xml": (b"<?xml version='1.0'?><a/>", "byte 0: this is markup (XML or HTML), not JSON"),
    "text": (b"Traceback (most recent call last):", "byte 0: not a JSON object or array"),
    "number": (b"17", "byte 0: not a JSON object or array"),
    "string": (b'"traceEvents"', "byte 0: not a JSON object or array"),
    "LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
        "byte 0: a Git LFS pointer, not the file itself",
    ),
    "null events": (b'{"traceEvents": null}', "traceEvents is null"),
    "text events": (b'{"traceEvents": "none"}', "traceEvents is not a list"),
    "object events": (b'{"traceEvents": {"a": 1}, "b": 2,}', "traceEvents is not a list"),
    "zip": (b"PK\x03\x04rest", "byte 0: this is a zip archive, not a trace"),
    "tar": (b"x" * 257 + b"ustar" + b"\0" * 300, "byte 0: a tar archive, not a trace"),
    "half an event": (KINETO_HEAD + EVENT[:30], "byte 37: no complete event found"),
    "half a header": (b'{"schemaVersion": 1, "devi', "byte 21: no complete event found"),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("zipped", [False, True])
def test_errors_name_file_offset_and_hint(tmp_path: Path, what: str, zipped: bool) -> None:
    data, message = REFUSED[what]
    path = write(tmp_path, gz(data) if zipped else data)
    with pytest.raises(TraceFormatError) as error:
        ReadTrace(path)
    assert error.value.message == f"{path}: {message}" and error.value.hint


def test_zstd_is_read_like_gzip(tmp_path: Path) -> None:
    path, plain = tmp_path / "rank0.json.zst", write(tmp_path, SMALL_BYTES)
    path.write_bytes(pa.compress(SMALL_BYTES, "zstd", asbytes=True))
    assert detect(path).name == "kineto" and digest_of(path).digest == digest_of(plain).digest
    events = trace([event(name=str(number)) for number in range(20_000)])
    frames = [pa.compress(half, "zstd", asbytes=True) for half in (events[:500_000], events[500_000:])]
    path.write_bytes(b"".join(frames))
    assert bytes(read_text(path).buffer) == events
    path.write_bytes(b"".join(frames)[:-10])
    text = read_text(path)
    assert text.cut == "the zstd stream is cut short" and text.size > 450_000
    assert events.startswith(bytes(text.buffer))
    path.write_bytes(frames[0][:40])
    with pytest.raises(TraceFormatError, match="byte 0: the zstd stream is cut short or corrupt"):
        detect(path)


@pytest.mark.parametrize("compress", [gzip.compress, lambda data: pa.compress(data, "zstd", asbytes=True)])
def test_a_compressed_database_is_unpacked(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    made = tmp_path / "made.sqlite"
    with sqlite3.connect(made) as database:
        database.execute("CREATE TABLE a (b)")
    database.close()
    packed, copy = tmp_path / "made.sqlite.packed", tmp_path / "copies" / "made.sqlite"
    packed.write_bytes(compress(made.read_bytes()))
    assert is_compressed_database(packed) and not is_compressed_database(made)
    unpack_database(packed, copy)
    assert copy.read_bytes() == made.read_bytes() and len(list(copy.parent.iterdir())) == 1
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(TraceFormatError, match="cut short|corrupt"):
        unpack_database(packed, tmp_path / "other.sqlite")
    assert not list(tmp_path.glob("other*"))


def test_a_database_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text.sqlite"
    path.write_text("no database")
    with pytest.raises(TraceFormatError, match="not an SQLite database"):
        detect(path)


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="no such file"):
        detect(tmp_path / "none.json")
    with pytest.raises(TraceFormatError, match="this is a folder"):
        detect(tmp_path)


@pytest.mark.parametrize(
    "data, format",
    [
        (b'{"traceEvents": []}', "no_events"),
        (b"[]", "no_events"),
        (b'{"schemaVersion": 1}', "no_events"),
        (b'{"traceEvents": [],}', "no_events"),
        (pickle.dumps({"no": "snapshot"}), "pickle"),
        (b'[["a", 1, 2, 3]]', "memory_timeline"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_known_formats_without_a_reader_are_named(
    tmp_path: Path, data: bytes, format: str, zipped: bool
) -> None:
    path = write(tmp_path, gz(data) if zipped else data)
    with pytest.raises(UnsupportedFormatError) as error:
        ReadTrace(path)
    assert error.value.format == format and error.value.hint and error.value.description


def test_formats_are_detected_by_content(tmp_path: Path) -> None:
    timeline = b"[[-1, 1, 512, 7], [5, 2, 8, 0]]"
    for data, name in (
        (SMALL_BYTES, "kineto"), (b"\xef\xbb\xbf" + SMALL_BYTES, "kineto"),
        (SMALL_BYTES.decode().encode("utf-16"), "kineto"), (b"[" + EVENT + b"]", "kineto"),
        (b"garbage " + SMALL_BYTES, "kineto"), (EVENT + b"\n" + EVENT, "kineto"),
        (timeline, "memory_timeline"),
        (b'{"segments": [], "device_traces": [[]]}', "memory_snapshot"), (b"\x80\x04rest", "memory_snapshot"),
        (b'{"version": "2.4", "pg_config": {}, "entries": []}', "flight_recorder"),
        (b'==PROF== Connected\n"ID","Kernel Name","Metric Name","Metric Unit"\n', "nsight_compute"),
        (b'{"schema": "1.0.1", "pid": 1, "nodes": [' + b"1," * 3_000_000, "execution_trace"),
        (timeline[:-1] + b"," + EVENT + b"]", "kineto"),
    ):  # fmt: skip
        assert detect(write(tmp_path, data, "one.txt")).name == name, data[:40]
        assert detect(write(tmp_path, gz(data), "two.txt")).name == name


def test_a_part_has_the_facts_of_the_header_before_the_events(tmp_path: Path) -> None:
    path = write(tmp_path, gz(SMALL_BYTES))
    (part,) = detect(path).open(path).parts()
    assert (part.rank, part.world_size, part.name) == (3, 8, "")
    late = write(tmp_path, b'{"traceEvents": [' + EVENT + b'], "distributedInfo": {"rank": 5}}')
    (part,) = detect(late).open(late).parts()
    assert part.rank is None and ReadTrace(late).outcome.rank == 5


@pytest.mark.parametrize("step", [21_003, *deep(7001)])
def test_a_corrupt_gzip_is_read_up_to_the_corrupt_position(tmp_path: Path, step: int) -> None:
    data = trace([event(name=f"op {at}", args={"x": random.Random(at).random()}) for at in range(3000)])
    stored = bytearray(gz(data))
    for at in range(2000, len(stored) - 8, step):
        broken = bytes(stored[:at]) + bytes([stored[at] ^ 0xFF]) + bytes(stored[at + 1 :])
        found = ReadTrace(write(tmp_path, broken))
        assert found.outcome.status == "damaged"
        names = found.column("name")
        wrong = (at for at, name in enumerate(names) if name != f"op {at}")
        assert next(wrong, len(names)) > 30


def test_a_wrong_checksum_is_damage_even_with_complete_text(tmp_path: Path) -> None:
    stored = bytearray(gz(SMALL_BYTES))
    stored[-6] ^= 1
    found = ReadTrace(write(tmp_path, bytes(stored)))
    assert found.activities.num_rows == 6 and found.outcome.status == "damaged"
    assert found.outcome.losses[-1].reason == "the gzip stream is corrupt"
    cut = ReadTrace(write(tmp_path, gz(SMALL_BYTES)[:-8]))
    assert cut.activities.num_rows == 6 and cut.outcome.status == "repaired"


def test_bytes_after_the_members_are_reported(tmp_path: Path) -> None:
    found = ReadTrace(write(tmp_path, gz(SMALL_BYTES) + b"garbage"))
    assert found.activities.num_rows == 6 and found.outcome.status != "intact"


def test_members_split_anywhere_make_one_text(tmp_path: Path) -> None:
    rng = random.Random(3)
    for _ in range(30):
        cuts = sorted(rng.randrange(len(SMALL_BYTES)) for _ in range(4))
        pieces = [SMALL_BYTES[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
        text = read_text(write(tmp_path, b"".join(gz(piece) for piece in pieces) + b"\0" * rng.randrange(9)))
        assert bytes(text.buffer) == SMALL_BYTES and text.cut is None


def given(stored: bytes) -> bytes:
    """The text of gzip members up to the first corrupt position, byte by byte."""
    text = bytearray()
    while stored.lstrip(b"\0")[:1] == b"\x1f":
        member, stored = zlib.decompressobj(wbits=31), stored.lstrip(b"\0")
        try:
            for at in range(len(stored)):
                text += member.decompress(stored[at : at + 1])
                if member.eof:
                    break
        except zlib.error:
            break
        stored = stored[at + 1 :]
    return bytes(text)


def test_members_are_read_up_to_a_corrupt_position_in_any_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_text, "_PIECE_BYTES", 64)
    rng = random.Random(5)
    members = [gz(SMALL_BYTES[:900]), gz(rng.randbytes(500)) + b"\0" * 100, gz(SMALL_BYTES[900:])]
    stored, first = b"".join(members), len(members[0])
    # Every truncation around the first boundary, and changed bytes everywhere except in headers.
    cut = [stored[:at] for at in (40, *range(first - 9, first + 15), first + 200, len(stored) - 3)]
    places = (at for at in range(12, len(stored), 7) if not first - 9 <= at < first + 12)
    corrupt = [stored[:at] + bytes([stored[at] ^ 0x55]) + stored[at + 1 :] for at in places]
    for broken in (*cut, *corrupt):
        path = write(tmp_path, broken)
        found = read_text(path)
        assert bytes(found.buffer) == given(broken) and found.stored_bytes == len(broken)
        stream = Text(path)
        assert b"".join(stream) == bytes(found.buffer)
        assert (stream.digest, stream.cut, stream.stored_bytes) == (
            found.digest,
            found.cut,
            found.stored_bytes,
        )


def test_recovery_of_a_large_corrupt_file_has_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_text, "SPILL_BYTES", 0)
    text = random.Random(7).randbytes(8 << 20)
    path = write(tmp_path, gz(text)[:-9])
    tracemalloc.start()
    found = read_text(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.cut and bytes(found.buffer) == text[: found.size] and most < 2 << 20


def test_large_texts_are_memory_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_text, "SPILL_BYTES", 100)
    monkeypatch.setattr(file_text, "_PIECE_BYTES", 64)
    assert ReadTrace(write(tmp_path, gz(SMALL_BYTES))).outcome.status == "intact"
    broken = ReadTrace(write(tmp_path, SMALL_BYTES[:1200]))
    assert (broken.outcome.status, broken.outcome.events) == ("damaged", 5)


def test_the_last_repeated_header_key_wins(tmp_path: Path) -> None:
    data = b'{"a": 1, "b": {"x": 1}, "traceEvents": [' + EVENT + b'], "a": 2, "a": null, "b": {"x": 1}}'
    outcome = ReadTrace(write(tmp_path, data)).outcome
    assert json.loads(outcome.header_json) == {"a": 2, "b": {"x": 1}} and outcome.status == "repaired"
    assert len([loss for loss in outcome.losses if loss.byte_to > loss.byte_from]) == 2


def test_two_documents_in_one_file(tmp_path: Path) -> None:
    found = ReadTrace(write(tmp_path, trace([event(name="a")]) + b"\n" + trace([event(name="b")])))
    assert found.column("name") == ["a", "b"] and found.outcome.status == "repaired"


@pytest.mark.parametrize("exact", [False, True])
def test_truncated_and_invalid_lines(tmp_path: Path, exact: bool) -> None:
    lines = [json.dumps(event(name=f"op {at}")) for at in range(2000)]

    def status(text: str) -> tuple[str, int]:
        outcome = ReadTrace(write(tmp_path, text.encode()), exact=exact).outcome
        return outcome.status, outcome.events

    assert status("\n".join(lines)) == ("repaired", 2000)
    assert status("\n".join(lines)[:-9]) == ("damaged", 1999)
    lines[1000] = lines[1000][:30]
    broken = ReadTrace(write(tmp_path, "\n".join(lines).encode()), exact=exact)
    assert [loss.events_lost for loss in broken.outcome.losses if loss.byte_to > loss.byte_from] == [1]
    assert broken.column("name") == [f"op {at}" for at in range(2000) if at != 1000]


@pytest.mark.parametrize("exact", [False, True])
def test_repaired_events_are_marked(tmp_path: Path, exact: bool) -> None:
    texts = [json.dumps(event(name=f"op {at}")) for at in range(5)]
    texts[3] = texts[3].replace("5.0", "NaN")
    found = ReadTrace(write(tmp_path, f'{{"traceEvents": [{",".join(texts)}]}}'.encode()), exact=exact)
    assert found.column("repaired") == [False, False, False, True, False]
    assert (found.outcome.status, found.outcome.repaired) == ("repaired", 1)
    assert found.column("ts_text")[3] == "NaN"


def test_one_invalid_event_loses_one_event(tmp_path: Path) -> None:
    plain = json.dumps(event(name="op 0", args={"l": [1, [2]]}), indent=1)
    texts = [plain.replace("op 0", f"op {at}") for at in range(60_000)]
    texts[20_000] = texts[20_000].replace('"pid":', '"pid" "x"')
    data = '{"a": 1, "traceEvents": [' + ",\n".join(texts) + '], "z": 2}'
    outcome = ReadTrace(write(tmp_path, data.encode())).outcome
    assert json.loads(outcome.header_json) == {"a": 1, "z": 2}
    assert (outcome.status, outcome.events) == ("damaged", 59_999)
    (loss,) = outcome.losses
    assert loss.events_lost == 1 and 0 < loss.byte_to - loss.byte_from < 200
    assert "op 20000" in data[loss.byte_from : loss.byte_to]


def test_a_growing_file_is_a_prefix_of_itself(tmp_path: Path) -> None:
    early, late = write(tmp_path, SMALL_BYTES[:1000], "a"), write(tmp_path, gz(SMALL_BYTES), "b")
    found = ReadTrace(early).outcome
    assert found.status == "damaged" and prefix_digest(late, found.text_bytes) == found.digest


def test_the_digest_covers_the_decompressed_text(tmp_path: Path) -> None:
    data = SMALL_BYTES.decode().encode("utf-16")
    found = ReadTrace(write(tmp_path, gz(data))).outcome
    assert (found.text_bytes, found.stored_bytes, found.events) == (len(data), len(gz(data)), 6)
