"""What comes out of the commands that print rows: formats, cuts, envelope; stdout and stderr apart."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from front_door import TW, complete, environment, on_terminal, process, tw

FIRST_STEPS = Path(__file__).parents[1] / "data" / "first-steps"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with the run `first-steps`; only to be read."""
    warehouse = tmp_path_factory.mktemp("stored") / "warehouse"
    told = tw("ingest", FIRST_STEPS, "-w", warehouse)
    assert told.code == 0, told.err
    return warehouse


def shown(stored: Path, *args: str | Path) -> str:
    """The stdout of `tw show` on the stored run, which must succeed."""
    told = tw("show", *args, "-w", stored)
    assert told.code == 0, told.err
    return told.out


def test_a_pipe_gets_csv(stored: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(shown(stored, "temporal_breakdown"))))
    assert [row["rank"] for row in rows] == ["0", "1", "2", "3"]
    for row in rows:
        assert int(row["busy_ns"]) + int(row["idle_ns"]) == int(row["window_ns"])


def test_a_terminal_gets_a_table_that_fits(stored: Path) -> None:
    told = on_terminal("show", "temporal_breakdown", "-w", stored, columns=90)
    lines = told.out.splitlines()
    assert told.code == 0
    assert any(" ms" in line or " µs" in line for line in lines)
    assert all(len(line) <= 90 for line in lines), told.out


def test_every_format_holds_the_same_rows(stored: Path, tmp_path: Path) -> None:
    rows = json.loads(shown(stored, "kernel_summary", "-f", "json"))
    lines = [json.loads(line) for line in shown(stored, "kernel_summary", "-f", "jsonl").splitlines()]
    target = tmp_path / "rows.parquet"
    assert shown(stored, "kernel_summary", "-o", target) == ""
    assert rows == lines == parquet.read_table(target).to_pylist()
    assert len(shown(stored, "kernel_summary", "-f", "csv").splitlines()) == len(rows) + 1
    assert len(shown(stored, "kernel_summary", "-f", "md").splitlines()) == len(rows) + 2


def test_parquet_goes_through_a_pipe(stored: Path) -> None:
    command = [*TW, "show", "coverage", "-w", stored, "-f", "parquet"]
    done = subprocess.run(command, env=environment(), capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert parquet.read_table(io.BytesIO(done.stdout)).num_rows == 4


def test_parquet_is_not_for_a_terminal(stored: Path) -> None:
    told = on_terminal("show", "coverage", "-w", stored, "-f", "parquet")
    assert told.code == 2
    assert told.out.splitlines()[0] == "tw: Parquet is not for a terminal"


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl", "md", "txt"])
def test_the_ending_of_the_file_gives_the_format(stored: Path, tmp_path: Path, ending: str) -> None:
    target = tmp_path / f"rows.{ending}"
    assert shown(stored, "coverage", "-o", target) == ""
    format_ = "table" if ending == "txt" else ending
    assert target.read_text() == shown(stored, "coverage", "-f", format_)
    assert list(tmp_path.iterdir()) == [target]


def test_what_is_no_plain_file_is_written_to_and_stays(stored: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "rows.csv", tmp_path / "link.csv"
    target.touch()
    link.symlink_to(target)
    assert shown(stored, "coverage", "-o", link) == ""
    assert link.is_symlink() and target.read_text() == shown(stored, "coverage", "-f", "csv")
    master, slave = os.openpty()
    device = Path(os.ttyname(slave))
    assert shown(stored, "coverage", "-f", "csv", "-o", device) == ""
    assert device.is_char_device() and os.read(master, 6) == b"run_id"
    os.close(slave)
    os.close(master)


def test_an_ending_that_tells_nothing_is_usage(stored: Path, tmp_path: Path) -> None:
    told = tw("show", "coverage", "-w", stored, "-o", tmp_path / "rows.xlsx")
    assert (told.code, told.out) == (2, "")
    assert "rows.xlsx" in told.errors[0]
    assert told.errors[1].startswith("hint: one of .csv")


def test_head_cuts_and_says_so(stored: Path) -> None:
    told = tw("show", "temporal_breakdown", "-w", stored, "--head", "1")
    assert len(told.out.splitlines()) == 2
    assert told.errors[0] == "… 3 more rows (--head)"
    table = tw("show", "temporal_breakdown", "-w", stored, "--head", "1", "-f", "table")
    assert table.out.splitlines()[-1] == "… 3 more rows (--head)"
    assert "more rows" not in table.err


def test_runs_and_ranks_are_chosen(stored: Path) -> None:
    both = shown(stored, "temporal_breakdown", "--rank", "0,2", "--run", "first")
    assert [line.split(",")[1] for line in both.splitlines()[1:]] == ["0", "2"]
    assert both == shown(stored, "temporal_breakdown", "--rank", "0", "--rank", "2", "--run", "@latest")


def test_an_analysis_has_its_parameters_as_options(stored: Path) -> None:
    text = tw("show", "step_summary", "--help").out
    assert "step_summary@1: " in text
    assert tw("show", "--help").out.count("step_summary") == 1


def test_the_envelope_of_rows(stored: Path) -> None:
    told = tw("show", "coverage", "-w", stored, "--json")
    envelope = json.loads(told.out)
    assert list(envelope) == [
        "tw", "command", "ok", "result", "columns", "provenance", "abstained", "quality", "error",
    ]  # fmt: skip
    assert (envelope["command"], envelope["ok"], envelope["error"]) == ("show", True, None)
    assert envelope["result"] == json.loads(shown(stored, "coverage", "-f", "json"))
    assert {"name": "gpu_ns", "type": "BIGINT", "unit": "ns"} in envelope["columns"]
    assert envelope["provenance"]["analysis"] == "coverage"
    assert envelope["provenance"]["runs"] == ["first-steps@v1"]


@pytest.mark.parametrize(
    ("args", "code", "kind"),
    [
        (("show", "coverge"), 1, "UnknownName"),
        (("show", "coverage", "--run", "second"), 1, "UnknownName"),
        (("show", "coverage", "--rank", "9"), 1, "UnknownName"),
        (("show", "coverage", "--nonsense", "9"), 2, "UsageError"),
        (("query", "DROP VIEW kernels"), 1, "QueryError"),
        (("info", "second"), 1, "UnknownName"),
    ],
)
def test_the_envelope_of_an_error(stored: Path, args: tuple[str, ...], code: int, kind: str) -> None:
    told = tw(*args, "-w", stored, "--json")
    envelope = json.loads(told.out)
    assert told.code == code
    assert (envelope["ok"], envelope["result"], envelope["command"]) == (False, [], args[0])
    assert envelope["error"]["class"] == kind
    assert told.errors[0] == f"tw: {envelope['error']['message']}"


def test_times_are_strings_in_json(stored: Path) -> None:
    (run,) = json.loads(tw("runs", "-w", stored, "-f", "json").out)
    assert isinstance(run["start_ns"], str)
    assert isinstance(run["bytes"], int)


def test_a_reader_that_leaves_early_is_no_error(stored: Path) -> None:
    many = "SELECT range AS n, repeat('x', 100) AS text FROM range(200000)"
    running = subprocess.Popen(
        [*TW, "query", many, "-w", stored],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None and running.stderr is not None
    assert running.stdout.readline() == "n,text\n"
    running.stdout.close()
    assert running.stderr.read() == ""
    running.stderr.close()
    assert running.wait() == 0


def test_query_reads_stdin_and_keeps_two_columns_of_one_name(stored: Path) -> None:
    done = subprocess.run(
        [*TW, "query", "-", "-w", stored, "-f", "table"],
        env=environment(),
        input="SELECT 1 AS n, 2 AS n",
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "n  n\n1  2\n")


def test_query_can_neither_write_nor_read_elsewhere(stored: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    for sql in (
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
        f"SELECT * FROM read_csv('{tmp_path}/secret.csv')",
        "SET enable_external_access = true",
        "ATTACH ':memory:' AS other",
    ):
        told = tw("query", sql, "-w", stored)
        assert (told.code, told.out) == (1, ""), sql
    assert list(tmp_path.iterdir()) == [tmp_path / "secret.csv"]


def test_the_shell_opens_read_only(stored: Path) -> None:
    query = "SELECT rank, window_ns FROM temporal_breakdown"
    shell = process("shell", "-w", stored, "--", "-csv", "-c", query)
    assert shell.code == 0, shell.err
    rows = list(csv.DictReader(io.StringIO(shell.out)))
    expected = list(csv.DictReader(io.StringIO(shown(stored, "temporal_breakdown"))))
    assert rows == [{name: row[name] for name in ("rank", "window_ns")} for row in expected]
    assert process("shell", "-w", stored, "--", "-c", "CREATE TABLE t (a INT)").code != 0


def test_list_describe_and_sql_know_every_contract() -> None:
    for row in json.loads(tw("list", "--all", "-f", "json").out):
        name = f"{row['name']}@{row['version']}"
        described = json.loads(tw("describe", name, "--json").out)["result"][0]
        assert described["name"] == row["name"]
        assert described["columns"]
        assert tw("sql", name).code == 0


def test_describe_keeps_to_the_terminal() -> None:
    narrow, wide = (on_terminal("describe", "kernels", columns=columns).out for columns in (70, 200))
    assert max(map(len, narrow.splitlines())) <= 70
    assert 90 < max(map(len, wide.splitlines())) <= 100
    assert narrow.split() == wide.split()


def test_sql_with_defaults_runs_as_it_stands(stored: Path) -> None:
    text = tw("sql", "temporal_breakdown").out
    assert "$" not in text
    told = tw("query", text, "-w", stored)
    assert sorted(told.out.splitlines()) == sorted(shown(stored, "temporal_breakdown").splitlines())


def test_ranks_that_abstain_are_counted(tmp_path: Path) -> None:
    op = {"ph": "X", "cat": "cpu_op", "name": "add", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({"traceEvents": [op]}))
    assert tw("ingest", tmp_path, FIRST_STEPS / "rank0.json.gz", "-w", tmp_path / "w").code == 0
    told = tw("show", "temporal_breakdown", "-w", tmp_path / "w")
    assert told.code == 0
    assert "abstained: 2 of 3 ranks (no GPU rows recorded)" in told.errors
    envelope = json.loads(tw("show", "temporal_breakdown", "-w", tmp_path / "w", "--json").out)
    assert [each["rank"] for each in envelope["abstained"]] == [0, 1]


def test_completion_offers_runs_and_analyses(stored: Path) -> None:
    assert complete("tw show --run fir", stored) == ["first-steps"]
    assert complete("tw info @", stored) == ["@latest", "@previous"]
    assert complete("tw show cov", stored) == ["coverage"]
    assert "--head" in complete("tw show coverage --", stored)
    assert complete("tw describe kernel_su", stored) == ["kernel_summary"]
    assert complete("tw show --run fir", stored / "nowhere") == []


@pytest.mark.parametrize(
    "endless",
    [
        "SELECT count(*) FROM range(1000000000) a(x), range(1000) b(y) WHERE x % 7 = y",
        # One task for hours.
        "SELECT sum(x) FROM range(10000000000000) a(x)",
    ],
)
def test_an_interrupted_query_is_no_fault(stored: Path, endless: str) -> None:
    running = subprocess.Popen(
        [TW[0], "-c", TW[-1], "query", endless, "-w", str(stored)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(timeout=3)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err.splitlines()[0]) == (130, "", "tw: interrupted")
