"""Scanner results as rows, and the expected rows, computed element by element in plain Python."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tracewarehouse.formats.kineto import scanner as columns
from tracewarehouse.formats.kineto.scanner import COLLECTIVE, ODD, SLOW, SUBNS, Batch, NativeScanner, State

Row = dict[str, Any]

KINDS = {
    **dict.fromkeys(columns.KEYS, "int"),
    **dict.fromkeys(("grid", "block"), "triple"),
    **dict.fromkeys(("shapes", "dtypes"), "json"),
    **dict.fromkeys(columns.DOUBLES, "real"),
    **dict.fromkeys(("collective", "process_group", "group_ranks", "collective_dtype", "sync_kind"), "text"),
}
COLUMN_OF = {key: column for column, keys in columns.KEYS.items() for key in keys}
# Decodes numbers as text.
DIGITS = json.JSONDecoder(
    parse_int=lambda t: Digits(t), parse_float=lambda t: Digits(t), object_pairs_hook=list
)


class Digits(str):
    """A number as written in the file."""


def scan(text: bytes, size: int = 1 << 20, **limits: int) -> tuple[NativeScanner, list[Batch]]:
    """The scanner after the text that follows the `[`, fed in pieces, and all batches."""
    scanner = NativeScanner(**limits)
    batches: list[Batch] = []
    for at in range(0, len(text), size):
        batches += scanner.feed(text[at : at + size])
        if scanner.state is not State.MORE:
            break
    while (batch := scanner.flush()) is not None:
        batches.append(batch)
    return scanner, batches


def rows(batches: Sequence[Batch]) -> list[Row]:
    """Every row with its non-null values."""
    return [row for batch in batches for row in _rows(batch)]


def _rows(batch: Batch) -> Iterator[Row]:
    words = {name: batch.dictionaries[name].to_pylist() for name in batch.codes}
    texts = {name: array.to_pylist() for name, array in batch.texts.items()}
    for array in batch.texts.values():
        array.validate(full=True)
    for at in range(batch.rows):
        row: Row = {"flags": int(batch.flags[at])}
        row |= {name: words[name][code] for name, codes in batch.codes.items() if (code := codes[at]) >= 0}
        for name, (values, valid) in {**batch.ints, **batch.doubles}.items():
            assert valid[at] or values[at] == 0
            if valid[at]:
                row[name] = values[at].item()
        row |= {name: values[at] for name, values in texts.items() if values[at] is not None}
        yield row


def accepts(scanner: NativeScanner, text: bytes) -> bool:
    """Whether the text is a complete array and nothing follows it."""
    return scanner.state is State.CLOSED and text[scanner.offset :].strip(b" \t\r\n") == b"]"


def strict(text: bytes) -> bool:
    """Whether `[text` is strict JSON in UTF-8 according to other parsers; one also limits numbers."""
    try:
        json.loads((b"[" + text).decode(), parse_constant=_refuse)
        msgspec.json.decode(b"[" + text)
    except (ValueError, msgspec.DecodeError) as error:
        return "out of range" in str(error)
    return True


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def elements(text: bytes) -> list[str]:
    """The elements of an array, minified."""
    found = msgspec.json.decode(b"[" + text, type=list[msgspec.Raw])
    return [msgspec.json.format(bytes(raw), indent=-1).decode() for raw in found]


def expected(element: str) -> Row:
    """The expected row of an element, by the comments in scanner.py."""
    value = DIGITS.decode(element)
    row = _event(element, value) if _is_object(element) else None
    if row is None:
        return {"flags": ODD, "text": element}
    if row["flags"] & SLOW:
        row = {name: row[name] for name in row if name in KEPT_IN_SLOW_ROWS}
    if row["flags"] & (SLOW | SUBNS):
        row["text"] = element
    return row


KEPT_IN_SLOW_ROWS = ("flags", "ph", "cat", "name", "pid", "tid", "extra", "ts", "dur", *columns.TEXTS)


def _is_object(element: str) -> bool:
    return element.startswith("{")


def _raw_members(element: str) -> dict[str, str]:
    """The members of an object, verbatim."""
    found = msgspec.json.decode(element.encode(), type=dict[str, msgspec.Raw])
    return {key: bytes(raw).decode() for key, raw in found.items()}


def _event(element: str, members: list[tuple[str, Any]]) -> Row | None:
    """None for a row that is ODD."""
    keys = [key for key, _ in members]
    raw = _raw_members(element)
    allowed = {"ph", "cat", "name", "pid", "tid", "id", "ts", "dur", "bp", "s", "args"}
    if (
        not keys
        or len(set(keys)) < len(keys)
        or not set(keys) <= allowed
        or "\\" in _key_texts(element, keys)
    ):
        return None
    row: Row = {"flags": 0}
    for key, value in members:
        if not _member(row, key, value, raw[key]):
            return None
    extra = {key: raw[key] for key in ("bp", "s") if key in raw}
    if extra:
        row["extra"] = "{" + ",".join(f'"{key}":{text}' for key, text in extra.items()) + "}"
    return row


def _key_texts(element: str, keys: list[str]) -> str:
    """A backslash if a key is written with escapes."""
    return "" if all(f'"{key}":' in element for key in keys) else "\\"


def _member(row: Row, key: str, value: Any, text: str) -> bool:
    is_number, is_text = isinstance(value, Digits), isinstance(value, str) and not isinstance(value, Digits)
    if key in ("ph", "cat", "name") and is_text:
        row[key] = value
    elif key in ("pid", "tid") and (is_number or is_text):
        row[key] = text
    elif key == "id" and (is_number or is_text):
        row["flow_id"] = str(value)
        return _is_plain(value) == is_number and "\\" not in text
    elif key in ("ts", "dur") and is_number:
        return _time(row, key, value)
    elif key in ("bp", "s") and is_text:
        return "\\" not in text
    elif key == "args" and text.startswith("{"):
        row["args"] = text
        _arguments(row, text, value)
    else:
        return False
    return True


def _is_plain(digits: str) -> bool:
    """Whether these are the digits of a 64-bit integer, except the smallest one."""
    try:
        return str(int(digits)) == digits and abs(int(digits)) < 1 << 63
    except ValueError:
        return False


def _time(row: Row, key: str, digits: str) -> bool:
    if "e" in digits.lower():
        return False
    whole, _, decimals = digits.lstrip("-").partition(".")
    if len(whole) + min(len(decimals), 3) > 19 or int(ns := whole + decimals[:3].ljust(3, "0")) >= 1 << 63:
        return False
    if decimals[3:].strip("0"):
        row["flags"] |= SUBNS
    row[key] = -int(ns) if digits.startswith("-") else int(ns)
    printed = f"{int(ns) // 1000}" + (f".{int(ns) % 1000:03}" if int(ns) % 1000 else "")
    if digits != printed:
        row[f"{key}_text"] = digits
    return True


def _arguments(row: Row, text: str, members: list[tuple[str, Any]]) -> None:
    seen = set()
    raw = _raw_members(text)
    for key, value in members:
        column = COLUMN_OF.get(key)
        if f'"{key}":' not in text and '\\"' not in json.dumps(key):
            row["flags"] |= SLOW
        if column is None:
            continue
        if column in seen:
            row["flags"] |= SLOW
        seen.add(column)
        if column == "collective":
            row["flags"] |= COLLECTIVE
        if value is not None and not _argument(row, column, value, raw[key]):
            row["flags"] |= SLOW


def _argument(row: Row, column: str, value: Any, text: str) -> bool:
    kind = KINDS[column]
    if kind == "int":
        if not isinstance(value, str) or not _is_plain(value) or "\\" in text:
            return False
        row[column] = int(value)
    elif kind == "real":
        if not isinstance(value, Digits) or not _is_short(value):
            return False
        row[column] = float(value)
    elif kind == "triple":
        if not isinstance(value, list) or len(value) != 3 or not all(map(_is_plain_number, value)):
            return False
        row |= {f"{column}_{axis}": int(part) for axis, part in zip("xyz", value, strict=True)}
    elif kind == "json" or text.startswith("["):
        if "\\" in text or any(not _is_integer(number) for number in _numbers(value)):
            return False
        row[column] = text
    else:
        if not isinstance(value, str) or (isinstance(value, Digits) and not _is_plain(value)):
            return False
        row[column] = str(value)
    return True


def _is_short(digits: str) -> bool:
    if "e" in digits.lower():
        return False
    whole, _, decimals = digits.lstrip("-").partition(".")
    return len((whole + decimals).lstrip("0")) <= 19 and len(decimals) <= 19


def _is_plain_number(value: Any) -> bool:
    return isinstance(value, Digits) and _is_plain(value)


def _is_integer(digits: str) -> bool:
    return not set(digits) & set(".eE")


def _numbers(value: Any) -> Iterator[str]:
    if isinstance(value, Digits):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _numbers(part)


# ---- Texts ----------------------------------------------------------------------------------------------

_KEYS = [key for keys in columns.KEYS.values() for key in keys]
_OTHER_KEYS = ["Ev Idx", "Trace name", "token", "kind", "Call stack", "é", "a\\u0062", "strea\\u006d", ""]
# None that a key with an escape spells: this module finds escapes in keys by their text.
_NESTED_KEYS = [*_OTHER_KEYS, *(key for key in _KEYS if key != "stream")]
_SCALARS = [
    *("0", "1", "-1", "7", "-0", "4294967295", "9223372036854775807", "9223372036854775808"),
    *("18446744073709551616", "1.5", "0.25", "-2.75", "1e3", "1E-2", "0.30000000000000004", "1.0"),
    *("12.345678901234567", "123456789012345678901", "null", "true", "false", '""', '"7"', '"-12"', '"abc"'),
    *('"nccl:all_reduce"', '"a\\/b\\n"', '"\\u00e9\\ud83d\\ude00"', '"é😀"', '"\\u0000"', '"0x1f2e3d4c"'),
]
_TIMES = ["0", "1", "1.5", "1.500", "1.000", "123.456", "123.4560", "123.4567", "-3.25", "1e3"]
_TIMES += ["1669783687468053", "1669783687468053.123", "9223372036854775.807", "9223372036854775808", '"5"']


def element(random: random.Random) -> str:
    """A random element: usually an event with known keys and values of any type."""
    if random.random() < 0.03:
        return value(random)
    pairs = [(key, _value_of(random, key)) for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur")]
    pairs += [(key, _value_of(random, key)) for key in ("id", "bp", "s") if random.random() < 0.1]
    if random.random() < 0.8:
        pairs.append(("args", arguments(random)))
    if random.random() < 0.1:
        pairs.append((random.choice(["ph", "args", "other", "n\\u0061me"]), value(random)))
    if random.random() < 0.3:
        random.shuffle(pairs)
    return _object(random, pairs)


def _value_of(random: random.Random, key: str) -> str:
    if random.random() < 0.02:
        return value(random)
    if key in ("ts", "dur"):
        return random.choice(_TIMES)
    if key in ("pid", "tid", "id"):
        return random.choice(["1", "2", "77", '"stream 7"', '"abc"', "0", '"12"'])
    return random.choice(['"X"', '"kernel"', '"aten::add_"', '"f"', '"e"', '"void k<int>(int)"', '"\\u0041"'])


def arguments(random: random.Random) -> str:
    """A random object of arguments."""
    keys = [
        random.choice(_KEYS if random.random() < 0.8 else _OTHER_KEYS) for _ in range(random.randrange(7))
    ]
    pairs = []
    for key in keys:
        kind = KINDS.get(COLUMN_OF.get(key, ""), "")
        usual = {
            "int": "7",
            "triple": "[1, 2,3]",
            "json": '[[1,2],[],"f"]',
            "real": "0.125",
            "text": '"nccl"',
        }
        pairs.append((key, usual[kind] if kind and random.random() < 0.6 else value(random)))
    return _object(random, pairs)


def value(random: random.Random, depth: int = 0) -> str:
    """A random JSON value."""
    if depth > 3 or random.random() < 0.6:
        return random.choice(_SCALARS)
    blank = random.choice(("", " ", "\n  "))
    parts = [value(random, depth + 1) for _ in range(random.randrange(4))]
    if random.random() < 0.5:
        return f"[{blank}" + f",{blank}".join(parts) + f"{blank}]"
    return _object(random, [(random.choice(_NESTED_KEYS), part) for part in parts])


def _object(random: random.Random, pairs: list[tuple[str, str]]) -> str:
    colon, comma, edge = random.choice(((":", ",", ""), (": ", ", ", ""), (" :\t", ",\n    ", "\n")))
    return "{" + edge + comma.join(f'"{key}"{colon}{text}' for key, text in pairs) + edge + "}"
