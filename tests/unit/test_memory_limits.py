"""Low limits on memory are respected, or refused at once with the size needed."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli_runner import TW, environment
from ingesting import only, take, write
from tracewarehouse import limits
from tracewarehouse.duck import engine
from tracewarehouse.duck.engine import QueryLimitError, limit_memory, query
from tracewarehouse.errors import TwError
from tracewarehouse.ingest import resources
from tracewarehouse.limits import Limits


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


GROUPS = {
    "version 2": ("0::/job/task\n", {"job/task/memory.max": "max", "job/memory.max": str(400 << 20)}),
    "container": ("0::/\n", {"memory.max": str(400 << 20)}),
    "version 1": (
        "9:cpu:/x\n4:memory:/job\n0::/\n",
        {
            "memory/job/memory.limit_in_bytes": str(400 << 20),
            "memory/memory.limit_in_bytes": str(2**63 - 1),
        },
    ),
    "container of version 1": (
        "4:cpu,memory:/not/visible\n",
        {"memory/memory.limit_in_bytes": str(400 << 20)},
    ),
}


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, dict[str, str]], None]:
    """Sets the control group of this process, with these files."""

    def create(membership: str, files: dict[str, str]) -> None:
        (tmp_path / "cgroup").write_text(membership)
        for name, text in files.items():
            path = tmp_path / "fs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        monkeypatch.setattr(limits, "_MEMBERSHIP", tmp_path / "cgroup")
        monkeypatch.setattr(limits, "_MOUNTED", tmp_path / "fs")

    return create


@pytest.mark.parametrize("kind", GROUPS)
def test_the_limit_of_the_control_group(group: Callable[..., None], kind: str) -> None:
    group(*GROUPS[kind])
    assert limits.group_bytes() == 400 << 20
    assert limits.half_bytes() == 200 << 20
    limits.check_settings()
    con = engine.connect()
    assert con.execute("SELECT current_setting('memory_limit')").fetchone() == ("200.0 MiB",)
    assert resources.memory_bytes(1) == int((400 << 20) * 0.7)
    assert resources.jobs(8, [Path(__file__)] * 9) == 8 and resources._processes_by_memory() == 1


def test_without_a_limit(group: Callable[..., None]) -> None:
    group("0::/\n", {"memory.max": "max"})
    assert limits.group_bytes() is None and limits.half_bytes() is None
    assert not resources.is_large(90 << 20)
    group("4:cpu:/x\n", {})
    assert limits.group_bytes() is None


def test_a_trace_that_does_not_fit_is_built_with_less_memory_or_refused(
    group: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group("0::/\n", {"memory.max": str(400 << 20)})
    assert not resources.is_large(20 << 20) and resources.is_large(60 << 20)
    resources.check_memory(60 << 20)
    with pytest.raises(TwError, match="400 MiB by the control group, 572 MiB are needed for 1024 MiB"):
        resources.check_memory(1 << 30)
    (path,) = write(tmp_path / "run")
    group("0::/\n", {"memory.max": str(200 << 20)})
    with pytest.raises(TwError, match="200 MiB by the control group, 256 MiB are needed\n"):
        limits.check_settings()
    report = take(tmp_path / "wh", path, jobs=1)
    assert only(report).state == "refused" and "200 MiB by the control group" in str(only(report).reason)
    assert "raise the memory limit of the container or job to 250 MiB" in str(only(report).hint)


def test_a_query_beyond_it_names_the_limit(group: Callable[..., None]) -> None:
    group("0::/\n", {"memory.max": str(64 << 20)})
    limits = Limits(None, None, 1_000_000_000)
    with engine.connect() as con, pytest.raises(QueryLimitError, match="more than 32 MiB of memory, half of"):
        limit_memory(con, limits.memory_bytes)
        query(con, "SELECT list(range::VARCHAR) FROM range(3_000_000)", limits)
