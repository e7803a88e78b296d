"""Traces in place of runs: stored in the cache once, answered, and printed with commands that work."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import tracewarehouse
from cli_runner import TW, environment, tw
from conftest import ROOT
from tracewarehouse.cli.paths import _stored, follow
from tracewarehouse.cli.session import Session
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import TwError
from tracewarehouse.ingest import cache
from tracewarehouse.query import shell_file

FIRST_STEPS = ROOT / "tests" / "data" / "first-steps"
ONE = FIRST_STEPS / "rank0.json.gz"


@pytest.fixture(scope="module", autouse=True)
def _template() -> None:
    """The template of `warehouse.duckdb` from the cache of all tests: the own caches have none."""
    shell_file.template(Catalog.load())


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate empty cache, and a folder without a warehouse as the current one."""
    monkeypatch.setenv("TW_CACHE", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "cache" / "traces"


@pytest.fixture
def one_rule(only_rules: Callable[..., None]) -> None:
    """Checks by one rule, to save time."""
    only_rules("allocator_calls")


# The rules that find something in the first steps, and those that a process checks by.
FINDING = {"exposed_comm", "input_bound", "low_gpu_use", "slow_rank", "tensor_cores"}
ONE_RULE = (
    "from tracewarehouse import findings; rules = findings.rules; findings.rules = lambda _: rules(_)[:1]"
)


@pytest.fixture
def few_rules(only_rules: Callable[..., None]) -> None:
    """Checks only by rules that find something."""
    only_rules(*FINDING)


def entries(store: Path) -> set[str]:
    return {path.name for path in store.iterdir() if path.is_dir()}


def one_rank(folder: Path) -> Path:
    """A folder with rank 0 of the first steps."""
    folder.mkdir(parents=True)
    shutil.copy(ONE, folder)
    return folder


def with_other_content(folder: Path) -> Path:
    """Rank 0 of the first steps, with a longer first kernel."""
    one_rank(folder)
    trace = json.loads(gzip.decompress(ONE.read_bytes()))
    next(event for event in trace["traceEvents"] if event.get("cat") == "kernel")["dur"] += 1
    (folder / ONE.name).write_bytes(gzip.compress(json.dumps(trace).encode()))
    return folder


@pytest.mark.usefixtures("few_rules", "short_pages")
def test_the_same_content_is_ingested_once(store: Path, tmp_path: Path) -> None:
    first = tw("check", FIRST_STEPS)
    (key,) = entries(store)
    assert first.code == 0 and f"ingested 4 files into {store / key}" in first.err
    elsewhere = shutil.copytree(FIRST_STEPS, tmp_path / "elsewhere" / FIRST_STEPS.name)
    second = tw("check", elsewhere)
    assert second.out == first.out
    assert f"ingested before into {store / key}" in second.err and entries(store) == {key}
    assert tw("report", f"{FIRST_STEPS}/").code == 0 and entries(store) == {key}
    # The page has the same commands.
    page = Path("first-steps.html").read_text()
    copied = re.findall(r'data-copy="(tw [^"]*)"', page)
    assert copied and all(command.endswith(f" -w {store / key}") for command in copied)
    assert f'data-place=" -w {store / key}"' in page
    # Other names give another run, other content another entry.
    renamed = tw("check", shutil.copytree(FIRST_STEPS, tmp_path / "renamed"))
    assert "tw report renamed -w" in renamed.out and len(entries(store)) == 2
    assert "ingested 1 file " in tw("check", with_other_content(tmp_path / "changed" / "first-steps")).err
    assert len(entries(store)) == 3


def test_another_definition_or_policy_is_another_entry(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled: list[Path] = []

    def fill(folder: Path) -> list[str]:
        filled.append(folder)
        return []

    cache.cached([ONE], ["a"], fill)
    cache.cached([ONE], ["a"], fill)
    assert len(filled) == 1
    cache.cached([ONE], ["b"], fill)
    policy = tmp_path / "redact.toml"
    policy.write_text("[keys]\nsecret = ['badge_id']\n")
    monkeypatch.setenv("TW_REDACT_POLICY", str(policy))
    cache.cached([ONE], ["a"], fill)
    monkeypatch.setattr(cache, "__version__", "99")
    cache.cached([ONE], ["a"], fill)
    assert len(set(filled)) == 4


def test_the_answer_is_the_recording_three_findings_and_what_opens_them(
    request: pytest.FixtureRequest,
) -> None:
    answer = tw("check", FIRST_STEPS)
    request.getfixturevalue("few_rules")  # the others find nothing
    every = json.loads(tw("check", FIRST_STEPS, "--json").out)["result"]
    paragraphs = answer.out.split("\n\n")
    assert paragraphs[0] == "recording: sound"
    assert [text.split(":")[0] for text in paragraphs[2:-1]] == ["critical", "critical", "warning"]
    left = re.match(r"(\d+) more findings: tw check first-steps -w ", paragraphs[-1])
    assert left and 3 <= len(every) - int(left[1]) < len(every)
    assert paragraphs[-1].splitlines()[-1].startswith("report: tw report first-steps -w ")
    assert len(tw("check", FIRST_STEPS, "-f", "csv").out.splitlines()) == len(every) + 1
    assert len(tw("check", FIRST_STEPS, "--all").out) > len(answer.out)


@pytest.mark.usefixtures("few_rules", "short_pages")
def test_printed_commands_run_as_they_are() -> None:
    printed = re.findall(r": (tw \w.*)", tw("check", FIRST_STEPS).out)
    by_verb = {command.split()[1]: command for command in printed}
    assert by_verb.keys() == {"show", "export", "check", "report"}
    assert all(f" -w {os.environ['TW_CACHE']}/traces/" in command for command in printed)
    for command in by_verb.values():
        done = tw(*shlex.split(command)[1:])
        assert done.code == 0 and done.out, command


def test_two_paths_are_compared(tmp_path: Path) -> None:
    base, changed = one_rank(tmp_path / "first-steps"), with_other_content(tmp_path / "fp8")
    done = tw("diff", base, changed)
    assert done.code == 0, done.err
    assert "\nbase first-steps\nhead fp8\n" in done.out
    (command,) = re.findall(r"^report: (tw .*)$", done.err, flags=re.MULTILINE)
    assert tw(*shlex.split(command)[1:]).code == 0
    # Folders of one name, and files of one folder that ingest would store as one run.
    other = shutil.copytree(changed, tmp_path / "x" / "first-steps")
    for paths, names in (
        ((base, other), ("base-first-steps", "head-first-steps")),
        ((ONE, ONE.with_name("rank1.json.gz")), ("rank0", "rank1")),
    ):
        limits = tw("diff", *paths, "coverage").err
        assert re.findall(r"quality: run (\S+): ranks_missing", limits) == list(names)
    assert tw("report", base, changed).code == 0


@pytest.mark.usefixtures("one_rule")
def test_several_runs_are_one_page(tmp_path: Path) -> None:
    for name in ("a", "b"):
        one_rank(tmp_path / "jobs" / name)
    assert tw("report", tmp_path / "jobs").code == 0 and Path("runs.html").is_file()


@pytest.mark.usefixtures("one_rule")
def test_runs_and_paths_are_distinguished(tmp_path: Path) -> None:
    shutil.copytree(FIRST_STEPS, "fp8")
    assert "ingested 4 files" in tw("check", "fp8").err
    assert tw("ingest", FIRST_STEPS, "--run", "fp8-on").code == 0
    by_prefix = tw("check", "fp8")
    assert (
        "note: took the path fp8; fp8-on is the run" in by_prefix.err and "ingested before" in by_prefix.err
    )
    assert tw("ingest", FIRST_STEPS, "--run", "fp8").code == 0
    run = tw("check", "fp8", "-f", "table")
    assert "note: took the run fp8; ./fp8 is the path" in run.err and " -w " not in run.out
    assert "ingested before" in tw("check", "fp8/").err and "ingested before" in tw("check", "./fp8").err
    # With -w, arguments are runs.
    chosen = tw("check", "fp8", "-w", "warehouse")
    assert (chosen.code, "note: took" in chosen.err) == (0, False)
    shutil.copytree(FIRST_STEPS, "other")
    refused = tw("check", "other", "-w", "warehouse")
    assert refused.errors == [
        "tw: warehouse has no run other",
        "hint: it is a path: leave out -w, or run tw ingest other -w warehouse first",
    ]
    mixed = tw("diff", "fp8-on", "other")
    assert (mixed.code, mixed.errors[0]) == (
        2,
        "tw: other is a path, fp8-on a run: give runs or paths, not both",
    )


@pytest.mark.usefixtures("one_rule")
def test_what_is_neither_is_an_error_with_a_hint() -> None:
    assert tw("ingest", FIRST_STEPS).code == 0
    Path("empty").mkdir()
    for name, message, hint in (
        ("no/such", "no/such: no such file, folder or run", "check the path"),
        ("warehouse", "warehouse is a warehouse, not traces", "select it with -w warehouse"),
        ("fist-steps", "unknown run: fist-steps", "did you mean first-steps?"),
        ("empty", "nothing was stored: 1 file refused", "traces end in"),
    ):
        done = tw("check", name)
        assert done.code == 1 and f"tw: {message}" in done.errors and f"hint: {hint}" in done.err


@pytest.mark.usefixtures("one_rule")
def test_what_ingest_refused_is_said_each_time(tmp_path: Path) -> None:
    folder = shutil.copytree(FIRST_STEPS, tmp_path / "job")
    (folder / "rank4.json").write_text('{"traceEvents": [')
    said = [[line for line in tw("check", folder).errors if "rank4.json" in line] for _ in range(2)]
    assert said[0] and said[0] == said[1]


@pytest.mark.usefixtures("one_rule")
def test_a_torn_entry_is_made_again(store: Path) -> None:
    whole = tw("check", FIRST_STEPS)
    (key,) = entries(store)
    for loss in ("file", "part", "note"):
        file = next((store / key / "data" / "kernels").rglob("*.parquet"))
        if loss == "file":
            file.unlink()
        elif loss == "part":
            file.write_bytes(file.read_bytes()[:100])
        else:
            os.truncate(store / f"{key}.lock", 10)
        again = tw("check", FIRST_STEPS)
        assert again.out == whole.out and "ingested 4 files" in again.err, loss
        assert "ingested before" in tw("check", FIRST_STEPS).err


def started(*args: str | Path) -> subprocess.Popen[str]:
    """Runs `tw` as a process that checks by one rule."""
    *python, main = TW
    return subprocess.Popen(
        [*python, f"{ONE_RULE}; {main}", *map(str, args)],
        env=environment({"TW_CACHE": os.environ["TW_CACHE"]}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(holds: Callable[[], object]) -> None:
    for _ in range(6000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("did not happen within a minute")


@pytest.mark.usefixtures("one_rule")
def test_a_killed_process_leaves_nothing_that_the_next_one_trips_over(store: Path) -> None:
    killed = started("check", FIRST_STEPS)
    until(lambda: list(store.glob("*/data/*/*/*.parquet")) or killed.poll() is not None)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    next_one = tw("check", FIRST_STEPS)
    assert next_one.code == 0 and "ingested 4 files" in next_one.err and len(entries(store)) == 1


@pytest.mark.usefixtures("one_rule")
def test_two_processes_at_once_store_one_entry(store: Path) -> None:
    tw("check", FIRST_STEPS)
    (lock,) = store.glob("*.lock")
    os.close(cache._handles.pop(lock))
    held = os.open(lock, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    os.truncate(lock, 0)  # a third one that is killed before it is done
    shutil.rmtree(lock.with_suffix(""))
    both = [started("check", FIRST_STEPS) for _ in range(2)]
    until(lambda: all(is_open(lock, each.pid) for each in both))
    time.sleep(1)
    assert not entries(store)
    os.close(held)
    outputs = [each.communicate(timeout=120) for each in both]
    assert outputs[0][0] == outputs[1][0] != ""
    assert sorted("ingested 4 files" in err for _, err in outputs) == [False, True]
    assert len(entries(store)) == 1


def is_open(path: Path, process: int) -> bool:
    files = Path(f"/proc/{process}/fd").iterdir()
    with suppress(FileNotFoundError):  # closed meanwhile
        return any(file.readlink() == path for file in files)
    return False


def test_the_cache_is_bounded_but_entries_in_use_stay(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(folder: Path) -> list[str]:
        (folder / "data").mkdir(parents=True)
        (folder / "data" / "rows.parquet").write_bytes(bytes(1000))
        return []

    monkeypatch.setattr(cache, "_LIMIT_BYTES", 1500)
    folders = [cache.cached([ONE], [at], fill)[0] for at in range(2)]
    (store / "torn").mkdir()
    (store / "torn.lock").touch()
    for at, folder in enumerate(folders):
        os.utime(folder.with_suffix(".lock"), (at, at))
    # This process uses the first one; that of the second has ended.
    os.close(cache._handles.pop(folders[1].with_suffix(".lock")))
    newest, _ = cache.cached([ONE], [2], fill)
    assert entries(store) == {folders[0].name, newest.name}


def test_traces_that_come_later_are_stored_once_they_are_complete(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, session = tmp_path / "job", Session()
    folder.mkdir()
    looks = follow(session, [str(folder)])
    assert next(looks) is None
    _stored(session, [str(folder)], may_be_empty=True)

    def looked(count: int = 2) -> list[bool]:
        return [next(looks) is not None for _ in range(count)]

    def runs() -> list[tuple[str, int, int]]:
        rows = tracewarehouse.Warehouse(session.warehouse).runs().rows()
        return [(row["run_id"], row["version"], row["ranks_present"]) for row in rows]

    assert runs() == [] and looked() == [False, False]
    one_rank(folder / "one")
    assert looked() == [False, True] and runs() == [("one", 1, 1)]
    (folder / "broken.json").write_text('{"traceEvents": [{"ph": "X", "na')
    with_other_content(folder / "two")
    assert looked(3) == [False, True, False] and runs() == [("one", 1, 1), ("two", 1, 1)]
    # A file that is being written waits for its end; others do not wait for it.
    whole = (FIRST_STEPS / "rank1.json.gz").read_bytes()
    shutil.copy(FIRST_STEPS / "rank2.json.gz", folder / "two")
    for size in (1000, 2000, len(whole)):
        (folder / "one" / "rank1.json.gz").write_bytes(whole[:size])
        assert looked(1) == [size == 2000]
        assert ("one", 1, 1) in runs()
    assert looked(1) == [True] and runs() == [("one", 2, 2), ("two", 2, 2)]
    # A trace that is written again replaces what was stored.
    shutil.copy(folder / "two" / ONE.name, folder / "one")
    assert looked()[1] and {run[0] for run in runs()} == {"one", "two"}
    assert len(entries(store)) <= 3, "earlier entries are deleted"
    printed = capsys.readouterr().err
    assert printed.count("broken.json") == 1, "what is wrong is said once"
    # The next start finds it.
    again = Session()
    _stored(again, [str(folder)], may_be_empty=True)
    assert again.warehouse == session.warehouse and "ingested before" in capsys.readouterr().err


@pytest.mark.usefixtures("one_rule", "short_pages")
def test_without_a_writable_cache_a_temporary_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TW_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done = tw("check", ONE, "--brief")
    fallback = tmp_path / f"tracewarehouse-{os.getuid()}"
    assert done.code == 0 and f"using {fallback}; TW_CACHE names another folder" in done.err
    (command,) = re.findall(r"report: (tw .*)", done.out)
    assert tw(*shlex.split(command)[1:]).code == 0
    shutil.rmtree(fallback)
    fallback.symlink_to(tmp_path / "work")
    assert "is of another user" in tw("check", ONE).err


@pytest.mark.usefixtures("few_rules")
def test_the_verdict_is_what_check_says_first() -> None:
    lines = tracewarehouse.verdict(FIRST_STEPS).splitlines()
    checked = tw("check", FIRST_STEPS).out
    assert lines[0] == checked.splitlines()[0]
    worst = checked.split("\n\n")[2].split(" rank")[0]
    assert lines[1].startswith(worst) and "A fix saves up to" in lines[1]
    assert lines[2:] == checked.splitlines()[-1:]
    with pytest.raises(TwError, match="no such file") as failure:
        tracewarehouse.verdict("nothing/here")
    assert failure.value.hint


TRAINING = """
import shutil, sys, warnings
import tracewarehouse as tw

warnings.simplefilter("error")

class Profiler:
    def export_chrome_trace(self, path):
        shutil.copyfile(sys.argv[1], path)

handler = tw.trace_handler("warehouse", run="job", log=True)
handler(Profiler())
print("trains on", not {"duckdb", "polars"} & sys.modules.keys(), flush=True)
if sys.argv[2] == "wait":
    sys.stdin.read()
"""


def training(trace: Path, how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", TRAINING, str(trace), how],
        env=environment({"TW_CACHE": os.environ["TW_CACHE"], "RANK": "0"}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("how", ["wait", "end"])
def test_the_handler_logs_while_training_goes_on_or_has_ended(how: str) -> None:
    process = training(ONE, how)
    assert process.stdin and process.stdout and process.stderr
    assert process.stdout.readline() == "trains on True\n"
    if how == "end":
        process.wait(60)  # the log is written later
    lines = [process.stderr.readline() for _ in range(3)]
    assert process.poll() is None if how == "wait" else process.returncode == 0
    assert lines[0].startswith("recording: ") and " in job rank 0: " in lines[1]
    assert lines[2].startswith("report: tw report job -w ")
    process.communicate("")
    inbox = Path("warehouse", "inbox")
    until(lambda: [path.name for path in inbox.iterdir()] == ["job"])
    assert len(list((inbox / "job").glob("*.json.gz"))) == 1


def test_a_trace_without_verdict_is_one_line_of_the_log(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json.gz"
    broken.write_bytes(gzip.compress(b"no trace"))
    process = training(broken, "end")
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("trains on True\n", 0)
    (line,) = err.splitlines()
    assert line.startswith("trace of job not checked: refused: ")


def test_only_rank_0_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tracewarehouse import training_log

    started: list[Path] = []
    monkeypatch.setattr(training_log, "start", started.append)

    class Profiler:
        def export_chrome_trace(self, path: str) -> None:
            shutil.copyfile(ONE, path)

    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        tracewarehouse.trace_handler(tmp_path / "wh", run="job", log=True)(Profiler())
    (trace,) = started
    assert trace.read_bytes() == ONE.read_bytes() and trace.parent.name == "job"
