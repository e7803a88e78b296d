"""Reading as the text is unpacked: chunk by chunk, and the same as with the whole text in memory."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from reader_cases import EVENT, SALT, SMALL_BYTES, Loaded, gz, write
from tracewarehouse import reader
from tracewarehouse.reader import loader, source, stream
from tracewarehouse.reader.document import Document
from tracewarehouse.reader.source import read_text
from tracewarehouse.reader.stream import Stream, Unusual
from tracewarehouse.reader.strict import elements

MANY = (
    b"{"
    + b'"a": [{"x": 1}, {"y": [2]}], "traceEvents": ['
    + b", ".join([EVENT] * 40)
    + b'], "z": [{}, {"k": 1}]}'
)
STRICT = {
    "small": SMALL_BYTES,
    "many": MANY,
    "key in a string": b'{"s": "\\"traceEvents\\": [", "traceEvents": [' + EVENT + b"]}",
    "key below": b'{"deep": {"traceEvents": [{"a": 1}]}, "traceEvents": [' + EVENT + b"]}",
    "list": b"\n[" + b",".join([EVENT] * 9) + b"]\n",
    "long tail": b'{"traceEvents":[' + EVENT + b'],"tail":[' + b",".join([b'{"a": [{}, {}]}'] * 200) + b"]}",
    "mixed": b'{"traceEvents": [' + EVENT + b', 7, "x, {", [1, {"a": 2}], null, ' + EVENT + b"]}",
}
OTHER = {
    "no events": b'{"traceEvents": []}',
    "a comma too many": b'{"traceEvents": [' + EVENT + b",]}",
    "a comma too many at the start": b'{"traceEvents": [,' + EVENT + b"]}",
    "two commas": b'{"traceEvents": [' + EVENT + b",," + EVENT + b"]}",
    "the key twice": b'{"traceEvents": [' + EVENT + b'], "traceEvents": [' + EVENT + b"]}",
    "a member twice": b'{"a": 1, "traceEvents": [' + EVENT + b'], "a": 2}',
    "a member twice before": b'{"a": 1, "a": 2, "traceEvents": [' + EVENT + b"]}",
    "no end": b'{"traceEvents": [' + EVENT,
    "more after the end": b'{"traceEvents": [' + EVENT + b"]}}",
    "no object first": b'{"traceEvents": [7, ' + EVENT + b"]}",
    "no list": b'{"traceEvents": {"a": 1}}',
    "a byte order mark": b"\xef\xbb\xbf" + MANY,
    "broken UTF-8": MANY.replace(b"op", b"\xff"),
}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHUNK_BYTES", 256)
    monkeypatch.setattr(loader, "CHUNK_BYTES", 512)
    monkeypatch.setattr(source, "_PIECE_BYTES", 100)


def streamed(path: Path) -> tuple[dict[str, bytes], list[bytes]] | None:
    """Members and events of the document; None where it is for the other way."""
    found = Stream(path, loader.batch)
    try:
        texts = [bytes(text) for batch in found.chunks() for text in batch.texts]
    except Unusual:
        return None
    return found.members, texts


def whole(path: Path) -> tuple[dict[str, bytes], list[bytes]] | None:
    """The same by the way that holds the whole text; None where that had anything to mend."""
    document = Document(read_text(path))
    texts = [
        msgspec.json.format(bytes(text), indent=-1)
        for chunk in document.chunks()
        for text in elements(chunk.array) or ()
    ]
    return (document.members, texts) if document.findings.status == "whole" else None


@pytest.mark.parametrize("what", STRICT)
@pytest.mark.parametrize("zipped", [False, True])
def test_strict_documents_are_streamed(tmp_path: Path, what: str, zipped: bool) -> None:
    path = write(tmp_path, gz(STRICT[what]) if zipped else STRICT[what])
    assert streamed(path) == whole(path) is not None


@pytest.mark.parametrize("what", OTHER)
def test_what_is_not_strict_goes_another_way(tmp_path: Path, what: str) -> None:
    assert streamed(write(tmp_path, OTHER[what])) is None


def test_a_stream_is_cut_into_chunks(tmp_path: Path) -> None:
    batches = list(Stream(write(tmp_path, MANY), loader.batch).chunks())
    assert len(batches) > 10 and sum(len(batch.texts) for batch in batches) == 40


def test_an_event_longer_than_a_chunk(tmp_path: Path) -> None:
    long = EVENT.replace(b'"op"', b'"' + b"x},{" * 5000 + b'"')
    path = write(tmp_path, b'{"traceEvents": [' + b",".join([EVENT, long, EVENT]) + b"]}")
    assert streamed(path) == whole(path) is not None


def test_containers_that_end_early_go_another_way(tmp_path: Path) -> None:
    packed = gz(MANY)
    assert streamed(write(tmp_path, packed[:-9])) is None
    assert streamed(write(tmp_path, packed + b"rest")) is None


def test_both_ways_fill_the_same_rows(tmp_path: Path) -> None:
    secret = b'{"ph": "i", "name": "x", "args": {"password": "hunter2hunter2"}}'
    odd = b'{"ph": "X", "ts": "1", "ts": 2, "new": [1]}'
    path = write(tmp_path, MANY.replace(b"[" + EVENT, b"[" + b",".join([EVENT, b"7", secret, odd]), 1))
    fast, slow = Loaded(path), Loaded(path, trust=False)
    columns = "event_id, text, ph, name, ts_text, args, extra, repaired"
    assert fast.rows(columns) == slow.rows(columns)
    assert fast.survey == slow.survey and fast.survey.status == "whole"


def test_a_survey_is_that_of_the_other_way(tmp_path: Path) -> None:
    path = write(tmp_path, gz(MANY))
    found = reader.survey(path, SALT)
    text = read_text(path)
    assert (found.digest, found.text_bytes, found.stored_bytes) == (
        text.digest,
        len(MANY),
        path.stat().st_size,
    )
    assert (found.events, found.status, found.losses) == (40, "whole", ())


@pytest.mark.parametrize("seed", range(120))
def test_what_is_streamed_is_what_the_other_way_reads(tmp_path: Path, seed: int) -> None:
    """A changed sign anywhere: either it is told, or both read the same."""
    chance = random.Random(seed)
    data = bytearray(STRICT[chance.choice(list(STRICT))])
    for _ in range(chance.choice([1, 1, 2, 5])):
        at = chance.randrange(len(data))
        data[at : at + chance.choice([0, 1, 1, 3])] = chance.choice(
            [b"", b",", b"}", b"]", b'"', b"{", b"[", b"\\", b"1", b" "]
        )
    path = write(tmp_path, bytes(data))
    found = streamed(path)
    assert found is None or found == whole(path)
