"""The analyses as typed methods. Written by `tw dev sync` from `sql/analyses`; not by hand."""

from __future__ import annotations

from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Analyses(Generic[T_co]):
    """One method per analysis, in its newest version; `run` takes any name and version."""

    def run(self, name: str, version: int | None = None, **params: object) -> T_co:
        """What the analysis gives. Raises UnknownName, ParamError."""
        raise NotImplementedError
