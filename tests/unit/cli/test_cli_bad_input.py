"""Bad input on the command line: one clear line, a hint, the exit code, nothing lost, no traceback.

The messages are golden: `tests/goldens/messages/bad_input.txt`.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import os
import resource
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli_runner import TW, environment, process, tw

FIRST_STEPS = Path(__file__).parents[2] / "data" / "first-steps"
EVENT = '{"ph": "X", "cat": "cpu_op", "name": "add", "pid": 1, "tid": 1, "ts": 1, "dur": 2}'
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, PR_CAPBSET_DROP = 1, 2, 24  # Linux
FILES = {
    "empty.json": "",
    "page.json": "<!DOCTYPE html>\n<html><body>502 Bad Gateway</body></html>",
    "no_events.json": '{"schemaVersion": 1}',
    "null_events.json": '{"schemaVersion": 1, "traceEvents": null}',
    "number.json": "42",
    "text.json": '"traceEvents"',
    "good.json": f'{{"traceEvents": [{EVENT}]}}',
}
CASES = (
    ("an empty file", "ingest empty.json", 1),
    ("an error page", "ingest page.json", 1),
    ("no events", "ingest no_events.json", 1),
    ("null events", "ingest null_events.json", 1),
    ("a number at the top", "ingest number.json", 1),
    ("a text at the top", "ingest text.json", 1),
    ("a missing file", "ingest missing.json", 1),
    ("no traces found in this folder", "ingest nothing", 1),
    ("one bad file among good ones", "ingest good.json empty.json --run mixed", 4),
    ("the same, strict", "ingest good.json empty.json --run mixed2 --strict", 1),
    ("a run name that leaves the folder", "ingest good.json --run ../../x", 1),
    ("a run name that is a dot", "ingest good.json --run .", 1),
    ("a run name that is too long", f"ingest good.json --run {'n' * 300}", 1),
    ("a run name in other letters", "ingest good.json --run zażółć", 1),
    ("a run that is not there", "show coverage --run second", 1),
    ("a version that is not there", "show coverage --run first-steps@v9", 1),
    ("a rank that is not there", "show coverage --rank 9", 1),
    ("a label that is not there", "show coverage --run label:kind=nightly", 1),
    ("an analysis that is not there", "show coverge", 1),
    ("a version of an analysis that is not there", "show coverage@7", 1),
    ("an option that is not there", "show coverage --gap-nns 3", 2),
    ("a query that does not parse", "query 'SELEC 1'", 1),
    ("a query over a table that is not there", "query 'SELECT * FROM kernel'", 1),
    ("a query over an analysis that is not there", "query 'FROM temporal_breakdwn'", 1),
    ("a query that writes", "query 'DROP TABLE kernels'", 1),
    ("a table to describe that is not there", "describe kernals", 1),
    ("no warehouse", "runs -w nowhere", 1),
    ("a warehouse that is a file", "runs -w good.json", 1),
    ("a warehouse that is a file, to write", "ingest good.json -w page.json", 1),
    ("a warehouse of a newer format", "runs -w newer", 1),
    ("a warehouse of a newer format, to write", "ingest good.json -w newer", 1),
    ("a folder that is not a warehouse", "runs -w nothing", 1),
    ("a folder with other things, to write", "ingest good.json -w other", 1),
    ("an output that cannot be written", "runs -o nothing/no/such/folder/x.csv", 1),
    ("an output below a file", "runs -o good.json/x.csv", 1),
    ("a table in the place of an analysis", "show kernels", 1),
    ("no analysis", "show", 2),
    ("no name", "sql", 2),
    ("no run to report", "report", 2),
    ("no run to compare with", "diff first-steps", 2),
    ("a filter that is not on a label", "history step_time --where branch=main", 2),
    ("a series by something else than a label", "history step_time --by branch", 2),
    ("a start without a condition", "history step_time --since 7d", 2),
    (
        "runs with a label that none has",
        "diff @baseline first-steps --match-label branch",
        1,
    ),
    ("a label without earlier runs", "diff first-steps first-steps --match-label branch", 2),
    ("a unit that is none", "diff first-steps first-steps --normalize foo", 2),
    ("an age without a unit", "remove --older-than 3", 2),
    ("a filter of runs to remove that is not on a label", "remove --where branch=main", 2),
    ("a selector of labels without a value", "runs --run label:branch", 2),
    ("a file without gates", "diff first-steps first-steps --gate-file empty.json", 2),
    ("a report on gates without a gate", "diff first-steps first-steps --junit gates.xml", 2),
    ("an option that was removed", "diff first-steps first-steps --strict", 2),
    ("an option of gates with an analysis", "diff first-steps first-steps coverage --allow-inconclusive", 2),
    ("a gate that every run meets", "diff first-steps first-steps --gate 'step_time>=-100%'", 2),
    (
        "a report on gates that cannot be written",
        "diff first-steps first-steps --gate 'step_time<=1s' --junit nothing/no/such/c.xml",
        1,
    ),
    ("a run name that is neither stored nor replaced", "info first/step", 1),
    ("a selector as a run name", "ingest good.json --run @latest", 2),
    # Python decodes a byte of an argument that is not UTF-8 to such a character.
    ("a query that is not UTF-8", "query \"SELECT '\udcff'\"", 1),
    ("a condition that is not UTF-8", "show kernel_summary --where \"name='\udcff'\"", 2),
    ("a label that is not UTF-8", "ingest good.json --label k=\udcff", 1),
    ("a reason that is not UTF-8", "acknowledge step_time first-steps \udcff", 1),
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with bad files, good ones, and warehouses of several kinds."""
    folder = tmp_path_factory.mktemp("bench")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "nothing").mkdir()
    (folder / "other").mkdir()
    (folder / "other" / "letter.txt").write_text("dear diary")
    assert tw("ingest", FIRST_STEPS, "-w", folder / "warehouse").code == 0
    shutil.copytree(folder / "warehouse" / "_tw", folder / "newer" / "_tw")
    identity = folder / "newer" / "_tw" / "warehouse.json"
    identity.write_text(json.dumps({**json.loads(identity.read_text()), "format": 99}))
    return folder


def test_bad_input_prints_the_golden_messages(
    bench: Path, monkeypatch: pytest.MonkeyPatch, same_text: Callable[[str, str], None]
) -> None:
    monkeypatch.chdir(bench)
    monkeypatch.setenv("TW_WAREHOUSE", "warehouse")
    parts = []
    for title, line, code in CASES:
        cli = tw(*shlex.split(line))
        shown = (line if len(line) < 100 else line[:60] + "…").encode(errors="backslashreplace").decode()
        assert cli.code == code, (title, cli)
        assert "Traceback" not in cli.err
        assert code == 0 or (cli.err and (cli.out == "" or code == 4)), (title, cli)
        err = cli.err.replace(f"{bench}/", "DIR/").replace("n" * 300, "n…n")
        parts.append(f"# {title}\n$ tw {shown.replace('n' * 300, 'n…n')}\n{err}exit {cli.code}\n")
    same_text("messages/bad_input.txt", "\n".join(parts))


@pytest.mark.parametrize(("title", "line", "code"), [case for case in CASES if case[2] in (1, 2)])
def test_bad_input_prints_an_error_envelope(
    bench: Path, monkeypatch: pytest.MonkeyPatch, title: str, line: str, code: int
) -> None:
    monkeypatch.chdir(bench)
    monkeypatch.setenv("TW_WAREHOUSE", "warehouse")
    cli = tw(*shlex.split(line), "--json")
    envelope = json.loads(cli.out)
    assert cli.code == code
    assert envelope["ok"] is False
    assert envelope["error"]["message"]
    assert envelope["command"] == line.split()[0]


def test_bad_input_keeps_stored_runs(bench: Path) -> None:
    assert tw("verify", "-w", bench / "warehouse").code == 0
    rows = json.loads(tw("runs", "-w", bench / "warehouse", "-f", "json").out)
    assert "first-steps" in {row["run_id"] for row in rows}
    assert not (bench.parent / "x").exists() and not (bench.parent.parent / "x").exists()


def test_an_unreadable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text(FILES["good.json"])
    (tmp_path / "locked").mkdir(mode=0o000)
    libc = ctypes.CDLL(None)

    def obey_permissions() -> None:
        # Root ignores permissions unless it drops these two capabilities.
        for power in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            libc.prctl(PR_CAPBSET_DROP, power, 0, 0, 0)

    done = subprocess.run(
        [*TW, "ingest", "good.json", "locked", "--run", "r", "-w", "warehouse", "--jobs", "1"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        preexec_fn=obey_permissions,
    )
    (tmp_path / "locked").chmod(0o755)
    assert done.returncode == 4, done.stderr
    assert done.stderr.splitlines()[0].startswith("refused: locked: ")
    assert done.stderr.splitlines()[1].startswith("hint: ")
    assert "Traceback" not in done.stderr
    assert tw("runs", "-w", tmp_path / "warehouse").out.count("\n") == 2


@pytest.mark.parametrize(
    "limit", [pytest.param(0, marks=pytest.mark.deep), pytest.param(3_000, marks=pytest.mark.deep), 20_000]
)
def test_a_full_disk_keeps_the_warehouse_consistent(tmp_path: Path, limit: int) -> None:
    warehouse = tmp_path / "warehouse"
    assert tw("ingest", FIRST_STEPS / "rank0.json.gz", "--run", "kept", "-w", warehouse).code == 0

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    full = subprocess.run(
        [*TW, "ingest", str(FIRST_STEPS), "-w", str(warehouse)],
        env=environment(),
        capture_output=True,
        text=True,
        preexec_fn=small_files,
    )
    assert full.returncode == 1, full.stderr
    assert "Traceback" not in full.stderr
    assert "hint: " in full.stderr
    assert tw("verify", "-w", warehouse).code == 0
    assert tw("ingest", FIRST_STEPS, "-w", warehouse).code == 0
    rows = json.loads(tw("runs", "-w", warehouse, "-f", "json").out)
    assert {row["run_id"]: row["ranks_present"] for row in rows} == {"kept": 1, "first-steps": 4}


HOSTILE = (
    "'; DROP TABLE kernels; --",
    "<img src=x onerror=alert(1)>",
    "[bold red]markup[/]",
    "\x1b[2J\x1b]0;title\x07",
    'comma, "quote"\nline',
    "$name {} %s",
    "核函数 🚀",
    " leading and trailing ",
    "x" * 5_000,
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with kernels of hostile names."""
    folder = tmp_path_factory.mktemp("hostile")
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 10 * at, "dur": 5}
        | {"args": {"device": 0, "stream": 7, "correlation": at + 1}}
        for at, name in enumerate(HOSTILE)
    ]
    with gzip.open(folder / "trace.json.gz", "wt") as file:
        json.dump({"traceEvents": events}, file)
    assert tw("ingest", folder / "trace.json.gz", "--run", "hostile", "-w", folder / "w").code == 0
    return folder / "w"


def test_hostile_names_round_trip(hostile: Path) -> None:
    cli = tw("show", "kernel_summary", "-w", hostile, "-f", "json")
    assert sorted(row["name"] for row in json.loads(cli.out)) == sorted(HOSTILE)
    cli = tw("query", "SELECT count(*) AS n FROM kernels", "-w", hostile)
    assert cli.out == f"n\n{len(HOSTILE)}\n"


@pytest.mark.parametrize("format_", ["table", "md"])
def test_hostile_names_stay_on_one_line(hostile: Path, format_: str) -> None:
    cli = tw("show", "kernel_summary", "-w", hostile, "-f", format_)
    lines = cli.out.splitlines()
    assert len(lines) == len(HOSTILE) + (1 if format_ == "table" else 2)
    assert all(line.isprintable() for line in lines)


def test_unprintable_file_names_do_not_fail(tmp_path: Path) -> None:
    name = os.fsdecode(b"bad\xff name.json")
    (tmp_path / name).write_text(FILES["good.json"])
    (tmp_path / os.fsdecode(b"worse\xfe.json")).write_text("")
    cli = tw("ingest", tmp_path, "--run", "r", "-w", tmp_path / "w", "--json")
    assert cli.code == 4, cli.err
    assert [Path(row["path"]).name for row in json.loads(cli.out)["result"]][0] == name
    assert r"worse\udcfe.json" in cli.err
    ascii_only = process("runs", "-w", tmp_path / "w", "-f", "table", env={"PYTHONIOENCODING": "ascii"})
    assert (ascii_only.code, ascii_only.err) == (0, "")
