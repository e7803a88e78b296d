"""Objects outside of this machine: object stores, through obstore, web servers, and traces in a bucket."""

from __future__ import annotations

import errno
import hmac
import os
import re
import secrets
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.errors import StoreUnavailable, WarehouseError
from tracewarehouse.late_regex import late_regex
from tracewarehouse.location import StoreUrl
from tracewarehouse.storage import layout
from tracewarehouse.storage.objects import Entry, Objects

if TYPE_CHECKING:
    from obstore.store import ObjectStore


_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use an instance role",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or use a service account of the machine",
}
_AZURE = "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or use a managed identity"
_WEB = "the server must answer without credentials"
_NO_BUCKET = late_regex(r"NoSuchBucket|ContainerNotFound|specified bucket does not exist", re.IGNORECASE)
_DENIED = late_regex(r"\b(401|403)\b|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch", re.IGNORECASE)
_NO_CREDENTIALS = late_regex(r"169\.254\.169\.254|metadata\.google|credential|Account must be", re.IGNORECASE)
_PLAIN_HTTP = late_regex(r"builder error|BadScheme", re.IGNORECASE)
_SILENT = late_regex(
    r"error sending request|body error|timed out|timeout|connection|dns|retries|\b5\d\d\b|429", re.IGNORECASE
)


def missing_package(place: StoreUrl) -> WarehouseError:
    """The error if obstore is not installed."""
    return WarehouseError(f"{place}: {place.scheme}:// needs obstore", "pip install 'tracewarehouse[cloud]'")


def hint_of(place: StoreUrl) -> str:
    """What to do if the store does not answer."""
    if place.is_web:
        return "check the URL and the network, and run it again"
    endpoint = "AWS_ENDPOINT_URL" if place.scheme == "s3" else "the network"
    return f"check {endpoint} and run it again; published runs are not affected"


@contextmanager
def store_errors(place: StoreUrl, key: str = "") -> Iterator[None]:
    """Turns errors of obstore into FileNotFoundError, FileExistsError or StoreUnavailable."""
    from obstore.exceptions import AlreadyExistsError, BaseError, NotModifiedError, PreconditionError

    where = f"{place}/{key}" if key else str(place)
    try:
        yield
    except FileNotFoundError as error:
        if _NO_BUCKET.search(str(error)):
            raise _unavailable(place, where, str(error)) from None
        raise FileNotFoundError(errno.ENOENT, "no such object", where) from None
    except (AlreadyExistsError, PreconditionError, NotModifiedError):
        raise FileExistsError(errno.EEXIST, "the object exists", where) from None
    except BaseError as error:
        # `from None`: the text of obstore may contain signed URLs.
        raise _unavailable(place, where, f"{type(error).__name__}: {error}") from None


def _unavailable(place: StoreUrl, where: str, text: str) -> StoreUnavailable:
    credentials = _WEB if place.is_web else _CREDENTIALS.get(place.scheme, _AZURE)
    if _NO_BUCKET.search(text):
        return StoreUnavailable(f"{place}: no such bucket", "create it, or check the URL")
    if _PLAIN_HTTP.search(text):
        return StoreUnavailable(f"{place}: the endpoint is not encrypted", "AWS_ALLOW_HTTP=true allows http")
    if "PermissionDenied" in text or "Unauthenticated" in text or _DENIED.search(text):
        return StoreUnavailable(f"{where}: access denied", credentials)
    if _NO_CREDENTIALS.search(text):
        return StoreUnavailable(f"{place}: no credentials found", credentials)
    if _SILENT.search(text):
        return StoreUnavailable(f"{place}: the store does not answer", hint_of(place), is_transient=True)
    first_line = re.sub(r"\?\S*", "", text.partition("\n")[0])  # without query strings
    return StoreUnavailable(f"{where}: {first_line}", hint_of(place))


R = TypeVar("R")


def _retried(act: Callable[[], R]) -> R:
    """The result of requests that have no effect; made again if the store does not answer."""
    for pause_s in _PAUSES_S:
        try:
            return act()
        except StoreUnavailable as error:
            if not error.is_transient:
                raise
            time.sleep(pause_s)
    return act()


# Requests in flight, and uploads or downloads of entire files.
_IN_FLIGHT, _FILES_IN_FLIGHT = 32, 8
_ATTEMPTS, _PAUSE_S = 5, 0.05
# Fetching this in vain takes less time than another request.
_GAP_BYTES = 1 << 16
# Before a request that has no effect is made again; within it, obstore tries several times, but not a LIST
# whose answer is cut.
_PAUSES_S = (0.2, 1.0)
_TIMEOUTS = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(minutes=5)}
_RETRIES = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=3), "base": 2},
}
_LOCAL_HTTP = ("http://127.0.0.1", "http://localhost", "http://[::1]")
# The stores of `memory://`, which exist only in this process.
_in_memory: dict[str, Any] = {}
# The stores that this process has seen to keep conditions: it probes each once, before it writes.
_probed: set[str] = set()
# The process that first used a store: its threads do not exist in a forked child, where requests hang.
_first_process: list[int] = []


class RemoteObjects(Objects):
    """Objects under the prefix of a bucket. Credentials come from the environment, never from the URL."""

    def __init__(self, place: StoreUrl) -> None:
        try:
            import obstore  # noqa: F401
        except ImportError:
            raise missing_package(place) from None
        self.place = place
        self._opened: ObjectStore | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """A worker opens the store itself."""
        return type(self), (self.place,)

    @property
    def url(self) -> str:
        """The URL, which has no credentials."""
        return self.place.url

    @property
    def is_shared(self) -> bool:
        """Whether other processes see the objects."""
        return self.place.scheme != "memory"

    def describe(self, key: str) -> str:
        """The URL of an object."""
        return f"{self.url}/{key}"

    @property
    def _store(self) -> ObjectStore:
        _first_process[:] = _first_process or [os.getpid()]
        if _first_process != [os.getpid()]:
            raise StoreUnavailable(
                f"{self.url}: an object store cannot be used in a forked process",
                "start the process with the method spawn, or open the warehouse only there",
            )
        if self._opened is None:
            self._opened = _open(self.place)
        return self._opened

    # Reading

    def get(self, key: str) -> bytes:
        """The content of an object; raises FileNotFoundError."""
        with store_errors(self.place, key):
            return bytes(self._store.get(key).bytes())

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """A part of an object; raises FileNotFoundError."""
        with store_errors(self.place, key):
            return bytes(self._store.get_range(key, start=start, end=end))

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Parts of an object, those that are near each other with one GET; raises FileNotFoundError."""
        starts, ends = zip(*ranges, strict=True)
        with store_errors(self.place, key):
            found = self._store.get_ranges(key, starts=starts, ends=ends, coalesce=_GAP_BYTES)
            return [bytes(part) for part in found]

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Many GETs at once, in the order of the keys."""
        yield from self._each(self._get_or_none, keys)

    def _get_or_none(self, key: str) -> bytes | None:
        try:
            return self.get(key)
        except FileNotFoundError:
            return None

    def stat(self, key: str) -> Entry | None:
        """Size and time, by HEAD."""
        try:
            with store_errors(self.place, key):
                return _entry(self._store.head(key))
        except FileNotFoundError:
            return None

    def stat_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Entry | None]]:
        """Many HEADs at once, in the order of the keys."""
        yield from self._each(self.stat, keys)

    def walk(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """By LIST: a request per 1,000 objects of the folder of the prefix."""
        pauses = list(_PAUSES_S)
        while True:
            try:
                for entry in self._listed(prefix, after):
                    yield entry
                    after = entry.key
                return
            except StoreUnavailable as error:
                if not error.is_transient or not pauses:
                    raise
                time.sleep(pauses.pop(0))

    def _listed(self, prefix: str, after: str) -> Iterator[Entry]:
        folder, _, start = prefix.rpartition("/")
        # Keys before the prefix are not listed: a name is longer than its start.
        offset = max(after, prefix[:-1] if start else "")
        with store_errors(self.place):
            listed = self._store.list(prefix=folder or None, offset=offset or None, chunk_size=1000)
            for chunk in listed:
                for found in chunk:
                    entry = _entry(found)
                    if entry.key.startswith(prefix):
                        yield from (entry,) if entry.key > after else ()
                    elif entry.key > prefix:
                        return

    def folders(self, prefix: str) -> list[str]:
        """By LIST with a delimiter."""

        def listed() -> Sequence[str]:
            with store_errors(self.place):
                return self._store.list_with_delimiter(prefix=prefix.rstrip("/"))["common_prefixes"]

        return sorted(path.rpartition("/")[2] for path in _retried(listed))

    def download(self, key: str, path: Path) -> None:
        """Writes an object to a local file in parts; raises FileNotFoundError."""
        with store_errors(self.place, key):
            found = self._store.get(key)
            with path.open("wb") as file:
                for part in found.stream(min_chunk_size=8 << 20):
                    file.write(part)

    def resume(self, entry: Entry, path: Path, up_to: int) -> bool:
        """Appends to a private file what it lacks of the first `up_to` bytes of an object.

        False if the object is not the listed one any more. Raises FileNotFoundError.
        """
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "ab") as file, store_errors(self.place, entry.key):
            start, end = file.tell(), min(up_to, entry.bytes)
            if start >= end:
                return True
            is_part = (start, end) != (0, entry.bytes)
            found = self._store.get(entry.key, options={"range": (start, end)} if is_part else {})
            is_tagged = entry.etag and found.meta["e_tag"]
            if found.meta["size"] != entry.bytes or (is_tagged and _etag(found.meta["e_tag"]) != entry.etag):
                return False
            for part in found.stream(min_chunk_size=8 << 20):
                file.write(part)
        return path.stat().st_size == end

    # Writing

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Many PUTs at once."""
        self.check_writable()
        for _ in self._each(lambda key: self._put(key, objects[key]), objects):
            pass

    def _put(self, key: str, data: bytes | Path, create: bool = False) -> None:
        with store_errors(self.place, key):
            if create:
                self._store.put(key, data, mode="create", use_multipart=False)
            else:
                self._store.put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """A conditional PUT. If its answer is lost or is a refusal, the stored object shows who wrote it.

        `data` must therefore be unique to the call. The first call of a process probes the store.
        """
        self.check_writable()
        self.check_conditions()
        return self._put_if_absent(key, data)

    def _put_if_absent(self, key: str, data: bytes) -> bool:
        refused: Exception | None = None
        for attempt in range(_ATTEMPTS):
            try:
                self._put(key, data, create=True)
                return True
            except (FileExistsError, StoreUnavailable) as error:
                refused = error
            if (found := self._get_or_none(key)) is not None:
                return found == data
            if isinstance(refused, StoreUnavailable) and not refused.is_transient:
                raise refused
            time.sleep(_PAUSE_S * 2**attempt)  # refused without an object: two requests at once
        raise StoreUnavailable(f"{self.describe(key)}: cannot be written: {refused}", hint_of(self.place))

    def adopt(self, files: Mapping[str, Path]) -> None:
        """Uploads finished local files and deletes them."""
        self.check_writable()
        for _ in self._each(lambda key: self._put(key, files[key]), files, _FILES_IN_FLIGHT):
            pass
        for path in files.values():
            path.unlink()

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes objects, 1,000 per request where the store can."""
        self.check_writable()
        listed = list(keys)
        if self.place.scheme in ("s3",):
            for start in range(0, len(listed), 1000):
                with store_errors(self.place):
                    self._store.delete(listed[start : start + 1000])
            return
        for _ in self._each(self._delete, listed):
            pass

    def _delete(self, key: str) -> None:
        with suppress(FileNotFoundError), store_errors(self.place, key):
            self._store.delete(key)

    def clock(self) -> datetime:
        """The time that the store gives a new object."""
        key = f"{layout.PROBE}/{secrets.token_hex(16)}"
        self._put(key, b"")
        entry = self.stat(key)
        self.delete([key])
        if entry is None:
            raise StoreUnavailable(f"{self.describe(key)}: a new object is missing", hint_of(self.place))
        return entry.modified

    def prepare(self) -> None:
        """Checks that a new warehouse can be created here. Raises WarehouseError."""
        self.check_writable()
        foreign = sorted(set(self.folders("")) - layout.OWN_NAMES)
        if foreign:
            raise WarehouseError(
                f"{self.url}: not a warehouse: it holds {foreign[0]}/",
                "select a new or empty prefix with -w URL or TW_WAREHOUSE",
            )
        self.check_conditions()

    def absent(self, error: OSError) -> WarehouseError:
        """The error of a prefix without a warehouse."""
        return WarehouseError(
            f"{self.url}: no warehouse here",
            hints.Hint(
                "wh.ingest(PATH) creates one",
                "tw ingest PATH creates one; select another with -w URL or TW_WAREHOUSE",
            ),
        )

    def check_conditions(self) -> None:
        """Raises WarehouseError if a conditional PUT replaces an object, which would lose data.

        Each store is probed once by a process. Workers do not probe: they write no object conditionally.
        """
        if self.url in _probed:
            return
        key, first = f"{layout.PROBE}/{secrets.token_hex(16)}", secrets.token_bytes(16)
        won = self._put_if_absent(key, first), self._put_if_absent(key, secrets.token_bytes(16))
        held = self._get_or_none(key)
        self.delete([key])
        if won != (True, False) or held != first:
            raise WarehouseError(
                f"{self.url}: this store ignores If-None-Match; concurrent writers would lose data",
                "use a store with conditional writes: S3, Google Cloud Storage, Azure, MinIO",
            )
        _probed.add(self.url)

    def _each(
        self, act: Callable[[str], R], keys: Iterable[str], at_once: int = _IN_FLIGHT
    ) -> Iterator[tuple[str, R]]:
        """The result for each key, in order; requests run at the same time, few ahead of the reader."""
        listed: Sequence[str] = list(keys)
        if len(listed) < 2:
            yield from ((key, act(key)) for key in listed)
            return
        with ThreadPoolExecutor(min(at_once, len(listed))) as pool:
            running = deque((key, pool.submit(act, key)) for key in listed[: 2 * at_once])
            for following in (*listed[2 * at_once :], *repeat(None, len(running))):
                key, done = running.popleft()
                yield key, done.result()
                if following is not None:
                    running.append((following, pool.submit(act, following)))


# Data before the commits that name it, commits before the versions that hold them: what is published in the
# meantime is not taken for unused.
_FOLDERS = (layout.DATA, layout.RESULTS, layout.COMMITS, layout.INDEX, layout.VERSIONS)


class ListedObjects(RemoteObjects):
    """The objects as first listed: with one request per 1,000 objects, then none to look at names.

    Reads are answered from what `hold` fetched, many at once, or by the store.
    """

    def __init__(self, objects: RemoteObjects) -> None:
        super().__init__(objects.place)
        listed = (entry for folder in _FOLDERS for entry in objects.walk(f"{folder}/"))
        self._entries = {entry.key: entry for entry in listed}
        self._keys = sorted(self._entries)
        self._held: dict[str, bytes | None] = {}

    def hold(self, run: str) -> None:
        """Fetches the versions and commits of a run, in place of those of the run before."""
        folders = layout.versions(run), layout.commits(run)
        self._held = dict(self.get_many(entry.key for each in folders for entry in self.walk(f"{each}/")))

    def get(self, key: str) -> bytes:
        """The content of an object; raises FileNotFoundError."""
        data = self._held.get(key)
        return super().get(key) if data is None else data

    def walk(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """The listed objects whose key starts with `prefix`, by key."""
        for at in range(bisect_left(self._keys, max(prefix, after)), len(self._keys)):
            key = self._keys[at]
            if not key.startswith(prefix):
                return
            if key != after:
                yield self._entries[key]

    def folders(self, prefix: str) -> list[str]:
        """The names directly under a prefix that have objects below them."""
        rests = (entry.key.removeprefix(prefix) for entry in self.walk(prefix))
        return sorted({rest.partition("/")[0] for rest in rests if "/" in rest})

    def clock(self) -> datetime:
        """The time of a new object, which is not listed."""
        return RemoteObjects(self.place).clock()

    def stat(self, key: str) -> Entry | None:
        """Size and time as listed."""
        return self._entries.get(key)

    def stat_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Entry | None]]:
        """Sizes and times as listed."""
        return ((key, self.stat(key)) for key in keys)


def _open(place: StoreUrl) -> ObjectStore:
    from obstore.store import MemoryStore, from_url

    if place.scheme == "memory":
        found: ObjectStore = _in_memory.setdefault(place.url, MemoryStore())
        return found
    config: dict[str, Any] = dict(place.options)
    client = {**_TIMEOUTS, "allow_http": allows_http(place, config.pop("allow_http", ""))}
    with store_errors(place):
        opened: ObjectStore = from_url(
            place.url,
            config=config or None,  # type: ignore[call-overload]
            client_options=client,
            retry_config=_RETRIES,
        )
    return opened


def allows_http(place: StoreUrl, option: str = "") -> bool:
    """Whether requests may go unencrypted: if that is allowed, or within this machine."""
    if place.scheme == "http":
        return True
    endpoint = dict(place.options).get("endpoint") or os.environ.get("AWS_ENDPOINT_URL", "")
    given = option or os.environ.get("AWS_ALLOW_HTTP", "") or os.environ.get("AZURE_ALLOW_HTTP", "")
    return given.lower() in ("1", "true", "yes") or endpoint.startswith(_LOCAL_HTTP)


def _entry(found: Mapping[str, Any]) -> Entry:
    return Entry(found["path"], found["size"], found["last_modified"], _etag(found.get("e_tag")))


def _etag(text: str | None) -> str:
    """The tag without quotes: Azure lists it without, and answers with them."""
    return (text or "").removeprefix("W/").strip('"')


_VARIABLES = ("AWS_", "AZURE_", "AZURITE_", "GOOGLE_")


class SourceObject(Struct, frozen=True):
    """An object as it was listed; `bucket` is the URL of its bucket."""

    bucket: StoreUrl
    entry: Entry

    @property
    def url(self) -> str:
        """The URL of the object."""
        return f"{self.bucket.url}/{self.entry.key}"

    @property
    def stamp(self) -> tuple[int, int]:
        """Size, and time of writing in ns since the epoch."""
        return self.entry.bytes, int(self.entry.modified.timestamp() * 1e9)

    @property
    def is_shared(self) -> bool:
        """Whether other processes see it."""
        return _opened(self.bucket).is_shared

    def identity(self, salt: bytes) -> str:
        """A hash of its URL and tag, which changes with its content; the salt hides the name."""
        tag = self.entry.etag or self.stamp
        text = f"{self.url}\n{self.entry.bytes}\n{tag}"
        return hmac.new(salt, text.encode(), "sha256").hexdigest()[:32]

    def download(self, path: Path, up_to: int | None = None) -> bool:
        """Completes a local copy that may have the first bytes already; False if the object changed.

        The copy can be read by its owner only. Raises FileNotFoundError, StoreUnavailable.
        """
        wanted = self.entry.bytes if up_to is None else up_to
        # What arrived is kept.
        return _retried(lambda: _opened(self.bucket).resume(self.entry, path, wanted))

    def read(self) -> bytes:
        """The content of a small object; raises FileNotFoundError."""
        return _opened(self.bucket).get(self.entry.key)

    def delete(self, *more_keys: str) -> None:
        """Deletes the object, then others of its bucket."""
        for key in (self.entry.key, *more_keys):
            _opened(self.bucket).delete([key])


class SourceLocation(Struct, frozen=True):
    """A bucket and a key or prefix in it."""

    bucket: StoreUrl
    key: str

    def object(self) -> SourceObject | None:
        """The object of this key, None if there is none."""
        return self._find(self.key)

    def holds(self, name: str) -> bool:
        """Whether there is an object of this name below the prefix."""
        return self._find(f"{self.key}/{name}" if self.key else name) is not None

    def objects(self) -> Iterator[SourceObject]:
        """The objects below the prefix, by key."""
        found = _opened(self.bucket).walk(f"{self.key}/" if self.key else "")
        return (SourceObject(self.bucket, entry) for entry in found)

    def _find(self, key: str) -> SourceObject | None:
        entry = _opened(self.bucket).stat(key)
        return None if entry is None else SourceObject(self.bucket, entry)


def source_location(url: StoreUrl, warehouse: Objects) -> SourceLocation:
    """The bucket and key of a URL; options are those of a warehouse in a store of the same kind."""
    if url.is_web:
        raise WarehouseError(
            f"{url}: a web server does not list traces", "download them, or name an s3://, gs:// or az:// URL"
        )
    scheme, _, rest = url.url.partition("://")
    name, _, key = rest.partition("/")
    is_same = isinstance(warehouse, RemoteObjects) and warehouse.place.scheme == scheme
    options = warehouse.place.options if isinstance(warehouse, RemoteObjects) and is_same else ()
    return SourceLocation(StoreUrl(f"{scheme}://{name}", options), key)


def _opened(bucket: StoreUrl) -> RemoteObjects:
    """The bucket with open connections, as long as the environment says the same about stores."""
    said = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith(_VARIABLES)))
    return _opened_once(bucket, hash(said))


@lru_cache(maxsize=16)
def _opened_once(bucket: StoreUrl, _environment: int) -> RemoteObjects:
    return RemoteObjects(bucket)


class WebObjects(RemoteObjects):
    """A warehouse on a web server. Nothing is listed, and changes are refused."""

    @property
    def is_listable(self) -> bool:
        """A web server lists nothing."""
        return False

    def walk(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """Raises WarehouseError."""
        raise WarehouseError(
            f"{self.url}: a web server does not list {prefix or 'objects'}",
            "open the warehouse by its s3://, gs:// or az:// URL, or copy it",
        )

    def folders(self, prefix: str) -> list[str]:
        """Raises WarehouseError."""
        self.walk(prefix)
        return []

    # Writing

    def check_writable(self) -> NoReturn:
        """Raises WarehouseError."""
        raise WarehouseError(
            f"{self.url}: a warehouse on a web server is read-only",
            "open it where it is stored: by its folder, or its s3://, gs:// or az:// URL",
        )

    def clock(self) -> datetime:
        """The time of this machine: nothing is written."""
        return datetime.now(UTC)
