"""Execution traces, JSON of PyTorch's ExecutionTraceObserver: operators with parents, inputs and outputs.

Up to schema 1.0.1 a node is a flat object; later ones keep ids in `attrs` and values in `inputs.values`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import pyarrow as pa

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats import file_text
from tracewarehouse.formats.base import PartFormat
from tracewarehouse.formats.mapped import RAW_TYPES, contract_of, selected
from tracewarehouse.formats.source_tables import Notes, RecordSource, declared_columns, short_text
from tracewarehouse.late_regex import late_regex

TABLE: Final = "execution_nodes"
_COLLECTIVE: Final = "record_param_comms"
_GROUPS: Final = "## process_group:init ##"
# A tensor is [tensor, storage, offset, elements, bytes of an element, device].
_TENSOR: Final = late_regex(rb'\[\s*(\d{1,18})\s*,\s*\d+\s*,\s*\d+\s*,\s*\d+\s*,\s*\d+\s*,\s*"')
_TEXTS: Final = ("collective_name", "pg_name", "dtype")
_ELEMENTS: Final = {"in_elements": "in_msg_nelems", "out_elements": "out_msg_nelems"}
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
    seen: set[int] = set()
    rows: list[dict[str, object]] = []
    said: list[dict[str, object]] = []
    for node in trace.nodes:
        if node.name == _GROUPS:
            said.append(_said(node, len(said), None))  # only their order matters
        if node.id in seen or not -_INT64_LIMIT <= node.id < _INT64_LIMIT:
            notes.add("unusable_value", 1, f"id of a node: {node.id}")
            continue
        seen.add(node.id)
        number = partial(_number, node.attributes(), notes)
        row = _row(node, number)
        if node.name == _COLLECTIVE:
            said.append(_said(node, len(rows), number("pg_size")))
            row |= {name: number(key) for name, key in _ELEMENTS.items()}
        rows.append(row)
    for found in _collectives(said):
        rows[found.pop("place")] |= found
    return pa.Table.from_pylist(rows, declared_columns(TABLE, encoded=True))


def _said(node: _Node, place: int, size: int | None) -> dict[str, object]:
    """What a node says about a collective, or about process groups."""
    attributes, inputs = node.attributes(), node.sides()[0]
    texts = {key: value for key in _TEXTS if type(value := attributes.get(key)) is str}
    lists = {"values": bytes(inputs.values).decode(), "types": bytes(inputs.types).decode()}
    return {"place": place, "name": node.name, "pg_size": size, **lists, **texts}


def _collectives(said: list[dict[str, object]]) -> list[dict[str, Any]]:
    """The columns of collectives, each with the place of its node."""
    if not said:
        return []
    contract = contract_of("execution_collectives")
    schema = pa.schema([(name, RAW_TYPES[type_]) for name, type_ in contract.raw_tables[0].columns])
    given = pa.Table.from_pylist(said, schema)
    found: list[dict[str, Any]] = selected(contract.name, {"given": given}).to_pylist()
    return found


def _number(
    attributes: Mapping[str, Any], notes: Notes, name: str, none: Sequence[object] = (None,)
) -> int | None:
    """The number in an attribute; null for numbers that mean none and for other values."""
    value = attributes.get(name)
    if value in none:
        return None
    if type(value) is int and -_INT64_LIMIT <= value < _INT64_LIMIT:
        return value
    notes.add("unusable_value", 1, f"{name}: {value}")
    return None


def _row(node: _Node, number: Callable[..., int | None]) -> dict[str, object]:
    inputs, outputs = node.sides()
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
    }


def _json(raw: msgspec.Raw) -> str | None:
    """The text; null for an empty list."""
    text = bytes(raw).decode()
    return None if text.strip("[ \n]") == "" else text


def _tensors(raw: msgspec.Raw) -> list[int]:
    return [int(found) for found in dict.fromkeys(_TENSOR.findall(bytes(raw)))]


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
