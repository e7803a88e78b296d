"""The URL of an object as a path, so that names of runs and ranks are derived as from local files."""

from __future__ import annotations

from pathlib import PosixPath


class UrlPath(PosixPath):
    """A path that prints as its URL. Its name and parents are those of the object; there is no such file."""

    def __str__(self) -> str:
        """The URL; a path has one slash where a URL has two."""
        scheme, separator, rest = super().__str__().partition(":/")
        return f"{scheme}://{rest}" if separator else scheme

    def absolute(self) -> UrlPath:
        """The path itself."""
        return self
