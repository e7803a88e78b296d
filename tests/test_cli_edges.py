"""A command left out, names and values that mean nothing: each is told as what it is."""

from __future__ import annotations

import json
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
    envelope = json.loads(tw("runs", "--json", "-w", tmp_path / "w").out)
    assert (envelope["quality"], envelope["result"][0]["state"]) == (["job: pending 1/2"], "pending")


def test_each_redacted_value_is_listed_with_event_and_path(tmp_path: Path) -> None:
    path = tmp_path / "job" / "rank0.json"
    path.parent.mkdir()
    secrets = ({"HF_TOKEN": "abcdefgh12"}, {"n": 1}, {"env": {"password": "hunter2hunter2"}})
    events = [
        {"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1, "args": args} for args in secrets
    ]
    path.write_text(json.dumps({"traceEvents": events, "metadata": {"api_key": "abcdefgh12"}}))
    assert only(take(tmp_path / "w", path)).state == "whole"
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
