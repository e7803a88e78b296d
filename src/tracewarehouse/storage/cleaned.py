"""Records of versions that `clean` deletes: they prove that the versions are absent on purpose.

A record is written before the first of its keys is deleted. It also names the versions of earlier records,
which are deleted afterwards, so that a run keeps one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from tracewarehouse.storage import layout
from tracewarehouse.storage.codec import FORMAT, check_understood, sealed, unsealed
from tracewarehouse.storage.objects import Objects, names_in


class Cleaned(Struct, frozen=True):
    """What the records of a run say: the deleted versions, and the fault of each damaged record by key."""

    versions: frozenset[int] = frozenset()
    faults: tuple[tuple[str, str], ...] = ()


def read(objects: Objects, run: str) -> Cleaned:
    """All records of a run."""
    return _read(objects, _keys(objects, run))


def _read(objects: Objects, keys: Iterable[str]) -> Cleaned:
    versions: set[int] = set()
    faults = []
    for key in keys:
        try:
            fields = unsealed(objects.get(key))
            check_understood(fields, key)
            versions.update(map(int, fields["versions"]))
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError) as error:
            faults.append((key, f"damaged record of deleted versions: {error}"))
    return Cleaned(frozenset(versions), tuple(faults))


def write(
    objects: Objects,
    run: str,
    versions: Collection[int],
    sources: Iterable[str] = (),
    keys: Iterable[str] = (),
) -> list[str]:
    """Writes a record of versions, the names of the sources and the keys that go with them.

    It names the versions of the earlier records, too, whose keys are returned.
    """
    earlier = _keys(objects, run)
    numbers = sorted({*versions, *_read(objects, earlier).versions})
    fields = {"format": FORMAT, "must_understand": [], "run": run, "versions": numbers}
    data = sealed(fields | {"sources": sorted(sources), "keys": sorted(keys)})
    known = [layout.cleaned_number(key.rpartition("/")[2]) or 0 for key in earlier]
    number = max(known, default=0) + 1
    while not objects.put_if_absent(layout.cleaned(run, number), data):
        number += 1
    return earlier


def _keys(objects: Objects, run: str) -> list[str]:
    names = names_in(objects, layout.receipts(run))
    return [f"{layout.receipts(run)}/{name}" for name in names if layout.cleaned_number(name) is not None]
