"""Where a rank's events stand in the file that is written."""

from __future__ import annotations

from dataclasses import dataclass

Window = tuple[int, int]


@dataclass(frozen=True)
class Place:
    """Where a rank's events stand in the file: by default where they stood in the rank's own.

    `window` is the part that is wanted, by the rank's own clock; `shift_ns` is added to its times. Of
    several ranks side by side this is the one with this number, from 0, `of` so many, and its processes are
    numbered onwards from `first_pid`.
    """

    window: Window | None = None
    shift_ns: int = 0
    number: int = 0
    of: int = 1
    first_pid: int = 0

    @property
    def is_beside(self) -> bool:
        """Whether other ranks stand beside it, so that what ranks share must be told apart."""
        return self.of > 1

    @property
    def values(self) -> dict[str, object]:
        """Values for SQL."""
        from_ns, to_ns = self.window or (None, None)
        return {
            "from_ns": from_ns,
            "to_ns": to_ns,
            "shift_ns": self.shift_ns,
            "number": self.number,
            "of": self.of,
        }
