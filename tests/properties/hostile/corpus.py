"""Minimized hostile files, made by code, each with what becomes of it when it is ingested.

Files that the fuzzer found are in `tests/data/hostile`, one JSON object each; they come after those of this
module.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trace_texts import event

FOUND = Path(__file__).parents[2] / "data" / "hostile"


@dataclass(frozen=True)
class Hostile:
    """A file, the state of its ingest, and how many events are stored (None: not stored).

    `state` "any" is for a file of which only a crash, a hang or too much memory would be wrong.
    """

    name: str
    data: bytes
    state: str
    events: int | None = None
    file_name: str = "rank0.json"


@cache
def corpus() -> tuple[Hostile, ...]:
    """Every file, the ones that the fuzzer found last."""
    made = [
        *_nothing(),
        *_other_files(),
        *_gzip(),
        *_json(),
        *_encodings(),
        *_values(),
        *_structure(),
        *_sizes(),
    ]
    return (*made, *_found())


def _found() -> Iterator[Hostile]:
    for path in sorted(FOUND.glob("*.json")):
        stored = json.loads(path.read_text())
        yield Hostile(path.stem, base64.b64decode(stored["data"]), stored["state"], stored["events"])


def _text(*events: str, head: str = '{"schemaVersion": 1, ', tail: str = "}") -> bytes:
    return f'{head}"traceEvents": [{", ".join(events)}]{tail}'.encode()


def _slice(**fields: object) -> str:
    return json.dumps(event(**fields))


PLAIN = _slice()
GOOD = _text(PLAIN, PLAIN)
_DEEP = 5_000


def _nothing() -> Iterator[Hostile]:
    yield Hostile("empty", b"", "refused")
    yield Hostile("blank", b" \n\t\r ", "refused")
    yield Hostile("zeros", b"\0" * 4096, "refused")
    yield Hostile("bom-only", b"\xef\xbb\xbf", "refused")
    yield Hostile("null", b"null", "refused")
    yield Hostile("number", b"12345", "refused")
    yield Hostile("string", b'"traceEvents"', "refused")
    yield Hostile("no-events", b'{"traceEvents": []}', "refused")
    yield Hostile("null-events", b'{"traceEvents": null}', "refused")
    yield Hostile("events-number", b'{"traceEvents": 7}', "refused")
    yield Hostile("events-object", b'{"traceEvents": {"ph": "X"}}', "refused")
    yield Hostile("events-string", b'{"traceEvents": "[{}]"}', "refused")
    yield Hostile("empty-list", b"[]", "refused")
    yield Hostile("empty-object", b"{}", "refused")
    yield Hostile("one-brace", b"{", "refused")
    yield Hostile("one-bracket", b"[", "refused")
    yield Hostile("one-quote", b'"', "refused")
    yield Hostile("only-key", b'{"traceEvents"', "refused")
    yield Hostile("only-colon", b'{"traceEvents":', "refused")
    yield Hostile("open-list", b'{"traceEvents":[', "refused")


def _other_files() -> Iterator[Hostile]:
    magics = {
        "html": b"<!DOCTYPE html><html><body>403</body></html>",
        "xml": b"<?xml version='1.0'?><a/>",
        "zip": b"PK\x03\x04" + bytes(60),
        "bzip2": b"BZh91AY&SY" + bytes(60),
        "xz": b"\xfd7zXZ\0" + bytes(60),
        "zstd": b"\x28\xb5\x2f\xfd" + bytes(60),
        "elf": b"\x7fELF" + bytes(60),
        "parquet": b"PAR1" + bytes(60),
        "tar": bytes(257) + b"ustar" + bytes(250),
        "png": b"\x89PNG\r\n\x1a\n" + bytes(60),
        "sqlite": b"SQLite format 3\0" + bytes(100),
        "pickle": b"\x80\x04\x95" + bytes(60),
        "pickle-exec": b"cos\nsystem\n(S'echo hostile'\ntR.",
        "csv": b"name,ts,dur\nop,1,2\n",
        "yaml": b"traceEvents:\n  - ph: X\n",
        "random": bytes((at * 197 + 71) % 256 for at in range(2000)),
    }
    for name, data in magics.items():
        yield Hostile(f"other-{name}", data, "refused")


def _gzip() -> Iterator[Hostile]:
    packed = gzip.compress(GOOD, mtime=0)
    yield Hostile("gzip-good", packed, "intact", 2, "rank0.json.gz")
    yield Hostile("gzip-not-named", packed, "intact", 2)
    yield Hostile("gzip-twice", gzip.compress(packed, mtime=0), "refused", None, "rank0.json.gz")
    yield Hostile("gzip-header-only", packed[:10], "refused", None, "rank0.json.gz")
    yield Hostile("gzip-cut", packed[:-20], "refused", None, "rank0.json.gz")
    yield Hostile("gzip-no-crc", packed[:-8], "repaired", 2, "rank0.json.gz")
    yield Hostile("gzip-bad-crc", packed[:-8] + b"\1\2\3\4" + packed[-4:], "damaged", 2, "rank0.json.gz")
    yield Hostile("gzip-bad-size", packed[:-4] + b"\xff\xff\xff\xff", "damaged", 2, "rank0.json.gz")
    yield Hostile("gzip-garbage-after", packed + b"garbage", "damaged", 2, "rank0.json.gz")
    yield Hostile("gzip-members", packed[:0] + b"".join(_members(GOOD)), "intact", 2, "rank0.json.gz")
    yield Hostile("gzip-flipped", packed[:40] + b"\xff" + packed[41:], "any", None, "rank0.json.gz")
    yield Hostile("gzip-reserved-flags", packed[:3] + b"\xe0" + packed[4:], "any", None, "rank0.json.gz")
    bomb = gzip.compress(b" " * (16 << 20) + GOOD, 9, mtime=0)
    yield Hostile("gzip-bomb-blanks", bomb, "any", None, "rank0.json.gz")
    zeros = gzip.compress(bytes(16 << 20), 9, mtime=0)
    yield Hostile("gzip-bomb-zeros", zeros, "refused", None, "rank0.json.gz")
    yield Hostile("zlib", zlib.compress(GOOD), "refused")


def _members(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), 50):
        yield gzip.compress(data[at : at + 50], mtime=0)


def _json() -> Iterator[Hostile]:
    whole = GOOD.decode()
    broken = {
        "cut-in-event": (whole[: len(whole) - 30], "damaged", 1),
        "cut-after-event": (whole[: whole.rindex("]")], "damaged", 2),
        "cut-in-string": (whole[: whole.rindex("cpu_op") + 3], "damaged", 1),
        "cut-in-escape": (_text(PLAIN, _slice(name='a"b')).decode().split('\\"')[0] + "\\", "damaged", 1),
        "trailing-comma": (whole.replace("}]", "},]"), "repaired", 2),
        "two-commas": (whole.replace("}, {", "},, {"), "repaired", 2),
        "no-comma": (whole.replace("}, {", "} {"), "repaired", 2),
        "single-quotes": (whole.replace('"', "'"), "refused", None),
        "comments": (whole.replace("[{", "[/* x */{"), "any", None),
        "unquoted-keys": (whole.replace('"ph"', "ph"), "any", None),
        "nan": (whole.replace("2.5", "NaN"), "repaired", 2),
        "infinity": (whole.replace("2.5", "-Infinity"), "repaired", 2),
        "control-in-string": (whole.replace("cpu_op", "cpu\x01op", 1), "repaired", 2),
        "newline-in-string": (whole.replace("cpu_op", "cpu\nop", 1), "repaired", 2),
        "bad-escape": (whole.replace("cpu_op", "C:\\\\dir\\q", 1), "repaired", 2),
        "lone-surrogate": (whole.replace("cpu_op", "\\ud800", 1), "any", None),
        "garbage-after": (whole + "garbage", "repaired", 2),
        "two-documents": (whole + whole, "any", None),
        "garbage-between": (whole.replace("}, {", "}, !?# {"), "any", None),
        "half-event-between": (whole.replace("}, {", '}, {"ph": "X", "na {'), "any", None),
        "closing-too-early": (whole.replace("}, {", "}]}, {"), "any", None),
        "extra-brackets": (whole + "]]]}}}", "any", None),
        "ndjson": ("\n".join([PLAIN, PLAIN]), "any", None),
        "plus-number": (whole.replace("2.5", "+2.5"), "any", None),
        "leading-zero": (whole.replace("2.5", "02.5"), "any", None),
        "hex-number": (whole.replace("2.5", "0x10"), "any", None),
        "python-true": (whole.replace("2.5", "True"), "any", None),
    }
    for name, (text, state, events) in broken.items():
        yield Hostile(f"json-{name}", text.encode("utf-8", "surrogatepass"), state, events)


def _encodings() -> Iterator[Hostile]:
    whole = _text(_slice(name="größe"), PLAIN).decode()
    yield Hostile("utf8-bom", b"\xef\xbb\xbf" + GOOD, "repaired", 2)
    yield Hostile("utf16", whole.encode("utf-16"), "any")
    yield Hostile("utf16-no-bom", whole.encode("utf-16-le"), "any")
    yield Hostile("utf32", whole.encode("utf-32"), "any")
    yield Hostile("latin-1", json.dumps(whole, ensure_ascii=False).encode("latin-1"), "refused")
    yield Hostile("invalid-utf8", GOOD.replace(b"cpu_op", b"cpu\xff\xfeop", 1), "repaired", 2)
    yield Hostile("overlong-utf8", GOOD.replace(b"cpu_op", b"cpu\xc0\xafop", 1), "repaired", 2)
    yield Hostile("cut-utf8", GOOD.replace(b"cpu_op", b"cpu\xe2\x82", 1), "repaired", 2)
    yield Hostile("nul-bytes", GOOD.replace(b", ", b",\0 "), "any")


def _values() -> Iterator[Hostile]:
    values: dict[str, object] = {
        "int-2**63": {"ts": 2**63},
        "int-huge": {"args": {"n": 10**400}},
        "int-negative": {"ts": -(2**62), "dur": -1},
        "float-tiny": {"ts": 5e-324},
        "time-text": {"ts": "5.0", "dur": "2.5"},
        "time-object": {"ts": {"a": 1}},
        "time-null": {"ts": None, "dur": None},
        "time-bool": {"ts": True},
        "pid-object": {"pid": {"a": [1]}, "tid": [[[]]]},
        "name-number": {"name": 7, "cat": 8, "ph": 9},
        "name-null": {"name": None, "cat": None, "ph": None},
        "name-empty": {"name": "", "cat": "", "ph": ""},
        "args-list": {"args": [1, 2]},
        "args-text": {"args": "x"},
        "args-number": {"args": 5},
        "id-object": {"ph": "s", "id": {"a": 1}},
        "correlation-text": {"cat": "kernel", "args": {"correlation": "x"}},
        "correlation-max": {"cat": "kernel", "args": {"correlation": 2**64 - 1, "stream": -1, "device": "0"}},
        "sql-name": {"name": "'; DROP TABLE events; --"},
        "path-name": {"name": "../../../../etc/passwd", "cat": "/dev/zero"},
        "template-name": {"name": "{{ 7*7 }} {% x %} ${x} %s %n"},
        "terminal-name": {"name": "\x1b]0;x\x07\x1b[2J\u202e"},
        "html-name": {"name": "</script><script>alert(1)</script>"},
        "formula-name": {"name": "=cmd|' /C calc'!A0"},
        "zero-name": {"name": "a\0b"},
        "dots-keys": {"args": {"a.b": 1, "$": 2, "": 3, "a": {"": {}}}},
        "same-keys": {"args": {"__duplicates__": [["a", 1]], "run_id": "x", "rank": 7}},
    }
    for name, fields in values.items():
        assert isinstance(fields, dict)
        yield Hostile(f"value-{name}", _text(_slice(**fields), PLAIN), "intact", 2)
    yield Hostile("value-exponent", GOOD.replace(b"2.5", b"1e400"), "any")
    yield Hostile("value-long-number", GOOD.replace(b"2.5", b"1" * 5000 + b".5"), "any")
    yield Hostile(
        "value-repeated-keys", _text('{"ph":"X","ph":"B","name":"a","name":"b","ts":1,"ts":2}'), "intact", 1
    )


def _structure() -> Iterator[Hostile]:
    nested = {"list": ("[", "]"), "object": ('{"a":', "}")}
    for name, (opening, closing) in nested.items():
        value = opening * _DEEP + "1" + closing * _DEEP
        deep = _text(f'{{"ph": "X", "name": "deep", "ts": 1, "dur": 1, "args": {{"v": {value}}}}}', PLAIN)
        yield Hostile(f"deep-{name}", deep, "intact", 2)
        yield Hostile(f"deep-{name}-unclosed", deep[: len(deep) // 2], "any")
        yield Hostile(f"deep-{name}-header", _text(PLAIN, head=f'{{"h": {value}, '), "intact", 1)
    yield Hostile("only-brackets", b"[" * 100_000, "refused")
    yield Hostile("only-braces", b'{"a":' * 20_000, "refused")
    yield Hostile("elements-odd", _text("1", "null", '"x"', "[]", "true", "{}", PLAIN), "any")
    yield Hostile("two-event-lists", _text(PLAIN, tail=f', "traceEvents": [{PLAIN}, {PLAIN}]}}'), "any")
    yield Hostile("nested-event-list", _text(PLAIN, head='{"x": {"traceEvents": [1]}, '), "intact", 1)
    yield Hostile("event-list-in-string", _text(PLAIN, head='{"x": "\\"traceEvents\\": [", '), "intact", 1)
    yield Hostile(
        "begin-without-end", _text(*[_slice(ph="B")] * 50, *[_slice(ph="E", name=None)] * 3), "intact", 53
    )
    yield Hostile("end-without-begin", _text(*[_slice(ph="E")] * 50), "intact", 50)
    yield Hostile("rank-huge", _text(PLAIN, head='{"distributedInfo": {"rank": 99999999999}, '), "intact", 1)
    yield Hostile("rank-text", _text(PLAIN, head='{"distributedInfo": {"rank": "../x"}, '), "intact", 1)
    yield Hostile(
        "info-list", _text(PLAIN, head='{"distributedInfo": [1], "deviceProperties": {"a": 1}, '), "intact", 1
    )
    yield Hostile("base-time", _text(PLAIN, head='{"baseTimeNanoseconds": "x", '), "intact", 1)
    yield Hostile("memory-timeline", b"[[1, 2, 3, 0], [5, 6, -7, 1]", "damaged", 2)


def _sizes() -> Iterator[Hostile]:
    yield Hostile("string-1mb", _text(_slice(name="x" * (1 << 20)), PLAIN), "intact", 2)
    yield Hostile("key-1mb", _text(_slice(args={"k" * (1 << 20): 1}), PLAIN), "intact", 2)
    yield Hostile("escapes-1mb", _text(_slice(name="\x01" * 200_000), PLAIN), "intact", 2)
    yield Hostile("backslashes", _text(_slice(name="\\" * 200_000), PLAIN), "intact", 2)
    yield Hostile("many-keys", _text(_slice(args={f"k{at}": at for at in range(20_000)}), PLAIN), "intact", 2)
    yield Hostile("blanks", GOOD.replace(b" ", b" " * 50_000), "intact", 2)
    yield Hostile("many-categories", _text(*(_slice(cat=f"c{at}") for at in range(3_000))), "intact", 3_000)
    yield Hostile("same-flow", _text(*[_slice(ph=ph, id=1) for ph in "sf" * 1_500]), "intact", 3_000)
    launches = [_slice(cat=cat, args={"correlation": 1}) for cat in ("cuda_runtime", "kernel") * 1_000]
    yield Hostile("same-correlation", _text(*launches), "intact", 2_000)
    nested = [_slice(ts=at, dur=10_000 - 2 * at) for at in range(3_000)]
    yield Hostile("nested-slices", _text(*nested), "intact", 3_000)
    secrets = "password=" * 2_000 + "eyJ" * 2_000 + '\\"token\\":' * 500
    yield Hostile("like-secrets", _text(_slice(name=secrets, args={secrets: [secrets]}), PLAIN), "intact", 2)
