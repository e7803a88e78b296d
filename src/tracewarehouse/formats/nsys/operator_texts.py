"""The parts of the texts of NVTX ranges that PyTorch's `emit_nvtx` writes for operators.

`aten::mm, seq = 12, op_id = 9, sizes = [[8, 4], [4, 2]], input_op_ids = …`; all parts after the name are
optional. Texts differ in their numbers, names and sizes repeat. Texts are split at the marks, which takes a
tenth of the time of a regular expression; that is left to the texts whose parts are unusual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]

_LONGEST_NUMBER: Final = 18
_SIZES: Final = r"\[[0-9, \[\]-]*\]"
_OPERATOR: Final = (
    r"^(?P<name>(?s:.*?))(?:, seq = (?P<sequence>[0-9]{1,18}))?(?:, op_id = (?P<op_id>[0-9]{1,18}))?"
    rf"(?:, sizes = (?P<sizes>{_SIZES}))?(?:, input_op_ids = (?P<inputs>.*))?$"
)


class OperatorTexts(NamedTuple):
    """The parts of each text, null where it lacks one. A text that is not an operator's is all name."""

    name: pa.DictionaryArray
    sequence: pa.Array
    op_id: pa.Array
    sizes: pa.DictionaryArray
    inputs: pa.Array


def operator_texts(texts: pa.Array) -> OperatorTexts:
    """The parts of texts of ranges; numbers as integers."""
    rest, inputs, usual = _split(pc.fill_null(texts, ""), ", input_op_ids = ")
    rest, sizes, once = _split(rest, ", sizes = ")
    usual &= once & _are_sizes(sizes)
    rest, op_id, once = _split(rest, ", op_id = ")
    usual &= once & _are_numbers(op_id)
    name, sequence, once = _split(rest, ", seq = ")
    usual &= once & _are_numbers(sequence)
    if inputs.null_count < len(inputs):
        usual &= ~_flags(pc.match_substring(inputs, "\n"))
        inputs = _none_if_empty(inputs)
    parts = {"name": name, "sequence": sequence, "op_id": op_id, "sizes": sizes, "inputs": inputs}
    unusual = pa.array(~usual)
    if not usual.all():
        matched = pc.extract_regex(pc.fill_null(texts.filter(unusual), ""), _OPERATOR)
        parts = {
            key: pc.replace_with_mask(part, unusual, _none_if_empty(pc.struct_field(matched, key)))
            for key, part in parts.items()
        }
    name = parts["name"]
    if name.null_count or pc.any(pc.equal(name, "")).as_py():
        name = pc.coalesce(_none_if_empty(name), texts)
    return OperatorTexts(
        name.dictionary_encode(),
        parts["sequence"].cast(pa.int64()),
        parts["op_id"].cast(pa.int64()),
        parts["sizes"].dictionary_encode(),
        parts["inputs"],
    )


def _split(texts: pa.Array, mark: str) -> tuple[pa.Array, pa.Array, Flags]:
    """The texts before and after a mark, null where there is none; and whether it occurs at most once."""
    parts = pc.split_pattern(texts, mark)
    if len(parts.values) == len(texts):
        return texts, pa.nulls(len(texts), pa.string()), np.ones(len(texts), np.bool_)
    offsets = parts.offsets.to_numpy()
    first, count = offsets[:-1], np.diff(offsets)
    after = pa.array(first + 1, mask=count < 2)
    return parts.values.take(pa.array(first)), parts.values.take(after), count <= 2


def _are_numbers(texts: pa.Array) -> Flags:
    """Whether each text is a number that 64 bits hold, or null."""
    if texts.null_count == len(texts):
        return np.ones(len(texts), np.bool_)
    is_short = pc.less_equal(pc.binary_length(texts), _LONGEST_NUMBER)
    return _flags(pc.fill_null(pc.and_(pc.ascii_is_decimal(texts), is_short), True))


def _are_sizes(texts: pa.Array) -> Flags:
    """Whether each text is a list of input sizes, or null."""
    encoded = texts.dictionary_encode()
    known = pc.match_substring_regex(encoded.dictionary, f"^{_SIZES}$").take(encoded.indices)
    return _flags(pc.fill_null(known, True))


def _flags(found: pa.Array) -> Flags:
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False).astype(np.bool_, copy=False)  # type: ignore[no-any-return]


def _none_if_empty(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
