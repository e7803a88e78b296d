"""`tw secrets`: found without storing, found in a warehouse, taken out; the value is never printed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from cli_runner import CliResult, tw
from conftest import ROOT
from secret_samples import all_samples, injected, stored_needles
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse

ACME = "acme" + "_123456"
POLICY = "[[pattern]]\nname = 'acme'\npattern = 'acme_[0-9]{6}'\n"


def write(folder: Path, text: str, name: str = "rank0.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    step = {
        "ph": "X",
        "cat": "user_annotation",
        "name": "ProfilerStep#1",
        "pid": 1,
        "tid": 2,
        "ts": 1,
        "dur": 50,
    }
    path = folder / name
    data = json.loads(injected([text]))
    path.write_text(json.dumps(data | {"traceEvents": [step, *data["traceEvents"]]}))
    return path


def without_shell_file(warehouse: Path) -> Path:
    """The warehouse without the SQL of all views, which takes seconds to search."""
    (warehouse / "warehouse.duckdb").unlink()
    return warehouse


def rows(result: CliResult) -> list[dict[str, object]]:
    return list(json.loads(result.out))


def test_traces_are_searched_and_nothing_is_stored(tmp_path: Path) -> None:
    sample = next(each for each in all_samples() if each.rule == "npm-access-token")
    write(tmp_path / "traces", sample.text)
    write(tmp_path / "traces", "nothing to see", "rank1.json")
    (tmp_path / "traces" / "truth.json").write_text('{"truth": {}, "job": {}}')  # of tw simulate: no trace
    (tmp_path / "traces" / "broken.json").write_text("<html>")
    before = sorted(tmp_path.rglob("*"))
    found = tw("secrets", tmp_path / "traces", "-w", tmp_path / "wh", "-f", "json")
    assert found.code == 1 and sorted(tmp_path.rglob("*")) == before
    assert sample.text not in found.out + found.err
    assert {row["rule"] for row in rows(found)} == {"npm-access-token"}
    places = {str(row["where"]) for row in rows(found)}
    assert {"event $.name", "event $.args.l[][]", "header $.metadata.env.V0", "event $.pid"} <= places
    assert found.err.count("not searched: ") == 1 and "broken.json" in found.err
    clean = tw("secrets", tmp_path / "traces" / "rank1.json")
    assert (clean.code, clean.out) == (0, "no secrets found in 1 file\n")
    assert tw("secrets", tmp_path / "traces", "--redact").code == 2


def test_other_files_beside_traces_are_named_as_not_searched(tmp_path: Path) -> None:
    write(tmp_path / "traces", "nothing to see")
    (tmp_path / "traces" / "rank0.ncu-rep").write_bytes(b"\n\x00")
    done = tw("secrets", tmp_path / "traces")
    assert done.code == 4 and "rank0.ncu-rep: skipped: it is an Nsight Compute report" in done.err
    assert "no secrets found in 1 file; 1 file could not be searched" in done.err


@pytest.fixture
def warehouse(stored: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(stored, tmp_path / "wh"))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs; a policy that finds secrets in one of them came after the ingest."""
    folder = tmp_path_factory.mktemp("secrets")
    root = folder / "wh"
    paths = write(folder / "leaky", ACME), write(folder / "tidy", "plain")
    assert tw("ingest", *paths, "-w", root, "--label", "kind=test").code == 0
    assert tw("label", "leaky", f"note={ACME}", "-w", root).code == 0
    assert tw("record", "--all", "--analysis", "name_summary", "-w", root).code == 0
    Warehouse(root).record("tidy", analyses="step_summary")
    Warehouse(root).acknowledge("step_time", "tidy", f"because of {ACME}")
    assert stored_needles(root, [ACME])
    searched = tw("secrets", "-w", root)
    assert searched.out.startswith("no secrets found in ") and (searched.code, searched.err) == (0, "")
    (root / "_tw" / "redact.toml").write_text(POLICY)
    return root


def test_a_warehouse_is_searched(warehouse: Path) -> None:
    found = tw("secrets", "-w", warehouse, "-f", "json")
    assert found.code == 1 and ACME not in found.out + found.err
    files = {str(row["file"]) for row in rows(found)}
    places = {str(row["where"]) for row in rows(found) if "data/events/" in str(row["file"])}
    assert {
        "column args_template",
        "column dtypes",
        "column extra",
        "column name",
        "column flow_id",
    } <= places
    held = set(stored_needles(warehouse, [ACME])[ACME])
    assert files == held and any(file.startswith("results/") for file in files)
    assert tw("secrets", "-w", warehouse, "--run", "tidy").code == 0
    assert tw("secrets", "-w", warehouse, "--run", "leaky").code == 1


def test_files_that_cannot_be_searched_are_counted(warehouse: Path) -> None:
    (warehouse / "_tw" / "redact.toml").unlink()
    (damaged,) = (warehouse / "data" / "kernels").rglob("leaky/**/*.parquet")
    damaged.write_bytes(b"PAR1")
    found = tw("secrets", "-w", without_shell_file(warehouse), "--json")
    assert found.code == 4 and "; 1 file could not be searched" in found.err
    answer = json.loads(found.out)
    assert not answer["ok"] and answer["result"][0]["not_searched"].startswith("data/kernels/")


def test_redact_publishes_a_clean_version(warehouse: Path) -> None:
    before = Warehouse(warehouse).select("tidy").query("SELECT * FROM events").rows()
    done = tw("secrets", "--redact", "-w", warehouse)
    assert done.code == 0 and done.out.startswith("leaky: published without secrets\n")
    assert "1 acknowledgement reason redacted\n" in done.out
    assert "older versions stay readable" in done.err
    wh = Warehouse(warehouse)
    assert ACME not in str(wh.query("SELECT * FROM events").rows()) + str(wh.info("leaky"))
    assert ACME in str(wh.select("leaky@v1").query("SELECT * FROM events").rows())
    assert wh.select("tidy").query("SELECT * FROM events").rows() == before
    (row,) = [row for row in wh.runs().rows() if row["run_id"] == "leaky"]
    assert row["labels"]["kind"] == "test" and row["labels"]["note"].startswith("[redacted:")
    assert ACME not in str(wh.select("leaky").analyze("name_summary").rows())
    assert tw("verify", "-w", warehouse).code == 0
    again = tw("secrets", "--redact", "-w", without_shell_file(warehouse))
    assert again.out == "nothing to redact\n"


@pytest.mark.deep
def test_purge_deletes_every_trace_of_it(warehouse: Path) -> None:
    events = "SELECT event_id, ts_ns, dur_ns, category FROM events ORDER BY ALL"
    before = Warehouse(warehouse).query(events).rows()
    done = tw("secrets", "--redact", "--purge", "-w", warehouse)
    assert (done.code, done.err) == (0, "") and done.out.endswith("old versions deleted\n")
    (warehouse / "_tw" / "redact.toml").unlink()
    assert stored_needles(warehouse, [ACME]) == {}
    kept = [row | {"category": None} for row in Warehouse(warehouse).query(events).rows()]
    assert kept == [row | {"category": None} for row in before]
    assert tw("verify", "-w", warehouse).code == 0
    assert tw("runs", "-w", warehouse, "-f", "json").code == 0


@pytest.mark.deep
def test_a_purge_that_was_killed_is_finished_by_the_next(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version that says that earlier ones may be missing was published, and none of those deleted."""

    def killed(*arguments: Any) -> None:
        amend(*arguments)
        raise KeyboardInterrupt

    amend = Store.amend
    with monkeypatch.context() as patched:
        patched.setattr(Store, "amend", killed)
        with pytest.raises(KeyboardInterrupt):
            Warehouse(warehouse).remove_secrets(purge=True)
    assert Warehouse(warehouse).store.runs() == ("leaky", "tidy")
    assert tw("verify", "-w", warehouse).code == 0
    assert stored_needles(warehouse, [ACME])
    assert tw("secrets", "--redact", "--purge", "-w", warehouse).code == 0
    (warehouse / "_tw" / "redact.toml").unlink()
    assert stored_needles(warehouse, [ACME]) == {}
    assert tw("verify", "-w", warehouse).code == 0


@pytest.mark.deep
def test_a_run_whose_name_is_a_secret_is_renamed(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    assert tw("ingest", write(tmp_path / ACME, "plain"), "-w", root).code == 0
    (root / "_tw" / "redact.toml").write_text(POLICY)
    done = tw("secrets", "--redact", "--purge", "-w", root)
    assert done.code == 0, done.err
    (run,) = Warehouse(root).store.runs()
    assert run.startswith("redacted-") and Warehouse(root).query("FROM events").rows()
    (root / "_tw" / "redact.toml").unlink()
    assert stored_needles(root, [ACME]) == {}
    assert not [path for path in root.rglob("*") if ACME in path.name]


@pytest.mark.deep
def test_the_inbox_is_searched_and_redacted_by_ingest(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    token = next(each for each in all_samples() if each.rule == "npm-access-token").text
    spooled = write(root / "inbox" / "night", token)
    (spooled.parent / ".unfinished.json").write_text(token)
    assert tw("ingest", write(tmp_path / "tidy", "plain"), "-w", root).code == 0
    found = tw("secrets", "-w", root, "-f", "json")
    assert found.code == 1 and token not in found.out + found.err
    assert {row["file"] for row in rows(found)} == {"inbox/night/rank0.json"}
    assert "event $.name" in {row["where"] for row in rows(found)}
    assert tw("secrets", "-w", root, "--run", "tidy").code == 0
    done = tw("secrets", "--redact", "--purge", "-w", root)
    assert done.code == 4 and "tw ingest --inbox redacts the traces in the inbox" in done.err
    assert spooled.exists()
    assert tw("ingest", "--inbox", "-w", root).code == 0
    assert tw("secrets", "-w", root).code == 0 and not spooled.exists()


def test_ingest_without_redaction(tmp_path: Path) -> None:
    token = next(each for each in all_samples() if each.rule == "npm-access-token").text
    path, root = write(tmp_path / "night", token), tmp_path / "wh"
    assert tw("ingest", path, "-w", root).code == 0
    info = tw("info", "night", "-w", root).out
    assert re.search(r"\nredacted  [1-9][0-9]* values \(rules version [0-9]+\)\n", info)
    assert tw("ingest", path, "-w", root, "--no-redact").code == 0
    assert tw("info", "night", "-w", root).out.endswith("redaction off\n")
    assert tw("secrets", "-w", without_shell_file(root)).code == 1


def test_a_run_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    assert tw("ingest", ROOT / "tests/data/first-steps", "--run", "fp8-on", "-w", tmp_path / "wh").code == 0
    cli = tw("secrets", "--run", "fp8-of", "-w", tmp_path / "wh")
    assert cli.errors == ["tw: unknown run: fp8-of", "hint: did you mean fp8-on?"]
