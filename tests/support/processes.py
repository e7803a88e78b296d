"""Processes that tests start and look at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

# In a separate process, which has no other children.
_READ: Final = """
import resource, sys
from pathlib import Path
from tracewarehouse.formats.pickles.reader import read_plain
path = Path(sys.argv[1])
with path.open("rb") as file:
    read_plain(path, file, "memory_snapshot", "a memory snapshot", path.parent)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss << 10)
"""


def children(pid: int) -> list[int]:
    """The ids of the child processes of a process (Linux)."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def use_of_snapshot(path: Path) -> tuple[float, int]:
    """CPU seconds and peak bytes of the child process that reads a memory snapshot."""
    command = [sys.executable, "-c", _READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    cpu_s, peak_bytes = done.stdout.split()
    return float(cpu_s), int(peak_bytes)
