"""A process of our own does without a library that another one would pull in for nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Without:
    """A finder that finds none of the named libraries, whether they are installed or not."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None, so that the next finder looks; raises ModuleNotFoundError for a library to do without."""
        if name in self.names:
            raise ModuleNotFoundError(f"{name} is left out of this process", name=name)
        return None


def leave_out(*names: str) -> None:
    """Makes `import` of these libraries fail from here on, in this process alone.

    pyarrow imports pandas, where it is installed, as soon as it makes an array of Python values: half of
    what a short command takes.
    """
    sys.meta_path.insert(0, _Without(names))
