"""`tw shell`: the DuckDB shell and the built-in prompt, on a terminal and in a pipe; both are read-only."""

from __future__ import annotations

import csv
import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import tracewarehouse as tw
from cli_runner import TW, environment
from conftest import ROOT
from tracewarehouse.contracts.sql_tokens import split_statements

ALONE = (
    sys.executable,
    "-W",
    "error",
    "-c",
    "import sys; sys.executable = '/nowhere/python'; from tracewarehouse.cli import main; main()",
)
NO_SHELL = {"PATH": "/usr/bin:/bin"}
# Sends itself Ctrl-C once, between the first prompt and the wait for a key; entirely in C, because Python
# would handle the signal immediately.
INTERRUPTED_AT_ONCE = """\
import ctypes, functools, os, readline, sys
from tracewarehouse.cli import main
once = map(ctypes.CDLL(None).kill, [os.getpid()], [2])
readline.set_pre_input_hook(functools.partial(next, once, None))
sys.executable = '/nowhere/python'
main()
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of a run, and one of another."""
    root = tmp_path_factory.mktemp("shell") / "warehouse"
    warehouse = tw.open(root)
    steps = ROOT / "tests" / "data" / "first-steps"
    warehouse.ingest(steps / "rank0.json.gz", steps / "rank1.json.gz", run="two", jobs=1)
    warehouse.ingest(steps / "rank0.json.gz", run="one", jobs=1)
    warehouse.refresh()
    return root


def piped(text: str, stored: Path, *words: str, alone: bool = True) -> subprocess.CompletedProcess[str]:
    """The output of `tw shell` for a text on stdin; `alone` without the duckdb command."""
    return subprocess.run(
        [*(ALONE if alone else TW), "shell", "-w", str(stored), *words],
        input=text,
        env=environment(NO_SHELL if alone else None),
        capture_output=True,
        text=True,
    )


class Terminal:
    """A process on a separate terminal."""

    def __init__(self, master: int, running: subprocess.Popen[bytes]) -> None:
        self.master = master
        self.running = running
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait_for(self, pattern: str, timeout_s: float = 30) -> None:
        """Reads until the pattern appears, and discards the output up to its end."""
        until = time.monotonic() + timeout_s
        while (found := re.search(pattern, self.shown)) is None:
            ready, _, _ = select.select([self.master], [], [], max(0, until - time.monotonic()))
            assert ready, self.shown
            part = b""
            with suppress(OSError):  # what Linux gives at the end of a terminal
                part = os.read(self.master, 65_536)
            assert part, self.shown
            self.shown += part.decode(errors="replace")
        self.shown = self.shown[found.end() :]


@contextmanager
def terminal(*command: str, env: dict[str, str]) -> Iterator[Terminal]:
    """A command in the foreground of a terminal, so that Ctrl-C reaches all its processes."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (50, 100))
    running = subprocess.Popen(
        command, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
    )  # fmt: skip
    os.close(slave)
    try:
        yield Terminal(master, running)
    finally:
        with suppress(ProcessLookupError):
            running.send_signal(signal.SIGKILL)
        running.wait()
        os.close(master)


def test_statements_end_where_a_semicolon_does() -> None:
    assert split_statements("SELECT 1; SELECT\n 2 ;; x") == (["SELECT 1", "SELECT\n 2"], " x")
    assert split_statements("SELECT 'a;b', \"c;d\" -- e;f\n; g") == (
        ["SELECT 'a;b', \"c;d\" -- e;f"],
        " g",
    )
    assert split_statements("SELECT 'it''s;") == ([], "SELECT 'it''s;")
    assert split_statements("SELECT 1 /* ; */; SELECT /* ;") == (["SELECT 1 /* ; */"], " SELECT /* ;")


def test_the_prompt_runs_statements_from_a_pipe(stored: Path) -> None:
    text = (
        "SELECT run_id, count(*) AS ranks,\n ';' AS mark\nFROM ranks\nGROUP BY ALL ORDER BY 1; SELECT 2 AS b"
    )
    done = piped(f"{text};\n.help\n.tables\n.quit\nSELECT 3;", stored)
    assert (done.returncode, done.stderr) == (0, "")
    rows, more = done.stdout[:38], done.stdout[38:]
    assert rows == "run_id,ranks,mark\none,1,;\ntwo,2,;\nb\n2\n"
    assert ".quit" in more and "analysis,temporal_breakdown," in more
    assert "3" not in more.splitlines()


@pytest.mark.deep
def test_the_prompt_ends_the_last_statement_of_a_pipe_and_has_a_help_table(stored: Path) -> None:
    assert piped("SELECT 2 AS b", stored).stdout == "b\n2\n"
    helped = list(csv.DictReader(io.StringIO(piped("FROM tw_help;", stored).stdout)))
    assert {"temporal_breakdown", "kernels", "collectives"} <= {row["name"] for row in helped}


@pytest.mark.deep
def test_both_shells_give_the_same_rows(stored: Path) -> None:
    sql = "SELECT rank, device, window_ns FROM temporal_breakdown ORDER BY ALL;"
    ours = piped(sql, stored, "--run", "two").stdout
    theirs = piped(sql, stored, "--run", "two", "--", "-csv", alone=False).stdout
    assert ours == theirs
    assert len(ours.splitlines()) == 3


def test_the_prompt_is_read_only_and_continues_after_errors(stored: Path, tmp_path: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in stored.rglob("*"))
    (tmp_path / "secret.csv").write_text("a\n1\n")
    lines = (
        "CREATE TABLE t (a INT);",
        "DROP VIEW kernels;",
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv';",
        f"SELECT * FROM read_csv('{tmp_path}/secret.csv');",
        "SET enable_external_access = true;",
        "ATTACH ':memory:' AS other;",
        "SELECT nothing FROM kernels;",
        ".nothing",
    )
    done = piped("\n".join([*lines, "SELECT 'still here' AS answer;"]), stored)
    errors = done.stderr.splitlines()
    assert len(errors) == len(lines), "one line each"
    assert all(line.startswith("tw: ") for line in errors)
    assert (done.returncode, done.stdout) == (1, "answer\nstill here\n")
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]
    assert sorted((path, path.stat().st_mtime_ns) for path in stored.rglob("*")) == before


def test_arguments_without_the_duckdb_command_are_refused(stored: Path) -> None:
    done = piped("", stored, "--", "-csv")
    assert done.returncode == 1
    assert done.stderr.splitlines()[1] == "hint: pip install 'tracewarehouse[shell]'"


def test_the_prompt_on_a_terminal(stored: Path, tmp_path: Path) -> None:
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    settings = {**NO_SHELL, "HOME": str(home), "TMPDIR": str(temporary), "TERM": "dumb"}
    with terminal(*ALONE, "shell", "-w", str(stored), "--run", "two", env=environment(settings)) as shell:
        shell.wait_for(r"pip install 'tracewarehouse\[shell\]' installs the DuckDB shell")
        shell.wait_for("tw> ")
        assert list(temporary.iterdir()), "a file over just that run"
        shell.type("SELECT count(*) AS runs\n")
        shell.wait_for("  > ")
        shell.type("FROM runs;\n")
        shell.wait_for(r"runs\s+1\s+tw> ")
        shell.type("SELECT 'dropped\x03")
        shell.wait_for("tw> ")
        shell.type("\x04")
        assert shell.running.wait(30) == 0
    assert list(temporary.iterdir()) == []
    assert list(home.iterdir()) == [], "no history is kept"


@pytest.mark.deep
def test_an_interrupt_between_the_prompt_and_the_wait_for_a_key_is_not_lost(stored: Path) -> None:
    pytest.importorskip("readline")
    command = (sys.executable, "-W", "error", "-c", INTERRUPTED_AT_ONCE, "shell", "-w", str(stored))
    with terminal(*command, env=environment({**NO_SHELL, "TERM": "dumb"})) as shell:
        shell.wait_for("tw> ")
        shell.wait_for(r"\ntw> ")  # another one, and no key was pressed
        shell.type("SELECT 40 + 2 AS answer;\n")
        shell.wait_for(r"answer\s+42\s+tw> ")
        shell.type("\x04")
        assert shell.running.wait(30) == 0


def test_the_duckdb_shell_on_a_terminal(stored: Path, tmp_path: Path) -> None:
    settings = {"TMPDIR": str(tmp_path), "HOME": str(tmp_path / "home"), "TERM": "dumb"}
    words = ("shell", "-w", str(stored), "--rank", "1", "--", "-dark-mode")
    with terminal(*TW, *words, env=environment(settings)) as shell:
        shell.wait_for("D ")
        shell.type("SELECT 'there are ' || count(*) || ' ranks' AS answer FROM ranks;\n")
        shell.wait_for("there are 1 ranks")
        made = [path for path in tmp_path.iterdir() if path.name.startswith("tw-")]
        assert made, "a file over just that rank"
        shell.type("CREATE TABLE t (a INT);\n")
        shell.wait_for("read-only")
        shell.type("\x03")  # DuckDB's shell ends by it; we end after it
        shell.running.wait(30)
    assert [path for path in tmp_path.iterdir() if path.name.startswith("tw-")] == []
