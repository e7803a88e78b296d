"""Writes a process of a rocprofv3 JSON result as the Perfetto trace that rocprofv3 writes of its records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rocprofv3_csv import label, operation_name

_SEQUENCE: Final = 7


def _number(value: int, least: int = 1) -> bytes:
    """A varint, with at least this number of bytes."""
    found = bytearray()
    value &= (1 << 64) - 1
    while value >= 128 or len(found) < least - 1:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes(found) + bytes([value])


def field(number: int, value: int | str | bytes) -> bytes:
    """A field; nested messages have sizes of four bytes, as Perfetto writes them."""
    if isinstance(value, int):
        return _number(number << 3) + _number(value)
    data = value.encode() if isinstance(value, str) else value
    return _number(number << 3 | 2) + _number(len(data), 1 if number == 1 else 4) + data


class _Texts:
    """The texts of a sequence, each of which is sent once."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, str], int] = {}
        self.new = b""

    def id(self, kind: int, text: str) -> int:
        if (kind, text) not in self.known:
            self.known[kind, text] = number = len(self.known) + 1
            self.new += field(kind, field(1, number) + field(2, text))
        return self.known[kind, text]


def _annotation(texts: _Texts, name: str, value: int | str) -> bytes:
    label = field(1, texts.id(3, name))
    return field(4, label + field(6 if isinstance(value, str) else 3, value))


def write(process: Mapping[str, Any], path: Path, *, static: bool = True, restart: int = 1000) -> None:
    """The trace. Names are IDs if they are static; a sequence restarts its IDs after `restart` events."""
    packets = [_track(1, "main", field(4, field(1, process["metadata"]["pid"])))]
    records = (each for found in process["buffer_records"].values() for each in found)
    streams = sorted({each["stream_id"]["handle"] for each in records if "stream_id" in each})
    packets += [_track(2**63 + stream, f"COMPUTE AGENT [2] STREAM [{stream}] (GPU)") for stream in streams]
    for count, (category, name, track, values) in enumerate(_slices(process)):
        if not count % restart:
            texts = _Texts()
        event = (
            field(9, 1) + field(11, track) + b"".join(_annotation(texts, *each) for each in values.items())
        )
        event += field(3, texts.id(1, category)) if static else field(22, category)
        event += field(10, texts.id(2, name)) if static else field(23, name)
        packet = (
            field(8, values["begin_ns"]) + field(10, _SEQUENCE) + field(13, 1 if not count % restart else 2)
        )
        packets.append(field(1, packet + (field(12, texts.new) if texts.new else b"") + field(11, event)))
        texts.new = b""
        end = field(9, 2) + field(11, track)
        packets.append(field(1, field(8, values["end_ns"]) + field(10, _SEQUENCE) + field(11, end)))
    path.write_bytes(b"".join(packets))


def _track(uuid: int, name: str, owner: bytes = b"") -> bytes:
    return field(1, field(10, _SEQUENCE + 1) + field(60, field(1, uuid) + field(2, name) + owner))


def _slices(process: Mapping[str, Any]) -> Iterator[tuple[str, str, int, dict[str, int | str]]]:
    """Category, name, track and annotations."""
    symbols = {symbol["kernel_id"]: symbol for symbol in process["kernel_symbols"]}

    def common(record: Mapping[str, Any]) -> dict[str, int | str]:
        start, end = record["start_timestamp"], record["end_timestamp"]
        number = record["correlation_id"]["internal"]
        return {
            "begin_ns": start, "end_ns": end, "delta_ns": end - start, "kind": record["kind"],
            "corr_id": number, "tid": record["thread_id"],
        }  # fmt: skip

    def agent(handle: int) -> str:
        return str(label(process, handle, "relative")).replace(" ", "-")

    for name, found in process["buffer_records"].items():
        for record in found:
            values, track = common(record), 1
            if name == "kernel_dispatch":
                info = record["dispatch_info"]
                values |= {"agent": agent(info["agent_id"]["handle"]), "queue": info["queue_id"]["handle"]}
                values |= {each: info[each] for each in ("kernel_id", "group_segment_size")}
                text = symbols[info["kernel_id"]]["formatted_kernel_name"]
                track = 2**63 + record["stream_id"]["handle"]
            elif name == "memory_copy":
                text = operation_name(process, name, record["operation"])
                sides = {
                    f"{side}_agent": agent(record[f"{side}_agent_id"]["handle"]) for side in ("src", "dst")
                }
                values |= sides | {"copy_bytes": record["bytes"]}
                track = 2**63 + record["stream_id"]["handle"]
            else:
                texts = process["strings"].get("marker_api", ()) if name == "marker_api" else ()
                text = operation_name(process, name, record["operation"])
                number = record["correlation_id"]["internal"]
                text = next((each["value"] for each in texts if each["key"] == number), text)
            yield name, text, track, values
