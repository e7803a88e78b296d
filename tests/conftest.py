"""Fixtures and settings of all tests."""

from __future__ import annotations

import gc
import getpass
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

pytest_plugins = ["golden_plugin", "object_store_plugin"]

ROOT = Path(__file__).parent.parent

# A cache folder for all workers and their processes, separate from the user's.
CACHE = Path(tempfile.gettempdir(), f"tw-tests-{getpass.getuser()}")
os.environ["XDG_CACHE_HOME"] = str(CACHE)
# Seconds of each file of tests in earlier runs: a run writes them, the next one starts with the longest.
DURATIONS = CACHE / "durations.json"
# The tests start many interpreters, which would compile every module again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A test ends processes, never the machine: what this one writes need not reach the disk, which takes long.
os.fsync = lambda _: None
# A shell starts jobs in the background with Ctrl-C ignored, which their processes inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# No labels from the environment in which the tests run.
os.environ["TW_AUTO_LABELS"] = "0"


def pytest_xdist_auto_num_workers() -> int:
    """Two more than cores: while tests wait for servers, browsers and other processes, others run."""
    from tracewarehouse.limits import cores

    return 2 + cores()


def real_traces() -> Path | None:
    """The folder of real traces; None if it does not exist, and tests that need it are skipped."""
    folder = Path(os.environ.get("TW_TRACES", ROOT.parent / "shared" / "traces"))
    return folder if folder.is_dir() else None


def deep(*cases: object) -> list[object]:
    """Parameters of the deep tests only: variants of one that always runs; a tuple for several arguments."""
    listed = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=pytest.mark.deep) for case in listed]


def deep_seeds(first: int, end: int, per_test: int = 50) -> list[object]:
    """Ranges of seeds for deep tests: collecting thousands of parameters takes seconds in every worker."""
    return deep(*(range(at, min(at + per_test, end)) for at in range(first, end, per_test)))


def with_deep(request: pytest.FixtureRequest) -> bool:
    """Whether deep tests of this file run too: only they need the larger part of some fixtures."""
    items = [item for item in request.session.items if item.path == request.path]
    return any(item.get_closest_marker("deep") for item in items)


def pytest_pycollect_makeitem(
    collector: pytest.Collector, name: str, obj: object
) -> list[pytest.Item] | None:
    """Without deep tests, those with thousands of parameters are not collected either."""
    marks = getattr(obj, "pytestmark", ()) if name.startswith("test_") else ()
    is_left_out = collector.config.option.markexpr == "not deep" and "deep" in {mark.name for mark in marks}
    return [] if is_left_out else None


def pytest_configure(config: pytest.Config) -> None:
    """Every second worker imports the tests in reverse: what one compiled, the other need not.

    In a new checkout this takes ten seconds of each. The tests are sorted afterwards.
    """
    tests = ROOT / "tests"
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    if int(number) % 2 and [Path(arg).absolute() for arg in config.args] == [tests]:
        files = [*tests.glob("test_*.py"), *(path for path in tests.iterdir() if path.is_dir())]
        config.args = [str(path) for path in sorted(files, reverse=True) if path.name[0] not in "._"]


def pytest_collection_finish() -> None:
    """The collected tests stay until the end: the garbage collector need not visit them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files in the order of their duration, then of their number of tests, the longest first.

    Each file runs in one worker: if a long one started last, all others would wait for it.
    """
    files = [item.nodeid.partition("::")[0] for item in items]
    sizes, known = Counter(files), _durations()
    order = sorted(range(len(items)), key=lambda at: (-known.get(files[at], 0), -sizes[files[at]], files[at]))
    items[:] = [items[at] for at in order]


def _durations() -> dict[str, float]:
    return json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}


TAKEN: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds the duration of a phase to that of its file."""
    TAKEN[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The process that started the workers writes the durations."""
    if "PYTEST_XDIST_WORKER" not in os.environ and TAKEN:
        CACHE.mkdir(exist_ok=True)
        DURATIONS.write_text(json.dumps({**_durations(), **TAKEN}))


@pytest.fixture
def sql(tmp_path: Path) -> Path:
    """A copy of a small `sql/` folder: two tables, a view, one analysis."""
    return Path(shutil.copytree(ROOT / "tests" / "data" / "sql", tmp_path / "sql"))


@pytest.fixture
def same_text(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with a file under `tests/goldens`; --update-golden rewrites the file."""

    def compare(name: str, text: str) -> None:
        path = ROOT / "tests" / "goldens" / name
        if request.config.getoption("--update-golden", default=False):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def only_rules(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Limits checks to the findings with these names: all of them take seconds, whatever the run."""
    from tracewarehouse import findings

    every = findings.rules

    def limit(*names: str) -> None:
        monkeypatch.setattr(
            findings, "rules", lambda catalog: tuple(each for each in every(catalog) if each.name in names)
        )

    return limit


@pytest.fixture
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports on a run lack most sections, which take seconds."""
    from tracewarehouse.present.report import reports

    monkeypatch.setattr(reports, "_SECTIONS", {})


@pytest.fixture(autouse=True)
def no_terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes COLUMNS, so that the width of tables does not depend on where the tests run."""
    monkeypatch.delenv("COLUMNS", raising=False)
