"""Commands that print rows: formats, limits, the envelope, and what goes to stdout and stderr."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from cli_runner import TW, complete, environment, on_terminal, process, tw
from conftest import deep

FIRST_STEPS = Path(__file__).parents[2] / "data" / "first-steps"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with the run `first-steps`; read-only."""
    warehouse = tmp_path_factory.mktemp("stored") / "warehouse"
    cli = tw("ingest", FIRST_STEPS, "-w", warehouse)
    assert cli.code == 0, cli.err
    return warehouse


def shown(stored: Path, *args: str | Path) -> str:
    """The stdout of `tw show` on the stored run, which must succeed."""
    cli = tw("show", *args, "-w", stored)
    assert cli.code == 0, cli.err
    return cli.out


def test_a_pipe_gets_csv(stored: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(shown(stored, "temporal_breakdown"))))
    assert [row["rank"] for row in rows] == ["0", "1", "2", "3"]
    for row in rows:
        assert int(row["busy_ns"]) + int(row["idle_ns"]) == int(row["window_ns"])


def test_a_terminal_gets_a_table_that_fits(stored: Path) -> None:
    cli = on_terminal("show", "temporal_breakdown", "-w", stored, columns=90)
    lines = cli.out.splitlines()
    assert cli.code == 0
    assert any(" ms" in line or " µs" in line for line in lines)
    assert all(len(line) <= 90 for line in lines), cli.out


def test_runs_shows_ranks_start_and_size_beside_a_long_name(tmp_path: Path) -> None:
    name = "inference-graphs-mi300.vllm_decode_full__graph_execution"
    for run in (name, "first"):
        assert tw("ingest", FIRST_STEPS / "rank0.json.gz", "--run", run, "-w", tmp_path / "w").code == 0
    shown = on_terminal("runs", "-w", tmp_path / "w", columns=120).out.replace("\r", "")
    constants, _, rows = shown.partition("\n\n")
    assert all(column in shown for column in ("ranks", "start", "bytes"))
    assert "1 of 4" in constants and f"\n{name}  " in rows
    assert max(map(len, shown.splitlines())) <= 120


def test_every_format_has_the_same_rows(stored: Path, tmp_path: Path) -> None:
    rows = json.loads(shown(stored, "kernel_summary", "-f", "json"))
    lines = [json.loads(line) for line in shown(stored, "kernel_summary", "-f", "jsonl").splitlines()]
    target = tmp_path / "rows.parquet"
    assert shown(stored, "kernel_summary", "-o", target) == ""
    assert rows == lines == parquet.read_table(target).to_pylist()
    assert len(shown(stored, "kernel_summary", "-f", "csv").splitlines()) == len(rows) + 1
    assert len(shown(stored, "kernel_summary", "-f", "md").splitlines()) == len(rows) + 2


def test_parquet_can_be_piped(stored: Path) -> None:
    command = [*TW, "show", "coverage", "-w", stored, "-f", "parquet"]
    done = subprocess.run(command, env=environment(), capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert parquet.read_table(io.BytesIO(done.stdout)).num_rows == 4


def test_parquet_to_a_terminal_is_refused(stored: Path) -> None:
    cli = on_terminal("show", "coverage", "-w", stored, "-f", "parquet")
    assert cli.code == 2
    assert cli.out.splitlines()[0] == "tw: cannot print Parquet to a terminal"


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl", "md", "txt"])
def test_the_file_extension_selects_the_format(stored: Path, tmp_path: Path, ending: str) -> None:
    target = tmp_path / f"rows.{ending}"
    assert shown(stored, "coverage", "-o", target) == ""
    format_ = "table" if ending == "txt" else ending
    assert target.read_text() == shown(stored, "coverage", "-f", format_)
    assert list(tmp_path.iterdir()) == [target]


def test_devices_and_links_are_written_in_place(stored: Path, tmp_path: Path) -> None:
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


def test_an_unknown_extension_is_a_usage_error(stored: Path, tmp_path: Path) -> None:
    cli = tw("show", "coverage", "-w", stored, "-o", tmp_path / "rows.xlsx")
    assert (cli.code, cli.out) == (2, "")
    assert "rows.xlsx" in cli.errors[0]
    assert cli.errors[1].startswith("hint: use one of .csv")


def test_limit_omits_rows_and_reports_the_rest(stored: Path) -> None:
    cli = tw("show", "temporal_breakdown", "-w", stored, "--limit", "1")
    assert len(cli.out.splitlines()) == 2
    assert cli.errors[0] == "… 3 more rows (use --limit N)"
    table = tw("show", "temporal_breakdown", "-w", stored, "--limit", "1", "-f", "table")
    assert table.out.splitlines()[-1] == "… 3 more rows (use --limit N)"
    assert "more rows" not in table.err


def test_run_and_rank_select(stored: Path) -> None:
    both = shown(stored, "temporal_breakdown", "--rank", "0,2", "--run", "first")
    assert [line.split(",")[1] for line in both.splitlines()[1:]] == ["0", "2"]
    assert both == shown(stored, "temporal_breakdown", "--rank", "0", "--rank", "2", "--run", "@latest")


def test_an_analysis_has_its_parameters_as_options(stored: Path) -> None:
    text = tw("show", "step_summary", "--help").out
    assert "step_summary@1: " in text
    assert tw("show", "--help-all").out.count("step_summary") == 1


def test_envelope_of_rows(stored: Path) -> None:
    cli = tw("show", "coverage", "-w", stored, "--json")
    envelope = json.loads(cli.out)
    assert list(envelope) == [
        "tw", "command", "ok", "result", "columns", "provenance", "skipped", "left_out", "recording",
        "quality", "error",
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
def test_envelope_of_an_error(stored: Path, args: tuple[str, ...], code: int, kind: str) -> None:
    cli = tw(*args, "-w", stored, "--json")
    envelope = json.loads(cli.out)
    assert cli.code == code
    assert (envelope["ok"], envelope["result"], envelope["command"]) == (False, [], args[0])
    assert envelope["error"]["class"] == kind
    assert cli.errors[0] == f"tw: {envelope['error']['message']}"


def test_times_are_strings_in_json(stored: Path) -> None:
    (run,) = json.loads(tw("runs", "-w", stored, "-f", "json").out)
    assert isinstance(run["start_ns"], str)
    assert isinstance(run["bytes"], int)


def test_a_reader_that_closes_early_is_not_an_error(stored: Path) -> None:
    many = "SELECT range AS n, repeat('x', 100) AS text FROM range(200000)"
    running = subprocess.Popen(
        [*TW, "query", many, "--max-rows", "200000", "-w", stored],
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


def test_query_reads_stdin_and_numbers_columns_with_equal_names(stored: Path) -> None:
    done = subprocess.run(
        [*TW, "query", "-", "-w", stored, "-f", "table"],
        env=environment(),
        input="SELECT 1 AS n, 2 AS n",
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "n  n_1\n1    2\n")


def test_bytes_on_stdin_that_are_not_utf8_are_an_error_of_the_query(stored: Path) -> None:
    command = [*TW, "query", "-", "-w", stored, "-f", "csv"]
    done = subprocess.run(command, env=environment(), input=b"SELECT '\xff'", capture_output=True)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"tw: character 9 of the SQL is not valid Unicode\nhint: ")
    done = subprocess.run(command, env=environment(), input=b"\xef\xbb\xbfSELECT 1 AS n", capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"n\n1\n")


def test_query_is_sandboxed(stored: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    for sql in (
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
        f"SELECT * FROM read_csv('{tmp_path}/secret.csv')",
        "SET enable_external_access = true",
        "ATTACH ':memory:' AS other",
    ):
        cli = tw("query", sql, "-w", stored)
        assert (cli.code, cli.out) == (1, ""), sql
    assert list(tmp_path.iterdir()) == [tmp_path / "secret.csv"]


def test_the_shell_has_the_rows_of_show(stored: Path) -> None:
    query = "SELECT rank, window_ns FROM temporal_breakdown"
    shell = process("shell", "-w", stored, "--", "-csv", "-c", query)
    assert shell.code == 0, shell.err
    rows = list(csv.DictReader(io.StringIO(shell.out)))
    expected = list(csv.DictReader(io.StringIO(shown(stored, "temporal_breakdown"))))
    assert rows == [{name: row[name] for name in ("rank", "window_ns")} for row in expected]


@pytest.mark.deep
def test_the_shell_is_read_only(stored: Path) -> None:
    assert process("shell", "-w", stored, "--", "-c", "CREATE TABLE t (a INT)").code != 0


def test_list_describe_and_sql_accept_every_contract() -> None:
    for row in json.loads(tw("list", "--all", "-f", "json").out):
        name = f"{row['name']}@{row['version']}"
        described = json.loads(tw("describe", name, "--json").out)["result"][0]
        assert described["name"] == row["name"]
        assert described["columns"] or described["kind"] == "format"
        assert tw("sql", name).code == 0


def test_describe_wraps_to_the_terminal() -> None:
    narrow, wide = (on_terminal("describe", "kernels", columns=columns).out for columns in (70, 200))
    assert max(map(len, narrow.splitlines())) <= 70
    assert 90 < max(map(len, wide.splitlines())) <= 100
    assert narrow.split() == wide.split()


def test_sql_with_defaults_can_be_run(stored: Path) -> None:
    text = tw("sql", "temporal_breakdown").out
    assert "$" not in text
    cli = tw("query", text, "-w", stored)
    assert sorted(cli.out.splitlines()) == sorted(shown(stored, "temporal_breakdown").splitlines())


def test_skipped_ranks_are_counted(tmp_path: Path) -> None:
    op = {"ph": "X", "cat": "cpu_op", "name": "add", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({"traceEvents": [op]}))
    assert tw("ingest", tmp_path, FIRST_STEPS / "rank0.json.gz", "-w", tmp_path / "w").code == 0
    cli = tw("show", "temporal_breakdown", "-w", tmp_path / "w")
    assert cli.code == 0
    assert "skipped 2 of 3 ranks: no GPU activities recorded" in cli.errors
    envelope = json.loads(tw("show", "temporal_breakdown", "-w", tmp_path / "w", "--json").out)
    assert [each["rank"] for each in envelope["skipped"]] == [0, 1]


def test_a_query_does_not_mention_ranks_of_other_runs(tmp_path: Path) -> None:
    op = {"ph": "X", "cat": "cpu_op", "name": "add", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "rank0.json").write_text(json.dumps({"traceEvents": [op]}))
    traces = tmp_path / "host" / "rank0.json", FIRST_STEPS / "rank0.json.gz"
    assert tw("ingest", *traces, "-w", tmp_path / "w").code == 0
    count = "SELECT count(*) AS n FROM idle_intervals"
    skipped = "skipped 1 rank: no GPU activities recorded"
    assert skipped in tw("query", count, "-w", tmp_path / "w").errors
    assert skipped not in tw("query", f"{count} WHERE run_id = 'first-steps'", "-w", tmp_path / "w").errors
    assert skipped in tw("query", f"{count} WHERE run_id = 'host'", "-w", tmp_path / "w").errors


def test_an_empty_result_says_why(tmp_path: Path) -> None:
    memory = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1}
    sizes = {"Bytes": 512, "Addr": 4096, "Device Type": 1, "Device Id": 0}
    (tmp_path / "old.json").write_text(json.dumps({"traceEvents": [{**memory, "args": sizes}]}))
    assert tw("ingest", tmp_path / "old.json", "-w", tmp_path / "w").code == 0
    (hint,) = tw("show", "memory_live", "-w", tmp_path / "w").errors
    assert hint.startswith("hint: allocations without recorded totals")


def test_check_says_how_many_rules_it_checked(tmp_path: Path) -> None:
    op = {"ph": "X", "cat": "cpu_op", "name": "add", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    (tmp_path / "host.json").write_text(json.dumps({"traceEvents": [op]}))
    assert tw("ingest", tmp_path / "host.json", "-w", tmp_path / "w").code == 0
    said = re.search(
        r"checked (\d+) of (\d+) rules that apply", " ".join(tw("check", "-w", tmp_path / "w").errors)
    )
    assert said is not None and 0 < int(said[1]) < int(said[2])


@pytest.mark.deep
def test_completion_suggests_runs_and_analyses(stored: Path) -> None:
    assert complete("tw show --run fir", stored) == ["first-steps"]
    assert complete("tw info @", stored) == ["@latest", "@previous"]
    assert complete("tw show cov", stored) == ["coverage"]
    assert "--limit" in complete("tw show coverage --", stored)
    assert complete("tw describe kernel_su", stored) == ["kernel_summary"]
    assert complete("tw show --run fir", stored / "nowhere") == []


@pytest.mark.parametrize(
    "endless",
    [
        *deep("SELECT count(*) FROM range(1000000000) a(x), range(1000) b(y) WHERE x % 7 = y"),
        # One task for hours.
        "SELECT sum(x) FROM range(10000000000000) a(x)",
    ],
)
def test_an_interrupted_query_exits_cleanly(stored: Path, endless: str) -> None:
    running = subprocess.Popen(
        [TW[0], "-c", TW[-1], "query", endless, "-w", str(stored)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(timeout=2)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err.splitlines()[0]) == (130, "", "tw: interrupted")
