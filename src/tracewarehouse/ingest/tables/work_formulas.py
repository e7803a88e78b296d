"""FLOP and bytes of an operator from its inputs: one formula per kind of operator.

Tensors have lists of numbers as shapes, lists of tensors have lists of such lists. Everything else has an
empty list, as has a tensor without dimensions. Values of arguments that are not tensors are texts.

A multiply-add is two FLOP. Numbers are exact integers. What a formula needs and the trace does not have makes
the result null, with the reason; what it can bound becomes an upper or lower bound.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from tracewarehouse.ingest.rules import WorkRule


Shape = list[int]


class UnknownInputError(Exception):
    """An input that the formula needs is not recorded; the text says which."""


class Inputs(Struct, frozen=True, dict=True):
    """The recorded inputs of an operator; texts are None if the trace does not have them.

    `element_bytes` maps types, in lower case without `c10::`, to their sizes.
    """

    name: str
    element_bytes: Mapping[str, int]
    shapes_text: str | None
    types_text: str | None
    values_text: str | None
    strides_text: str | None

    @cached_property
    def shapes(self) -> list[Any]:
        """The shape of each argument."""
        found = _list(self.shapes_text)
        if not any(found) and not any(self.types):
            raise UnknownInputError("no shapes recorded")
        return found

    @cached_property
    def types(self) -> list[str]:
        """The element type of each argument; empty for one that is not a tensor."""
        return _element_types(self.types_text)

    @cached_property
    def values(self) -> list[str]:
        """The value of each argument as text; empty for tensors."""
        return [str(each) for each in _list(self.values_text)]

    @cached_property
    def strides(self) -> list[Any]:
        """The strides of each argument."""
        return _list(self.strides_text)

    def shape(self, at: int) -> Shape:
        """The shape of a tensor argument."""
        if not self.has_tensor(at):
            raise UnknownInputError("no shapes recorded for its operands")
        found: Shape = self.shapes[at]
        return found

    def matrix(self, at: int) -> tuple[int, int, int]:
        """A matrix or a batch of matrices as (batch, rows, columns)."""
        shape = self.shape(at)
        if len(shape) not in (2, 3):
            raise UnknownInputError("operands are not matrices")
        return (shape[0] if len(shape) == 3 else 1), shape[-2], shape[-1]

    def has_tensor(self, at: int) -> bool:
        """Whether the argument is a tensor; one without dimensions is only known by its type."""
        if at >= len(self.shapes):
            return False
        return is_shape(self.shapes[at]) or self.shapes[at] == [] and bool(self.type(at))

    def type(self, at: int) -> str | None:
        """The type of an argument, None if it is not recorded."""
        return self.types[at] or None if at < len(self.types) else None

    def size(self, at: int) -> int:
        """Bytes of an element of a tensor argument."""
        type_ = self.type(at)
        if type_ is None or type_ not in self.element_bytes:
            raise UnknownInputError("element type not recorded" if type_ is None else f"unknown type {type_}")
        return self.element_bytes[type_]

    def elements(self, at: int) -> int:
        """Elements of a tensor argument that are in memory: a dimension with stride 0 counts once."""
        return _distinct_elements(self.shape(at), self.strides[at] if at < len(self.strides) else None)

    def bytes(self, at: int) -> int:
        """Bytes of these elements."""
        return self.elements(at) * self.size(at)

    def listed(self, at: int) -> list[Shape]:
        """The shapes of a list of tensors; empty if the trace does not print it."""
        recorded = _list(self.shapes_text)
        found = recorded[at] if at < len(recorded) else []
        return [shape for shape in found if is_shape(shape)] if isinstance(found, list) else []

    def value(self, at: int) -> str | None:
        """The value of an argument, None if it is not recorded."""
        return self.values[at] or None if at < len(self.values) else None

    def flag(self, at: int) -> bool | None:
        """The value of a boolean argument, None if it is not recorded."""
        return _flag(self.value(at))

    def numbers(self, at: int, count: int) -> list[int] | None:
        """A list of numbers; a single one applies to all dimensions. None if it is not recorded."""
        text = self.value(at)
        found = _list(text if text is None or text.startswith("[") else f"[{text}]")
        numbers = [each for each in found if isinstance(each, int)]
        if len(numbers) == 1:
            return numbers * count
        return numbers if len(numbers) == count else None

    def flags(self, at: int) -> list[bool]:
        """A list of booleans; empty if it is not recorded."""
        words = (self.value(at) or "").strip("[]").split(",")
        return [flag for word in words if (flag := _flag(word.strip())) is not None]


def is_shape(found: object) -> TypeGuard[Shape]:
    """Whether this is the shape of a tensor with at least one dimension."""
    return isinstance(found, list) and bool(found) and all(type(each) is int and each >= 0 for each in found)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape that results from broadcasting; sizes that do not fit are not checked."""
    rank = max(map(len, shapes), default=0)
    padded = [[1] * (rank - len(shape)) + shape for shape in shapes]
    return [0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True)]


def _distinct_elements(shape: Shape, strides: object) -> int:
    if not isinstance(strides, list) or len(strides) != len(shape):
        return prod(shape)
    return prod(min(size, 1) if stride == 0 else size for size, stride in zip(shape, strides, strict=True))


@lru_cache(1024)
def _element_types(text: str | None) -> list[str]:
    """The types of tensors in lower case; types of other values, such as Int, begin in upper case."""
    words = [str(each) for each in _list(text)]
    return [word.lower().removeprefix("c10::") if word[:1].islower() else "" for word in words]


def _flag(text: str | None) -> bool | None:
    return {"true": True, "false": False}.get((text or "").lower())


@lru_cache(1024)
def _list(text: str | None) -> list[Any]:
    """A list in JSON, empty if it is none; operators share it, so it may not be changed."""
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return []
    return found if isinstance(found, list) else []


_LOG_SUM_BYTES: Final = 4  # flash attention keeps one fp32 number per query
_LARGEST: Final = 2**63 - 1


class Work(Struct, frozen=True):
    """The work of an operator; see table `op_work`. `matrix` is (m, n, k, batch)."""

    model_flop: int | None = None
    hardware_flop: int | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None
    bound: str | None = "exact"
    reason: str | None = None
    dtype: str | None = None
    matrix: tuple[int, int, int, int] | None = None


def work_of(inputs: Inputs, rule: WorkRule) -> Work:
    """The work of an operator; null with a reason if it does not follow from the recorded inputs."""
    try:
        found = _FORMULAS[rule.formula](inputs, rule)
    except UnknownInputError as error:
        found = Work(bound=None, reason=str(error))
    except (IndexError, ValueError):
        found = Work(bound=None, reason="inputs do not fit the operator")
    numbers = (found.model_flop, found.hardware_flop, found.read_bytes, found.write_bytes)
    if any(each is not None and not 0 <= each <= _LARGEST for each in numbers):
        found = Work(bound=None, reason="too large for 64 bits")
    return replace(found, dtype=_dtype(inputs, rule))


def _dtype(inputs: Inputs, rule: WorkRule) -> str | None:
    """The type of the first operand, or of the first argument with an element type."""
    found = inputs.type(rule.first_input)
    known = [each for each in inputs.types if each in inputs.element_bytes]
    return found if found in inputs.element_bytes else (known[0] if known else None)


def _moved(work: Work, read: Callable[[], int], write: Callable[[], int]) -> Work:
    """The work with its bytes, which stay null if an element type is not recorded."""
    try:
        return replace(work, read_bytes=read(), write_bytes=write())
    except UnknownInputError as error:
        return replace(work, reason=work.reason or f"no bytes: {error}")


def _matmul(inputs: Inputs, rule: WorkRule) -> Work:
    at = rule.first_input
    batch, m, k = inputs.matrix(at)
    other, inner, n = inputs.matrix(at + 1)
    if k != inner or batch != other:
        raise UnknownInputError("shapes of the operands do not fit")
    results = 1 if rule.formula == "summed_matmul" else batch
    return _product(inputs, (m, n, k, batch), at, results)


def _linear(inputs: Inputs, rule: WorkRule) -> Work:
    at = rule.first_input
    rows, weight = inputs.shape(at), inputs.shape(at + 1)
    if len(weight) != 2 or rows[-1] != weight[1]:
        raise UnknownInputError("shapes of the operands do not fit")
    return _product(inputs, (prod(rows[:-1]), weight[0], weight[1], 1), at, 1, bias=at + 2)


def _product(
    inputs: Inputs, matrix: tuple[int, int, int, int], at: int, results: int, bias: int | None = None
) -> Work:
    """A matrix product of the operands at `at` and behind it; `results` is the number of written ones."""
    m, n, k, batch = matrix
    flop = 2 * batch * m * n * k
    added = bias if bias is not None else at - 1
    has_added = added >= 0 and inputs.has_tensor(added)

    def read() -> int:
        return inputs.bytes(at) + inputs.bytes(at + 1) + (inputs.bytes(added) if has_added else 0)

    return _moved(Work(flop, flop, matrix=matrix), read, lambda: results * m * n * inputs.size(at))


def _convolution(inputs: Inputs, _rule: WorkRule) -> Work:
    shape, weight = inputs.shape(0), inputs.shape(1)
    sizes, kernel = shape[2:], weight[2:]
    count = len(sizes)
    stride, padding, dilation = (inputs.numbers(at, count) for at in (3, 4, 5))
    transposed = inputs.flag(6)
    if stride is None or padding is None or dilation is None or transposed is None:
        raise UnknownInputError("stride and padding not recorded")
    steps = list(zip(sizes, kernel, stride, padding, dilation, strict=True))
    if transposed:
        extra = inputs.numbers(7, count) or [0] * count
        result = [(i - 1) * s - 2 * p + d * (w - 1) + 1 for i, w, s, p, d in steps]
        result = [size + more for size, more in zip(result, extra, strict=True)]
        channels, places = weight[1] * int(inputs.value(8) or 1), sizes
    else:
        result = [(i + 2 * p - d * (w - 1) - 1) // s + 1 for i, w, s, p, d in steps]
        channels, places = weight[0], result
    flop = 2 * shape[0] * prod(places) * prod(weight)
    written = shape[0] * channels * prod(result)
    return _moved(
        Work(flop, flop), lambda: inputs.bytes(0) + inputs.bytes(1), lambda: written * inputs.size(0)
    )


def _convolution_backward(inputs: Inputs, rule: WorkRule) -> Work:
    """Each gradient is one convolution: of the output's gradient with the weight, or with the input."""
    is_old = rule.formula == "old_convolution_backward"
    gradient, image, weight = (1, 0, 2) if is_old else (0, 1, 2)
    transposed, mask = (False, [True, True]) if is_old else (inputs.flag(7), inputs.flags(10))
    if transposed is None or len(mask) < 2:
        raise UnknownInputError("output mask not recorded")
    places = inputs.shape(image if transposed else gradient)[2:]
    one = 2 * inputs.shape(gradient)[0] * prod(places) * prod(inputs.shape(weight))
    flop = one * (mask[0] + mask[1])

    def read() -> int:
        others = (inputs.bytes(weight) if mask[0] else 0) + (inputs.bytes(image) if mask[1] else 0)
        return (mask[0] + mask[1]) * inputs.bytes(gradient) + others

    def write() -> int:
        return (_full_bytes(inputs, image) if mask[0] else 0) + (
            _full_bytes(inputs, weight) if mask[1] else 0
        )

    known = Work(flop, flop)
    if is_old:
        known = replace(known, bound="upper", reason="output mask not recorded: both gradients assumed")
    return _moved(known, read, write)


def _full_bytes(inputs: Inputs, at: int) -> int:
    """Bytes of a result of this shape, which has no dimension of stride 0."""
    return prod(inputs.shape(at)) * inputs.size(at)


class _Attention(Struct, frozen=True):
    """Sizes of an attention call, its visible pairs of query and key, and how well they are known."""

    batch: int
    heads: int
    queries: int
    depth: int
    value_depth: int
    pairs: int
    bound: str
    reason: str | None

    @property
    def half(self) -> tuple[int, int]:
        """FLOP of the products with the keys and with the values."""
        units = 2 * self.batch * self.heads * self.pairs
        return units * self.depth, units * self.value_depth


def _sizes(inputs: Inputs, rule: WorkRule) -> _Attention:
    query, key, value = (inputs.shape(rule.first_input + each) for each in range(3))
    if len(query) != 4 or len(key) != 4 or len(value) != 4:
        raise UnknownInputError("operands do not have four dimensions")
    head, length = (2, 1) if "by_length" in rule.formula else (1, 2)
    queries, keys = query[length], key[length]
    pairs, bound, reason = _visible_pairs(inputs, rule, queries, keys)
    return _Attention(query[0], query[head], queries, query[3], value[3], pairs, bound, reason)


def _visible_pairs(inputs: Inputs, rule: WorkRule, queries: int, keys: int) -> tuple[int, str, str | None]:
    """Pairs of query and key that the mask leaves, whether that is exact, and why not."""
    flag = None if rule.causal_flag is None else inputs.flag(rule.causal_flag)
    if flag is None:
        return queries * keys, "upper", "causal flag not recorded: no mask assumed"
    shift = keys - queries if rule.causal_mask == "bottom_right" else 0
    # Keys that are visible before and after a query's own position; None for all.
    left = right = None
    if rule.window_at is not None:
        sizes = [inputs.numbers(rule.window_at + each, 1) for each in range(2)]
        left, right = (each[0] if each and each[0] >= 0 else None for each in sizes)
    if flag:
        right = 0
    return _pairs(queries, keys, shift, left, right), "exact", None


def _pairs(queries: int, keys: int, shift: int, left: int | None, right: int | None) -> int:
    """Σ over queries i of the keys j with i + shift − left ≤ j ≤ i + shift + right."""
    up_to = queries * keys if right is None else _reached(queries, keys, shift + right + 1)
    before = 0 if left is None else _reached(queries, keys, shift - left)
    return max(up_to - before, 0)


def _reached(queries: int, keys: int, first: int) -> int:
    """Σ over i < queries of the number i + first, limited to the range from 0 to `keys`."""
    low = min(max(-first, 0), queries)  # from here on it is positive
    high = min(max(keys - first, low), queries)  # from here on it is all keys
    ascending = (high - low) * (low + first + high - 1 + first) // 2
    return ascending + (queries - high) * keys


def _attention(inputs: Inputs, rule: WorkRule) -> Work:
    sizes, at = _sizes(inputs, rule), rule.first_input
    flop = sum(sizes.half)
    rows = sizes.batch * sizes.heads * sizes.queries
    return _moved(
        Work(flop, flop, bound=sizes.bound, reason=sizes.reason),
        lambda: sum(inputs.bytes(at + each) for each in range(3)),
        lambda: rows * (sizes.value_depth * inputs.size(at) + _LOG_SUM_BYTES),
    )


def _attention_backward(inputs: Inputs, rule: WorkRule) -> Work:
    """Two products with the keys and two with the values; the hardware recomputes the scores once more."""
    sizes, at = _sizes(inputs, rule), rule.first_input
    keys, values = sizes.half
    results = sizes.batch * sizes.heads * sizes.queries * sizes.value_depth
    return _moved(
        Work(2 * (keys + values), 3 * keys + 2 * values, bound=sizes.bound, reason=sizes.reason),
        lambda: sum(inputs.bytes(at + each) for each in range(3)) + 2 * results * inputs.size(at),
        lambda: sum(_full_bytes(inputs, at + each) for each in range(3)),
    )


def _attention_varlen(inputs: Inputs, rule: WorkRule) -> Work:
    """Sequences of unknown lengths one after the other: every key length is at most the longest."""
    at = rule.first_input
    query, value, longest = inputs.shape(at), inputs.shape(at + 2), inputs.numbers(at + 6, 1)
    if len(query) != 3 or longest is None:
        raise UnknownInputError("sequence lengths not recorded")
    flop = 2 * query[1] * query[0] * min(longest[0], value[0]) * (query[2] + value[2])
    return _moved(
        Work(flop, flop, bound="upper", reason="only the longest sequence length is recorded"),
        lambda: sum(inputs.bytes(at + each) for each in range(3)),
        lambda: query[0] * query[1] * (value[2] * inputs.size(at) + _LOG_SUM_BYTES),
    )


def _tensors(inputs: Inputs) -> list[int]:
    """The positions of tensor arguments."""
    return [at for at in range(len(inputs.shapes)) if inputs.has_tensor(at)]


def _pointwise(inputs: Inputs, rule: WorkRule) -> Work:
    """All inputs are read once, and a result is written, of their common shape or as large as the largest."""
    found = _tensors(inputs)
    if not found:
        raise UnknownInputError("no shapes recorded for its operands")
    if rule.family == "elementwise":
        full = prod(broadcast([inputs.shape(at) for at in found]))
    else:
        full = max(prod(inputs.shape(at)) for at in found)

    def write() -> int:
        if inputs.name.endswith("_"):
            return _full_bytes(inputs, found[0])
        size = 1 if rule.formula == "comparison" else max(inputs.size(at) for at in found)
        return full * size + (full if rule.formula == "dropout" else 0)

    return _without_flop(inputs, lambda: sum(inputs.bytes(at) for at in found), write)


def _without_flop(
    inputs: Inputs, read: Callable[[], int], write: Callable[[], int], lower: str | None = None
) -> Work:
    """Work of a family without FLOP; `lower`: why the bytes are a lower bound.

    Without recorded strides, dimensions may be broadcast: the bytes are an upper bound.
    """
    bound = "lower" if lower else "exact" if inputs.strides_text else "upper"
    reason = lower or (None if inputs.strides_text else "strides not recorded")
    return _moved(Work(0, 0, bound=bound, reason=reason), read, write)


def _reduction(inputs: Inputs, _rule: WorkRule) -> Work:
    found = _tensors(inputs)
    if not found:
        raise UnknownInputError("no shapes recorded for its operands")
    reason = "size of the result not recorded"
    return _without_flop(inputs, lambda: sum(inputs.bytes(at) for at in found), lambda: 0, reason)


def _copy(inputs: Inputs, _rule: WorkRule) -> Work:
    inputs.shape(0)
    return _without_flop(
        inputs,
        lambda: inputs.bytes(1) if inputs.has_tensor(1) else 0,
        lambda: _full_bytes(inputs, 0),
    )


def _fill(inputs: Inputs, _rule: WorkRule) -> Work:
    inputs.shape(0)
    return _without_flop(inputs, lambda: 0, lambda: _full_bytes(inputs, 0))


def _lookup(inputs: Inputs, _rule: WorkRule) -> Work:
    at = 2 if inputs.name.endswith("index_select") else 1
    rows = prod(inputs.shape(at)) * prod(inputs.shape(0)[1:])
    if at == 2 and inputs.numbers(1, 1) != [0]:
        raise UnknownInputError("not along the first dimension")
    return _without_flop(
        inputs, lambda: inputs.bytes(at) + rows * inputs.size(0), lambda: rows * inputs.size(0)
    )


def _lookup_backward(inputs: Inputs, _rule: WorkRule) -> Work:
    inputs.shape(0)
    reason = "size of the table not recorded"
    return _without_flop(inputs, lambda: inputs.bytes(0) + inputs.bytes(1), lambda: 0, reason)


def _lists(inputs: Inputs, _rule: WorkRule) -> Work:
    """Operators on lists of tensors: the profiler does not record the element type of a list."""
    if inputs.shapes_text is None:
        raise UnknownInputError("no shapes recorded")
    printed = bool(inputs.listed(0))
    what = "element type of tensor lists" if printed else "tensor lists"
    return Work(0, 0, bound="lower", reason=f"no bytes: {what} not recorded")


def _compiled(inputs: Inputs, _rule: WorkRule) -> Work:
    """A compiled kernel: its results are among its arguments, and a view may be larger than what is read."""
    found = _tensors(inputs)
    reason = "FLOP of a compiled kernel not known"
    if not found:
        return Work(bound=None, reason=reason)
    total = Work(bound="upper", reason=reason)
    return _moved(total, lambda: sum(_full_bytes(inputs, at) for at in found), lambda: 0)


_FORMULAS: Final[Mapping[str, Callable[[Inputs, WorkRule], Work]]] = {
    "matmul": _matmul,
    "summed_matmul": _matmul,
    "linear": _linear,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "old_convolution_backward": _convolution_backward,
    "attention": _attention,
    "attention_backward": _attention_backward,
    "attention_by_length": _attention,
    "attention_by_length_backward": _attention_backward,
    "attention_varlen": _attention_varlen,
    "pointwise": _pointwise,
    "comparison": _pointwise,
    "dropout": _pointwise,
    "reduction": _reduction,
    "copy": _copy,
    "fill": _fill,
    "lookup": _lookup,
    "lookup_backward": _lookup_backward,
    "lists": _lists,
    "compiled": _compiled,
}
