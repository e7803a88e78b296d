"""The native scanner: single, deep and long elements, dictionary overflow and failing allocations."""

from __future__ import annotations

import gc
import json

import numpy as np
import pyarrow as pa
import pytest
from scanner_results import accepts, elements, expected, rows, scan

from tracewarehouse.formats.kineto import scanner as columns
from tracewarehouse.formats.kineto.library import why_not
from tracewarehouse.formats.kineto.scanner import (
    COLLECTIVE,
    ODD,
    SLOW,
    SUBNS,
    NativeScanner,
    RefusedError,
    State,
)

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def row(element: str) -> dict[str, object]:
    text = (element + "]").encode()
    scanner, batches = scan(text)
    assert accepts(scanner, text)
    (found,) = rows(batches)
    assert found == expected(elements(text)[0])
    return found


def event(args: str, rest: str = "") -> str:
    return f'{{"ph":"X","name":"k","pid":1,"tid":2,"ts":5,"dur":1{rest},"args":{args}}}'


def many(count: int, name: str = "name {}") -> bytes:
    return ",".join(f'{{"ph":"X","name":"{name.format(at)}"}}' for at in range(count)).encode() + b"]"


def test_every_column_has_its_key() -> None:
    """One event with a distinct value under every key of scanner.KEYS."""
    plain = {"shapes": "[[1]]", "dtypes": '["f"]', "grid": "[1,2,3]", "block": "[4,5,6]"}
    texts = dict.fromkeys(columns.CODES, '"t"')
    for keys in zip(
        *(names if len(names) == 2 else names * 2 for names in columns.KEYS.values()), strict=True
    ):
        values = {
            key: plain.get(column) or texts.get(column) or str(number)
            for number, (column, key) in enumerate(zip(columns.KEYS, keys, strict=True), 1)
        }
        args = "{" + ",".join(f'"{key}":{text}' for key, text in values.items()) + "}"
        found = row(event(args))
        named = {*columns.INTS, *columns.DOUBLES, *columns.CODES} - {"cat", "extra"}
        assert named <= set(found) and found["flags"] == COLLECTIVE
        for number, column in enumerate(columns.KEYS, 1):
            if column in (*columns.INTS, *columns.DOUBLES):
                assert found[column] == number


@pytest.mark.parametrize(
    ("element", "flags"),
    [
        ("{}", ODD),
        ("7", ODD),
        ("null", ODD),
        ('"text"', ODD),
        ("[1,[2]]", ODD),
        (event("{}"), 0),
        (event("[]"), ODD),
        (event("null"), ODD),
        (event("{}", ',"ts":1'), ODD),
        (event("{}", ',"color":1'), ODD),
        (event("{}", ',"cat":null'), ODD),
        (event("{}", ',"id":"12"'), ODD),
        (event("{}", ',"id":12'), 0),
        (event("{}", ',"id":"0x12"'), 0),
        (event("{}", ',"bp":"e","s":"t"'), 0),
        ('{"ts":"5"}', ODD),
        ('{"ts":1e3}', ODD),
        ('{"ts":9223372036854775.808}', ODD),
        ('{"ts":1.2345}', SUBNS),
        ('{"ts":1.23400}', 0),
        ('{"dur":null}', ODD),
        (event('{"Collective name":"x"}'), COLLECTIVE),
        (event('{"stream":7,"stream":7}'), SLOW),
        (event('{"bytes":7,"Bytes":7}'), SLOW),
        (event('{"stream":true}'), SLOW),
        (event('{"stream":1.0}'), SLOW),
        (event('{"stream":null}'), 0),
        (event('{"stre\\u0061m":1}'), SLOW),
        (event('{"grid":[1,2]}'), SLOW),
        (event('{"grid":[1,2,3,4]}'), SLOW),
        (event('{"Input Dims":[1.5]}'), SLOW),
        (event('{"Input type":["\\n"]}'), SLOW),
        (event('{"dtype":["a",1]}'), 0),
        (event('{"dtype":5}'), 0),
        (event('{"dtype":{}}'), SLOW),
        (event('{"warps per SM":1e3}'), SLOW),
        (event('{"warps per SM":"1"}'), SLOW),
    ],
)
def test_flags(element: str, flags: int) -> None:
    assert row(element)["flags"] == flags


@pytest.mark.parametrize(
    "digits",
    [
        *("0", "-0", "0.1", "0.30000000000000004", "1.7976931348623157", "12.345678901234567"),
        *("9007199254740993", "9007199254740992.5", "9223372036854775807", "0.0000000000000000001"),
        *("9007199254740991.999", "4503599627370496.5", "4503599627370497.5", "1234567890.123456789"),
    ],
)
def test_doubles_are_the_nearest_ones(digits: str) -> None:
    found = row(event('{"warps per SM":%s}' % digits))  # noqa: UP031  braces
    assert found["warps_per_sm"] == float(digits) and found["flags"] == 0


def test_random_doubles_are_the_nearest_ones() -> None:
    chance = np.random.default_rng(0)
    texts = [repr(float(x)) for x in chance.uniform(0, 1, 20_000) * 10.0 ** chance.integers(-2, 9, 20_000)]
    text = ",".join(event('{"warps per SM":%s}' % digits) for digits in texts) + "]"  # noqa: UP031
    _, (batch,) = scan(text.encode())
    values, valid = batch.doubles["warps_per_sm"]
    assert (values[valid] == np.array(texts, float)[valid]).all() and valid.mean() > 0.99
    assert ((batch.flags == SLOW) == ~valid).all()


def test_columns_without_values_are_missing() -> None:
    _, (batch,) = scan(b'{"ph":"M","ts":1}]')
    assert (set(batch.codes), set(batch.ints), set(batch.doubles), set(batch.texts)) == (
        {"ph"},
        {"ts"},
        set(),
        set(),
    )


@pytest.mark.parametrize("depth", [63, 64, 65, 128, 129, 1000, 100_000])
def test_deeply_nested_events_are_kept(depth: int) -> None:
    inner = "".join('{"a":' if at % 3 else "[" for at in range(depth))
    outer = "".join("}" if at % 3 else "]" for at in reversed(range(depth)))
    args = '{"correlation":7,"deep":' + inner + "1" + outer + "}"
    text = (event(args) + "," + inner + "1" + outer + "]").encode()
    for size in (1 << 20, 1000):
        scanner, batches = scan(text, size)
        first, second = rows(batches)
        assert scanner.state is State.CLOSED
        assert (first["args"], first["correlation"], first["flags"]) == (args, 7, 0)
        assert (second["text"], second["flags"]) == (inner + "1" + outer, ODD)
    wrong = text[: text.index(b"1", 100) + 1] + b"]}" + text[text.index(b"1", 100) + 2 :]
    assert scan(wrong)[0].state is State.REFUSED


def test_new_strings_are_distinct_and_in_no_column() -> None:
    first = event(
        '{"token":"short","key2":["a long string","a long string"],"Seq":"1"}', ',"id":"0x12345678"'
    )
    second = event('{"token":"another one\\n","Input type":["c10::BFloat16"],"dtype":"in words and here"}')
    _, batches = scan(f"{first},{first},{second},{second}]".encode(), batch_rows=2)
    found = [batch.new_strings.to_pylist() for batch in batches if batch.new_strings is not None]
    assert found == [
        ["0x12345678", "token", "key2", "a long string"],
        ["another one\\n", "in words and here"],
    ]
    assert batches[1].dictionaries["dtypes"].to_pylist() == ['["c10::BFloat16"]']


def test_too_many_new_strings_are_none() -> None:
    text = ",".join(event(f'{{"key {at}":1}}') for at in range(50)).encode() + b"]"
    _, batches = scan(text, batch_rows=10, words_most=25)
    strings = [None if batch.new_strings is None else len(batch.new_strings) for batch in batches]
    assert strings == [10, 10, None, None, None]


@pytest.mark.parametrize("limits", [{"words_most": 7}, {"words_bytes": 60}, {"words_bytes": 1}])
def test_a_full_dictionary_restarts_with_the_next_batch(limits: dict[str, int]) -> None:
    text = many(30) + b""
    scanner, batches = scan(text, **limits)
    assert scanner.state is State.CLOSED
    assert [found["name"] for found in rows(batches)] == [f"name {at}" for at in range(30)]
    assert [batch.restarted for batch in batches] == [frozenset()] + [frozenset({"name"})] * (
        len(batches) - 1
    )
    assert len(batches) > 3 and all(batch.dictionaries["ph"].to_pylist() == ["X"] for batch in batches)


def test_a_dictionary_grows_at_its_end() -> None:
    _, batches = scan(many(30), batch_rows=10)
    words = [batch.dictionaries["name"].to_pylist() for batch in batches]
    assert [len(each) for each in words] == [10, 20, 30] and words[2][:20] == words[1]


def test_batches_end_before_their_texts_get_too_long() -> None:
    text = ",".join(event('{"a":"%s"}' % ("x" * 1000)) for _ in range(100)).encode() + b"]"
    _, batches = scan(text, batch_bytes=10_000)
    assert sum(batch.rows for batch in batches) == 100
    assert max(batch.texts["args"].nbytes for batch in batches) < 12_000


def test_a_batch_grows() -> None:
    """Columns with values in the first rows only, or from a later row on."""
    head = ",".join(event(f'{{"stream":{at}}}', f',"id":{at}') for at in range(3000))
    tail = ",".join(event(f'{{"dtype":"{at}","warps per SM":{at}}}') for at in range(60_000))
    _, batches = scan(f"{head},{tail}]".encode(), batch_rows=40_000)
    assert [batch.rows for batch in batches] == [40_000, 23_000]
    found = rows(batches)
    assert [row.get("stream") for row in found] == [*range(3000), *[None] * 60_000]
    assert [row.get("flow_id") for row in found] == [*map(str, range(3000)), *[None] * 60_000]
    assert [row.get("warps_per_sm") for row in found[3000:]] == list(range(60_000))
    assert [row.get("collective_dtype") for row in found[3000:]] == list(map(str, range(60_000)))


def test_a_too_long_element_waits_for_the_caller() -> None:
    long = event('{"a":"%s"}' % ("x" * 5_000_000))
    text = f"{event('{}')},{long},{event('{}')}]".encode()
    scanner = NativeScanner()
    scanner.longest_bytes = 1_000_000
    for at in range(0, len(text), 100_000):
        assert scanner.feed(text[at : at + 100_000]) == []
        if scanner.state is not State.MORE:
            break
    assert (scanner.state, scanner.offset, scanner.rows) == (State.TOO_LONG, text.index(long.encode()), 1)
    fed = at + 100_000
    assert fed < 1_300_000
    rest = scanner.take_rest()
    assert rest == text[scanner.offset : fed] and scanner.state is State.MORE
    scanner.feed(event('{"a":"shorter"}').encode() + text[text.index(long.encode()) + len(long) :])
    assert scanner.state is State.CLOSED
    last = scanner.flush()
    assert last is not None and last.texts["args"].to_pylist() == ["{}", '{"a":"shorter"}', "{}"]


def test_a_too_long_element_is_read_after_raising_the_limit() -> None:
    text = event('{"a":"%s"}' % ("x" * 5_000_000)).encode() + b"]"
    scanner = NativeScanner()
    scanner.longest_bytes = 1000
    for at in range(0, len(text), 100_000):
        scanner.feed(text[at : at + 100_000])
        if scanner.state is State.TOO_LONG:
            scanner.longest_bytes *= 2
    while scanner.state is State.TOO_LONG:
        scanner.longest_bytes *= 2
        scanner.feed(b"")
    last = scanner.flush()
    assert last is not None and scanner.flush() is None
    assert (scanner.state, scanner.rows, last.rows) == (State.CLOSED, 1, 1)


def test_feed_array_appends_elements() -> None:
    scanner = NativeScanner(batch_rows=3)
    batches = scanner.feed_array(b' [{"ph":"a"} , 7] ') + scanner.feed_array(b"[]")
    batches += scanner.feed_array(memoryview(b'[{"ph":"b"},{"ph":"c"}]'))
    for wrong in (b'[{"ph":"d"},]', b"[1", b"{}", b"[1] 2", b"", b"1]"):
        with pytest.raises(RefusedError):
            NativeScanner().feed_array(wrong)
    last = scanner.flush()
    assert last is not None
    assert [found.get("ph") for found in rows([*batches, last])] == ["a", None, "b", "c"]


def test_elements_before_an_invalid_one_are_returned() -> None:
    scanner = NativeScanner(batch_rows=2)
    with pytest.raises(RefusedError):
        scanner.feed_array(b"[1,2,3,wrong]")
    batches = scanner.feed_array(b"[4]")
    last = scanner.flush()
    assert last is not None
    assert [found["text"] for found in rows([*batches, last])] == ["1", "2", "3", "4"]


def test_a_text_that_ends_inside_the_array_is_not_closed() -> None:
    for text in (
        b"",
        b" ",
        b"1",
        b'{"ph":"X"}',
        b'{"ph":"X"},',
        b'{"ph":"X"},{"ph',
        b'"\\u12',
        b'"\xc3',
        b"tr",
    ):
        scanner, _ = scan(text)
        assert scanner.state is State.MORE
        assert scanner.take_rest() == text[scanner.offset :]


def test_text_after_the_array_is_not_read() -> None:
    text = b'{"ph":"X"} ] , "traceName": "x"}'
    scanner, _ = scan(text)
    assert (scanner.state, scanner.take_rest()) == (State.CLOSED, b'] , "traceName": "x"}')
    with pytest.raises(ValueError, match="read to its end"):
        scanner.feed(b"1")


def test_arrays_of_a_batch_may_be_written_to_and_outlive_the_scanner() -> None:
    _, (batch,) = scan(many(1000) + b"")
    codes, flags, words = batch.codes["name"], batch.flags, batch.dictionaries["name"]
    names = pa.DictionaryArray.from_arrays(pa.array(codes), words)
    del batch
    gc.collect()
    scan(many(1000, "other {}"))
    flags[5] = ODD
    codes[5] = -1
    assert (codes[6], flags[5], names[6].as_py()) == (6, ODD, "name 6")


def test_every_allocation_that_fails_is_a_memory_error() -> None:
    args = '{"deep":' + "[" * 200 + "]" * 200 + ',"correlation":1,"Input Dims":[1],"other":"a long one"}'
    element = event(args, ',"cat":"\\u0041","id":"0x12345678","bp":"e"')
    text = f'{element},{{"ts":1.2345}},{{"odd":1}},'.encode() + many(2000)
    whole = rows(scan(text)[1])
    failures = 0
    for allocations in range(10_000):
        scanner = NativeScanner(allocations=allocations)
        try:
            for at in range(0, len(text), 5000):
                scanner.feed(text[at : at + 5000])
        except MemoryError:
            failures += 1
            continue
        last = scanner.flush()
        assert last is not None and rows([last]) == whole
        break
    assert 30 < failures < 1000


def test_values_of_equal_hash_do_not_slow_it_down() -> None:
    """Hash seeds differ between scanners; too many probes end the dictionary."""
    _, batches = scan(many(60_000, "{:08d}"))
    assert sum(batch.rows for batch in batches) == 60_000
    assert len(batches) == 1


def test_memory_errors_contain_no_values() -> None:
    with pytest.raises(MemoryError) as raised:
        NativeScanner(allocations=0).feed(b'{"name":"secret"}')
    assert "secret" not in str(raised.value)


def test_rows_are_json_that_other_parsers_read() -> None:
    text = b' {"ph" : "X", "args" : { "a b" : [ 1 , 2 ] , "c" : "d  e \\" f" } } , { "odd" : " x " } ]'
    found = rows(scan(text)[1])
    assert found[0]["args"] == '{"a b":[1,2],"c":"d  e \\" f"}'
    assert found[1]["text"] == '{"odd":" x "}' and json.loads(str(found[1]["text"])) == {"odd": " x "}
