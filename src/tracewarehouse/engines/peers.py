"""What a worker on another machine must share with the process that sends it tasks."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version

from tracewarehouse.contracts.catalog import contract_files, sql_folder
from tracewarehouse.version import __version__


@dataclass(frozen=True)
class Peer:
    """The versions that decide the rows of every table and analysis: equal on all machines of a call."""

    tracewarehouse: str
    contracts: str
    duckdb: str

    @classmethod
    def here(cls) -> Peer:
        """The versions of this process."""
        return cls(__version__, contracts_digest(), version("duckdb"))

    def mismatch(self, driver: Peer) -> str | None:
        """How this worker differs from the process that sent a task; None if it does not."""
        mine, theirs = asdict(self), asdict(driver)
        different = [
            f"{name} {mine[name]} instead of {theirs[name]}" for name in mine if mine[name] != theirs[name]
        ]
        return f"worker on {platform.node()} has {', '.join(different)}" if different else None


@cache
def contracts_digest() -> str:
    """A hash of the contract files of this installation, in 12 hex digits."""
    folder, digest = sql_folder(), sha256()
    for path in contract_files(folder):
        digest.update(f"{path.relative_to(folder)}\n".encode())
        digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]
