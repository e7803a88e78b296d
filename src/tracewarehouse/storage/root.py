"""The identity of a warehouse: `_tw/warehouse.json`, written once."""

from __future__ import annotations

import json
import os
import secrets
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from tracewarehouse import hints
from tracewarehouse.errors import SchemaVersionError, WarehouseError
from tracewarehouse.storage import layout
from tracewarehouse.storage.codec import FORMAT, check_understood, sealed, unsealed
from tracewarehouse.storage.local import LocalObjects, disk_errors
from tracewarehouse.storage.manifests import now


@dataclass(frozen=True)
class Identity:
    """The content of `_tw/warehouse.json`. The salt, in hex, makes hashes of secrets unique to it."""

    format: int
    id: str
    salt: str
    created_at: str


def create(root: Path) -> Identity:
    """Creates a warehouse in a new or empty folder, unless another process just created it.

    Raises WarehouseError if the folder holds other files or the file system lacks hard links.
    """
    with disk_errors(root):
        _check_place(root)
        (root / layout.STAGING).mkdir(parents=True, exist_ok=True)
        _probe_link(root)
        identity = Identity(FORMAT, uuid.uuid4().hex, secrets.token_hex(32), now())
        LocalObjects(root).put_if_absent(layout.WAREHOUSE, encode(identity))
    return read(root)


def read(root: Path) -> Identity:
    """The identity of the warehouse at `root`; raises WarehouseError or SchemaVersionError."""
    with disk_errors(root):
        if root.exists() and not root.is_dir():
            raise _is_file(root)
        try:
            data = (root / layout.WAREHOUSE).read_bytes()
        except FileNotFoundError:
            raise _missing(root) from None
    return _decode(root, data)


def exists(root: Path) -> bool:
    """Whether the folder is a warehouse."""
    return (root / layout.WAREHOUSE).is_file()


def encode(identity: Identity) -> bytes:
    """The identity as the bytes of `_tw/warehouse.json`."""
    return sealed({**asdict(identity), "must_understand": []})


def stored_format(root: Path) -> int | None:
    """The format number of the warehouse at `root`; None if it cannot be read."""
    try:
        found = json.loads((root / layout.WAREHOUSE).read_bytes())["format"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, int) else None


def _decode(root: Path, data: bytes) -> Identity:
    path = root / layout.WAREHOUSE
    try:
        # The format first: other formats may lack all other fields.
        _check_format(root, int(json.loads(data)["format"]))
        fields = unsealed(data)
        check_understood(fields, str(path))
        return Identity(**{name: fields[name] for name in Identity.__dataclass_fields__})
    except (ValueError, TypeError, KeyError) as error:
        raise WarehouseError(f"{path}: damaged: {error}", "restore this file from a backup") from error


def _check_format(root: Path, found: int) -> None:
    if found == FORMAT:
        return
    if found == 1:
        raise SchemaVersionError(
            f"{root}: warehouse of format 1; this release needs format {FORMAT}",
            hints.fill("{} converts it", hints.call("upgrade")),
        )
    if found > FORMAT:
        raise SchemaVersionError(
            f"{root}: warehouse of format {found}; this release reads up to {FORMAT}",
            "install a newer tracewarehouse",
        )
    raise ValueError(f"unknown format {found}")


def _is_file(root: Path) -> WarehouseError:
    return WarehouseError(
        f"{root}: a file, not a warehouse",
        hints.Hint("name a folder", "select a folder with -w DIR or TW_WAREHOUSE"),
    )


def _missing(root: Path) -> WarehouseError:
    if root.exists():
        return WarehouseError(
            f"{root}: not a warehouse: the folder has no {layout.WAREHOUSE}",
            hints.Hint("open the folder of a warehouse", "select the warehouse with -w DIR or TW_WAREHOUSE"),
        )
    return WarehouseError(
        f"{root}: no warehouse here",
        hints.Hint(
            "wh.ingest(PATH) creates one",
            "tw ingest PATH creates one; select another with -w DIR or TW_WAREHOUSE",
        ),
    )


def _check_place(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise _is_file(root)
    present = [path.name for path in root.iterdir()] if root.exists() else []
    foreign = sorted(name for name in present if name not in layout.OWN_NAMES and not name.startswith("."))
    if foreign:
        raise WarehouseError(
            f"{root}: not a warehouse: the folder holds {foreign[0]}",
            "select a new or empty folder with -w DIR or TW_WAREHOUSE",
        )


def _probe_link(root: Path) -> None:
    """Raises WarehouseError if the file system lacks hard links, which publishing needs."""
    first = root / layout.STAGING / f"probe-{secrets.token_hex(8)}"
    second = first.with_suffix(".link")
    first.touch()
    try:
        os.link(first, second)
    except OSError as error:
        raise WarehouseError(
            f"{root}: this file system refuses hard links ({error.strerror})",
            "put the warehouse on a local disk, NFS or Lustre",
        ) from error
    finally:
        first.unlink()
        second.unlink(missing_ok=True)
