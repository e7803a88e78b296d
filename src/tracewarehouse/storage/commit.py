"""Commit: staged Parquet files are packed, synced and moved, then named by a manifest per group.

The life of a commit: `commit` writes the data files, then the manifest; no reader sees either. `publish`
(`publish.py`) puts a version that names the files, and only then do readers see them. A process that is
killed between the two leaves a commit without a version. The next ingest of the same trace finds it
(`earlier`, called by `Store.commit`) while it is younger than `FRESH`, and publishes it without building
its tables again. A commit that waits for other ranks is published by the call that brings the last one
(`publish`), a pushed one by `seal`. Every other one is deleted by `tw clean` (`plan` in `clean.py`) once it
is older than the grace period.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.storage import layout, manifests, pack
from tracewarehouse.storage.copies import FRESH
from tracewarehouse.storage.layout import ManifestName, group_uid
from tracewarehouse.storage.manifests import Manifest, now
from tracewarehouse.storage.model import Intent, Json, RankSource, Staged, TableFile
from tracewarehouse.storage.objects import Objects
from tracewarehouse.storage.parquet_file import file_facts


class Group(Struct, frozen=True):
    """Sources of one run that are committed together, in order of rank."""

    members: tuple[Staged, ...]

    @property
    def run(self) -> str:
        """The run's name."""
        return self.members[0].run

    @property
    def uid(self) -> str:
        """The hash of the members' uids."""
        return group_uid(one.uid for one in self.members)

    def name(self, intent: Intent, attempt: str) -> ManifestName:
        """The name of its manifest."""
        return ManifestName(self.members[0].rank, self.members[-1].rank, self.uid, attempt, intent)


def groups(staged: Sequence[Staged]) -> Iterator[Group]:
    """The sources of each manifest: at most `PACK_RANKS` neighboring ranks of one run.

    Ranks that share a packed file stay together.
    """
    ordered = sorted(staged, key=lambda one: (one.run, one.rank))
    for _, members in groupby(ordered, key=lambda one: one.run):
        listed = list(members)
        last = {table.path: at for at, one in enumerate(listed) for table in one.tables}
        start = reach = 0
        for end in range(1, len(listed) + 1):
            reach = max(reach, *(last[table.path] for table in listed[end - 1].tables), 0)
            if end == len(listed) or (end - start >= pack.PACK_RANKS and reach < end):
                yield Group(tuple(listed[start:end]))
                start = end


def commit(
    objects: Objects, staged: Sequence[Staged], intent: Intent, push: Json = None
) -> tuple[RankSource, ...]:
    """Commits staged sources and returns them in the given order: first all files, then the manifests.

    Readers see nothing before a publish.
    """
    if len({(one.run, one.rank, one.digest, one.part) for one in staged}) != len(staged):
        raise ValueError("a call must commit each source of a rank once")
    moves: dict[str, Path] = {}
    committed = [replace(_manifest(group, intent, moves), push=push) for group in groups(staged)]
    written = {manifest.key: manifests.encode(manifest) for manifest in committed}
    try:
        objects.adopt(moves)
        objects.put(written)
    except OSError:  # a full disk
        objects.delete([*written, *moves])
        raise
    found = {(one.run, one.rank, *one.identity): one for manifest in committed for one in manifest.sources}
    return tuple(found[one.run, one.rank, one.digest, one.part] for one in staged)


def _manifest(group: Group, intent: Intent, moves: dict[str, Path]) -> Manifest:
    """The manifest of a group; adds the keys of its files to `moves`."""
    name = group.name(intent, secrets.token_hex(4))
    files: list[list[TableFile]] = [list(one.kept) for one in group.members]
    places = {id(one): at for at, one in enumerate(group.members)}
    for parts in pack.groups(group.members):
        first, table = parts[0].staged, parts[0].table
        key = layout.table_file(
            table.table, table.version, first.run, first.rank, f"{name.uid}-{name.attempt}"
        )
        if key in moves:  # another source of the same rank fills the table, too
            key = key.replace(f"-{name.attempt}.", f"-{secrets.token_hex(4)}.")
        moves[key] = pack.one_file(parts)
        for part, file in zip(parts, _table_files(parts, key, moves[key]), strict=True):
            files[places[id(part.staged)]].append(file)
    at = now()
    sources = tuple(_source(one, name, at, own) for one, own in zip(group.members, files, strict=True))
    headers = {source.name: one.header for source, one in zip(sources, group.members, strict=True)}
    return Manifest(group.run, name.text, at, sources, headers)


def _table_files(parts: Sequence[pack.RowGroup], key: str, path: Path) -> Iterator[TableFile]:
    """Each source's share of the file."""
    facts = file_facts(path)
    rows = parts[0].table.file_rows if parts[0].table.ranks else sum(part.table.rows for part in parts)
    for part in parts:
        table = part.table
        yield TableFile(
            table=table.table,
            version=table.version,
            path=key,
            rows=table.rows,
            bytes=facts.bytes,
            sha256=facts.sha256,
            footer_bytes=facts.footer_bytes,
            footer_sha256=facts.footer_sha256,
            file_rows=rows if rows is not None else table.rows,
            first_rank=parts[0].staged.rank,
            last_rank=parts[-1].staged.rank,
            file_ranks=len(parts),
        )


def _source(staged: Staged, name: ManifestName, at: str, files: Sequence[TableFile]) -> RankSource:
    return RankSource(
        run=staged.run,
        rank=staged.rank,
        uid=staged.uid,
        attempt=name.attempt,
        manifest=name.text,
        digest=staged.digest,
        part=staged.part,
        format=staged.format,
        format_version=staged.format_version,
        definitions=dict(staged.definitions),
        text_bytes=staged.text_bytes,
        status=staged.status,
        committed_at=staged.committed_at or at,
        files=tuple(files),
        facts=dict(staged.facts),
        unknown=staged.unknown,
    )


def earlier(objects: Objects, group: Group, intent: Intent) -> Iterator[Manifest]:
    """Recent commits of exactly these sources, tables and rows, so that a retry finds them.

    The caller checks whether they were published.
    """
    found = group.name(intent, "")
    prefix = layout.manifest_prefix(found.first, found.last, found.uid)
    for entry in objects.walk(layout.manifest(group.run, prefix)):
        parsed = ManifestName.parse(entry.key.rpartition("/")[2])
        if parsed is None or parsed.intent != intent:
            continue
        manifest = manifests.read(objects, group.run, parsed.text)
        young = datetime.now(UTC) - datetime.fromisoformat(manifest.committed_at) < FRESH
        if young and all(map(_same, group.members, manifest.sources)):
            yield manifest


def _same(staged: Staged, source: RankSource) -> bool:
    new = Counter((table.table, table.version, table.rows) for table in staged.tables if table.rows)
    new += Counter((file.table, file.version, file.rows) for file in staged.kept)
    old = Counter((file.table, file.version, file.rows) for file in source.files)
    return (staged.uid, staged.status, new) == (source.uid, source.status, old)
