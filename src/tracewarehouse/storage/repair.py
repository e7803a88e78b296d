"""Repair of stored objects: versions, receipts, manifests, markers, and lists of recorded results.

Nothing is overwritten or deleted: damaged objects are moved to the quarantine first. Tables are repaired by
`ingest.repair`, which needs the builders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse.errors import WarehouseError
from tracewarehouse.exact_text import rank_list
from tracewarehouse.storage import (
    cleaned,
    copies,
    layout,
    manifests,
    markers,
    publish,
    quarantine,
    receipts,
    results,
)
from tracewarehouse.storage.codec import encode_version, head_of
from tracewarehouse.storage.manifests import Manifest
from tracewarehouse.storage.model import RankSource, RunVersion
from tracewarehouse.storage.objects import names_in
from tracewarehouse.storage.parquet_file import sha256
from tracewarehouse.storage.receipts import Receipt
from tracewarehouse.storage.store import Store
from tracewarehouse.storage.versions import catalog_problems, list_problems

T = TypeVar("T")
_HEAD = ("run", "number", "labels", "expected_ranks", "created_at", "tool", "tombstone", "compacted",
         "expired", "nonce")  # fmt: skip
_HEAD_TUPLES = ("dropped", "retired", "must_understand")


class Step(Struct, frozen=True):
    """One step of a repair: the run (or ""), the key of the object, what was done.

    `is_loss`: data is lost; `is_failure`: the repair stopped here, and can be repeated.
    """

    run: str
    key: str
    what: str
    is_loss: bool = False
    is_failure: bool = False


class RunRepair(Struct):
    """The repair of the objects of one run. With `dry_run` the steps are only listed."""

    store: Store
    run: str
    dry_run: bool = False
    steps: list[Step] = field(default_factory=list)
    # Number → each version that can be read, or could be restored.
    versions: dict[int, RunVersion] = field(default_factory=dict)
    _receipts: dict[int, Receipt] = field(default_factory=dict)
    _sources: dict[str, RankSource] = field(default_factory=dict)

    def repair(self) -> None:
        """Repairs receipts, versions, manifests and markers, in this order."""
        self._read()
        for number in self._read_receipts():
            self._take_out(layout.receipt(self.run, number))
        gone = self._cleaned()
        for number in self._numbers():
            receipt = self._receipts.get(number)
            was_given_up = receipt is not None and receipt.is_lost
            if number not in self.versions and number not in gone and not was_given_up:
                self._restore(number)
        self._write_receipts(gone)
        self._manifests()
        self._markers()

    @property
    def newest(self) -> RunVersion | None:
        """The newest version after the repair."""
        return self.versions[max(self.versions)] if self.versions else None

    def _read(self) -> None:
        """All that can be read of the run."""
        self.versions = {version.number: version for version in self.store.readable(self.run)}
        for name in manifests.names(self.store.objects, self.run):
            try:
                found = manifests.read(self.store.objects, self.run, name.text).sources
            except WarehouseError:
                continue
            self._sources |= {source.name: source for source in found}
        for version in self.versions.values():
            self._sources |= {source.name: source for source in version.sources}

    def _numbers(self) -> range:
        known = (*self.store.numbers(self.run), *self._receipts)
        return range(min(known), max(known) + 1) if known else range(0)

    def _cleaned(self) -> frozenset[int]:
        """The versions that `clean` deleted; of a damaged record, those without a version and receipt."""
        known = cleaned.read(self.store.objects, self.run)
        if not known.faults:
            return known.versions
        gone = frozenset(self._numbers()) - self.versions.keys() - self._receipts.keys() | known.versions
        for key, _ in known.faults:
            self._take_out(key)
            self._step(key, "record of deleted versions written again")
        if not self.dry_run:
            cleaned.write(self.store.objects, self.run, gone)
        return gone

    # Receipts

    def _read_receipts(self) -> set[int]:
        """Reads the intact receipts; returns the numbers of damaged ones."""
        damaged = set()
        for name in names_in(self.store.objects, layout.receipts(self.run)):
            number = layout.receipt_number(name)
            if number is None:
                continue
            try:
                receipt = receipts.read(self.store.objects, self.run, number)
            except ValueError:
                damaged.add(number)
            else:
                if receipt is not None:
                    self._receipts[number] = receipt
        return damaged

    def _write_receipts(self, gone: frozenset[int]) -> None:
        """Writes missing and damaged receipts, and versions or receipts that differ from each other.

        `gone`: versions that a `clean` began to delete, receipt first.
        """
        for number, version in sorted(self.versions.items()):
            key = layout.version(self.run, number)
            if number in gone or self.store.objects.stat(key) is None:
                continue
            data = self.store.objects.get(key)
            receipt = self._receipts.get(number)
            if receipt is not None and receipt.sha256 == hashlib.sha256(data).hexdigest():
                continue
            if receipt is not None:
                if self._rewrite(version, receipt):
                    continue
                self._take_out(layout.receipt(self.run, number))
            if not self.dry_run:
                receipts.write(self.store.objects, version, data)
            self._step(layout.receipt(self.run, number), "receipt written from its version")

    def _rewrite(self, version: RunVersion, receipt: Receipt) -> bool:
        """Writes a version with changed bytes that mean nothing again, if that gives those of its receipt."""
        data = encode_version(version)
        if hashlib.sha256(data).hexdigest() != receipt.sha256:
            return False
        key = layout.version(self.run, version.number)
        self._take_out(key)
        if not self.dry_run:
            self.store.objects.put_if_absent(key, data)
        self._step(key, "version written again as its receipt describes it")
        return True

    # Versions

    def _restore(self, number: int) -> None:
        """Restores a version from its receipt and manifests, else gives it up."""
        key = layout.version(self.run, number)
        receipt = self._receipts.get(number)
        version = self._from_receipt(receipt) if receipt else None
        self._take_out(key)
        if version is not None:
            self.versions[number] = version
            if not self.dry_run:
                self.store.objects.put_if_absent(key, encode_version(version))
            self._step(key, "version restored from its receipt and manifests")
            return
        why = "neither a receipt nor manifests prove what it held"
        self._step(key, f"version lost: {why}", is_loss=True)
        if not self.dry_run:
            quarantine.note_loss(self.store, key, why)
            receipts.write_lost(self.store.objects, self.run, number)
        if number == self._numbers()[-1]:
            self._publish_provable(number, receipt)

    def _from_receipt(self, receipt: Receipt) -> RunVersion | None:
        """The version that a receipt describes, if the manifests prove that it is the same."""
        if receipt.is_lost or any(name not in self._sources for name, _ in receipt.sources):
            return None
        sources = tuple(self._sources[name] for name, _ in receipt.sources)
        version = _version(receipt.head, sources)
        return version if head_of(encode_version(version))["content"] == receipt.head["content"] else None

    def _publish_provable(self, number: int, receipt: Receipt | None) -> None:
        """Publishes the newest state that can be proved, in place of a version that is lost."""
        base = self.newest
        if receipt is not None and not receipt.is_lost:
            names = [name for name, _ in receipt.sources]
            sources = tuple(self._sources[name] for name in names if name in self._sources)
            lost = [name for name in names if name not in self._sources]
            version = replace(_version(receipt.head, sources), number=number + 1)
            what = f"published without {len(lost)} lost sources: {', '.join(lost)}; ingest their traces again"
        elif base is not None:
            version = replace(base, number=number + 1)
            what = f"published as it was in v{base.number}; later changes are lost"
        else:
            every = tuple(sorted(self._sources.values(), key=lambda one: (one.rank, one.name)))
            name = every[0].run if every else self.run
            # The newest commit of each source of a rank; of sources that overlap the newest one.
            held: list[RankSource] = []
            for source in sorted(every, key=lambda one: one.committed_at):
                held = [one for one in held if one.rank != source.rank or not one.overlaps(source)]
                held.append(source)
            sources = tuple(sorted(held, key=lambda one: (one.rank, one.name)))
            version = RunVersion(name, number + 1, sources, {}, None, "", "")
            what = "published from its manifests; labels and expected ranks are lost"
        self.versions[number + 1] = version
        self._step(layout.version(self.run, number + 1), what, is_loss=True)
        if not self.dry_run:
            publish.put(self.store, version, self.store.tool)
            self.store.forget()
            self._receipts = {}
            self._read_receipts()

    # Manifests and markers

    def _manifests(self) -> None:
        wanted: dict[str, dict[str, RankSource]] = {}
        for version in self.versions.values():
            for source in version.sources:
                wanted.setdefault(source.manifest, {})[source.name] = source
        for name in {one.text for one in manifests.names(self.store.objects, self.run)} | wanted.keys():
            found = self._manifest(name)
            stated = wanted.get(name, {})
            if found is not None and all(found.get(each) == source for each, source in stated.items()):
                continue
            key = layout.manifest(self.run, name)
            self._take_out(key)
            if not stated:
                self._step(key, "unpublished commit lost: ingest its traces again", is_loss=True)
                continue
            ranks = rank_list(source.rank for source in stated.values())
            self._step(key, f"manifest written from the versions; header of rank {ranks} lost", is_loss=True)
            if not self.dry_run:
                sources = tuple(sorted(stated.values(), key=lambda one: (one.rank, one.name)))
                committed_at = min(one.committed_at for one in sources)
                manifest = Manifest(sources[0].run, name, committed_at, sources)
                self.store.objects.put({manifest.key: manifests.encode(manifest)})

    def _manifest(self, name: str) -> dict[str, RankSource] | None:
        try:
            found = manifests.read(self.store.objects, self.run, name).sources
        except WarehouseError:
            return None
        return {source.name: source for source in found}

    def _markers(self) -> None:
        objects = self.store.objects
        settled = markers.held_or_dropped(tuple(self.versions.values()))
        for one in tuple(markers.every(objects, self.run)):
            marker = one.value
            if marker is not None and (
                marker.name in settled or markers.pending_sources(objects, self.run, [marker])
            ):
                if one.problems:
                    self.steps += _repair_copies(self.store, self.run, one, self.dry_run)
                continue
            self._step(one.key, "pending rank lost: ingest its trace again", is_loss=True)
            for key in (one.key, copies.key_of_copy(one.key)):
                self._take_out(key)

    def _take_out(self, key: str) -> None:
        if not self.dry_run:
            quarantine.take_out(self.store, key)

    def _step(self, key: str, what: str, is_loss: bool = False) -> None:
        self.steps.append(Step(self.run, key, what, is_loss))


def _version(head: Mapping[str, Any], sources: tuple[RankSource, ...]) -> RunVersion:
    fields: dict[str, Any] = {name: head[name] for name in _HEAD}
    fields |= {name: tuple(head[name]) for name in _HEAD_TUPLES}
    names = {*_HEAD, *_HEAD_TUPLES, "format", "content", "checksum"}
    unknown = tuple((name, value) for name, value in head.items() if name not in names)
    return RunVersion(**fields, sources=sources, unknown=unknown)


def repair_side_objects(store: Store, runs: Iterable[str] | None, dry_run: bool) -> Iterator[Step]:
    """Repairs what lies beside runs: kept versions, lists of recorded results, acknowledgements.

    `runs`: keys of the runs to repair; None for all, and for objects of no run.
    """
    wanted = None if runs is None else frozenset(runs)
    for kept in tuple(store.kept_versions()):
        run = layout.run_of(kept.key) or ""
        if kept.problems and (wanted is None or run in wanted):
            yield from _repair_copies(store, run, kept, dry_run)
    if wanted is not None:
        return
    for one in tuple(results.acknowledged(store.objects)):
        if one.problems:
            yield from _repair_copies(store, "", one, dry_run)
    for listed in tuple(results.lists(store.objects)):
        if listed.problems:
            yield from _repair_copies(store, "", listed, dry_run)
    known = results.listed(store.objects)
    unlisted = [key for _, key in results.every(store.objects) if key not in known]
    if unlisted and not dry_run:
        rows = [[key, store.path(key).stat().st_size, sha256(store.path(key))] for key in unlisted]
        results.write_list(store.objects, rows)
    yield from (Step(layout.run_of(key) or "", key, "recorded result listed again") for key in unlisted)
    # Damaged catalogs are deleted: they only repeat what the versions hold.
    for problem in catalog_problems(store):
        if not dry_run:
            store.objects.delete([problem.path])
        yield Step("", problem.path, "run catalog deleted; a later command writes a new one")
    for problem in list_problems(store):
        if not dry_run:
            store.list_runs()
        yield Step("", problem.path, "list of versions written again")


def _repair_copies(store: Store, run: str, stored: copies.Stored[T], dry_run: bool) -> list[Step]:
    """Quarantines the damaged ones of an object that is stored twice, and writes both from an intact one."""
    is_lost = stored.value is None
    what = "lost with its copy" if is_lost else "written again from its copy"
    if not dry_run:
        for key, _ in stored.problems:
            quarantine.take_out(store, key)
        if stored.value is not None:
            copies.put(store.objects, {stored.key: stored.data})
    return [Step(run, key, what, is_lost) for key, _ in stored.problems]
