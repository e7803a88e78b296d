"""Command line: help, usage errors, exit codes, completion and imports."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import duckdb
import pytest

from cli_runner import TW, complete, environment, tw
from conftest import ROOT, deep
from tracewarehouse import __version__
from tracewarehouse.cli.app import app, failure_of, print_failure
from tracewarehouse.cli.session import Command
from tracewarehouse.errors import UnknownName
from tracewarehouse.formats.kineto.library import why_not
from tracewarehouse.warehouse import Warehouse

FIRST_STEPS = ROOT / "tests" / "data" / "first-steps" / "rank0.json.gz"
HEAVY = ("duckdb", "pyarrow", "polars", "numpy", "pandas", "rich", "isal", "scipy")


def commands(group: click.Group = app, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and group below `tw`."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("words", [(), *commands()], ids=" ".join)
def test_every_help_has_a_sentence_and_an_example(words: tuple[str, ...]) -> None:
    cli = tw(*words, "--help")
    assert (cli.code, cli.err) == (0, "")
    usage, sentence = cli.out.splitlines()[0], cli.out.splitlines()[2]
    assert usage.startswith(" ".join(("Usage: tw", *words)))
    assert sentence.strip()[0].isupper()
    examples = cli.out.partition("Example")[2].splitlines()[1:]
    assert any(line.strip().startswith(("tw " + " ".join(words)).strip()) for line in examples) or (
        words == ("completion",) and "$(tw completion bash)" in examples[0]
    ), cli.out


# Accepted everywhere, but not listed where they mean nothing.
HIDDEN = {
    "completion": ("--warehouse",),
    "dev": ("--warehouse",),
    "gate": ("--warehouse",),
    "help": ("--warehouse",),
    "simulate": ("--warehouse",),
    "shell": ("--json", "--output"),
    "mcp": ("--json", "--output"),
    "serve": ("--json", "--output"),
}


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_has_the_shared_options(words: tuple[str, ...]) -> None:
    if words in (("dev",), ("export",), ("derive",), ("inbox",), ("gate",)):
        return
    text = tw(*words, "--help-all").out
    hidden = HIDDEN.get(words[0], ())
    for option in ("--warehouse", "--json", "--debug", "--output"):
        assert (option in text.partition("Example")[0]) == (option not in hidden)


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_the_short_help_is_short_and_the_long_one_complete(words: tuple[str, ...]) -> None:
    group: click.Command = app
    ctx = click.Context(app, info_name="tw", terminal_width=80)
    for word in words:
        assert isinstance(group, click.Group)
        command = group.get_command(ctx, word)
        assert command is not None
        group, ctx = command, click.Context(command, info_name=word, parent=ctx, terminal_width=80)
    if not isinstance(group, Command):
        return
    assert len(group.get_help(ctx).splitlines()) <= 40
    assert len(re.findall(r"[.!?](?=\s|$)", group.short)) <= 5  # the summary, and four sentences
    text = tw(*words, "--help-all").out
    listed = [each for each in group.params if isinstance(each, click.Option) and not each.hidden]
    assert [name for each in listed for name in each.opts if name not in text] == []
    assert all(line in text for line in group.lines)


def test_tw_help_explains_a_command() -> None:
    assert "diff" in tw("help").out
    text = tw("help", "diff").out
    assert "--normalize sample divides" in text and "--normalize sample divides" not in tw("diff", "-h").out
    assert "\f" not in text and "\b" not in text
    assert tw("help", "dif").errors == ["tw: unknown command: dif", "hint: did you mean diff?"]


def test_options_without_meaning_are_accepted(tmp_path: Path) -> None:
    assert tw("completion", "bash", "-w", tmp_path).code == 0
    assert tw("simulate", tmp_path / "job", "--ranks", "1", "--steps", "1", "-w", tmp_path).code == 0


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a warehouse of one small run in it."""
    folder = tmp_path_factory.mktemp("stored")
    wh = Warehouse(folder / "warehouse")
    wh.ingest(FIRST_STEPS, jobs=1)
    return folder


def test_help_imports_nothing_heavy() -> None:
    code = f"""
import sys
from tracewarehouse.cli.app import run
code = run(["--help"])
print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (0, "[]")


@pytest.mark.parametrize(
    ("words", "needless"),
    [
        (("ingest", str(FIRST_STEPS)), {"pandas"}),
        (("show", "kernel_summary"), {"pandas", "numpy", "polars", "scipy"}),
        *deep(
            (("list",), {"pandas", "numpy", "duckdb", "polars"}),
            (("runs",), {"pandas", "numpy", "duckdb", "polars"}),
            (("query", "SELECT count(*) FROM kernels"), {"pandas", "numpy", "polars", "scipy"}),
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_commands_import_only_what_they_need(
    stored: Path, words: tuple[str, ...], needless: set[str]
) -> None:
    """pyarrow would import numpy, and pandas with the first array of Python values."""
    code = """
import atexit, sys
from tracewarehouse.cli import main
sys.argv = ["tw", *sys.argv[1:]]
atexit.register(lambda: print("modules", *sys.modules, file=sys.stderr))
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=stored,
        env=environment(),
        capture_output=True,
        text=True,
    )
    cli = done.stderr.splitlines()[-1].split()
    assert (done.returncode, cli[0]) == (0, "modules"), done.stderr
    assert needless & set(cli) == set()


def test_version() -> None:
    cli = tw("--version").out
    assert cli.startswith(f"tw {__version__}, DuckDB {duckdb.__version__}, ") and cli.count("\n") == 1
    assert ("without the native scanner: " in cli) == (why_not() is not None)


def test_usage_errors_exit_with_2_and_a_hint() -> None:
    cli = tw("lst")
    assert (cli.code, cli.out) == (2, "")
    assert cli.errors == ["tw: no such command: lst (did you mean list?)", "hint: tw --help"]
    assert tw("findings").errors[0] == "tw: no such command: findings (did you mean check?)"
    assert tw("retain").errors[0] == "tw: no such command: retain (did you mean expire?)"


@pytest.mark.parametrize(
    "line", ["diff a b --spread history", "diff --spread own a b", "diff a b --spread=own"]
)
def test_a_former_option_is_the_error_and_not_its_value(line: str) -> None:
    cli = tw(*line.split())
    assert cli.code == 2 and "No such option '--spread'" in cli.errors[0]
    assert cli.errors[1] == "hint: it is now --noise within or --noise history"
    assert "unknown analysis: history" in tw("diff", "a", "b", "history").errors[0]


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("--json runs", "put --json after the command: tw runs --json"),
        ("--rank 3 export trace fp8", "put --rank after the command: tw export trace --rank RANKS"),
        ("--gate step_time<=+3% diff a b", "put --gate after the command: tw diff --gate GATE"),
        ("--top 3 runs", "put --top after the command: tw COMMAND --top N"),
        ("--kernel-wait-ns 3 show x", "options follow the command; tw show --help lists them"),
        ("--nonsense", "tw --help"),
    ],
)
def test_an_option_before_the_command_gets_a_hint(line: str, hint: str) -> None:
    cli = tw(*line.split())
    name = line.split()[0].partition("=")[0]
    assert cli.code == 2
    assert cli.errors == [f"tw: No such option '{name}'.", f"hint: {hint}"]


def test_a_warehouse_before_the_command_is_its_default(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = stored / "warehouse"
    expected = tw("runs", "--json", "-w", there).out
    assert json.loads(expected)["result"]
    monkeypatch.setenv("TW_WAREHOUSE", "none")
    assert tw("-w", there, "runs", "--json").out == expected
    assert tw(f"--warehouse={there}", "runs", "--json").out == expected
    assert tw("-w", "other", "runs", "--json", "-w", there).out == expected
    assert tw("-w", "other", "runs").errors[0].endswith("/other: no warehouse here")
    assert tw("-w", "other").errors == ["tw: Missing command.", "hint: tw --help"]


def test_debug_before_the_command_shows_tracebacks() -> None:
    assert "Traceback" in tw("--debug", "runs", "-w", "none").err
    assert "Traceback" not in tw("runs", "-w", "none").err


def test_close_matches_of_options_are_suggested() -> None:
    assert tw("--versoin").errors == [
        "tw: No such option '--versoin'. Did you mean '--version'?",
        "hint: tw --help",
    ]


@pytest.mark.parametrize("rank", ["x", "-1", "1-", "0,,2", "3-1"])
def test_an_invalid_rank_is_a_usage_error(rank: str) -> None:
    cli = tw("runs", "--rank", rank)
    assert cli.code == 2
    assert cli.errors[-1] == "hint: tw runs --help"


def test_usage_errors_are_in_the_envelope() -> None:
    cli = tw("list", "--kind", "nonsense", "--json")
    envelope = json.loads(cli.out)
    assert cli.code == 2
    assert list(envelope) == [
        "tw", "command", "ok", "result", "columns", "provenance", "skipped", "left_out", "recording",
        "quality", "error",
    ]  # fmt: skip
    assert (envelope["tw"], envelope["command"], envelope["ok"]) == (1, "list", False)
    assert envelope["error"]["class"] == "UsageError"
    assert envelope["error"]["message"] in cli.err


def test_errors_are_escaped_to_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    error = UnknownName("run", "a\nb\x1b[31m\x9bred\u202eder\udc80", ["x\ny"])
    print_failure(failure_of(error), error, debug=False)
    cli = capsys.readouterr()
    assert cli.out == ""
    assert cli.err.splitlines() == [
        r"tw: unknown run: a\nb\x1b[31m\x9bred\u202eder\udc80",
        "hint: available: x",
        "      y",
    ]


@pytest.mark.parametrize(
    ("error", "code", "start"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), 1, "/data/x: No space left on device"),
        (MemoryError(), 1, "out of memory"),
        (ZeroDivisionError("division by zero"), 1, "unexpected ZeroDivisionError"),
    ],
)
def test_errors_have_exit_code_and_message(error: BaseException, code: int, start: str) -> None:
    failure = failure_of(error)
    assert failure.exit_code == code
    assert failure.message.startswith(start)
    assert failure.hint


def test_debug_prints_the_traceback() -> None:
    assert "Traceback" not in tw("describe", "nonsense").err
    assert "Traceback" in tw("describe", "nonsense", "--debug").err


def test_a_closed_pipe_is_not_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*TW, "completion", "bash"], env=environment(), stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    cli = tw("completion", shell)
    assert cli.code == 0
    assert "_TW_COMPLETE" in cli.out


def test_completion_suggests_commands(tmp_path: Path) -> None:
    assert complete("tw desc", tmp_path) == ["describe"]


@pytest.mark.parametrize("words", [(), *commands()], ids=" ".join)
def test_help_of_an_option_fits_one_line_of_100_columns(words: tuple[str, ...]) -> None:
    group: click.Command = app
    ctx = click.Context(app, info_name="tw", terminal_width=98)
    for word in words:
        assert isinstance(group, click.Group)
        command = group.get_command(ctx, word)
        assert command is not None
        group, ctx = command, click.Context(command, info_name=word, parent=ctx, terminal_width=98)
    ctx.meta["tracewarehouse.cli.session.help_all"] = True
    lines = group.get_help(ctx).splitlines()
    for param in group.get_params(ctx):
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        assert record is None or any(line.endswith(record[1]) for line in lines), record


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_the_summary_of_a_command_is_short(words: tuple[str, ...]) -> None:
    group: click.Command = app
    for word in words:
        assert isinstance(group, click.Group)
        command = group.get_command(click.Context(group), word)
        assert command is not None
        group = command
    summary = group.get_short_help_str(200)
    assert summary.endswith((".", ")")) and len(summary) <= 64, summary


def test_a_run_given_as_an_argument_is_suggested_as_an_option() -> None:
    cli = tw("show", "kernel_summary", "slow run")
    assert cli.code == 2 and cli.errors == [
        "tw: unexpected argument: slow run",
        "hint: select runs with --run: tw show kernel_summary --run 'slow run'",
    ]


def test_a_parameter_and_its_value_are_separate_arguments(stored: Path) -> None:
    cli = tw("show", "stream_idle", "--kernel-wait-ns", "30us", "-w", stored / "warehouse")
    assert cli.code == 0, cli.err


@pytest.mark.parametrize("words", [("--by-class", "--limit", "2"), ("--by-class", "true"), ("--by-class",)])
def test_a_boolean_parameter_is_a_flag(stored: Path, words: tuple[str, ...]) -> None:
    for line in ((*words, "module_summary"), ("module_summary", *words)):
        cli = tw("show", *line, "-w", stored / "warehouse", "--json")
        assert cli.code == 0, cli.err
        assert json.loads(cli.out)["provenance"]["params"]["by_class"] is True


@pytest.mark.parametrize("command", [("diff", "a", "b"), ("history", "step_time"), ("runs",)])
def test_without_a_warehouse_every_command_says_so(command: tuple[str, ...], tmp_path: Path) -> None:
    cli = tw(*command, "-w", tmp_path / "none")
    assert cli.code == 1 and cli.errors[0].endswith("no warehouse here")
