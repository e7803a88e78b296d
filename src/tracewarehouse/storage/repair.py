"""Repair of stored objects: versions, index entries, commits, recorded results.

Damaged objects stay where they are; the version that a repair publishes names them as taken out. Results,
which no version names, are renamed. Tables are repaired by `ingest.repair`, which needs the builders.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.errors import TwError, WarehouseError
from tracewarehouse.exact_text import rank_list
from tracewarehouse.storage import codec, commits, layout, results
from tracewarehouse.storage.codec import Entry, encode_version, version_of
from tracewarehouse.storage.commits import Commit
from tracewarehouse.storage.layout import CommitName
from tracewarehouse.storage.model import ManySources, RankSource, RunVersion, StoredList
from tracewarehouse.storage.store import Store
from tracewarehouse.storage.verify import list_problems

_RESTORED = "version restored from its index entry and commits"


class Step(Struct, frozen=True):
    """One step of a repair: the run (or ""), the key of the object, what was done.

    `is_loss`: data is lost; `is_failure`: the repair stopped here, and can be repeated.
    """

    run: str
    key: str
    what: str
    is_loss: bool = False
    is_failure: bool = False


@dataclass
class RunRepair:
    """The repair of the objects of one run. With `dry_run` the steps are only listed."""

    store: Store
    run: str
    dry_run: bool = False
    steps: list[Step] = field(default_factory=list)
    # Number → each version that can be read, or was published.
    versions: dict[int, RunVersion] = field(default_factory=dict)
    _taken_out: set[str] = field(default_factory=set)
    _commits: dict[str, Commit] = field(default_factory=dict)

    def repair(self) -> None:
        """Repairs versions, commits and the index entry, and publishes a version that names the damage."""
        self.versions = {version.number: version for version in self.store.readable(self.run, whole=True)}
        names = [name.text for name in commits.names(self.store.objects, self.run)]
        for commit in commits.read_many(self.store.objects, self.run, names):
            if isinstance(commit, Commit):
                self._commits[commit.name] = commit
        entry = self.store.entry(self.run)
        numbers = self.store.versions(self.run)
        top = max((*numbers, entry.number if entry else 0), default=0)
        newest = self._newest(top, entry)
        taken_out = frozenset(newest.taken_out) if newest else frozenset()
        if newest is not None:
            for number in range(newest.kept_from, top):
                key = layout.version(self.run, number)
                if number not in self.versions and key not in taken_out:
                    self._take_out(key, "version lost: no other object has what it held")
        changed = self._repair_commits(newest, taken_out)
        self._publish(top, newest, changed)
        if newest is not None and not self._taken_out and (entry is None or entry.number < top):
            self._write_entry(newest)

    @property
    def newest(self) -> RunVersion | None:
        """The newest version after the repair."""
        return self.versions[max(self.versions)] if self.versions else None

    # Versions

    def _newest(self, top: int, entry: Entry | None) -> RunVersion | None:
        """The newest version, as it was or as far as it can be proved; adds it under the number `top`."""
        key = layout.version(self.run, top)
        stored = self.versions.get(top)
        is_other = (
            entry is not None and entry.number == top and entry.sha256 != self.store.digest(self.run, top)
        )
        if not top or (stored is not None and not is_other):
            return stored
        proved = self._from_entry(entry) if entry is not None and entry.number == top else None
        if proved is None and stored is not None:  # the entry is wrong
            self._write_entry(stored)
            return stored
        if proved is not None:
            self._step(key, _RESTORED)
            self.versions[top] = proved
            if self.store.objects.stat(key) is not None:
                self._taken_out.add(key)
            elif not self.dry_run:
                self.store.objects.put_if_absent(key, encode_version(proved))
                self.store.forget()
            return proved
        self._take_out(key, "version lost: neither its index entry nor commits prove what it held")
        version, what = self._provable(top, entry if entry is not None and entry.number == top else None)
        self._step(layout.version(self.run, top + 1), what, is_loss=True)
        return replace(version, number=top)

    def _write_entry(self, newest: RunVersion) -> None:
        self._step(layout.entry(self.run), "index entry written from the newest version")
        if not self.dry_run:
            self.store.write_entry(newest)

    def _from_entry(self, entry: Entry) -> RunVersion | None:
        """The version that an index entry describes, if the commits prove that it is the same."""
        version = self._described(entry)
        if version is None or codec.digest(encode_version(version)) != entry.sha256:
            return None
        return version if _is_whole(version) else self._with_sources_of_commits(version)

    def _described(self, entry: Entry) -> RunVersion | None:
        assert isinstance(entry.head, dict)
        fields = entry.head | {"run": entry.run, "number": entry.number, "labels": entry.labels}
        if "list" in fields:
            stored = msgspec.convert(fields["list"], StoredList)
            return version_of(fields, codec.many_sources(self.store.objects, entry.run, stored))
        sources = [self._source(name, commit) for name, commit in entry.sources]
        present = tuple(source for source in sources if source is not None)
        return version_of(fields, present) if len(present) == len(sources) else None

    def _source(self, name: str, commit: str) -> RankSource | None:
        sources = self._commits[commit].sources if commit in self._commits else ()
        return next((source for source in sources if source.name == name), None)

    def _with_sources_of_commits(self, version: RunVersion) -> RunVersion | None:
        """A version of many files whose list object is lost, if the commits give the same."""
        listed = [self._commits[name] for name in version.summary.commits if name in self._commits]
        sources = sorted(
            (one for commit in listed for one in commit.sources), key=lambda one: (one.rank, one.name)
        )
        restored = replace(version, sources=tuple(sources))
        is_same = (restored.source, restored.bytes) == (version.source, version.bytes)
        return restored if is_same else None

    def _provable(self, top: int, entry: Entry | None) -> tuple[RunVersion, str]:
        """What is left of a lost newest version, and in words what was done."""
        if entry is not None and entry.sources:
            present = [self._source(name, commit) for name, commit in entry.sources]
            sources = tuple(source for source in present if source is not None)
            lost = [name for (name, _), one in zip(entry.sources, present, strict=True) if one is None]
            version = RunVersion(entry.run, top, sources, entry.labels, None, "", "")
            text = f"published without {len(lost)} lost sources: {', '.join(lost)}; ingest their traces again"
            return version, text
        if self.newest is not None:
            return self.newest, f"published as it was in v{self.newest.number}; later changes are lost"
        stored = [one for commit in self._commits.values() if commit.waits is None for one in commit.sources]
        # The newest commit of each source of a rank; of sources that overlap the newest one.
        disjoint: list[RankSource] = []
        for source in sorted(stored, key=lambda one: one.committed_at):
            disjoint = [one for one in disjoint if one.rank != source.rank or not one.overlaps(source)]
            disjoint.append(source)
        run = stored[0].run if stored else self.store.name(self.run)
        sources = tuple(sorted(disjoint, key=lambda one: (one.rank, one.name)))
        version = RunVersion(run, top, sources, {}, None, "", "")
        return version, "published from its commits; labels and expected ranks are lost"

    # Commits

    def _repair_commits(
        self, newest: RunVersion | None, taken_out: frozenset[str]
    ) -> tuple[RankSource, ...] | None:
        """Writes lost commits again from the versions; the sources of the newest version if some change."""
        published: dict[str, dict[str, RankSource]] = {}
        for version in (*self.versions.values(), *([newest] if newest else [])):
            for source in version.sources:
                published.setdefault(source.commit, {})[source.name] = source
        current = frozenset(newest.summary.commits) if newest else frozenset()
        moved: dict[str, str] = {}
        stored = {name.text for name in commits.names(self.store.objects, self.run)}
        for name in sorted(stored | published.keys()):
            key, stated = layout.commit(self.run, name), published.get(name, {})
            commit = self._commits.get(name)
            in_commit = {source.name: source for source in commit.sources} if commit else None
            is_intact = in_commit is not None and stated.items() <= in_commit.items()
            if is_intact or (key in taken_out and name not in current):
                continue
            if not stated:
                self._take_out(key, "unpublished commit lost: ingest its traces again")
                continue
            ranks = rank_list(source.rank for source in stated.values())
            what = f"commit written from the versions; header of rank {ranks} lost"
            if name in stored:
                self._take_out(key, what)
                moved[name] = self._write_commit(name, tuple(stated.values()), again=True)
            else:
                self._step(key, what, is_loss=True)
                self._write_commit(name, tuple(stated.values()), again=False)
        if newest is None or current.isdisjoint(moved):
            return None
        return tuple(replace(one, commit=moved.get(one.commit, one.commit)) for one in newest.sources)

    def _write_commit(self, name: str, sources: tuple[RankSource, ...], again: bool) -> str:
        """Writes a commit without headers, under another name if a damaged one has the name."""
        parsed = CommitName.parse(name)
        assert parsed is not None
        new_name = replace(parsed, attempt=secrets.token_hex(4), waits=False).text if again else name
        members = sorted(sources, key=lambda one: (one.rank, one.name))
        if not self.dry_run:
            committed_at = min(one.committed_at for one in members)
            moved = tuple(replace(one, commit=new_name) for one in members)
            commit = Commit(members[0].run, new_name, committed_at, moved)
            self.store.objects.put({commit.key: commits.encode(commit)})
        return new_name

    # What is published

    def _publish(self, top: int, newest: RunVersion | None, sources: tuple[RankSource, ...] | None) -> None:
        """Publishes a version with what was taken out, if anything was."""
        if not self._taken_out or self.dry_run:
            return
        if newest is None:  # only commits: the version says nothing but that some are lost
            newest = RunVersion(self.store.name(self.run), 0, (), {}, None, "", "", tombstone=True)
        taken_out = tuple(dict.fromkeys((*newest.taken_out, *sorted(self._taken_out))))
        version = replace(newest, number=top + 1, taken_out=taken_out)
        if sources is not None:
            version = replace(version, sources=sources)
        written = self.store.put(version)
        if written is None:
            raise WarehouseError(f"run {self.run}: another call published meanwhile", "run it again")
        self.store.forget()
        self.versions = {one.number: one for one in self.store.readable(self.run, whole=True)}

    def _take_out(self, key: str, what: str) -> None:
        self._taken_out.add(key)
        self._step(key, what, is_loss=True)

    def _step(self, key: str, what: str, is_loss: bool = False) -> None:
        self.steps.append(Step(self.run, key, what, is_loss))


def _is_whole(version: RunVersion) -> bool:
    """Whether the sources of a version can be read."""
    with suppress(TwError):
        return not isinstance(version.sources, ManySources) or bool(version.sources.loaded)
    return False


def repair_side_objects(store: Store, runs: Iterable[str] | None, dry_run: bool) -> Iterator[Step]:
    """Repairs what belongs to no run: acknowledgements, lists of recorded results, and the list of runs.

    `runs`: keys of the runs to repair; nothing is done unless it is None.
    """
    if runs is not None:
        return
    lost = [key for recorded, key in results.missing(store.objects, ()) if recorded is None]
    for key, fields in tuple(results.acknowledged(store.objects)):
        if isinstance(fields, str):
            lost.append(key)
            if not dry_run:
                results.set_aside(store.objects, [key])
    yield from (Step("", key, "acknowledgement lost: acknowledge the change again", True) for key in lost)
    damaged = [key for key, names in results.lists(store.objects) if isinstance(names, str)]
    yield from (Step("", key, "damaged list of recorded results renamed") for key in damaged)
    if not dry_run:
        results.set_aside(store.objects, [*damaged, *results.unlist(store.objects, frozenset(lost))])
    listed = results.listed(store.objects)
    unlisted = [key for _, key in results.every(store.objects) if key not in listed]
    unlisted += [key for key, fields in results.acknowledged(store.objects) if key not in listed]
    if unlisted and not dry_run:
        results.write_list(store.objects, unlisted)
    yield from (Step(layout.run_of(key) or "", key, "recorded result listed again") for key in unlisted)
    for problem in list_problems(store):
        if not dry_run:
            store.objects.delete([problem.path])
        yield Step("", problem.path, "list of runs deleted; a later command writes it again")
