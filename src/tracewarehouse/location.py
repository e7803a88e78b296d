"""Where a warehouse is: a folder, or the URL of an object store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.errors import ParamError, WarehouseError
from tracewarehouse.late_regex import late_regex

SCHEMES = ("s3", "gs", "az", "abfss", "memory", "https", "http")
_URL = late_regex(r"[A-Za-z][A-Za-z0-9+.-]*://")
# Options that would put a secret into tasks and tracebacks; the environment has them instead.
_SECRET = late_regex(r"key|secret|token|password|credential|sas|signature|authority", re.IGNORECASE)
_HARMLESS = frozenset({"skip_signature", "aws_skip_signature"})


class StoreUrl(Struct, frozen=True):
    """The URL of a warehouse in an object store; `options` are those of obstore, without credentials."""

    url: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.url

    @property
    def scheme(self) -> str:
        """The part before `://`."""
        return self.url.partition("://")[0]

    @property
    def is_web(self) -> bool:
        """Whether a web server has the files: they can be read, neither listed nor changed."""
        return self.scheme in ("https", "http")


Location: TypeAlias = Path | StoreUrl


def is_url(path: object) -> bool:
    """Whether a warehouse is named by a URL."""
    return isinstance(path, StoreUrl) or (isinstance(path, str) and _URL.match(path) is not None)


def location(path: str | PathLike[str] | StoreUrl, options: Mapping[str, object] | None = None) -> Location:
    """The folder as an absolute path, or the URL; raises WarehouseError, ParamError."""
    if isinstance(path, StoreUrl):
        return path
    text = os.fspath(path)
    if is_url(text):
        return store_url(text, options)
    if options:
        raise ParamError("storage_options apply to URLs", "leave them out for a folder")
    return Path(text).absolute()


def store_url(text: str, options: Mapping[str, object] | None = None) -> StoreUrl:
    """A checked URL; raises WarehouseError for an unknown scheme, credentials or a query in it."""
    url = urlsplit(text)
    scheme = url.scheme.lower()
    container = "" if scheme != "abfss" or url.netloc.count("@") != 1 else url.netloc.split("@")[0]
    if scheme not in SCHEMES:
        listed = ", ".join(f"{each}://" for each in SCHEMES)
        raise WarehouseError(f"{scheme}:// is not supported", f"use a folder, or one of {listed}")
    if url.query or url.fragment or ("@" in url.netloc and (not container or ":" in container)):
        raise WarehouseError(
            f"the {scheme}:// URL has credentials or a query string",
            "set credentials in the environment, and name only bucket and path",
        )
    if not url.netloc:
        raise WarehouseError(f"{text}: no bucket", f"write it as {scheme}://BUCKET/PATH")
    return StoreUrl(f"{scheme}://{url.netloc}{url.path.rstrip('/')}", _checked(options or {}))


def _checked(options: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    for name in options:
        if _SECRET.search(name) and name.lower() not in _HARMLESS:
            raise ParamError(
                f"storage option {name} is a credential",
                hints.fill("set it in the environment: it would be passed on to worker processes"),
            )
    return tuple(sorted((name.lower(), _text(value)) for name, value in options.items()))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def paths_in(
    paths: Iterable[str | PathLike[str] | Iterable[str | PathLike[str]]],
) -> tuple[str | PathLike[str], ...]:
    """The paths, also those in lists. Raises ParamError for anything else."""
    flat: list[str | PathLike[str]] = []
    for each in paths:
        inside = [each] if isinstance(each, str | PathLike) or not isinstance(each, Iterable) else list(each)
        for path in inside:
            if not isinstance(path, str | PathLike):
                message = f"{type(path).__name__} is not a path"
                raise ParamError(message, 'pass files or folders: wh.ingest("traces", "more")')
            flat.append(path)
    return tuple(flat)
