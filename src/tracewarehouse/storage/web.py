"""Objects below a URL of a web server: read by GET, never written; `_tw/catalog/latest.json` lists them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Final, NoReturn

from tracewarehouse import hints
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage import layout, run_list
from tracewarehouse.storage.objects import Entry
from tracewarehouse.storage.remote import RemoteObjects

# What has no list is not there for readers over HTTP, except what a command would miss.
_NEEDED: Final = (layout.RESULTS, layout.RECORDED, layout.ACKNOWLEDGED, layout.DATA, layout.SOURCES)


class WebObjects(RemoteObjects):
    """A warehouse on a web server. Changes are refused."""

    def walk(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """From the list of versions. Raises WarehouseError for what a web server cannot list."""
        if not prefix or prefix.startswith(_NEEDED):
            raise WarehouseError(
                f"{self.url}: a web server does not list {prefix or 'objects'}",
                "open the warehouse by its s3://, gs:// or az:// URL, or copy it",
            )
        found = self._versions if prefix.startswith(layout.RUNS) else ()
        return (entry for entry in found if entry.key.startswith(prefix) and entry.key > after)

    def folders(self, prefix: str) -> list[str]:
        """From the list of versions."""
        found = (entry.key.removeprefix(prefix) for entry in self.walk(prefix))
        return sorted({name.partition("/")[0] for name in found if "/" in name})

    @cached_property
    def _versions(self) -> tuple[Entry, ...]:
        try:
            data = self.get(layout.LATEST)
        except FileNotFoundError:
            raise WarehouseError(
                f"{self.url}: the warehouse has no list of runs for web servers",
                hints.fill("write it where the warehouse is stored: {}", hints.call("refresh")),
            ) from None
        return run_list.decode(data, self.describe(layout.LATEST))

    # Writing

    def check_writable(self) -> NoReturn:
        """Raises WarehouseError."""
        raise WarehouseError(
            f"{self.url}: a warehouse on a web server is read-only",
            "open it where it is stored: by its folder, or its s3://, gs:// or az:// URL",
        )

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Raises WarehouseError."""
        self.check_writable()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Raises WarehouseError."""
        self.check_writable()

    def adopt(self, files: Mapping[str, Path]) -> None:
        """Raises WarehouseError."""
        self.check_writable()

    def delete(self, keys: Iterable[str]) -> None:
        """Raises WarehouseError."""
        self.check_writable()

    def prepare(self) -> None:
        """Raises WarehouseError."""
        self.check_writable()

    def clock(self) -> datetime:
        """The time of this machine: nothing is written."""
        return datetime.now(UTC)
