"""A team's own contracts: `TW_SQL` adds formats, analyses and finding rules to those of the installation."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracewarehouse as tw
from cli_runner import tw as command
from conftest import ROOT
from tracewarehouse.contracts.catalog import OWN_FOLDER, Catalog
from tracewarehouse.errors import ContractError

TEAM = ROOT / "tests" / "data" / "team"


@pytest.fixture(autouse=True)
def team(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(OWN_FOLDER, str(TEAM))
    yield


def toy_file(path: Path) -> Path:
    with sqlite3.connect(path) as con:
        con.execute("CREATE TABLE toy_kernel (begin_us INT, end_us INT, gpu INT, label TEXT, watts REAL)")
        con.executemany("INSERT INTO toy_kernel VALUES (?, ?, 0, ?, 300.5)",
                        [(5000, 9000, "gemm"), (0, 1000, "softmax")])  # fmt: skip
    con.close()
    return path


def test_a_format_is_one_file_of_sql(tmp_path: Path) -> None:
    warehouse = tw.open(tmp_path / "warehouse")
    (file,) = warehouse.ingest(toy_file(tmp_path / "run.db"), run="toy").files
    assert file.state == "intact", file
    sql = "SELECT name, ts_ns, dur_ns, args FROM events ORDER BY event_id"
    assert [tuple(row.values()) for row in warehouse.query(sql).rows()] == [
        ("softmax", 0, 1_000_000, '{"device":0,"stream":0,"team_toy.watts":300.5}'),
        ("gemm", 5_000_000, 4_000_000, '{"device":0,"stream":0,"team_toy.watts":300.5}'),
    ]
    assert [row["source_format"] for row in warehouse.query("FROM ranks").rows()] == ["team_toy"]
    found = {row["rule"]: row["severity"] for row in warehouse.check().rows()}
    assert found["team_long_gaps"] == "critical"
    assert warehouse.analyze("team_long_gaps").rows()[0]["saving_ns"] == 4_000_000
    warehouse.record("toy", analyses="team_long_gaps")
    assert warehouse.history("team_long_gaps.share").rows()


def test_commands_list_and_describe_them() -> None:
    listed = json.loads(command("list", "--all", "--json").out)
    rows = {row["name"]: row["kind"] for row in listed["result"]}
    assert rows["team_long_gaps"] == "analysis" and rows["team_toy"] == "format"
    assert "GPU idle time in gaps longer" in command("describe", "team_long_gaps").out
    assert Catalog.load().digest != Catalog.load(Catalog.load().folder).digest


def test_an_option_names_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWN_FOLDER, "")
    assert "team_long_gaps" not in command("list", "--all").out
    assert "team_long_gaps" in command("--sql", str(TEAM), "list", "--all").out


def test_a_name_without_the_prefix_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "other"
    shutil.copytree(TEAM, folder)
    monkeypatch.setenv(OWN_FOLDER, str(folder))
    with pytest.raises(ContractError, match="does not begin with other_"):
        Catalog.load()
    monkeypatch.setenv(OWN_FOLDER, str(tmp_path / "missing"))
    with pytest.raises(ContractError, match="has no contracts"):
        Catalog.load()


def test_the_guide_shows_the_rule_and_the_format() -> None:
    guide = (ROOT / "notebooks/guides/your_own_rules.md").read_text(encoding="utf-8")
    rule = (TEAM / "analyses" / "findings" / "team_long_gaps.v1.sql").read_text(encoding="utf-8")
    format = (TEAM / "formats" / "team_toy.v1.sql").read_text(encoding="utf-8")
    assert f"```sql\n{rule}```" in guide and f"```sql\n{format}```" in guide
    assert len(rule.splitlines()) <= 20
