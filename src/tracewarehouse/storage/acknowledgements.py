"""Acknowledgements: why a metric changed at a content of a run, as small JSON objects with a checksum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tracewarehouse.storage import copies, layout
from tracewarehouse.storage.codec import sealed, unsealed
from tracewarehouse.storage.objects import Objects


def put(objects: Objects, key: str, fields: Mapping[str, str]) -> None:
    """Stores an acknowledgement under its key, replacing an older one."""
    copies.put(objects, {_path(key): sealed(fields)})


def delete(objects: Objects, key: str) -> None:
    """Deletes an acknowledgement."""
    copies.delete(objects, [_path(key)])


def every(objects: Objects) -> Iterator[copies.Stored[dict[str, str]]]:
    """Every acknowledgement: metric, run, source and why."""
    return copies.every(objects, layout.ACKNOWLEDGED, _decode)


def _path(key: str) -> str:
    return f"{layout.ACKNOWLEDGED}/{key}.json"


def _decode(path: str, data: bytes) -> dict[str, str]:
    fields = unsealed(data)
    del fields["checksum"]
    if path != _path(layout.acknowledgement_key(fields["metric"], fields["run"], fields["source"])):
        raise ValueError("its key does not match")
    return fields
