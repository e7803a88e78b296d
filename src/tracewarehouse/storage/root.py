"""The identity of a warehouse: `_tw/warehouse.json`, written once."""

from __future__ import annotations

import json
import secrets
import uuid
from dataclasses import asdict, dataclass

from tracewarehouse.errors import SchemaVersionError, WarehouseError
from tracewarehouse.storage import layout
from tracewarehouse.storage.codec import FORMAT, check_understood, sealed, unsealed
from tracewarehouse.storage.manifests import now
from tracewarehouse.storage.objects import Objects, disk_errors


@dataclass(frozen=True)
class Identity:
    """The content of `_tw/warehouse.json`. The salt, in hex, makes hashes of secrets unique to it."""

    format: int
    id: str
    salt: str
    created_at: str


def create(objects: Objects) -> Identity:
    """Creates a warehouse in a new or empty place, unless another process just created it.

    Raises WarehouseError if the place holds other objects, or cannot keep one of two writers from
    overwriting the other.
    """
    objects.prepare()
    restore(objects)
    return read(objects)


def read(objects: Objects) -> Identity:
    """The identity of a warehouse; raises WarehouseError or SchemaVersionError."""
    with disk_errors(objects.url):
        try:
            data = objects.get(layout.WAREHOUSE)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise objects.absent(error) from None
    return _decode(objects, data)


def open_or_create(objects: Objects) -> Identity:
    """The identity of the warehouse, which is created if there is none."""
    with disk_errors(objects.url):
        try:
            data = objects.get(layout.WAREHOUSE)
        except FileNotFoundError:
            return create(objects)
        except NotADirectoryError as error:
            raise objects.absent(error) from None
    return _decode(objects, data)


def restore(objects: Objects) -> None:
    """Writes a new identity unless there is one; hashes of secrets change with the salt."""
    with disk_errors(objects.url):
        identity = Identity(FORMAT, uuid.uuid4().hex, secrets.token_hex(32), now())
        objects.put_if_absent(layout.WAREHOUSE, sealed({**asdict(identity), "must_understand": []}))


def _decode(objects: Objects, data: bytes) -> Identity:
    path = objects.describe(layout.WAREHOUSE)
    try:
        # The format first: other formats may lack all other fields.
        number = int(json.loads(data)["format"])
        if number != FORMAT:
            raise SchemaVersionError(
                f"{objects.url}: warehouse of format {number}; this release reads format {FORMAT}",
                "open it with the release that wrote it",
            )
        fields = unsealed(data)
        check_understood(fields, path)
        return Identity(**{name: fields[name] for name in Identity.__dataclass_fields__})
    except (ValueError, TypeError, KeyError) as error:
        raise WarehouseError(f"{path}: damaged: {error}", "restore this file from a backup") from error
