"""Files as they come: containers, refusals with place and remedy, endings, lines, large texts."""

from __future__ import annotations

import json
import random
import tracemalloc
import zlib
from pathlib import Path

import pytest

from reader_cases import EVENT, KINETO_HEAD, SALT, SMALL_BYTES, Loaded, event, gz, saved, trace, write
from tracewarehouse import engine, reader
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.reader import source
from tracewarehouse.reader.source import Flow, read_text

REFUSED = {
    "nothing": (b"", "byte 0: the file is empty"),
    "blanks": (b" \n\0 ", "byte 0: the file is empty"),
    "html": (b"<!DOCTYPE html><html>503</html>", "byte 0: this is an HTML page, not JSON"),
    "xml": (b"<?xml version='1.0'?><a/>", "byte 0: this is markup (XML or HTML), not JSON"),
    "text": (b"Traceback (most recent call last):", "byte 0: this is no JSON object or list"),
    "number": (b"17", "byte 0: this is no JSON object or list"),
    "string": (b'"traceEvents"', "byte 0: this is no JSON object or list"),
    "null events": (b'{"traceEvents": null}', "traceEvents is null"),
    "text events": (b'{"traceEvents": "none"}', "traceEvents is no list"),
    "object events": (b'{"traceEvents": {"a": 1}, "b": 2,}', "traceEvents is no list"),
    "zip": (b"PK\x03\x04rest", "byte 0: this is a zip archive, not a trace"),
    "zstd": (b"\x28\xb5\x2f\xfdrest", "byte 0: this is zstd data, not a trace"),
    "tar": (b"x" * 257 + b"ustar" + b"\0" * 300, "byte 0: this is a tar archive, not a trace"),
    "half an event": (KINETO_HEAD + EVENT[:30], "byte 37: no complete event is left"),
    "half a header": (b'{"schemaVersion": 1, "devi', "byte 21: no complete event is left"),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("zipped", [False, True])
def test_refusals_name_file_place_and_remedy(tmp_path: Path, what: str, zipped: bool) -> None:
    data, message = REFUSED[what]
    path = write(tmp_path, gz(data) if zipped else data)
    for read in (lambda: reader.survey(path, SALT), lambda: Loaded(path)):
        with pytest.raises(TraceFormatError) as error:
            read()
        assert error.value.message == f"{path}: {message}" and error.value.hint


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="no such file"):
        reader.survey(tmp_path / "none.json", SALT)
    with pytest.raises(TraceFormatError, match="this is a folder"):
        reader.survey(tmp_path, SALT)


@pytest.mark.parametrize(
    "data", [b'{"traceEvents": []}', b"[]", b'{"schemaVersion": 1}', b'{"traceEvents": [],}']
)
def test_no_events_is_a_format_of_its_own(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path, data)
    assert reader.survey(path, SALT).format == "no_events"
    with pytest.raises(TraceFormatError, match="there are no events in it") as error:
        Loaded(path)
    assert error.value.hint


def test_a_corrupt_gzip_gives_what_stands_before_the_fault(tmp_path: Path) -> None:
    data = trace([event(name=f"op {at}", args={"x": random.Random(at).random()}) for at in range(3000)])
    stored = bytearray(gz(data))
    whole = saved(write(tmp_path, data))[1]
    for at in range(2000, len(stored) - 8, 7001):
        broken = bytes(stored[:at]) + bytes([stored[at] ^ 0xFF]) + bytes(stored[at + 1 :])
        path = write(tmp_path, broken)
        text = read_text(path)
        assert text.cut is not None
        document, texts = saved(path)
        assert document.findings.status == "damaged"
        pairs = enumerate(zip(texts, whole, strict=False))
        assert next((at for at, (one, other) in pairs if one != other), len(texts)) > 30


def test_a_wrong_checksum_is_damage_though_the_text_is_there(tmp_path: Path) -> None:
    stored = bytearray(gz(SMALL_BYTES))
    stored[-6] ^= 1
    document, texts = saved(write(tmp_path, bytes(stored)))
    assert len(texts) == 6 and document.findings.status == "damaged"
    assert document.findings.told()[-1].reason == "the gzip stream is corrupt"


def test_gzip_without_its_trailer_is_told(tmp_path: Path) -> None:
    document, texts = saved(write(tmp_path, gz(SMALL_BYTES)[:-8]))
    assert len(texts) == 6 and document.findings.status == "repaired"


def test_members_split_anywhere_make_one_text(tmp_path: Path) -> None:
    rng = random.Random(3)
    for _ in range(30):
        cuts = sorted(rng.randrange(len(SMALL_BYTES)) for _ in range(4))
        pieces = [SMALL_BYTES[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
        text = read_text(write(tmp_path, b"".join(gz(piece) for piece in pieces) + b"\0" * rng.randrange(9)))
        assert bytes(text.buffer) == SMALL_BYTES and text.cut is None


def given(stored: bytes) -> bytes:
    """The text of gzip members up to the first fault, byte by byte."""
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


def test_members_give_what_stands_before_a_fault_in_any_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_PIECE_BYTES", 64)
    rng = random.Random(5)
    members = [gz(SMALL_BYTES[:900]), gz(rng.randbytes(500)) + b"\0" * 100, gz(SMALL_BYTES[900:])]
    stored, first = b"".join(members), len(members[0])
    # One length after the other around the first border, and bytes changed all over, but for headers.
    cut = [stored[:at] for at in (40, *range(first - 9, first + 15), first + 200, len(stored) - 3)]
    places = (at for at in range(12, len(stored), 7) if not first - 9 <= at < first + 12)
    corrupt = [stored[:at] + bytes([stored[at] ^ 0x55]) + stored[at + 1 :] for at in places]
    for broken in (*cut, *corrupt):
        path = write(tmp_path, broken)
        found = read_text(path)
        assert bytes(found.buffer) == given(broken) and found.stored_bytes == len(broken)
        flow = Flow(path)
        assert b"".join(flow) == bytes(found.buffer)
        assert (flow.digest, flow.cut, flow.stored_bytes) == (found.digest, found.cut, found.stored_bytes)


def test_what_is_left_of_a_large_broken_file_is_not_read_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "SPILL_BYTES", 0)
    text = random.Random(7).randbytes(8 << 20)
    path = write(tmp_path, gz(text)[:-9])
    tracemalloc.start()
    found = read_text(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.cut and bytes(found.buffer) == text[: found.text_bytes] and most < 2 << 20


def test_bytes_after_the_members_are_told(tmp_path: Path) -> None:
    document, texts = saved(write(tmp_path, gz(SMALL_BYTES) + b"garbage"))
    assert len(texts) == 6 and document.findings.status != "whole"


def test_large_texts_go_through_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, gz(SMALL_BYTES))
    before = Loaded(path)
    monkeypatch.setattr(source, "SPILL_BYTES", 100)
    monkeypatch.setattr(source, "_PIECE_BYTES", 64)
    after = Loaded(path)
    assert after.survey == before.survey and after.relation() == before.relation()
    broken = Loaded(write(tmp_path, SMALL_BYTES[:1200]))
    assert broken.survey.status == "damaged" and broken.survey.events == 5


def test_progress_counts_up_to_the_text(tmp_path: Path) -> None:
    path = write(tmp_path, trace([event(args={"pad": "x" * 1000}) for _ in range(20_000)]))
    seen: list[int] = []
    con = engine.connect()
    found = reader.load(con, path, run_id="r", rank=3, salt=SALT, progress=seen.append)
    assert (
        len(seen) > 2 and seen == sorted(seen) and 0.9 * found.text_bytes < seen[-1] <= found.text_bytes + 10
    )
    assert con.execute("SELECT DISTINCT run_id, rank FROM raw").fetchall() == [("r", 3)]
    assert con.execute("SELECT run_id, rank, header::VARCHAR, base_ns FROM header").fetchall() == [
        ("r", 3, "{}", 0)
    ]


def test_the_first_key_wins_nothing_but_the_last(tmp_path: Path) -> None:
    data = b'{"a": 1, "b": {"x": 1}, "traceEvents": [' + EVENT + b'], "a": 2, "a": null, "b": {"x": 1}}'
    found = Loaded(write(tmp_path, data))
    assert found.header == {"a": 2, "b": {"x": 1}} and found.survey.status == "repaired"
    assert len([loss for loss in found.survey.losses if loss.byte_to > loss.byte_from]) == 2
    assert found.con.execute("SELECT count(*) FROM losses").fetchone() == (len(found.survey.losses),)


def test_two_documents_in_one_file(tmp_path: Path) -> None:
    found = Loaded(write(tmp_path, trace([event(name="a")]) + b"\n" + trace([event(name="b")])))
    assert found.column("name") == ["a", "b"] and found.survey.status == "repaired"


def test_lines_that_are_cut_or_broken(tmp_path: Path) -> None:
    lines = [json.dumps(event(name=f"op {at}")) for at in range(2000)]
    whole = Loaded(write(tmp_path, "\n".join(lines).encode()))
    assert (whole.survey.status, whole.survey.events) == ("repaired", 2000)
    cut = Loaded(write(tmp_path, "\n".join(lines).encode()[:-9]))
    assert (cut.survey.status, cut.survey.events) == ("damaged", 1999)
    lines[1000] = lines[1000][:30]
    broken = Loaded(write(tmp_path, "\n".join(lines).encode()))
    assert (broken.survey.status, broken.survey.events) == ("damaged", 1999)
    assert [loss.events_lost for loss in broken.survey.losses if loss.byte_to > loss.byte_from] == [1]
    assert broken.column("name") == [f"op {at}" for at in range(2000) if at != 1000]


def test_one_broken_event_among_many_costs_one_event(tmp_path: Path) -> None:
    plain = json.dumps(event(name="op 0", args={"l": [1, [2]]}), indent=1)
    texts = [plain.replace("op 0", f"op {at}") for at in range(60_000)]
    texts[20_000] = texts[20_000].replace('"pid":', '"pid" "x"')
    data = '{"a": 1, "traceEvents": [' + ",\n".join(texts) + '], "z": 2}'
    found = Loaded(write(tmp_path, data.encode()))
    assert found.header == {"a": 1, "z": 2}
    assert (found.survey.status, found.survey.events) == ("damaged", 59_999)
    (loss,) = found.survey.losses
    assert loss.events_lost == 1 and 0 < loss.byte_to - loss.byte_from < 200
    assert "op 20000" in data[loss.byte_from : loss.byte_to]


def test_deep_nesting_is_told_not_a_crash(tmp_path: Path) -> None:
    deep = b'{"ph":"X","args":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    found = Loaded(write(tmp_path, b'{"traceEvents": [' + EVENT + b"," + deep + b"," + EVENT + b"]}"))
    assert (found.survey.status, found.survey.events) == ("damaged", 2)
    with pytest.raises(TraceFormatError):
        reader.survey(write(tmp_path, b"[" * 50_000), SALT)


def test_a_window_spans_first_start_and_last_end(tmp_path: Path) -> None:
    events = [event(ts=30.5, dur=4), event(ts=10.25, dur=1), {"ph": "M", "ts": 0}, event(ts="x")]
    path = write(tmp_path, trace(events, baseTimeNanoseconds=1000))
    assert reader.window(path) == (11_250, 35_500)
    assert reader.window(write(tmp_path, trace([{"ph": "M"}]))) == (None, None)
    assert reader.window(write(tmp_path, trace([event(ts=1e18)]))) == (None, None)


def test_a_base_that_no_time_can_have_is_none(tmp_path: Path) -> None:
    for base in ("99999999999999999999", "-1e30", "1e999999999", "NaN", '"Infinity"', "[1]"):
        text = f'{{"baseTimeNanoseconds": {base}, "traceEvents": [{EVENT.decode()}]}}'
        loaded = Loaded(write(tmp_path, text.encode()))
        assert loaded.con.execute("SELECT base_ns FROM header").fetchall() == [(0,)], base


def test_a_growing_file_is_a_prefix_of_itself(tmp_path: Path) -> None:
    early, late = write(tmp_path, SMALL_BYTES[:1000], "a"), write(tmp_path, gz(SMALL_BYTES), "b")
    found = reader.survey(early, SALT)
    assert found.status == "damaged"
    assert reader.prefix_digest(late, found.text_bytes) == found.digest


def test_the_digest_is_of_the_text_as_stored(tmp_path: Path) -> None:
    data = SMALL_BYTES.decode().encode("utf-16")
    found = reader.survey(write(tmp_path, gz(data)), SALT)
    assert found.text_bytes == len(data) and found.stored_bytes == len(gz(data)) and found.events == 6
    assert zlib.crc32(data) == zlib.crc32(bytes(read_text(tmp_path / "trace.json").buffer))
