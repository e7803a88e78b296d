"""Facts in the header of a trace: rank and world size, devices, host, framework."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MAX_RANK = 999_999
_VERSION_KEYS = ("torch_version", "pytorch_version", "framework_version")
_HOST_KEYS = ("host_name", "hostname", "HOSTNAME")


def header_of(text: str) -> Mapping[str, Any]:
    """The header as a mapping; empty if there is none (a bare list) or it is not an object."""
    try:
        header = json.loads(text)
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}


def header_facts(header: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of `ranks` that come from the header; None if it has no such entry."""
    info = _mapping(header.get("distributedInfo"))
    devices = _devices(header)
    groups = info.get("pg_config")
    names = [str(device["name"]) for device in devices if device.get("name")]
    return {
        "world_size": world_size_of(header),
        "backend": _text(info.get("backend")),
        "process_groups": json.dumps(groups, ensure_ascii=False) if isinstance(groups, list) else None,
        "device_name": names[0] if names else None,
        "device_count": len(devices) if devices else None,
        "device_properties": any(each.get("name") and each.get("totalGlobalMem") for each in devices),
        "host": _first(header, _HOST_KEYS),
        "framework_version": _first(header, _VERSION_KEYS),
    }


def rank_of(header: Mapping[str, Any]) -> int | None:
    """The rank in the trace; None if it is missing or invalid."""
    rank = number(_mapping(header.get("distributedInfo")).get("rank"))
    return rank if rank is not None and rank <= MAX_RANK else None


def rank_in_file(header: Mapping[str, Any]) -> int | None:
    """The rank as written in the trace, valid or not."""
    rank = _mapping(header.get("distributedInfo")).get("rank")
    return rank if isinstance(rank, int) and not isinstance(rank, bool) else None


def world_size_of(header: Mapping[str, Any]) -> int | None:
    """The world size in the trace."""
    return number(_mapping(header.get("distributedInfo")).get("world_size"))


def number(value: object) -> int | None:
    """A non-negative number that may be written as text; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < 2**31 else None


def _devices(header: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The device table, called `computeProperties` in torch 1.8; empty tables are ignored."""
    for key in ("deviceProperties", "computeProperties"):
        found = header.get(key)
        if isinstance(found, list) and found:
            return [device for device in found if isinstance(device, dict)]
    return []


def _first(header: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first of these keys, searched level by level: some tools nest them in `metadata`."""
    level = [header]
    while level:
        for mapping in level:
            for key in keys:
                if text := _text(mapping.get(key)):
                    return text
        level = [value for mapping in level for value in mapping.values() if isinstance(value, dict)]
    return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
