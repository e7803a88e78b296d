"""Texts of NVTX ranges: what splitting finds is what one regular expression finds."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from tracewarehouse.formats.base import Request
from tracewarehouse.formats.nsys import NsysFormat

OPERATOR = re.compile(
    r"^(.*?)(?:, seq = ([0-9]{1,18}))?(?:, op_id = ([0-9]{1,18}))?"
    r"(?:, sizes = (\[[0-9, \[\]-]*\]))?(?:, input_op_ids = ([^\n]*))?\Z",
    re.DOTALL,
)
PIECES = (
    "aten::mm", ", seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = ", "12", "007", "[[8, 4], [4, 2]]",
    "[]", "\n", "é", "9" * 18, "9" * 19, "[[1, 0]]", '"', " ", ",",
)  # fmt: skip


def operators(
    folder: Path, texts: Sequence[str | None]
) -> list[tuple[str | None, int | None, int | None, str | None, str | None]]:
    """Name, sequence number, id, sizes and inputs of ranges with these texts, as an export is read."""
    path = folder / "ranges.sqlite"
    with sqlite3.connect(path) as con:
        con.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        columns = "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER"
        con.execute(f"CREATE TABLE NVTX_EVENTS ({columns})")
        rows = [(at, at + 1, 59, text, 9 << 24 | 1) for at, text in enumerate(texts)]
        con.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)", rows)
    con.close()
    file = NsysFormat().open(path)
    (part,) = file.parts()
    found = file.read(part, Request(salt=b"", spill=folder)).tables["activities"].read_all()
    args = [json.loads(text or "{}") for text in found.column("args").to_pylist()]
    names, numbers, shapes = (
        found.column(column).to_pylist() for column in ("name", "sequence_number", "shapes")
    )
    return [
        (name, number, each.get("nsys.op_id"), sizes, each.get("nsys.input_op_ids"))
        for name, number, sizes, each in zip(names, numbers, shapes, args, strict=True)
    ]


def parts(text: str) -> tuple[str, int | None, int | None, str | None, str | None]:
    found = OPERATOR.match(text)
    assert found is not None
    name, sequence, op_id, sizes, inputs = found.groups()
    return (
        name or text,
        None if sequence is None else int(sequence),
        None if op_id is None else int(op_id),
        _list(sizes),
        inputs or None,
    )


def _list(sizes: str | None) -> str | None:
    """The sizes without spaces; None if they are no list."""
    try:
        return None if sizes is None else json.dumps(json.loads(sizes), separators=(",", ":"))
    except ValueError:
        return None


def test_splitting_finds_what_a_regular_expression_finds(tmp_path: Path) -> None:
    chosen = random.Random(3)
    usual = (", seq = 12", ", op_id = 9", ", sizes = [[8, 4], []]", ", input_op_ids = [[1, 0]]")
    texts = []
    for _ in range(4_000):
        some = [part for part in ("aten::mm", *usual) if chosen.random() < 0.8]
        texts.append(
            "".join(chosen.choice([some, chosen.choices((*PIECES, *usual), k=chosen.randint(0, 9))]))
        )
    rows = operators(tmp_path, texts)
    assert [(text, row) for text, row in zip(texts, rows, strict=True) if row != parts(text)] == []
    assert sum(row[1] is not None and row[3] is not None for row in rows) > 10


def test_usual_texts(tmp_path: Path) -> None:
    texts = ["aten::mm, seq = 1, op_id = 2, sizes = [[8, 4]]", "forward", "aten::add, op_id = 3", None]
    assert operators(tmp_path, texts) == [
        ("aten::mm", 1, 2, "[[8,4]]", None), ("forward", None, None, None, None),
        ("aten::add", None, 3, None, None), (None, None, None, None, None),
    ]  # fmt: skip
