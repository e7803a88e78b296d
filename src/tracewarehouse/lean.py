"""A process of our own does without a library that another one would pull in for nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Without:
    """A finder that finds none of the named libraries; with `user` only while that one loads."""

    def __init__(self, names: tuple[str, ...], user: str | None = None) -> None:
        self.names = names
        self.user = user

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None, so that the next finder looks; raises ModuleNotFoundError for a library to do without."""
        if name in self.names and (self.user is None or self._is_loading(self.user)):
            raise ModuleNotFoundError(f"{name} is left out of this process", name=name)
        return None

    def _is_loading(self, user: str) -> bool:
        spec = getattr(sys.modules.get(user), "__spec__", None)
        return bool(getattr(spec, "_initializing", False))


def leave_out(*names: str) -> None:
    """Makes `import` of these libraries fail from here on, in this process alone.

    pyarrow imports pandas, where it is installed, as soon as it makes an array of Python values: half of
    what a short command takes.
    """
    sys.meta_path.insert(0, _Without(names))


def load_pyarrow_without_numpy() -> None:
    """Lets pyarrow load without numpy, which takes longer than pyarrow itself; others may import it.

    pyarrow then turns nothing into a numpy array, nor takes one.
    """
    sys.meta_path.insert(0, _Without(("numpy",), user="pyarrow"))
