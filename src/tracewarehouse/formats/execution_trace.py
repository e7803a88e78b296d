"""Execution traces, JSON of PyTorch's ExecutionTraceObserver: operators with parents, inputs and outputs.

Up to schema 1.0.1 a node is a flat object; later ones keep ids in `attrs` and values in `inputs.values`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import pyarrow as pa
from msgspec import Struct

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats import file_text
from tracewarehouse.formats.base import PartFormat
from tracewarehouse.formats.source_tables import Notes, RecordSource, declared_columns, short_text
from tracewarehouse.late_regex import late_regex

TABLE: Final = "execution_nodes"
_COLLECTIVE: Final = "record_param_comms"
_GROUPS: Final = "## process_group:init ##"
# A tensor is [tensor, storage, offset, elements, bytes of an element, device].
_TENSOR: Final = late_regex(rb'\[\s*(\d{1,18})\s*,\s*\d+\s*,\s*\d+\s*,\s*\d+\s*,\s*\d+\s*,\s*"')
_NONE: Final = (None, 0, -1)
_INT64_LIMIT: Final = 2**63
_HINT: Final = "call stop() and unregister_callback() of the observer, so that it finishes the file"


class _Attr(msgspec.Struct):
    name: str
    value: Any = None


class _Values(msgspec.Struct):
    """Inputs or outputs; they stay text."""

    values: msgspec.Raw = msgspec.Raw(b"[]")
    shapes: msgspec.Raw = msgspec.Raw(b"[]")
    types: msgspec.Raw = msgspec.Raw(b"[]")


_VALUES: Final = msgspec.json.Decoder(_Values)


def _side(found: msgspec.Raw, *flat: msgspec.Raw) -> _Values:
    """The values of an object with shapes and types, or of a flat node."""
    is_object = bytes(found).lstrip()[:1] == b"{"
    return _VALUES.decode(found) if is_object else _Values(found, *flat)


class _Node(msgspec.Struct):
    id: int
    name: str = ""
    rf_id: Any = None
    parent: int | None = None
    ctrl_deps: int | None = None
    fw_parent: Any = None
    seq_id: Any = None
    tid: Any = None
    inputs: msgspec.Raw = msgspec.Raw(b"[]")
    outputs: msgspec.Raw = msgspec.Raw(b"[]")
    input_shapes: msgspec.Raw = msgspec.Raw(b"[]")
    input_types: msgspec.Raw = msgspec.Raw(b"[]")
    output_shapes: msgspec.Raw = msgspec.Raw(b"[]")
    attrs: list[_Attr] = []

    def attributes(self) -> dict[str, Any]:
        """The attributes by name, those of a flat node included."""
        flat = {"rf_id": self.rf_id, "fw_parent": self.fw_parent, "seq_id": self.seq_id, "tid": self.tid}
        return flat | {attr.name: attr.value for attr in self.attrs}

    def sides(self) -> tuple[_Values, _Values]:
        """Inputs and outputs."""
        inputs = _side(self.inputs, self.input_shapes, self.input_types)
        return inputs, _side(self.outputs, self.output_shapes)


class Trace(msgspec.Struct):
    """An execution trace."""

    schema: str
    nodes: list[_Node]
    pid: int | None = None
    time: str | None = None


class _Group(Struct, frozen=True):
    """A process group as the first node lists it."""

    name: str
    size: int | None
    ranks: str | None


def decoded(text: bytes, path: Path) -> Trace:
    """The trace. Raises TraceFormatError if it is cut short, damaged or empty."""
    try:
        trace = msgspec.json.decode(text, type=Trace)
    except msgspec.ValidationError as error:
        raise TraceFormatError(path, f"an unknown kind of execution trace: {error}", hint=_HINT) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise TraceFormatError(path, f"a damaged execution trace: {error}", hint=_HINT) from error
    if not trace.nodes:
        raise TraceFormatError(path, "an execution trace without nodes", hint=_HINT)
    return trace


def node_table(trace: Trace, notes: Notes) -> pa.Table:
    """The nodes in order of the file; of several with the same number, the first. Bad values become null."""
    groups = _groups(trace.nodes)
    seen: set[int] = set()
    rows: list[dict[str, object]] = []
    for node in trace.nodes:
        if node.id in seen or not -_INT64_LIMIT <= node.id < _INT64_LIMIT:
            notes.add("unusable_value", 1, f"id of a node: {node.id}")
            continue
        seen.add(node.id)
        rows.append(_row(node, groups, notes))
    return pa.Table.from_pylist(rows, declared_columns(TABLE, encoded=True))


def _row(node: _Node, groups: Mapping[object, _Group], notes: Notes) -> dict[str, object]:
    attributes = node.attributes()
    inputs, outputs = node.sides()

    def number(name: str, none: Sequence[object] = (None,)) -> int | None:
        value = attributes.get(name)
        if value in none:
            return None
        if type(value) is int and -_INT64_LIMIT <= value < _INT64_LIMIT:
            return value
        notes.add("unusable_value", 1, f"{name}: {value}")
        return None

    return {
        "node_id": node.id,
        "parent_node": node.parent if node.parent is not None else node.ctrl_deps,
        "name": node.name,
        "record_function": number("rf_id", _NONE),
        "sequence_number": number("seq_id", (None, -1)),
        "forward_node": number("fw_parent", _NONE),
        "thread": number("tid"),
        "inputs": _json(inputs.values),
        "input_shapes": _json(inputs.shapes),
        "input_types": _json(inputs.types),
        "outputs": _json(outputs.values),
        "output_shapes": _json(outputs.shapes),
        "input_tensors": _tensors(inputs.values),
        "output_tensors": _tensors(outputs.values),
        **_collective(node, attributes, inputs, groups, number),
    }


def _json(raw: msgspec.Raw) -> str | None:
    """The text; null for an empty list."""
    text = bytes(raw).decode()
    return None if text.strip("[ \n]") == "" else text


def _tensors(raw: msgspec.Raw) -> list[int]:
    return [int(found) for found in dict.fromkeys(_TENSOR.findall(bytes(raw)))]


def _groups(nodes: Sequence[_Node]) -> dict[object, _Group]:
    """Process groups by name, and by the number that nodes call them by in older releases."""
    found: dict[object, _Group] = {}
    for node in nodes:
        if node.name != _GROUPS:
            continue
        for group in _listed(node):
            name, size, ranks = group.get("pg_name"), group.get("group_size"), group.get("ranks")
            if type(name) is not str:
                continue
            listed = ranks if isinstance(ranks, list) and all(type(rank) is int for rank in ranks) else []
            known = _Group(
                name,
                size if type(size) is int and 0 < size < _INT64_LIMIT else None,
                str(listed) if listed else None,
            )
            found[name] = known
            if type(pointer := group.get("backend_id")) is int:
                found[pointer] = known
    return found


def _listed(node: _Node) -> Iterator[dict[str, Any]]:
    """The groups: JSON in a string, the only input."""
    inputs = _plain_list(node.sides()[0].values)
    if inputs and type(inputs[0]) is str:
        listed = _plain_list(msgspec.Raw(inputs[0].encode()))
        yield from (one for one in listed if isinstance(one, dict))


def _collective(
    node: _Node,
    attributes: Mapping[str, Any],
    inputs: _Values,
    groups: Mapping[object, _Group],
    number: Callable[[str], int | None],
) -> dict[str, object]:
    """What the node says about a collective: its attributes, else its inputs relative to the name."""
    if node.name != _COLLECTIVE:
        return {}
    values = _plain_list(inputs.values)
    at = _place_of_name(values, _plain_list(inputs.types))
    name, sequence, group = (values[at], _first_int(values[at - 3]), values[at - 2]) if at else (None,) * 3
    named = attributes.get("pg_name")
    if type(named) is not str:
        named = group[0] if isinstance(group, list) and group and type(group[0]) is str else None
    known = groups.get(named) if named is not None else groups.get(group) if type(group) is int else None
    size = number("pg_size")
    return {
        "collective": _text(attributes.get("collective_name")) or name,
        "process_group": named if named is not None else known.name if known else None,
        "group_size": size if size is not None or known is None else known.size,
        "group_ranks": known.ranks if known else None,
        "collective_seq": sequence,
        "dtype": _text(attributes.get("dtype")),
        "in_elements": number("in_msg_nelems"),
        "out_elements": number("out_msg_nelems"),
    }


def _plain_list(raw: msgspec.Raw) -> list[Any]:
    """The decoded list; empty if it is something else."""
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _place_of_name(values: Sequence[Any], types: Sequence[Any]) -> int | None:
    """The index of the collective's name, the first text behind number, group and rank; None without one."""
    pairs = enumerate(zip(values, types, strict=False))
    return next((at for at, (value, kind) in pairs if at >= 3 and kind == "String" and _text(value)), None)


def _text(value: object) -> str | None:
    return value if type(value) is str and value else None


def _first_int(value: object) -> int | None:
    """A number, or the first of a pair (number, whether it is point-to-point)."""
    first = value[0] if isinstance(value, list) and value else value
    return first if type(first) is int and 0 <= first < _INT64_LIMIT else None


NAME: Final = "execution_trace"
# The keys precede the nodes.
_SEARCHED_BYTES: Final = 4096


class ExecutionTraceSource(RecordSource):
    """A Source that fills `execution_nodes`."""

    most_bytes = (1 << 30, "it holds more than 1 GiB", "record fewer steps")

    def _walk(self, content: IO[bytes]) -> Iterator[tuple[str, pa.Table]]:
        self._trace = decoded(content.read(), self._path)
        yield TABLE, node_table(self._trace, self._notes)

    def _header(self) -> Mapping[str, Any]:
        return {NAME: {"schema": self._trace.schema, "pid": self._trace.pid, "time": self._trace.time}}

    def _facts(self) -> Mapping[str, object]:
        return {"clock": "unknown", "source_schema": short_text(self._trace.schema, self._redactor, 40)}


class ExecutionTraceFormat(PartFormat):
    """A Format."""

    name = addition = NAME
    source = ExecutionTraceSource

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a JSON object with a schema and nodes."""
        start = head[:_SEARCHED_BYTES]
        if start.lstrip()[:1] != b"{" or b'"schema"' not in start or b'"nodes"' not in start:
            return False
        return file_text.object_format(file_text.top_keys(start)) == NAME
