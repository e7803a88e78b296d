"""Trace files among the objects of a store: a named object, a folder of them, or a pattern with `*`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import PosixPath

from tracewarehouse import hints
from tracewarehouse.errors import StoreUnavailable, TwError
from tracewarehouse.ingest.inbox import INBOX, NOTE_SUFFIX, parse_note
from tracewarehouse.ingest.survey import (
    ENDINGS,
    OTHER_FILES,
    TEMPORARY,
    TRACE_NAMES,
    Candidate,
    DiscoveredFiles,
    RefusedPath,
    SkippedFile,
)
from tracewarehouse.location import StoreUrl, store_url
from tracewarehouse.storage.layout import WAREHOUSE
from tracewarehouse.storage.objects import Objects
from tracewarehouse.storage.remote import RemoteObjects, SourceObject, SourcePlace, source_place

Found = Candidate | RefusedPath | SkippedFile
_NONE = (
    "no such object or folder",
    "check the bucket and the path; folders are searched to any depth",
)


class UrlPath(PosixPath):
    """The URL of an object as a path, so that names of runs and ranks are derived as from local files."""

    def __str__(self) -> str:
        """The URL; a path has one slash where a URL has two."""
        scheme, separator, rest = super().__str__().partition(":/")
        return f"{scheme}://{rest}" if separator else scheme

    def absolute(self) -> UrlPath:
        """The path itself."""
        return self


def discover_urls(urls: Iterable[str], warehouse: Objects) -> DiscoveredFiles:
    """The objects to survey, in order of their URLs. Raises nothing: problems are listed."""
    files: dict[str, Candidate] = {}
    refused: list[RefusedPath] = []
    skipped: list[SkippedFile] = []
    for url in urls:
        for found in _attempt(url, warehouse):
            if isinstance(found, RefusedPath):
                refused.append(found)
            elif isinstance(found, SkippedFile):
                skipped.append(found)
            elif found.named or str(found.path) not in files:
                files[str(found.path)] = found
    ordered = sorted(files.values(), key=lambda file: file.path.parts)
    return DiscoveredFiles(tuple(ordered), tuple(refused), tuple(skipped))


def discover_inbox(warehouse: RemoteObjects) -> DiscoveredFiles:
    """The traces in the inbox of a warehouse, with their notes. Raises StoreUnavailable."""
    place = source_place(StoreUrl(f"{warehouse.url}/{INBOX}", warehouse.place.options), warehouse)
    objects = {one.url: one for one in place.objects() if _is_spooled(one.entry.key.removeprefix(place.key))}
    found = []
    for url, one in objects.items():
        note = objects.get(url + NOTE_SUFFIX)
        if not url.endswith(NOTE_SUFFIX):
            path = UrlPath(url)
            said = parse_note(path.parent.name, note.read() if note else b"")
            found.append(Candidate(path, named=False, remote=one, note=said))
    return DiscoveredFiles(tuple(found), ())


def _is_spooled(key: str) -> bool:
    """Whether a key below the inbox is that of a file in the folder of a run."""
    names = key.strip("/").split("/")
    return len(names) == 2 and not names[1].startswith(".")


def _attempt(url: str, warehouse: Objects) -> Iterator[Found]:
    """What a URL names; why it cannot be listed, as a refused path."""
    try:
        yield from _resolve(url, source_place(store_url(url), warehouse))
    except (TwError, StoreUnavailable) as error:
        # Not the URL as given: it may have credentials.
        path = UrlPath(url) if isinstance(error, StoreUnavailable) else UrlPath(url.partition("://")[0])
        yield RefusedPath(path, error.message.removeprefix(f"{path}: "), error.hint)


def _resolve(url: str, place: SourcePlace) -> Iterator[Found]:
    if "*" in place.key:
        yield from _matching(url, place)
        return
    named = None if url.endswith("/") or not place.key else place.object()
    if named is not None:
        yield Candidate(UrlPath(named.url), named=True, remote=named)
    elif place.holds(WAREHOUSE):
        hint = hints.fill("{} ingests the inbox of a warehouse", hints.ingest_inbox())
        yield RefusedPath(UrlPath(url), "is a warehouse, not a folder of traces", hint)
    else:
        objects = list(place.objects())
        found = list(_in_folders(objects, place.key))
        yield from found or [_nothing(url, bool(objects))]


def _nothing(url: str, is_folder: bool) -> RefusedPath:
    if not is_folder:
        return RefusedPath(UrlPath(url), *_NONE)
    hint = f"traces end in {ENDINGS}; name other objects explicitly"
    return RefusedPath(UrlPath(url), "no traces found in this folder", hint)


def _matching(url: str, place: SourcePlace) -> Iterator[Found]:
    """Objects that match, as if each was named, and the traces in folders that match."""
    parts = place.key.split("/")
    first = next(number for number, part in enumerate(parts) if "*" in part)
    folder = SourcePlace(place.bucket, "/".join(parts[:first]))
    objects = [one for one in folder.objects() if _matches(one.entry.key.split("/"), parts)]
    exact = [one for one in objects if one.entry.key.count("/") == len(parts) - 1]
    below = [one for one in objects if one.entry.key.count("/") >= len(parts)]
    found: list[Found] = [Candidate(UrlPath(one.url), named=True, remote=one) for one in exact]
    found += _in_folders(below, folder.key)
    hint = "* matches within one folder name or object name"
    yield from found or [RefusedPath(UrlPath(url), "no object matches", hint)]


def _matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether the first names match the parts of a pattern, in which only `*` is special."""
    return len(names) >= len(parts) and all(
        fnmatchcase(name, part.replace("[", "[[]")) and (part.startswith(".") or not name.startswith("."))
        for name, part in zip(names, parts, strict=False)
    )


def _in_folders(objects: Sequence[SourceObject], prefix: str) -> Iterator[Found]:
    """The traces among objects below a prefix, without hidden and temporary ones and those of warehouses."""
    warehouses = tuple(
        one.entry.key.removesuffix(WAREHOUSE) for one in objects if one.entry.key.endswith(f"/{WAREHOUSE}")
    )
    for one in objects:
        names = one.entry.key.removeprefix(prefix).strip("/").split("/")
        if one.entry.key.startswith(warehouses) or any(
            name.startswith(".") or TEMPORARY.search(name) for name in names
        ):
            continue
        path = UrlPath(one.url)
        if TRACE_NAMES.search(path.name):
            yield Candidate(path, named=False, remote=one)
        elif path.suffix.lower() in OTHER_FILES:
            yield SkippedFile(path, OTHER_FILES[path.suffix.lower()])
