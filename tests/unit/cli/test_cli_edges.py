"""Edge cases of the command line: missing commands, invalid names and values, concurrent calls."""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from pathlib import Path

import duckdb
import pytest

from cli_runner import tw
from ingesting import only, take, write
from tracewarehouse.cli import app
from tracewarehouse.errors import ParamError
from tracewarehouse.ingest.outcome import FileOutcome, IngestReport
from tracewarehouse.present.answers import ingest_error, ingest_summary
from tracewarehouse.warehouse import Warehouse


@pytest.mark.parametrize("words", [(), ("dev",), ("export",)])
def test_no_command_prints_the_help(words: tuple[str, ...]) -> None:
    cli = tw(*words)
    assert cli.code == 2
    assert cli.errors[0].startswith("Usage: tw")
    assert len(cli.errors) > 5


def test_an_empty_path_is_not_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "job")
    monkeypatch.chdir(tmp_path / "job")
    cli = tw("ingest", "", "-w", tmp_path / "w")
    assert cli.code == 1
    assert "no such file or folder" in cli.err


def test_settle_accepts_durations(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "job")
    path.write_text(path.read_text().rstrip()[:-20])
    for settle, code in (("30", 4), ("10m", 4), ("0s", 4), ("soon", 2)):
        cli = tw("ingest", path, "--min-age", settle, "-w", tmp_path / f"w-{settle}")
        assert cli.code == code
        assert cli.err.startswith({"0s": "damaged", "soon": "tw: Invalid"}.get(settle, "pending"))


def test_a_truncated_file_is_reported_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}')
    cli = tw("ingest", path, "--min-age", "0", "-w", tmp_path / "w")
    assert cli.errors == [f"damaged: {path}: truncated: the first 1 events were stored"]


def test_repr_of_an_ingest_report_is_one_line(tmp_path: Path) -> None:
    write(tmp_path / "job")
    (tmp_path / "empty.json").touch()
    report = Warehouse(tmp_path / "w").ingest(tmp_path / "job", tmp_path / "empty.json", jobs=1)
    assert repr(report) == "<IngestReport runs: job@v1; files: 1 intact, 1 refused>"


def test_ranks_stored_by_a_concurrent_call_are_counted_once(tmp_path: Path) -> None:
    write(tmp_path / "job")
    report = take(tmp_path / "w", tmp_path / "job")
    assert len(report.stored) == 1
    assert take(tmp_path / "w", tmp_path / "job").stored == ()


@pytest.mark.parametrize("labels", [{"": "x"}, {"lr": 1}, {3: "x"}])
def test_labels_must_be_strings(tmp_path: Path, labels: dict[str, str]) -> None:
    write(tmp_path / "job")
    warehouse = Warehouse(tmp_path / "w")
    with pytest.raises(ParamError, match="label"):
        warehouse.ingest(tmp_path / "job", labels=labels)
    warehouse.ingest(tmp_path / "job")
    with pytest.raises(ParamError, match="label"):
        warehouse.label("job", dict(labels))


def test_runs_reports_pending_ranks(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "job")
    assert tw("ingest", path, "--expect-ranks", "2", "-w", tmp_path / "w").code == 4
    cli = tw("runs", "-w", tmp_path / "w")
    assert (cli.code, cli.errors) == (0, ["job is pending: 1 of 2 ranks ingested"])
    cli = tw("show", "temporal_breakdown", "--run", "job", "-w", tmp_path / "w")
    assert cli.errors == [
        "tw: unknown run: job",
        "hint: pending: 1 of 2 ranks ingested; tw ingest PATH adds the others,"
        " tw seal job publishes without them",
    ]
    envelope = json.loads(tw("runs", "--json", "-w", tmp_path / "w").out)
    assert (envelope["quality"], envelope["result"][0]["state"]) == (
        ["job is pending: 1 of 2 ranks ingested"],
        "pending",
    )


def test_a_trace_without_steps_names_the_option_that_finds_them(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(
        '{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1}]}'
    )
    cli = tw("ingest", tmp_path / "t.json", "-w", tmp_path / "w")
    assert "0 (--step-pattern REGEX selects names of tw show annotation_breakdown that mark steps)" in cli.out


def test_a_truth_file_without_traces_is_not_silent(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "truth.json").write_text('{"truth": 1, "job": {}}')
    cli = tw("ingest", tmp_path / "job", "-w", tmp_path / "w")
    assert cli.code == 1 and "is the truth.json of a simulated job" in cli.err


def test_a_file_with_several_ranks_is_counted_once() -> None:
    outcomes = (FileOutcome(Path("a.sqlite"), "refused", rank=rank, reason="why") for rank in range(2))
    report = IngestReport((*outcomes, FileOutcome(Path("b.csv"), "skipped", reason="why")))
    assert str(ingest_error(report)) == "nothing was stored: 1 file refused, 1 file skipped"
    assert "no traces ingested, 1 refused\n" in ingest_summary(report)


def test_an_empty_warehouse_is_reported(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.json").write_text('{"schemaVersion": 1}')
    cli = tw("ingest", tmp_path / "other", "-w", tmp_path / "w")
    assert (cli.code, cli.out) == (1, "")
    assert cli.errors[-2].startswith("hint: supported are Chrome JSON")
    assert cli.errors[-1] == "tw: nothing was stored: 1 file skipped"
    for line in ("runs", "show coverage", "check", "query 'FROM kernels'"):
        cli = tw(*shlex.split(line), "-w", tmp_path / "w")
        assert (cli.code, cli.errors) == (0, ["the warehouse is empty: tw ingest PATH ingests traces"])


def test_redacted_values_are_listed_with_event_and_path(tmp_path: Path) -> None:
    path = tmp_path / "job" / "rank0.json"
    path.parent.mkdir()
    secrets = ({"HF_TOKEN": "abcdefgh12"}, {"n": 1}, {"env": {"password": "hunter2hunter2"}})
    events = [
        {"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1, "args": args} for args in secrets
    ]
    path.write_text(json.dumps({"traceEvents": events, "metadata": {"api_key": "abcdefgh12"}}))
    assert only(take(tmp_path / "w", path)).state == "intact"
    (row,) = Warehouse(tmp_path / "w").query("FROM data_quality WHERE rule = 'redacted_value'").rows()
    assert row["rows"] == 3
    assert row["example"] == "header $.metadata.api_key, #0 $.args.HF_TOKEN, #2 $.args.env.password"


def test_repr_of_a_result_is_a_table(tmp_path: Path) -> None:
    write(tmp_path / "job")
    take(tmp_path / "w", tmp_path / "job")
    warehouse = Warehouse(tmp_path / "w")
    title, heading, row, limits = repr(warehouse.temporal_breakdown()).splitlines()
    assert title == "temporal_breakdown@1: 1 row of job@v1"
    assert heading.split()[:2] == ["run_id", "rank"] and row.split()[:2] == ["job", "0"]
    assert limits == "recording of job: usable with limits: rank 0: no complete step among 1"
    assert repr(warehouse.query("SELECT 1 AS n")) == f"query: 1 row of job@v1\nn\n1\n{limits}"


def test_replacing_with_a_damaged_file_reports_its_losses(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "job", kernels=9)
    text = path.read_text()
    for cut in (60, 20):
        path.write_text(text.rstrip()[:-cut])
        cli = tw("ingest", path, "--min-age", "0", "-w", tmp_path / "w")
    assert cli.code == 4
    assert cli.errors[0].startswith(f"damaged: {path}: replaced what was stored; lost ")


def test_a_failed_refresh_is_only_a_notice(tmp_path: Path) -> None:
    write(tmp_path / "job")
    (tmp_path / "w" / "warehouse.duckdb" / "in the way").mkdir(parents=True)
    cli = tw("ingest", tmp_path / "job", "-w", tmp_path / "w")
    assert (cli.code, cli.out.splitlines()[1]) == (0, "ingested 1 rank of 1 run")
    assert cli.errors[0].startswith("note: warehouse.duckdb is out of date: ")
    assert f"{tmp_path / 'w' / 'warehouse.duckdb'}: expected a file, found a folder" in cli.errors[0]
    verified = tw("verify", "-w", tmp_path / "w")
    assert (verified.code, verified.out.count("warehouse.duckdb,")) == (1, 1)


def test_record_does_not_claim_results_that_all_failed(tmp_path: Path) -> None:
    write(tmp_path / "job")
    take(tmp_path / "w", tmp_path / "job")
    for path in (tmp_path / "w" / "data" / "kernels").rglob("*.parquet"):
        path.write_bytes(b"damaged")
    cli = tw("record", "job", "--analysis", "kernel_summary", "-w", tmp_path / "w")
    assert (cli.code, cli.errors[-1]) == (1, "hint: tw verify checks for damaged files")


def test_commands_on_runs_reject_versions(tmp_path: Path) -> None:
    write(tmp_path / "job")
    take(tmp_path / "w", tmp_path / "job")
    for words in (("remove", "job@v1"), ("label", "job@v1", "a=b")):
        cli = tw(*words, "-w", tmp_path / "w")
        assert (cli.code, cli.errors[1]) == (1, "hint: use job")
    assert Warehouse(tmp_path / "w").selected()[0].selector == "job@v1"


def test_the_hint_of_verify_repairs_the_warehouse(tmp_path: Path) -> None:
    write(tmp_path / "job")
    take(tmp_path / "w", tmp_path / "job")
    (kernels,) = (tmp_path / "w" / "data" / "kernels").rglob("*.parquet")
    kernels.chmod(0o600)
    with kernels.open("r+b") as file:
        file.seek(40)
        file.write(b"damage")
    cli = tw("verify", "-w", tmp_path / "w")
    assert cli.code == 1
    assert cli.errors[-1].startswith("hint: tw repair repairs them")
    for words in (("repair",), ("clean", "--grace", "0s"), ("verify",)):
        assert tw(*words, "-w", tmp_path / "w").code == 0
    assert tw("show", "temporal_breakdown", "-w", tmp_path / "w").out.count("job") == 1


@pytest.mark.parametrize("age", ["0s", "30m", "30min", "12h", "90d", "2w"])
def test_ages_accept_all_units(tmp_path: Path, age: str) -> None:
    write(tmp_path / "job")
    take(tmp_path / "w", tmp_path / "job")
    assert tw("remove", "--older-than", age, "--dry-run", "-w", tmp_path / "w").code == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_whatever_a_library_makes_of_it(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """DuckDB raises another error for what a handler raises in a function that it called."""

    def invoke(*_: object) -> int:
        try:
            os.kill(os.getpid(), number)
            time.sleep(20)
        except KeyboardInterrupt:
            raise duckdb.InvalidInputException("counting the rows failed: Terminated") from None
        return 0

    monkeypatch.setattr(app.app, "invoke", invoke)
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        assert app.run(["list"]) == code
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert capsys.readouterr().err.splitlines()[0] == "tw: interrupted"
