"""Quarantine: what a repair takes out of a run, under `_tw/quarantine/<run>/<original key>`.

No reader looks there, and only `tw clean --quarantine` deletes it.
"""

from __future__ import annotations

from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage import layout
from tracewarehouse.storage.codec import sealed
from tracewarehouse.storage.parquet_file import sha256
from tracewarehouse.storage.store import Store

# The folder of objects that belong to no run; not a run key.
_NO_RUN = f"{layout.QUARANTINE}/@warehouse"


def take_out(store: Store, key: str) -> str | None:
    """Moves an object to the quarantine: copies it, checks the copy, deletes the original.

    Returns the new key, None if there is no such object.
    """
    if store.objects.stat(key) is None:
        return None
    base = _target(key)
    target, number = base, 1
    while store.objects.stat(target) is not None:  # an earlier repair used it
        target, number = f"{base}.{number}", number + 1
    with store.staging() as folder:
        copy = folder / "copy"
        store.objects.download(key, copy)
        if not store.is_remote and sha256(copy) != sha256(store.path(key)):
            raise WarehouseError(
                f"{store.objects.describe(key)}: changed while it was copied to the quarantine",
                "run it again",
            )
        store.objects.adopt({target: copy})
    store.objects.delete([key])
    return target


def note_loss(store: Store, key: str, why: str) -> None:
    """Notes the loss of an object that no longer exists, so that `clean` keeps what it may have held."""
    store.objects.put({f"{_target(key)}.lost": sealed({"key": key, "why": why})})


def _target(key: str) -> str:
    run = layout.run_of(key)
    return f"{layout.quarantine(run) if run else _NO_RUN}/{key}"
