"""Fixtures and settings of all tests."""

from __future__ import annotations

import gc
import getpass
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

# Each file runs in one worker. These have few long tests: if one started last, all others would wait for it.
LONG = {
    f"tests/{path}"
    for path in (
        "cli/test_check_paths.py",
        "cli/test_cli_results.py",
        "cli/test_cli_storage.py",
        "cli/test_demo.py",
        "cli/test_gate_init.py",
        "cli/test_secrets_command.py",
        "derive/test_attributed_waits.py",
        "derive/test_wait_attribution.py",
        "derive/test_critical_truth.py",
        "derive/test_derive.py",
        "derive/test_graphs_real.py",
        "derive/test_what_if.py",
        "devtools/test_dev_new.py",
        "diff/test_changes.py",
        "diff/test_diff_waits.py",
        "diff/test_gate_commands.py",
        "export/test_export.py",
        "export/test_export_parts.py",
        "formats/flight_recorder/test_flight_records.py",
        "formats/memory_snapshot/test_snapshot_files.py",
        "formats/nsys/test_nsys_round_trip.py",
        "formats/nsys/test_nsys_tables.py",
        "golden/analyses/comms",
        "golden/analyses/findings",
        "golden/analyses/memory",
        "golden/analyses/steps",
        "golden/derived",
        "golden/tables",
        "golden/views",
        "history/test_history.py",
        "history/test_record.py",
        "hta/test_hta_facade.py",
        "ingest/test_ingest_faults.py",
        "ingest/test_secrets_stored.py",
        "ingest/test_sources_in_store.py",
        "ingest/test_upload.py",
        "ingest/test_waiting.py",
        "laws/test_data_laws.py",
        "query/test_answers.py",
        "query/test_groups_of_ranks.py",
        "query/test_pruning.py",
        "query/test_shell_file.py",
        "report/test_report.py",
        "report/test_report_host.py",
        "runs/test_committed_files.py",
        "runs/test_old_runs.py",
        "runs/test_tables_added_later.py",
        "simulation/test_simulate.py",
        "stats/test_study.py",
        "storage/test_compact.py",
        "storage/test_kills.py",
        "storage/test_remote.py",
        "storage/test_run_index.py",
        "storage/test_web.py",
        "test_damage.py",
        "test_finding_advice.py",
        "test_finding_truth.py",
        "test_findings.py",
        "test_house.py",
        "test_invariants.py",
        "test_matrix.py",
        "test_notebooks.py",
        "test_readme.py",
        "test_release_warehouses.py",
        "test_temp_folders.py",
        "test_wheel.py",
        "views/test_stragglers.py",
        "witness/test_collectives.py",
        "witness/test_critical.py",
        "witness/test_memory.py",
        "witness/test_outdated_wait_attribution.py",
    )
}

# A cache folder for all workers and their processes, separate from the user's.
os.environ["XDG_CACHE_HOME"] = str(Path(tempfile.gettempdir(), f"tw-tests-{getpass.getuser()}"))
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
    """Long files first, then those with the most tests."""
    files = [item.nodeid.partition("::")[0] for item in items]
    sizes = Counter(files)
    order = sorted(range(len(items)), key=lambda at: (files[at] not in LONG, -sizes[files[at]], files[at]))
    items[:] = [items[at] for at in order]


@pytest.fixture
def sql(tmp_path: Path) -> Path:
    """A copy of a small `sql/` folder: two tables, a view, one analysis."""
    return Path(shutil.copytree(ROOT / "tests" / "data" / "sql", tmp_path / "sql"))


@pytest.fixture
def same_text(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with a file under `tests/golden`; --update-golden rewrites the file."""

    def compare(name: str, text: str) -> None:
        path = ROOT / "tests" / "golden" / name
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
