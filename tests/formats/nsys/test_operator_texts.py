"""Texts of NVTX ranges: what splitting finds is what one regular expression finds."""

from __future__ import annotations

import random
import re

import pyarrow as pa

from tracewarehouse.formats.nsys.host import operator_texts

OPERATOR = re.compile(
    r"^(.*?)(?:, seq = ([0-9]{1,18}))?(?:, op_id = ([0-9]{1,18}))?"
    r"(?:, sizes = (\[[0-9, \[\]-]*\]))?(?:, input_op_ids = ([^\n]*))?\Z",
    re.DOTALL,
)
PIECES = (
    "aten::mm", ", seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = ", "12", "007", "[[8, 4], [4, 2]]",
    "[]", "\n", "é", "9" * 18, "9" * 19, "[[1, 0]]", '"', " ", ",",
)  # fmt: skip


def parts(text: str) -> tuple[str, int | None, int | None, str | None, str | None]:
    found = OPERATOR.match(text)
    assert found is not None
    name, sequence, op_id, sizes, inputs = found.groups()
    return (
        name or text,
        None if sequence is None else int(sequence),
        None if op_id is None else int(op_id),
        sizes,
        inputs or None,
    )


def test_splitting_finds_what_a_regular_expression_finds() -> None:
    chosen = random.Random(3)
    usual = (", seq = 12", ", op_id = 9", ", sizes = [[8, 4], []]", ", input_op_ids = [[1, 0]]")
    texts = []
    for _ in range(4_000):
        some = [part for part in ("aten::mm", *usual) if chosen.random() < 0.8]
        texts.append(
            "".join(chosen.choice([some, chosen.choices((*PIECES, *usual), k=chosen.randint(0, 9))]))
        )
    found = operator_texts(pa.array(texts))
    rows = list(zip(*(column.to_pylist() for column in found), strict=True))
    assert [(text, row) for text, row in zip(texts, rows, strict=True) if row != parts(text)] == []
    assert sum(row[1] is not None and row[3] is not None for row in rows) > 10


def test_usual_texts() -> None:
    texts = pa.array(
        ["aten::mm, seq = 1, op_id = 2, sizes = [[8, 4]]", "forward", "aten::add, op_id = 3", None]
    )
    assert [row.to_pylist() for row in operator_texts(texts)] == [
        ["aten::mm", "forward", "aten::add", None], [1, None, None, None], [2, None, 3, None],
        ["[[8, 4]]", None, None, None], [None] * 4,
    ]  # fmt: skip
