"""A low limit on address space is refused at once, with the size needed."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

from cli_runner import TW, environment


def limited(bytes_: int, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TW, *words],
        env=environment(),
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (bytes_, bytes_)),
    )


def test_a_low_limit_is_refused_with_the_size_needed(tmp_path: Path) -> None:
    done = limited(1000 << 20, "runs", "-w", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "tw: the address space is limited to 1000 MiB, 3000 MiB are needed",
        "hint: raise the limit: ulimit -v 3072000",
    ]
    assert limited(1000 << 20, "--version").returncode == 0
