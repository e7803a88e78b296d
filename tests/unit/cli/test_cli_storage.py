"""Commands that ingest, label, remove and verify runs."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import sketch
from cli_runner import TW, CliResult, environment, on_terminal, tw

FIRST_STEPS = Path(__file__).parents[2] / "data" / "first-steps"


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CliResult]:
    """A warehouse with the run `first-steps`, and the result of its ingest; read-only."""
    warehouse = tmp_path_factory.mktemp("ingested") / "warehouse"
    return warehouse, tw("ingest", FIRST_STEPS, "-w", warehouse, "--label", "kind=demo")


@pytest.fixture
def warehouse(ingested: tuple[Path, CliResult], tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(ingested[0], tmp_path / "warehouse"))


def names(warehouse: Path) -> list[str]:
    """The runs that `tw runs` lists."""
    rows = json.loads(tw("runs", "-w", warehouse, "-f", "json").out)
    return [row["run_id"] for row in rows]


def test_ingest_prints_a_summary(ingested: tuple[Path, CliResult]) -> None:
    _, cli = ingested
    assert (cli.code, cli.err) == (0, "")
    recording, *lines = cli.out.splitlines()
    assert (recording, lines[0]) == ("recording: sound", "ingested 4 ranks of 1 run")
    assert lines[1] == "  run first-steps  v1, ranks 0-3 of 4"
    facts = dict(re.split(r"  +", line.strip(), maxsplit=1) for line in lines[2:7])
    assert list(facts) == ["events", "steps", "coverage", "data quality", "time"]
    assert facts["steps"] == "12"
    assert re.fullmatch(r"launch known for [\d.]+ % of GPU time, operator for [\d.]+ %", facts["coverage"])
    assert re.fullmatch(r"[\d.]+ (ms|s), [\d.]+ MB/s \([\d.]+ KiB\)", facts["time"])
    assert lines[7] == "next"
    assert lines[8:10] == ["  tw report first-steps", "  tw check first-steps"]
    assert lines[10:] == ["  tw show stragglers --run first-steps"]


@pytest.mark.deep
def test_suggested_commands_work(
    ingested: tuple[Path, CliResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, cli = ingested
    monkeypatch.chdir(tmp_path)  # `tw report` writes its page here
    commands = [line.split()[1:] for line in cli.out.partition("next\n")[2].splitlines()]
    assert commands
    for words in commands:
        assert tw(*words, "-w", warehouse).code == 0, words


def test_ingesting_the_same_content_again_changes_nothing(warehouse: Path) -> None:
    before = sorted(path for path in warehouse.rglob("*") if path.is_file() and path.suffix != ".duckdb")
    cli = tw("ingest", FIRST_STEPS, "-w", warehouse)
    assert cli.code == 0
    assert cli.out.splitlines()[1:3] == [
        "no traces ingested, 4 already stored",
        "  run first-steps  v1, ranks 0-3 of 4",
    ]
    after = sorted(path for path in warehouse.rglob("*") if path.is_file() and path.suffix != ".duckdb")
    assert after == before


def test_progress_bars_need_a_terminal(ingested: tuple[Path, CliResult], tmp_path: Path) -> None:
    _, quiet = ingested
    two = (FIRST_STEPS / f"rank{rank}.json.gz" for rank in range(2))
    shown = on_terminal("ingest", *two, "-w", tmp_path / "shown", env={"TERM": "xterm"})
    assert (quiet.code, shown.code) == (0, 0)
    assert quiet.err == "" and "\x1b" not in quiet.out
    assert "all files" in shown.out
    assert "ingested 2 ranks of 1 run" in shown.out


def test_envelope_of_an_ingest(tmp_path: Path) -> None:
    cli = tw("ingest", FIRST_STEPS, "-w", tmp_path / "warehouse", "--json")
    envelope = json.loads(cli.out)
    assert (cli.code, envelope["ok"], envelope["command"]) == (0, True, "ingest")
    assert [(row["state"], row["run"], row["rank"]) for row in envelope["result"]] == [
        ("intact", "first-steps", rank) for rank in range(4)
    ]


def test_ingest_needs_a_path_or_inbox(tmp_path: Path) -> None:
    cli = tw("ingest", "-w", tmp_path / "warehouse")
    assert cli.code == 2
    assert not (tmp_path / "warehouse").exists()


def test_info_shows_ranks_tables_and_versions(warehouse: Path) -> None:
    cli = tw("info", "first", "-w", warehouse)
    assert cli.code == 0, cli.err
    for part in ("run_id", "first-steps", "rank2.json.gz", "kernels", "versions  v1"):
        assert part in cli.out
    (row,) = json.loads(tw("info", "first", "-w", warehouse, "--json").out)["result"]
    assert (row["run"]["run_id"], len(row["ranks"]), row["versions"]) == ("first-steps", 4, [1])
    assert {"events", "kernels"} <= {table["table"] for table in row["tables"]}


def test_labels_are_set_and_removed(warehouse: Path) -> None:
    assert tw("label", "first-steps", "commit=3f2a91c", "-w", warehouse).out == (
        "first-steps@v2: commit=3f2a91c, kind=demo\n"
    )
    assert names(warehouse) == ["first-steps"]
    assert tw("runs", "--run", "label:commit=3f2a91c", "-w", warehouse).code == 0
    assert tw("label", "first-steps", "commit=", "-w", warehouse).out == "first-steps@v3: kind=demo\n"
    assert tw("label", "first-steps", "nonsense", "-w", warehouse).code == 2


def test_remove_has_a_dry_run(warehouse: Path) -> None:
    cli = tw("remove", "first-steps", "--dry-run", "-w", warehouse)
    assert (cli.code, cli.out[:45]) == (0, "would remove first-steps: 4 ranks, " + cli.out[35:45])
    assert names(warehouse) == ["first-steps"]
    assert tw("remove", "--where", "label.kind=demo", "-w", warehouse).out.startswith("removed first-steps")
    assert names(warehouse) == []
    assert tw("remove", "first-steps", "-w", warehouse).code == 1
    assert tw("ingest", FIRST_STEPS, "-w", warehouse).code == 0
    assert names(warehouse) == ["first-steps"]


def test_remove_needs_a_condition(warehouse: Path) -> None:
    assert tw("remove", "-w", warehouse).code == 2
    assert tw("remove", "--where", "label.kind=nightly", "-w", warehouse).out == "no matching runs\n"
    assert tw("remove", "--older-than", "nonsense", "-w", warehouse).code == 2
    assert names(warehouse) == ["first-steps"]


def test_verify_reports_damage(warehouse: Path) -> None:
    assert tw("verify", "-w", warehouse).out == "OK: 1 run verified\n"
    victim = next((warehouse / "data" / "kernels").rglob("*.parquet"))
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    cli = tw("verify", "-w", warehouse, "-f", "json")
    assert cli.code == 1
    assert str(victim.relative_to(warehouse)) in cli.out
    assert cli.errors[0].endswith("1 problem found")
    envelope = json.loads(tw("verify", "-w", warehouse, "--json").out)
    assert (envelope["ok"], envelope["error"]["class"], len(envelope["result"])) == (
        False,
        "WarehouseError",
        1,
    )


def test_clean_deletes_unused_files(warehouse: Path) -> None:
    assert tw("clean", "-w", warehouse).out == "nothing to delete\n"
    tw("remove", "first-steps", "-w", warehouse)
    assert tw("clean", "-w", warehouse).out == "nothing to delete\n"
    assert "deleted " in tw("clean", "--grace", "0s", "-w", warehouse).out
    assert not list((warehouse / "data").rglob("*.parquet"))
    assert tw("clean", "--grace", "soon", "-w", warehouse).code == 2


def test_refresh_rebuilds_the_shell_file(warehouse: Path) -> None:
    path = warehouse / "warehouse.duckdb"
    path.unlink()
    assert tw("refresh", "-w", warehouse).out == f"wrote {path}\n"
    assert path.is_file()


def test_upgrade_without_work(warehouse: Path) -> None:
    assert tw("upgrade", "-w", warehouse).out == "nothing to rebuild\n"


def test_an_exported_trace_equals_the_original(warehouse: Path, tmp_path: Path) -> None:
    target = tmp_path / "rank2.json.gz"
    cli = tw("export", "trace", "first-steps", "--rank", "2", "-o", target, "-w", warehouse)
    assert (cli.code, cli.out) == (0, f"wrote {target}\n")
    with gzip.open(target, "rt") as again, gzip.open(FIRST_STEPS / "rank2.json.gz", "rt") as first:
        exported, original = (json.load(file, parse_float=str, parse_int=str) for file in (again, first))
    assert exported == original
    assert list(exported) == [*(key for key in original if key != "traceEvents"), "traceEvents"]
    cli = tw("export", "trace", "first-steps", "--rank", "2", "-w", warehouse)
    assert json.loads(cli.out, parse_float=str, parse_int=str) == original


def test_export_needs_a_rank(warehouse: Path) -> None:
    cli = tw("export", "trace", "first-steps", "-w", warehouse)
    assert cli.code == 1
    assert cli.errors == ["tw: first-steps has several ranks", "hint: select one with --rank N: 0-3"]
    assert tw("export", "trace", "first-steps", "--json", "-w", warehouse).code == 2


@pytest.mark.deep
def test_an_interrupt_keeps_the_warehouse_consistent(tmp_path: Path) -> None:
    traces, warehouse = tmp_path / "traces", tmp_path / "warehouse"
    for copy in range(16):  # most of them are still to come when the first is stored
        shutil.copytree(FIRST_STEPS, traces / f"run{copy}")
    python, *_, code = TW  # without -W error: an interrupt may come between opening a file and keeping it
    running = subprocess.Popen(
        [python, "-c", code, "ingest", str(traces), "-w", str(warehouse)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not list(warehouse.rglob("*.parquet")) and running.poll() is None:
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert err.splitlines() == ["tw: interrupted", "hint: runs that were already published are intact"]
    assert tw("verify", "-w", warehouse).code == 0
    assert tw("ingest", traces, "-w", warehouse).code == 0
    assert len(names(warehouse)) == 16


def test_next_commands_have_something_to_show(tmp_path: Path) -> None:
    gpu = [f"{run} {rank} gpu s7 gemm 0 50" for run in ("a", "b") for rank in (0, 1)]
    sketch.write("\n".join([*gpu, "c 0 op t1 aten::add 0 10"]), tmp_path / "traces")
    texts = {}
    for folders in (("a", "b"), ("a",), ("c",)):
        paths = [tmp_path / "traces" / folder for folder in folders]
        texts[folders] = tw("ingest", *paths, "-w", tmp_path / "".join(folders)).out
    proposed = {folders: text.partition("next\n")[2].split("\n  ") for folders, text in texts.items()}
    assert [line.strip() for line in proposed["a", "b"]] == [
        "tw report a", "tw check a", "tw show kernel_summary --run a", "tw diff a b",
    ]  # fmt: skip
    assert not any("diff" in line for line in proposed["a",])
    (shown,) = [line.split() for line in proposed["c",] if "tw show" in line]
    rows = tw(*shown[1:], "-w", tmp_path / "c", "-f", "csv").out.splitlines()
    assert len(rows) > 1, "a host analysis with rows"


def test_a_memory_timeline_is_summarized_as_what_it_is(tmp_path: Path) -> None:
    file, warehouse = tmp_path / "timeline.raw.json", tmp_path / "wh"
    file.write_text("[[-1, 0, 400, 0], [1000, 1, 100, 4], [2000, 3, -100, 4]]")
    summary, _, proposed = tw("ingest", file, "-w", warehouse, "--run", "memtl").out.partition("next\n")
    facts = [line.split()[0] for line in summary.splitlines()]
    assert "events" in facts and not {"steps", "coverage"} & set(facts)
    (shown,) = [line.split() for line in proposed.splitlines() if "tw show" in line]
    assert shown[1:] == ["show", "memory_by_category", "--run", "memtl"]
    assert len(tw(*shown[1:], "-w", warehouse, "-f", "csv").out.splitlines()) > 1


def test_files_without_a_trace_are_a_failure(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text('{"name": "none"}')
    cli = tw("ingest", tmp_path, "-w", tmp_path / "wh")
    assert (cli.code, cli.out) == (1, "")
    assert "nothing was stored: 1 file skipped" in cli.err
