"""Retention drops tables by age; analyses skip those, and ingesting their traces restores them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import tracewarehouse
from cli_runner import tw
from storage_sources import commit, seen, staged
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import ParamError, SchemaVersionError
from tracewarehouse.runs.removal import Rule, expiring, read_policy
from tracewarehouse.storage.clean import clean
from tracewarehouse.storage.codec import decode_version, encode_version
from tracewarehouse.storage.compact import compact, expire
from tracewarehouse.storage.model import Changes, RunVersion
from tracewarehouse.storage.store import Store

FIRST_STEPS = Path(__file__).parents[2] / "data" / "first-steps"
POLICY = """
[[rule]]
tables = ["events", "flows"]
older_than = "0s"
keep = { every = 2 }
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A run of four ranks in packed files."""
    store = Store.open_or_create(tmp_path / "warehouse")
    with store.staging() as folder:
        store.publish("run", Changes(sources=store.commit([staged(folder, rank) for rank in range(4)])))
    return store


def newest(store: Store) -> RunVersion:
    found = store.newest("run")
    assert found is not None
    return found


WHY = {"at": "2026-11-22", "rule": 1}


def test_the_files_of_expired_tables_are_dropped_and_a_restored_rank_has_them_again(store: Store) -> None:
    before = newest(store)
    done = expire(store, "run", {1: {"events": WHY}, 3: {"events": WHY}})
    assert (done.tables, done.ranks, done.files, done.shared_files) == (("events",), 2, 0, 1)
    after = newest(store)
    assert set(seen(store)) == {0, 2}
    assert set(seen(store, table="kernels")) == {0, 1, 2, 3}
    assert (after.source, after.expired) == (before.source, {"events": "2026-11-22"})
    assert after.must_understand == ("expired",)
    assert after.sources[1].expired == {"events": "2026-11-22"}
    assert decode_version(store.objects, encode_version(after), "x") == after
    assert store.verify() == []
    compact(store, "run")
    clean(store, -1, keep_versions_s=-1)
    assert store.verify() == []
    assert set(seen(store)) == {0, 2}

    published = store.publish("run", Changes(sources=(commit(store, 1),)))
    assert set(published.outcome.values()) == {"replaced"}
    assert set(seen(store)) == {0, 1, 2}
    assert newest(store).must_understand == ("expired",), "rank 3 still lacks its events"
    store.publish("run", Changes(sources=(commit(store, 3),)))
    assert (newest(store).expired, newest(store).must_understand) == (None, ())


def test_a_rank_that_is_replaced_meanwhile_keeps_its_tables(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = store.commit

    def commit_and_replace(staged: object) -> object:
        done = committed(staged)  # type: ignore[arg-type]
        monkeypatch.undo()
        store.publish("run", Changes(sources=(commit(store, 1, content="new"),), replace=True))
        return done

    monkeypatch.setattr(store, "commit", commit_and_replace)
    assert expire(store, "run", {1: {"events": WHY}, 3: {"events": WHY}}).skipped_ranks == (1,)
    assert set(seen(store)) == {0, 1, 2}


def test_kept_ranks(store: Store) -> None:
    """Every n-th rank, and those whose GPU time differs most from the median."""
    from msgspec.structs import replace

    times = {0: 100, 1: 101, 2: 500, 3: 102}
    version = newest(store)
    sources = tuple(replace(one, facts={**one.facts, "gpu_ns": times[one.rank]}) for one in version.sources)
    version = replace(version, sources=sources)
    week = timedelta(days=7)
    assert Rule(1, ("events",), week, every=3).keeps(version) == {0, 3}
    assert Rule(1, ("events",), week, outliers=1).keeps(version) == {2}
    assert Rule(1, ("events",), week).keeps(version) == frozenset()
    rule, now = Rule(1, ("events",), week, outliers=1), datetime.now(UTC)
    assert expiring(version, [rule], now) == {}
    assert set(expiring(version, [rule], now + timedelta(days=8))) == {0, 1, 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]]\ntables = =", "line 2"),
        ("", "no rule"),
        ("[rules]", "unknown key rules"),
        ('[[rule]]\ntables = "events"', "rule 1: tables is not a list of names"),
        ('[[rule]]\ntables = ["evnts"]', "rule 1: tables: evnts cannot expire"),
        ('[[rule]]\ntables = ["data_quality"]', "rule 1: tables: data_quality cannot expire"),
        ('[[rule]]\ntables = ["events"]', "rule 1: older_than is not an age"),
        ('[[rule]]\ntables = ["events"]\nolder_than = "7 fortnights"', "older_than is not an age"),
        ('[[rule]]\ntables = ["events"]\nolder_than = "7d"\nfor = 1', "rule 1: unknown key for"),
        ('[[rule]]\ntables = ["events"]\nolder_than = "7d"\nkeep = 3', "rule 1: keep is not a table"),
        (
            '[[rule]]\ntables = ["events"]\nolder_than = "7d"\nkeep = { every = -1 }',
            "rule 1: keep.every is not a number of ranks",
        ),
    ],
)
def test_an_invalid_policy_names_the_file_and_the_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(ParamError) as raised:
        read_policy(path, Catalog.load())
    assert raised.value.message.startswith(f"{path}: ")
    assert message in raised.value.message
    assert raised.value.hint


def test_from_the_command_line(tmp_path: Path) -> None:
    """Ranks 1 and 3 lose their events: analyses, SQL and exports say so, and ingest restores them."""
    warehouse, policy = tmp_path / "warehouse", tmp_path / "policy.toml"
    policy.write_text(POLICY)
    where = ("-w", warehouse)
    assert tw("ingest", FIRST_STEPS, *where).code == 0
    assert tw("expire", policy, "--dry-run", *where).out.startswith("would expire first-steps: events, flows")
    cli = tw("expire", policy, *where)
    assert cli.out.startswith("expired first-steps: events, flows of 2 ranks")
    assert "tw compact first-steps" in cli.err
    assert tw("expire", policy, *where).out == "nothing expired\n"
    wh = tracewarehouse.open(warehouse)
    date = str(datetime.now(UTC).date())
    reads_events = next(
        each.name
        for each in wh.catalog.analyses()
        if any(ref.name == "events" for ref in each.requires) and each.scope == "rank"
    )
    result = wh.analyze(reads_events)
    skipped = {(each.rank, each.reason) for each in result.skipped}
    assert {(1, f"expired: events, {date}"), (3, f"expired: events, {date}")} <= skipped
    assert wh.analyze("kernel_summary").skipped == ()
    cli = tw("query", "SELECT DISTINCT rank FROM events ORDER BY rank", *where)
    assert cli.out.split() == ["rank", "0", "2"]
    assert f"first-steps rank 1, 3: expired: events, {date}" in cli.err
    cli = tw("export", "trace", "first-steps", "--rank", "1", *where, "-o", tmp_path / "x.json")
    assert (cli.code, f"expired: events, flows, {date}" in cli.err) == (1, True)
    with pytest.raises(SchemaVersionError, match="expired: events"):
        wh.derive("critical_path", "first-steps")
    assert tw("verify", *where).code == 0
    (row,) = json.loads(tw("compact", "--json", *where).out)["result"]
    assert row["rewritten"] == 2
    assert "2 already stored" in tw("ingest", FIRST_STEPS, *where).out
    assert tw("query", "SELECT DISTINCT rank FROM events ORDER BY rank", *where).out.split() == [
        "rank", "0", "1", "2", "3",
    ]  # fmt: skip
