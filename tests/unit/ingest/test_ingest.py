"""Ingest of files: outcomes, exit codes, repetition, replacement, pending ranks."""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from cli_runner import tw
from conftest import deep
from ingesting import files_under, only, ranks_seen, seen, states, take, write
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import ParamError
from tracewarehouse.hints import cli_text
from tracewarehouse.ingest.outcome import Options, Progress
from tracewarehouse.ingest.pipeline import ingest
from tracewarehouse.present.render import progress as bars
from tracewarehouse.storage.store import Store


def test_a_folder_becomes_a_run_with_its_ranks(tmp_path: Path) -> None:
    write(tmp_path / "job", range(4))
    report = take(tmp_path / "wh", tmp_path / "job", labels={"commit": "3f2a"})
    assert report.exit_code == 0
    assert set(states(report).values()) == {"intact"}
    (run,) = report.runs
    assert (run.run, run.version, run.written, run.ranks) == ("job", 1, True, (0, 1, 2, 3))
    version = Store.open(tmp_path / "wh").newest("job")
    assert version is not None and version.labels == {"commit": "3f2a"}
    assert seen(tmp_path / "wh", "SELECT DISTINCT run_id, rank FROM kernels ORDER BY rank") == [
        ("job", rank) for rank in range(4)
    ]


def test_the_summary_counts(tmp_path: Path) -> None:
    write(tmp_path / "job", range(2), kernels=5)
    report = take(tmp_path / "wh", tmp_path / "job")
    contents = [file.content for file in report.files]
    assert all(content and content.steps == 1 for content in contents)
    assert [content.gpu_ns for content in contents if content] == [150, 150]
    assert report.coverage == (1.0, 1.0)
    assert report.bytes == sum(path.stat().st_size for path in (tmp_path / "job").iterdir())
    events = seen(tmp_path / "wh", "SELECT count(*) FROM events")
    assert sum(content.events for content in contents if content) == events[0][0]
    assert any("wh.check(" in command for command in report.next_commands)


def test_ingesting_again_writes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "job", range(3))
    take(tmp_path / "wh", tmp_path / "job")
    before = files_under(tmp_path / "wh")
    again = take(tmp_path / "wh", tmp_path / "job")
    assert set(states(again).values()) == {"same"}
    assert again.exit_code == 0
    assert not any(run.written for run in again.runs)
    assert files_under(tmp_path / "wh") == before


def test_a_label_on_the_same_content_is_a_new_version(tmp_path: Path) -> None:
    write(tmp_path / "job")
    take(tmp_path / "wh", tmp_path / "job")
    take(tmp_path / "wh", tmp_path / "job", labels={"a": "b"})
    version = Store.open(tmp_path / "wh").newest("job")
    assert version is not None and (version.number, version.labels) == (2, {"a": "b"})


def test_other_content_needs_replace_and_can_be_restored(tmp_path: Path) -> None:
    old, new = write(tmp_path / "a" / "job", range(2)), write(tmp_path / "b" / "job", [1], mark="new")
    names = "SELECT DISTINCT name FROM kernels WHERE rank = 1 ORDER BY name"
    take(tmp_path / "wh", *old)
    refused = take(tmp_path / "wh", *new)
    assert (only(refused).state, refused.exit_code) == ("refused", 1)
    assert "already exists with different content" in str(only(refused).reason)
    assert "replace=True" in str(only(refused).hint)
    assert seen(tmp_path / "wh", names)[0] == ("k0",)

    replaced = take(tmp_path / "wh", *new, replace=True)
    assert only(replaced).state == "intact"
    assert seen(tmp_path / "wh", names)[0] == ("new0",)
    assert ranks_seen(tmp_path / "wh") == {"job": (0, 1)}
    take(tmp_path / "wh", *old, replace=True)
    assert seen(tmp_path / "wh", names)[0] == ("k0",)
    assert seen(tmp_path / "wh", "SELECT count(*) FROM kernels") == [(6,)]


def test_a_file_without_rank_may_be_called_as_its_folder(tmp_path: Path) -> None:
    """`a/trace.json` and `b/trace.json` of two calls are both `trace`: the hint says how to store both."""
    files = [write(tmp_path / name / name, mark=name)[0] for name in "ab"]
    lone = [path.rename(tmp_path / path.parent.name / "trace.json") for path in files]
    for path in lone:
        document = json.loads(path.read_text())
        path.write_text(json.dumps({"traceEvents": document["traceEvents"]}))
    assert only(take(tmp_path / "wh", lone[0])).run == "trace"
    refused = only(take(tmp_path / "wh", lone[1]))
    assert refused.state == "refused"
    assert cli_text(refused.hint or "").endswith("--run b stores it as another run")
    assert only(take(tmp_path / "wh", lone[1], run="b")).state == "intact"


def test_remove_and_ingest_one_rank_again(tmp_path: Path) -> None:
    files = write(tmp_path / "job", range(3))
    take(tmp_path / "wh", *files)
    Store.open(tmp_path / "wh").remove("job")
    assert ranks_seen(tmp_path / "wh") == {}
    report = take(tmp_path / "wh", files[1])
    assert only(report).state == "intact"
    assert ranks_seen(tmp_path / "wh") == {"job": (1,)}
    assert seen(tmp_path / "wh", "SELECT DISTINCT rank FROM kernels") == [(1,)]
    assert Store.open(tmp_path / "wh").verify() == []


def cut(path: Path, keep: float) -> None:
    text = path.read_bytes()
    path.write_bytes(text[: int(len(text) * keep)])


def test_a_damaged_rank_is_replaced_by_an_intact_one(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "job", kernels=20)
    whole = path.read_bytes()
    events = "SELECT count(*) FROM events"
    cut(path, 0.5)
    first = take(tmp_path / "wh", path)
    assert (only(first).state, first.exit_code) == ("damaged", 4)
    half = seen(tmp_path / "wh", events)
    path.write_bytes(whole[: int(len(whole) * 0.7)])
    assert only(take(tmp_path / "wh", path)).state == "damaged"
    assert seen(tmp_path / "wh", events) > half
    path.write_bytes(whole)
    assert only(take(tmp_path / "wh", path)).state == "intact"
    cut(path, 0.5)
    assert only(take(tmp_path / "wh", path)).state == "refused"


def test_a_damaged_rank_is_not_replaced_by_another_damaged_one(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "job", kernels=20)
    cut(path, 0.5)
    take(tmp_path / "wh", path)
    (other,) = write(tmp_path / "other" / "job", kernels=40, mark="x")
    cut(other, 0.7)
    assert only(take(tmp_path / "wh", other)).state == "refused"


def test_a_recently_modified_truncated_file_is_pending(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "job", kernels=20)
    cut(path, 0.5)
    report = take(tmp_path / "wh", path, min_age_s=30)
    assert (only(report).state, report.exit_code) == ("pending", 4)
    assert ranks_seen(tmp_path / "wh") == {}
    os.utime(path, (time.time() - 60,) * 2)
    assert only(take(tmp_path / "wh", path, min_age_s=30)).state == "damaged"


def test_bytes_after_a_complete_trace_do_not_make_it_pending(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "job", kernels=20)
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    path.write_bytes(gzip.compress(text + b"USDT: stop") if path.suffix == ".gz" else text + b"USDT: stop")
    assert only(take(tmp_path / "wh", path, min_age_s=30)).state == "repaired"


def test_a_file_that_grows_while_it_is_read_is_pending(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "job", kernels=20)
    grown = []

    def grow(progress: Progress) -> None:
        if progress.stage == "read" and not grown:
            grown.append(path.write_bytes(path.read_bytes() + b"\n"))

    store = Store.open_or_create(tmp_path / "wh")
    report = ingest(store, Catalog.load(), [path], Options(), grow)
    assert grown
    assert (only(report).state, report.exit_code) == ("pending", 4)
    assert ranks_seen(tmp_path / "wh") == {}


def test_one_bad_file_does_not_affect_others(tmp_path: Path) -> None:
    write(tmp_path / "job", range(2))
    (tmp_path / "job" / "rank2.json").write_text("<html>")
    (tmp_path / "job" / "settings.json").write_text('{"a": 1}')
    report = take(tmp_path / "wh", tmp_path / "job", tmp_path / "missing.json")
    assert states(report) == {
        "rank0.json": "intact",
        "rank1.json": "intact",
        "rank2.json": "refused",
        "settings.json": "skipped",
        "missing.json": "refused",
    }
    assert report.exit_code == 4
    assert ranks_seen(tmp_path / "wh") == {"job": (0, 1)}
    assert all(file.hint for file in report.of("refused"))


def test_json_without_events_is_skipped_in_a_folder_and_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "job")
    path = tmp_path / "job" / "settings.json"
    path.write_text('{"a": 1}')
    assert take(tmp_path / "wh", tmp_path / "job").exit_code == 0
    named = take(tmp_path / "wh", path)
    assert (only(named).state, named.exit_code) == ("refused", 1)


@pytest.mark.parametrize("text", ['{"schemaVersion": 1, "device', '{"schemaVersion": 1,'])
def test_a_trace_truncated_in_its_header_is_refused_in_a_folder_too(tmp_path: Path, text: str) -> None:
    write(tmp_path / "job")
    path = tmp_path / "job" / "rank1.json"
    path.write_text(text)
    report = take(tmp_path / "wh", tmp_path / "job")
    assert (states(report)[path.name], report.exit_code) == ("refused", 4)
    (refused,) = report.of("refused")
    assert "no complete event found" in str(refused.reason) and "again" in str(refused.hint)


def test_nothing_but_refusals_is_an_error(tmp_path: Path) -> None:
    report = take(tmp_path / "wh", tmp_path / "missing")
    assert (only(report).state, report.exit_code) == ("refused", 1)
    (tmp_path / "empty").mkdir()
    report = take(tmp_path / "wh", tmp_path / "empty")
    assert (only(report).reason, report.exit_code) == ("no traces found in this folder", 1)


def test_strict_stores_all_or_nothing(tmp_path: Path) -> None:
    write(tmp_path / "job", range(2))
    (tmp_path / "job" / "rank2.json").write_text("<html>")
    report = take(tmp_path / "wh", tmp_path / "job", strict=True)
    assert report.exit_code == 1
    assert set(states(report).values()) == {"refused"}
    assert ranks_seen(tmp_path / "wh") == {}
    (tmp_path / "job" / "rank2.json").unlink()
    assert take(tmp_path / "wh", tmp_path / "job", strict=True).exit_code == 0


def test_expected_ranks_are_published_together(tmp_path: Path) -> None:
    files = write(tmp_path / "job", range(3))
    for path in files[:2]:
        report = take(tmp_path / "wh", path, expect_ranks=3)
        assert (only(report).state, report.exit_code) == ("pending", 4)
    assert ranks_seen(tmp_path / "wh") == {}
    (run,) = report.runs
    assert run.waiting == (2, 3)
    again = take(tmp_path / "wh", files[0], expect_ranks=3)
    assert only(again).state == "pending"
    last = take(tmp_path / "wh", files[2], expect_ranks=3)
    assert (only(last).state, last.exit_code) == ("intact", 0)
    assert ranks_seen(tmp_path / "wh") == {"job": (0, 1, 2)}
    version = Store.open(tmp_path / "wh").newest("job")
    assert version is not None and version.number == 1


@pytest.mark.parametrize("name", ["CON", "x" * 128, "a..b"])
def test_an_odd_run_name_stays_inside(tmp_path: Path, name: str) -> None:
    root = tmp_path / "deep" / "wh"
    write(tmp_path / "traces" / "job")
    before = {path for path in tmp_path.rglob("*") if root not in path.parents and path != root}
    report = take(root, tmp_path / "traces", run=name)
    assert report.exit_code == 0
    (run,) = ranks_seen(root)
    assert run == only(report).run
    assert not report.notes or run in report.notes[0]
    after = {path for path in tmp_path.rglob("*") if root not in path.parents and path != root}
    assert after - before <= {root.parent}
    assert Store.open(root).verify() == []


@pytest.mark.parametrize("name", ["", "x" * 129, "…", "../..", "../x", "läuf 3", "-rf", "a/../../../b"])
def test_an_invalid_run_name_is_an_error(tmp_path: Path, name: str) -> None:
    write(tmp_path / "job")
    with pytest.raises(ParamError) as error:
        take(tmp_path / "wh", tmp_path / "job", run=name)
    assert error.value.hint and "\n" not in error.value.message
    assert ranks_seen(tmp_path / "wh") == {}


def test_a_run_that_differs_in_case_alone_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "job")
    take(tmp_path / "wh", tmp_path / "job", run="Base")
    report = take(tmp_path / "wh", tmp_path / "job", run="base")
    assert (only(report).state, report.exit_code) == ("refused", 1)
    assert "Base" in str(only(report).hint)


def test_the_hint_of_a_taken_rank_leads_to_a_stored_one(tmp_path: Path) -> None:
    first, second = write(tmp_path / "job", range(2))
    second.write_text(second.read_text().replace('"rank": 1', '"rank": 0').replace('"rank":1', '"rank":0'))
    report = take(tmp_path / "wh", tmp_path / "job")
    assert (states(report), report.exit_code) == ({"rank0.json": "intact", "rank1.json": "refused"}, 4)
    refused = report.of("refused")[0]
    assert refused.hint is not None and refused.hint.startswith("ingest this file alone with rank=1")
    hinted = take(tmp_path / "wh", second, rank=1)
    assert (only(hinted).state, hinted.exit_code) == ("intact", 0)
    again = take(tmp_path / "wh", tmp_path / "job")
    assert (states(again), again.exit_code) == ({"rank0.json": "same", "rank1.json": "same"}, 0)


def test_profiling_windows_become_separate_runs(tmp_path: Path) -> None:
    for k in (1, 2):
        for path in write(tmp_path / "tmp", range(2), mark=f"s{k}", at=k * 10_000):
            (tmp_path / "job").mkdir(exist_ok=True)
            path.rename(tmp_path / "job" / f"{path.stem}.169412820{k}545.pt.trace.json")
    report = take(tmp_path / "wh", tmp_path / "job")
    assert report.exit_code == 0
    assert ranks_seen(tmp_path / "wh") == {"job~1": (0, 1), "job~2": (0, 1)}
    labels = [
        version.labels for run in report.runs if (version := Store.open(tmp_path / "wh").newest(run.run))
    ]
    assert labels == [{"span": "1"}, {"span": "2"}]


@pytest.mark.parametrize("jobs", [1, *deep(2)])
def test_progress_ascends_and_ends(tmp_path: Path, jobs: int) -> None:
    files = write(tmp_path / "job", range(3), kernels=50)
    reported: dict[Path, list[Progress]] = {}
    store = Store.open_or_create(tmp_path / "wh")
    watch = lambda progress: reported.setdefault(progress.path, []).append(progress)  # noqa: E731
    ingest(store, Catalog.load(), [tmp_path / "job"], Options(jobs=jobs), watch)
    assert set(reported) == set(files)
    for events in reported.values():
        read = [event.done_bytes for event in events if event.stage != "survey"]
        assert read == sorted(read)
        assert events[-1].stage == "done"
        assert events[-1].done_bytes == events[-1].total_bytes > 0


def test_the_facts_of_a_rank(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "job")
    take(tmp_path / "wh", path)
    version = Store.open(tmp_path / "wh").newest("job")
    assert version is not None
    facts = version.sources[0].facts
    expected = {column.name for column in Catalog.load().get("ranks").columns}
    carried_by_the_source = {
        "run_id",
        "rank",
        "header",
        "source_format",
        "source_part",
        "source_sha256",
        "text_bytes",
        "status",
        "format_version",
        "ingested_at",
    }
    beside = {"rank_in_file", "tables", "redaction", "status", "gpu_ns", "launch_known_ns", "with_op_ns"}
    beside |= {"source_folder", "limits", "step_ns"}
    found_later = {"critical_path", "wait_attribution", "source_schema", "clock", "common_start_ns"}
    assert set(facts) - beside == expected - carried_by_the_source - found_later
    assert facts["source_name"] == "rank0.json"
    assert facts["source_bytes"] == path.stat().st_size
    assert (facts["gpu"], facts["launches"], facts["steps"]) == (True, True, 1)


def test_an_interrupt_leaves_the_warehouse_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "job", range(4))
    staging = tmp_path / "wh" / "_tw" / "staging"
    staged: list[Path] = []

    def interrupt(step: Progress) -> None:
        if step.stage == "done" and not staged:
            staged.extend(staging.glob("*/*"))
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(bars, "bars", lambda: nullcontext(interrupt))
    options = ("-w", tmp_path / "wh", "--jobs", "2", "--min-age", "0")
    result = tw("ingest", *options, tmp_path / "job")
    assert staged
    assert result.code == 130, result.err
    assert ranks_seen(tmp_path / "wh") == {}
    assert list(staging.iterdir()) == []
    assert take(tmp_path / "wh", tmp_path / "job").exit_code == 0
    assert Store.open(tmp_path / "wh").verify() == []
