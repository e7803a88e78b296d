"""Acknowledgements: why a metric changed at a content of a run, as small JSON objects with a checksum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tracewarehouse.storage import layout
from tracewarehouse.storage.codec import sealed, unsealed
from tracewarehouse.storage.objects import Objects, names_in


def encode(fields: Mapping[str, str]) -> bytes:
    """An acknowledgement as bytes."""
    return sealed(fields)


def every(objects: Objects) -> Iterator[tuple[str, dict[str, str] | str]]:
    """The key of each acknowledgement, with its fields, or what is wrong with it."""
    for name in names_in(objects, layout.ACKNOWLEDGED):
        key = f"{layout.ACKNOWLEDGED}/{name}"
        try:
            fields = unsealed(objects.get(key))
            del fields["checksum"]
            own = layout.acknowledgement_key(fields["metric"], fields["run"], fields["source"])
            if name != f"{own}.json":
                raise ValueError("it is another one")
            yield key, fields
        except (ValueError, KeyError, TypeError) as error:
            yield key, f"damaged acknowledgement: {error}"
