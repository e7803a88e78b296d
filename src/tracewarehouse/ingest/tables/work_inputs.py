"""The inputs of an operator as the profiler records them: shapes, types, strides and values as JSON.

Tensors have lists of numbers as shapes, lists of tensors have lists of such lists. Everything else has an
empty list, as has a tensor without dimensions. Values of arguments that are not tensors are texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, TypeGuard

Shape = list[int]


class UnknownInputError(Exception):
    """An input that the formula needs is not recorded; the text says which."""


@dataclass(frozen=True)
class Inputs:
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
