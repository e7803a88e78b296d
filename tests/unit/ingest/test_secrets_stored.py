"""No injected secret is in a byte, decoded column or path of a warehouse, whatever place it comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingesting import only, take
from ingesting import write as write_ranks
from secret_samples import all_samples, injected, needles, stored_needles
from trace_reading import ReadTrace
from tracewarehouse.errors import ParamError, PolicyError
from tracewarehouse.ingest.handler import trace_handler
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse

SAMPLES = all_samples()
NEEDLES = [part for sample in SAMPLES for part in needles(sample)]
TOKEN = "ghp" + "_" + "A1b2C3d4" * 4


def test_every_family_in_every_place(tmp_path: Path) -> None:
    path = tmp_path / "injected" / "rank0.json"
    path.parent.mkdir()
    path.write_bytes(injected([sample.text for sample in SAMPLES]))
    assert len(NEEDLES) >= len(SAMPLES) >= 90
    assert only(take(tmp_path / "wh", path)).state == "intact"
    Warehouse(tmp_path / "wh").refresh()
    assert stored_needles(tmp_path / "wh", NEEDLES) == {}
    assert stored_needles(tmp_path / "injected", NEEDLES).keys() == set(NEEDLES)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b"", id="rows", marks=pytest.mark.deep),
        pytest.param(b',{"ph": "X", "name": ', id="damaged"),
    ],
)
def test_every_family_on_the_other_ways_to_read(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "rank0.json"
    data = injected([sample.text for sample in SAMPLES])
    path.write_bytes(data.replace(b'], "tail"', damage + b'], "tail"') if damage else data)
    found = ReadTrace(path, exact=True)
    text = str(found.activities.to_pylist()) + str(found.outcome)
    assert [part for part in NEEDLES if part in text] == []
    assert found.activities.num_rows >= 19 * len(SAMPLES)


def test_names_of_runs_and_files(tmp_path: Path) -> None:
    (path,) = write_ranks(tmp_path / f"night-{TOKEN}")
    named = path.rename(path.with_name(f"rank0.{TOKEN}.json"))
    for options in ({}, {"run": f"ours.{TOKEN}"}, {"run": "api_token=abcdefghij"}):
        report = take(tmp_path / "wh", named, **options)
        assert only(report).state == "intact"
        (note,) = [note for note in report.notes if "looked like a secret" in note]
        assert TOKEN not in note and only(report).run in note
    assert stored_needles(tmp_path / "wh", [TOKEN, TOKEN.lower(), "abcdefghij"]) == {}
    runs = Store.open(tmp_path / "wh").runs()
    assert len(runs) == 3 and all("redacted-" in run for run in runs)
    assert only(take(tmp_path / "wh", named)).state == "same"


def test_labels_and_reasons_are_refused(tmp_path: Path) -> None:
    (path,) = write_ranks(tmp_path / "run")
    for labels in ({"commit": TOKEN}, {TOKEN: "x"}, {"password": "plain words"}):
        with pytest.raises(ParamError, match="a label looks like a secret") as raised:
            take(tmp_path / "wh", path, labels=labels)
        assert TOKEN not in str(raised.value) and "plain words" not in str(raised.value)
        with pytest.raises(ParamError, match="a label looks like a secret"):
            trace_handler(tmp_path / "wh", run="x", labels=labels)
    with pytest.raises(ParamError, match="the name of the run looks like a secret"):
        trace_handler(tmp_path / "wh", run=TOKEN)
    take(tmp_path / "wh", path)
    warehouse = Warehouse(tmp_path / "wh")
    with pytest.raises(ParamError, match="a label looks like a secret"):
        warehouse.label("run", {"commit": TOKEN})
    warehouse.label("run", {"commit": "3f2a91c"})
    warehouse.record(analyses="step_summary")
    with pytest.raises(ParamError, match="the reason looks like a secret"):
        warehouse.acknowledge("step_time", "run", f"rotated {TOKEN}")
    assert stored_needles(tmp_path / "wh", [TOKEN]) == {}


def test_a_spooled_trace_with_a_secret_label_is_refused(tmp_path: Path) -> None:
    (path,) = write_ranks(tmp_path / "run")
    Store.open_or_create(tmp_path / "wh")
    folder = tmp_path / "wh" / "inbox" / "job"
    folder.mkdir(parents=True)
    spooled = path.rename(folder / "rank0.json")
    spooled.with_name("rank0.json.tw").write_text(json.dumps({"labels": {"note": TOKEN}}))
    outcome = only(take(tmp_path / "wh", inbox=True))
    assert outcome.state == "refused" and "a label looks like a secret" in (outcome.reason or "")
    assert set(stored_needles(tmp_path / "wh", [TOKEN])[TOKEN]) == {"inbox/job/rank0.json.tw"}


def test_a_policy_applies_to_an_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run" / "rank0.json"
    path.parent.mkdir()
    path.write_bytes(injected(["acme" + "_123456"]))
    root = tmp_path / "wh"
    Store.open_or_create(root)
    (root / "_tw" / "redact.toml").write_text("[[pattern]]\nname = 'acme'\npattern = 'acme_[0-9]{6}'\n")
    assert only(take(root, path)).state == "intact"
    assert stored_needles(root, ["acme_123456"]) == {}
    (shown,) = Warehouse(root).info("run").redaction
    assert shown.startswith("rules 4, policy ")
    (root / "_tw" / "redact.toml").write_text("[nonsense]\n")
    with pytest.raises(PolicyError, match="unknown: nonsense"):
        take(root, path)


def test_without_redaction_secrets_are_stored_and_the_run_says_so(tmp_path: Path) -> None:
    path = tmp_path / "run" / f"rank0.{TOKEN}.json"
    path.parent.mkdir()
    path.write_bytes(injected([TOKEN]))
    root = tmp_path / "wh"
    for redact, state in ((True, "intact"), (True, "same"), (False, "intact"), (False, "same")):
        report = Warehouse(root).ingest(path, run="run", redact=redact)
        assert (redact, only(report).state) == (redact, state)
    warehouse = Warehouse(root)
    name = "SELECT count(*) FROM events WHERE name = '" + TOKEN + "'"
    assert warehouse.query(name).rows()[0]["count_star()"] > 0
    assert warehouse.info("run").redaction == ("off",) and warehouse.info("run@v1").redaction != ("off",)
    (source,) = warehouse.info("run").ranks.rows()
    assert source["source_name"] == path.name and source["redacted"] == 0
    assert {each.run for each in warehouse.secrets().found} == {"run"}
    assert warehouse.remove_secrets(purge=True).left == ()
    assert Warehouse(root).info("run").redaction != ("off",)
    assert stored_needles(root, [TOKEN]) == {}
    # Read again with redaction, nothing changes.
    assert only(take(root, path, run="run")).state == "same"
