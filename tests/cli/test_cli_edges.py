"""A command left out, names and values that mean nothing: each is told as what it is."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from front_door import tw
from ingesting import only, take, write
from tracewarehouse.errors import ParamError
from tracewarehouse.warehouse import Warehouse


@pytest.mark.parametrize("words", [(), ("dev",), ("export",)])
def test_without_a_command_the_help_is_shown_as_it_is(words: tuple[str, ...]) -> None:
    told = tw(*words)
    assert told.code == 2
    assert told.errors[0].startswith("Usage: tw")
    assert len(told.errors) > 5


def test_an_empty_path_is_not_the_folder_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "job")
    monkeypatch.chdir(tmp_path / "job")
    told = tw("ingest", "", "-w", tmp_path / "w")
    assert told.code == 1
    assert "no such file or folder" in told.err


def test_settle_takes_a_time_with_its_unit(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "job")
    path.write_text(path.read_text().rstrip()[:-20])
    for settle, code in (("30", 4), ("10m", 4), ("0s", 4), ("soon", 2)):
        told = tw("ingest", path, "--settle", settle, "-w", tmp_path / f"w-{settle}")
        assert told.code == code
        assert told.err.startswith({"0s": "damaged", "soon": "tw: Invalid"}.get(settle, "pending"))


def test_a_file_that_only_lacks_its_end_is_not_called_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}')
    told = tw("ingest", path, "--settle", "0", "-w", tmp_path / "w")
    assert told.errors == [f"damaged: {path}: ends too early: the 1 events up to there are stored"]


def test_a_report_of_an_ingest_shows_itself_on_one_line(tmp_path: Path) -> None:
    write(tmp_path / "job")
    (tmp_path / "empty.json").touch()
    report = Warehouse(tmp_path / "w").ingest(tmp_path / "job", tmp_path / "empty.json", jobs=1)
    assert repr(report) == "<IngestReport runs: job@v1; files: 1 refused, 1 whole>"


def test_what_another_call_stored_meanwhile_is_not_counted_twice(tmp_path: Path) -> None:
    write(tmp_path / "job")
    report = take(tmp_path / "w", tmp_path / "job")
    assert len(report.stored) == 1
    assert take(tmp_path / "w", tmp_path / "job").stored == ()


@pytest.mark.parametrize("labels", [{"": "x"}, {"lr": 1}, {3: "x"}])
def test_labels_are_text(tmp_path: Path, labels: dict[str, str]) -> None:
    write(tmp_path / "job")
    warehouse = Warehouse(tmp_path / "w")
    with pytest.raises(ParamError, match="label"):
        warehouse.ingest(tmp_path / "job", labels=labels)
    warehouse.ingest(tmp_path / "job")
    with pytest.raises(ParamError, match="label"):
        warehouse.label("job", dict(labels))


def test_runs_says_how_many_ranks_are_waited_for(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "job")
    assert tw("ingest", path, "--expect-ranks", "2", "-w", tmp_path / "w").code == 4
    told = tw("runs", "-w", tmp_path / "w")
    assert (told.code, told.errors) == (0, ["job: pending 1/2"])
    told = tw("show", "temporal_breakdown", "--run", "job", "-w", tmp_path / "w")
    assert told.errors == [
        "tw: unknown run: job",
        "hint: it waits: 1 of 2 ranks are there; tw ingest brings the others",
    ]
    envelope = json.loads(tw("runs", "--json", "-w", tmp_path / "w").out)
    assert (envelope["quality"], envelope["result"][0]["state"]) == (["job: pending 1/2"], "pending")


def test_where_nothing_is_stored_no_rows_are_no_good_news(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.json").write_text('{"schemaVersion": 1}')
    told = tw("ingest", tmp_path / "other", "-w", tmp_path / "w")
    assert (told.code, told.out) == (0, "nothing written: no trace was taken in\n")
    assert told.errors[-1].startswith("hint: traces are Chrome JSON")
    for line in ("runs", "show coverage", "check", "query 'FROM kernels'"):
        told = tw(*shlex.split(line), "-w", tmp_path / "w")
        assert (told.code, told.errors) == (0, ["no run is stored yet: tw ingest PATH takes traces in"])


def test_each_redacted_value_is_listed_with_event_and_path(tmp_path: Path) -> None:
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


def test_a_result_shows_itself_on_one_line(tmp_path: Path) -> None:
    write(tmp_path / "job")
    take(tmp_path / "w", tmp_path / "job")
    warehouse = Warehouse(tmp_path / "w")
    shown = "<Result temporal_breakdown@1: 1 rows of 10 columns, runs: job@v1>"
    assert repr(warehouse.temporal_breakdown()) == shown
    assert repr(warehouse.query("SELECT 1")) == "<Result query: 1 rows of 1 columns, runs: job@v1>"


def test_a_repaired_or_damaged_file_tells_its_losses_when_it_replaces_another(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "job", kernels=9)
    text = path.read_text()
    for cut in (60, 20):
        path.write_text(text.rstrip()[:-cut])
        told = tw("ingest", path, "--settle", "0", "-w", tmp_path / "w")
    assert told.code == 4
    assert told.errors[0].startswith(f"damaged: {path}: replaced what was stored; lost ")


def test_what_is_published_stays_told_where_the_shells_file_cannot_be_written(tmp_path: Path) -> None:
    write(tmp_path / "job")
    (tmp_path / "w" / "warehouse.duckdb" / "in the way").mkdir(parents=True)
    told = tw("ingest", tmp_path / "job", "-w", tmp_path / "w")
    assert (told.code, told.out.splitlines()[0]) == (0, "1 rank taken in")
    assert told.errors[0].startswith("note: warehouse.duckdb is not up to date: ")
    assert tw("verify", "-w", tmp_path / "w").code == 0


def test_a_version_is_not_taken_for_its_run(tmp_path: Path) -> None:
    write(tmp_path / "job")
    take(tmp_path / "w", tmp_path / "job")
    for words in (("remove", "job@v1"), ("label", "job@v1", "a=b")):
        told = tw(*words, "-w", tmp_path / "w")
        assert (told.code, told.errors[1]) == (1, "hint: name it as job")
    assert Warehouse(tmp_path / "w").selected()[0].selector == "job@v1"


def test_the_remedy_for_damage_that_verify_names_is_one(tmp_path: Path) -> None:
    write(tmp_path / "job")
    take(tmp_path / "w", tmp_path / "job")
    (kernels,) = (tmp_path / "w" / "data" / "kernels").rglob("*.parquet")
    kernels.chmod(0o600)
    with kernels.open("r+b") as file:
        file.seek(40)
        file.write(b"damage")
    told = tw("verify", "-w", tmp_path / "w")
    assert told.code == 1
    assert told.errors[-1] == "hint: tw remove the named runs, ingest them again, then tw clean --grace 0s"
    for words in (("remove", "job"), ("ingest", tmp_path / "job"), ("clean", "--grace", "0s"), ("verify",)):
        assert tw(*words, "-w", tmp_path / "w").code == 0
    assert tw("show", "temporal_breakdown", "-w", tmp_path / "w").out.count("job") == 1


@pytest.mark.parametrize("age", ["0s", "30m", "30min", "12h", "90d", "2w"])
def test_ages_have_the_units_of_other_times(tmp_path: Path, age: str) -> None:
    write(tmp_path / "job")
    take(tmp_path / "w", tmp_path / "job")
    assert tw("remove", "--older-than", age, "--dry-run", "-w", tmp_path / "w").code == 0
