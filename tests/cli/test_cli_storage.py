"""The commands that take in, label, remove and check what is stored."""

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

from front_door import TW, Told, environment, on_terminal, process, tw

FIRST_STEPS = Path(__file__).parents[1] / "data" / "first-steps"


@pytest.fixture(scope="module")
def taken_in(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Told]:
    """A warehouse with the run `first-steps`, and what its ingest told; only to be read."""
    warehouse = tmp_path_factory.mktemp("taken-in") / "warehouse"
    return warehouse, tw("ingest", FIRST_STEPS, "-w", warehouse, "--label", "kind=demo")


@pytest.fixture
def warehouse(taken_in: tuple[Path, Told], tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(taken_in[0], tmp_path / "warehouse"))


def names(warehouse: Path) -> list[str]:
    """The runs that `tw runs` lists."""
    rows = json.loads(tw("runs", "-w", warehouse, "-f", "json").out)
    return [row["run_id"] for row in rows]


def test_the_summary_of_an_ingest(taken_in: tuple[Path, Told]) -> None:
    _, told = taken_in
    assert (told.code, told.err) == (0, "")
    lines = told.out.splitlines()
    assert lines[0] == "4 ranks taken in"
    assert lines[1] == "  run first-steps  v1, ranks 0-3 of 4"
    facts = dict(re.split(r"  +", line.strip(), maxsplit=1) for line in lines[2:7])
    assert list(facts) == ["events", "steps", "coverage", "quality", "time"]
    assert facts["steps"] == "12"
    assert re.fullmatch(r"[\d.]+ % of GPU time has its launch, [\d.]+ % its operator", facts["coverage"])
    assert re.fullmatch(r"[\d.]+ (ms|s), [\d.]+ MB/s of JSON \([\d.]+ KiB\)", facts["time"])
    assert lines[7] == "next"
    assert "  tw show temporal_breakdown --run first-steps" in lines[8:]


def test_every_command_that_is_named_next_works(taken_in: tuple[Path, Told]) -> None:
    warehouse, told = taken_in
    commands = [line.split()[1:] for line in told.out.partition("next\n")[2].splitlines()]
    assert commands
    for words in commands:
        assert tw(*words, "-w", warehouse).code == 0, words


def test_the_same_content_again_is_told_and_changes_nothing(warehouse: Path) -> None:
    before = sorted(path for path in warehouse.rglob("*") if path.is_file() and path.suffix != ".duckdb")
    told = tw("ingest", FIRST_STEPS, "-w", warehouse)
    assert told.code == 0
    assert told.out.splitlines()[:2] == [
        "nothing written: 4 already stored, unchanged",
        "  run first-steps  v1, ranks 0-3 of 4",
    ]
    after = sorted(path for path in warehouse.rglob("*") if path.is_file() and path.suffix != ".duckdb")
    assert after == before


def test_bars_are_for_terminals_only(tmp_path: Path) -> None:
    quiet = process("ingest", FIRST_STEPS, "-w", tmp_path / "quiet")
    shown = on_terminal("ingest", FIRST_STEPS, "-w", tmp_path / "shown", env={"TERM": "xterm"})
    assert (quiet.code, shown.code) == (0, 0)
    assert quiet.err == "" and "\x1b" not in quiet.out
    assert "all files" in shown.out
    assert "4 ranks taken in" in shown.out


def test_the_envelope_of_an_ingest(tmp_path: Path) -> None:
    told = tw("ingest", FIRST_STEPS, "-w", tmp_path / "warehouse", "--json")
    envelope = json.loads(told.out)
    assert (told.code, envelope["ok"], envelope["command"]) == (0, True, "ingest")
    assert [(row["state"], row["run"], row["rank"]) for row in envelope["result"]] == [
        ("intact", "first-steps", rank) for rank in range(4)
    ]


def test_ingest_needs_something_to_take_in(tmp_path: Path) -> None:
    told = tw("ingest", "-w", tmp_path / "warehouse")
    assert told.code == 2
    assert not (tmp_path / "warehouse").exists()


def test_info_shows_ranks_tables_and_versions(warehouse: Path) -> None:
    told = tw("info", "first", "-w", warehouse)
    assert told.code == 0, told.err
    for part in ("run_id", "first-steps", "rank2.json.gz", "kernels", "versions  v1"):
        assert part in told.out
    (row,) = json.loads(tw("info", "first", "-w", warehouse, "--json").out)["result"]
    assert (row["run"]["run_id"], len(row["ranks"]), row["versions"]) == ("first-steps", 4, [1])
    assert {"events", "kernels"} <= {table["table"] for table in row["tables"]}


def test_labels_come_and_go(warehouse: Path) -> None:
    assert tw("label", "first-steps", "commit=3f2a91c", "-w", warehouse).out == (
        "first-steps@v2: commit=3f2a91c, kind=demo\n"
    )
    assert names(warehouse) == ["first-steps"]
    assert tw("runs", "--run", "label:commit=3f2a91c", "-w", warehouse).code == 0
    assert tw("label", "first-steps", "commit=", "-w", warehouse).out == "first-steps@v3: kind=demo\n"
    assert tw("label", "first-steps", "nonsense", "-w", warehouse).code == 2


def test_remove_tells_first_and_then_does(warehouse: Path) -> None:
    told = tw("remove", "first-steps", "--dry-run", "-w", warehouse)
    assert (told.code, told.out[:45]) == (0, "would remove first-steps: 4 ranks, " + told.out[35:45])
    assert names(warehouse) == ["first-steps"]
    assert tw("remove", "--where", "label.kind=demo", "-w", warehouse).out.startswith("removed first-steps")
    assert names(warehouse) == []
    assert tw("remove", "first-steps", "-w", warehouse).code == 1
    assert tw("ingest", FIRST_STEPS, "-w", warehouse).code == 0
    assert names(warehouse) == ["first-steps"]


def test_remove_needs_a_condition_and_takes_all_that_match(warehouse: Path) -> None:
    assert tw("remove", "-w", warehouse).code == 2
    assert tw("remove", "--where", "label.kind=nightly", "-w", warehouse).out == "no run matches\n"
    assert tw("remove", "--older-than", "nonsense", "-w", warehouse).code == 1
    assert names(warehouse) == ["first-steps"]


def test_verify_finds_damage(warehouse: Path) -> None:
    assert tw("verify", "-w", warehouse).out == "all well: 1 run\n"
    victim = next((warehouse / "data" / "kernels").rglob("*.parquet"))
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    told = tw("verify", "-w", warehouse, "-f", "json")
    assert told.code == 1
    assert str(victim.relative_to(warehouse)) in told.out
    assert told.errors[0].endswith("1 problem found")
    envelope = json.loads(tw("verify", "-w", warehouse, "--json").out)
    assert (envelope["ok"], envelope["error"]["class"], len(envelope["result"])) == (
        False,
        "WarehouseError",
        1,
    )


def test_clean_takes_what_nobody_holds(warehouse: Path) -> None:
    assert tw("clean", "-w", warehouse).out == "nothing to take away\n"
    tw("remove", "first-steps", "-w", warehouse)
    assert tw("clean", "-w", warehouse).out == "nothing to take away\n"
    assert "files taken away" in tw("clean", "--grace", "0s", "-w", warehouse).out
    assert not list((warehouse / "data").rglob("*.parquet"))
    assert tw("clean", "--grace", "soon", "-w", warehouse).code == 2


def test_refresh_writes_the_file_for_the_shell_anew(warehouse: Path) -> None:
    path = warehouse / "warehouse.duckdb"
    path.unlink()
    assert tw("refresh", "-w", warehouse).out == f"wrote {path}\n"
    assert path.is_file()


def test_upgrade_has_nothing_to_do(warehouse: Path) -> None:
    assert tw("upgrade", "-w", warehouse).out == "nothing to rebuild\n"


def test_an_exported_trace_is_the_trace(warehouse: Path, tmp_path: Path) -> None:
    target = tmp_path / "rank2.json.gz"
    told = tw("export", "trace", "first-steps", "--rank", "2", "-o", target, "-w", warehouse)
    assert (told.code, told.out) == (0, f"wrote {target}\n")
    with gzip.open(target, "rt") as again, gzip.open(FIRST_STEPS / "rank2.json.gz", "rt") as first:
        exported, original = (json.load(file, parse_float=str, parse_int=str) for file in (again, first))
    assert exported == original
    assert list(exported) == [*(key for key in original if key != "traceEvents"), "traceEvents"]
    told = tw("export", "trace", "first-steps", "--rank", "2", "-w", warehouse)
    assert json.loads(told.out, parse_float=str, parse_int=str) == original


def test_an_exported_trace_is_of_one_rank(warehouse: Path) -> None:
    told = tw("export", "trace", "first-steps", "-w", warehouse)
    assert told.code == 1
    assert told.errors == ["tw: first-steps has more than one rank", "hint: name one of 0-3"]
    assert tw("export", "trace", "first-steps", "--json", "-w", warehouse).code == 2


def test_an_interrupt_leaves_the_warehouse_whole(tmp_path: Path) -> None:
    traces, warehouse = tmp_path / "traces", tmp_path / "warehouse"
    for copy in range(8):  # most of them are still to come when the first is stored
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
    assert err.splitlines() == ["tw: interrupted", "hint: what was published before is whole"]
    assert tw("verify", "-w", warehouse).code == 0
    assert tw("ingest", traces, "-w", warehouse).code == 0
    assert len(names(warehouse)) == 8
