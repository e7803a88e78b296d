"""Damaged files: the reader keeps complete events and reports all losses."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path

import pytest

from conftest import deep
from trace_texts import SMALL_BYTES, gz, write
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.file_text import UnsupportedFormatError, read_text
from tracewarehouse.formats.json_text import elements, minify
from tracewarehouse.formats.kineto.document import Document, outline


def events_of(data: bytes) -> list[tuple[int, int, str]]:
    """Start, end and text of each event of an intact trace, by an independent method."""
    found = outline(data)
    assert found is not None and found.events is not None
    start, end = found.events
    at, out = start + 1, []
    for raw in elements(data[start:end]) or []:
        text = bytes(raw)
        at = data.index(text, at)
        out.append((at, at + len(text), text.decode()))
        at += len(text)
    return out


WHOLE = events_of(SMALL_BYTES)


def squeeze(text: str) -> str:
    import msgspec

    return msgspec.json.format(text, indent=-1)


def recovered(path: Path) -> tuple[Document, list[str]]:
    """The document of the tolerant reader, and the texts of its events."""
    document = Document(read_text(path))
    texts: list[str] = []
    for chunk in document.chunks():
        small = minify(chunk.array)
        assert small is not None
        texts += [bytes(raw).decode() for raw in elements(small) or []]
    assert len(texts) == document.events
    return document, texts


def read(path: Path) -> tuple[Document | None, list[str]]:
    try:
        return recovered(path)
    except UnsupportedFormatError:
        return None, []
    except TraceFormatError as error:
        assert str(path) in error.message and error.hint
        return None, []


def test_cut_at_every_byte(tmp_path: Path) -> None:
    end = SMALL_BYTES.rindex(b"}")
    for stop in range(len(SMALL_BYTES)):
        path = write(tmp_path, SMALL_BYTES[:stop])
        document, texts = read(path)
        complete = [squeeze(text) for _, b, text in WHOLE if b <= stop]
        if document is None:
            assert not complete, stop
            continue
        assert texts == complete, stop
        assert document.losses.status == ("intact" if stop > end else "damaged"), stop
        losses = document.losses.all()
        if stop <= end and document.objects:
            assert losses and losses[-1].byte_to == stop, stop
            lost = sum(loss.byte_to - loss.byte_from for loss in losses)
            assert lost >= stop - max([b for _, b, _ in WHOLE if b <= stop], default=0) - 8 or lost == 0


def test_cut_gzip_at_every_byte(tmp_path: Path) -> None:
    data = gz(SMALL_BYTES)
    for stop in range(1, len(data)):
        path = write(tmp_path, data[:stop])
        out = zlib.decompressobj(wbits=31).decompress(data[:stop]) if stop > 2 else b""
        document, texts = read(path)
        assert texts == [squeeze(text) for _, b, text in WHOLE if b <= len(out)], stop
        assert document is None or document.losses.status != "intact", stop


def mutate(data: bytes, rng: random.Random) -> tuple[bytes, int, int]:
    """One damage: the data, and the range of the original that it touched."""
    at = rng.randrange(len(data))
    length = rng.choice([1, 1, 1, 2, 5, 40])
    kind = rng.choice(["change", "delete", "insert", "blank"])
    junk = bytes(rng.choice(b'"\\{}[],: \n\0\xff0aeN') for _ in range(length))
    if kind == "insert":
        return data[:at] + junk + data[at:], at, at
    stop = min(at + length, len(data))
    if kind == "delete":
        return data[:at] + data[stop:], at, stop
    return data[:at] + (b" " * (stop - at) if kind == "blank" else junk[: stop - at]) + data[stop:], at, stop


def check_all_is_reported(path: Path, data: bytes, touched: tuple[int, int], shift: int) -> None:
    document, texts = read(path)
    if document is None:
        return
    have = set(texts)
    losses = document.losses.all()
    for start, end, text in WHOLE:
        if end > touched[0] and start < touched[1]:
            continue
        if start < touched[0] < end and touched[0] == touched[1]:
            continue
        at = start if start < touched[1] or end <= touched[0] else start + shift
        covered = any(loss.byte_from <= at < loss.byte_to for loss in losses)
        assert squeeze(text) in have or covered, (text, losses, data)
    if document.losses.status == "intact":
        assert len(json.loads(data, parse_constant=_refuse)["traceEvents"]) == len(texts), data


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def fuzz(folder: Path, seed: int, count: int) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        data, start, stop = mutate(SMALL_BYTES, rng)
        path = write(folder, data)
        check_all_is_reported(path, data, (start, stop), len(data) - len(SMALL_BYTES))


@pytest.mark.parametrize("seed", [0, *deep(1, 2)])
def test_every_loss_of_one_damage_is_reported(tmp_path: Path, seed: int) -> None:
    fuzz(tmp_path, seed, 700)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(10, 30))
def test_every_loss_of_one_damage_is_reported_deep(tmp_path: Path, seed: int) -> None:
    fuzz(tmp_path, seed, 4000)


@pytest.mark.parametrize("seed", [0, *deep(1, 2)])
def test_random_bytes_are_read_or_refused(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(400):
        data = SMALL_BYTES
        for _ in range(rng.randrange(1, 30)):
            data = mutate(data, rng)[0] or b"{"
        document, texts = read(
            write(tmp_path, data if rng.random() < 0.7 else gz(data)[: rng.randrange(20, 900)])
        )
        if document is not None and document.losses.status == "intact" and texts:
            assert outline(document.buffer) is not None


def test_quotes_in_a_name_are_escaped_up_to_the_process(tmp_path: Path) -> None:
    names = ['a "b", "c": {"d": 1}', '{"device": "cpu", "n": 0}(3): forward', r"back\\slash \" and \u00e9"]
    events = [f'{{"ph": "X", "name": "{name}", "pid": 1, "tid": 2, "ts": 3, "dur": 1}}' for name in names]
    path = write(tmp_path, f'{{"traceEvents": [{", ".join(events)}]}}'.encode())
    document, texts = recovered(path)
    assert [json.loads(text)["name"] for text in texts] == [*names[:2], 'back\\slash " and é']
    (repaired,) = document.losses.all()
    assert repaired.reason.startswith("quotes inside a string are escaped (2 times")
