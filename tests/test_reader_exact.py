"""Digits: what the file says comes back unchanged, in bulk and event by event."""

from __future__ import annotations

import json
import random
from decimal import ROUND_DOWN, Decimal
from pathlib import Path

import pytest

from reader_cases import SMALL_BYTES, Loaded, event, load, trace, write
from tracewarehouse import engine
from tracewarehouse.reader import odd, typed

NUMBERS = [
    "1712195495521311.104",
    "1712195495521311.10412345678901",
    "0.080",
    "19.890",
    "-3.250",
    "0",
    "-0.0",
    "9007199254740993",
    "9223372036854775807.999999999",
    "1e3",
    "1.5E+05",
    "2.5e-7",
    "0.00049999999999999",
    "123456789012345678901234567890",
    "1e400",
]


def cut(text: str) -> Decimal | None:
    """A second witness for the DECIMAL(28,9) of a number's text."""
    number = Decimal(text)
    if abs(number) >= Decimal(10) ** 19:
        return None
    return Decimal(f"{number:.60f}").quantize(Decimal("1e-9"), rounding=ROUND_DOWN, context=odd._EXACT)


@pytest.mark.parametrize("trust", [True, False])
@pytest.mark.parametrize("quote", ["", '"'])
def test_every_number_keeps_its_digits(tmp_path: Path, trust: bool, quote: str) -> None:
    events = ",".join(
        f'{{"ph":"X","ts":{quote}{n}{quote},"dur":{n},"pid":{n},"id":{n},"args":{{"a":[{n},{{"b":{n}}}],"c":{n}}}}}'
        for n in NUMBERS
    )
    loaded = Loaded(write(tmp_path, f'{{"x":{NUMBERS[1]},"traceEvents":[{events}]}}'.encode()), trust=trust)
    rows = loaded.rows("ts_text, dur_text, pid, id, args, ts, dur, extra")
    assert loaded.survey.header_json == f'{{"x":{NUMBERS[1]}}}'
    for text, (ts_text, dur_text, pid, id_, args, ts, dur, extra) in zip(NUMBERS, rows, strict=True):
        assert (ts_text, dur_text, pid, id_) == (text, text, text, text)
        assert args == f'{{"a":[{text},{{"b":{text}}}],"c":{text}}}'
        assert ts == dur == cut(text), text
        assert extra == (f'{{"ts":"{text}"}}' if quote else None)


def test_random_epoch_times_are_exact(tmp_path: Path) -> None:
    rng = random.Random(5)
    places = [rng.choice([0, 3, 6, 14]) for _ in range(5000)]
    texts = [
        f"{rng.randrange(10**15, 2 * 10**15)}" + (f".{rng.randrange(10**p):0{p}}" if p else "")
        for p in places
    ]
    events = ",".join(f'{{"ph":"X","ts":{text},"dur":1.000,"args":{{"t":{text}}}}}' for text in texts)
    loaded = load(tmp_path, f'{{"traceEvents":[{events}]}}'.encode())
    assert loaded.rows("ts_text, ts, args") == [(t, cut(t), f'{{"t":{t}}}') for t in texts]
    wholes = [
        int(Decimal(t).scaleb(3)) if count in (0, 3) else None for t, count in zip(texts, places, strict=True)
    ]
    assert loaded.rows("ts_ns, dur_ns") == [(whole, 1000) for whole in wholes]


@pytest.mark.parametrize(
    "text", [*NUMBERS, "9999999999999999", "-9999999999999999.999", "+1.000", " 1.000", "1.e3"]
)
def test_whole_nanoseconds_are_the_number_or_none(tmp_path: Path, text: str) -> None:
    loaded = load(tmp_path, f'[{{"ph":"X","ts":"{text}","dur":"{text}"}}]'.encode())
    ((ts, ts_ns, dur_ns),) = loaded.rows("ts, ts_ns, dur_ns")
    assert ts_ns == dur_ns
    assert ts_ns is None or ts is not None and ts_ns == ts.scaleb(3)


def test_decimals_are_cut_not_rounded_twice(tmp_path: Path) -> None:
    """0.00049999999999 µs is 0 ns; rounded at the ninth decimal first it would become 1 ns."""
    loaded = load(tmp_path, b'[{"ph":"X","ts":0.00049999999999,"dur":"0.00049999999999"}]')
    assert loaded.rows("round(ts * 1000)::BIGINT, round(dur * 1000)::BIGINT") == [(0, 0)]


def test_a_decimal_type_makes_duckdb_keep_number_text() -> None:
    """The shape of the bulk SQL rests on this; without the DECIMAL the same call changes digits."""
    con = engine.connect()
    text = '{"args":{"a":[1712195495521311.10400,2.50,1e5]}}'
    exact = f"SELECT json_transform('{text}', '{typed._SHAPE}').args"
    assert con.execute(exact).fetchall() == [('{"a":[1712195495521311.10400,2.50,1e5]}',)]
    loose = f"SELECT json_transform('{text}', '{{\"args\":\"JSON\"}}').args"
    assert con.execute(loose).fetchall() != [('{"a":[1712195495521311.10400,2.50,1e5]}',)]


def test_every_member_of_every_event_is_in_a_column(tmp_path: Path) -> None:
    loaded = load(tmp_path, SMALL_BYTES)
    wanted = json.loads(SMALL_BYTES, parse_float=Decimal, parse_int=Decimal)["traceEvents"]
    assert [rebuilt(row) for row in loaded.rows(COLUMNS)] == wanted


COLUMNS = "text, ph, cat, name, pid, tid, id, ts_text, dur_text, args, extra"


def exact(text: str) -> object:
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def rebuilt(row: tuple[str | None, ...]) -> object:
    """An element put together again from the columns of `raw`."""
    text, ph, cat, name, pid, tid, id_, ts, dur, args, extra = row
    assert text is not None
    if not text.startswith("{"):
        return exact(text)
    out: dict[str, object] = {}
    out.update(
        {
            key: value
            for key, value in zip(("ph", "cat", "name"), (ph, cat, name), strict=True)
            if value is not None
        }
    )
    given = {"pid": pid, "tid": tid, "id": id_, "ts": ts, "dur": dur, "args": args}
    others = exact(extra) if extra is not None else {}
    assert isinstance(others, dict)
    out.update({key: exact(value) for key, value in given.items() if value is not None and key not in others})
    return {**out, **others}


ODD = [
    *("null", '"text"', "5", '[1, {"ph": 1}]', "{}", '{"ph": "X"}', '{"name": "only"}', "true"),
    '{"ph": 5, "cat": null, "name": ["a"], "ts": null, "dur": true, "args": null, "pid": null}',
    '{"ph": "X", "ts": "12", "dur": "x1", "args": [1.50, 2], "pid": [1], "tid": {"a": 1.50}, "id": "0x1"}',
    '{"args": {"args": 1, "x": {"args": {}}}, "ph": "X", "bp": {"x": 1}, "s": 5, "sf": 7, "tts": 1.250}',
    '{"name": "q\\"\\\\\\u00e9\\ud83d\\ude00\\n", "cat": "a,b", "ph": "X", "ts": 1e3, "dur": "1e3"}',
    '{"\\u0070h": "X", "id2": {"local": "0x1"}, "args": "text", "pid": "7", "tid": "stream 7"}',
    '{"ph": "X", "ts": "", "dur": "\\u0031", "name": ""}',
    '{"": 1, "__exact__": 5, "a b": [], "args": ""}',
]


@pytest.mark.parametrize("trust", [True, False])
def test_odd_shapes_come_back(tmp_path: Path, trust: bool) -> None:
    data = f"[{','.join(ODD)}]".encode()
    loaded = Loaded(write(tmp_path, data), trust=trust)
    assert loaded.column("event_id") == list(range(len(ODD)))
    assert [rebuilt(row) for row in loaded.rows(COLUMNS)] == [exact(text) for text in ODD]


def test_a_key_that_comes_twice_in_an_event_keeps_both(tmp_path: Path) -> None:
    loaded = load(tmp_path, b'[{"ph":"X","dur":1.50,"x":1,"dur":2.50,"x":{"y":1}}]')
    assert loaded.rows("dur, dur_text, extra") == [
        (Decimal("2.5"), "2.50", '{"x":{"y":1},"__duplicates__":[["dur",1.50],["x",1]]}')
    ]


def test_text_holds_the_tokens_of_the_file(tmp_path: Path) -> None:
    loaded = load(tmp_path, b'[ {"ph" : "X", "name":"\\u00e9 a  b",\n "ts": 1.50 } ]')
    assert loaded.column("text") == ['{"ph":"X","name":"\\u00e9 a  b","ts":1.50}']


def test_many_chunks_make_one_array(tmp_path: Path) -> None:
    events = [
        event(name=f"op {i} }}, {{", args={"i": i, "pad": "x" * 300, "l": [{"a": 1}, {"b": 2}]})
        for i in range(30_000)
    ]
    loaded = load(tmp_path, trace(events))
    assert loaded.survey.status == "whole" and loaded.survey.text_bytes > 10_000_000
    assert (
        loaded.rows(
            "event_id", "event_id <> (args ->> '$.i')::BIGINT OR name <> 'op ' || event_id || ' }, {'"
        )
        == []
    )
    assert loaded.con.execute("SELECT count(*) FROM raw").fetchone() == (30_000,)
