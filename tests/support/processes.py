"""Processes that tests start and look at."""

from __future__ import annotations

from pathlib import Path


def children(pid: int) -> list[int]:
    """The ids of the child processes of a process (Linux)."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
