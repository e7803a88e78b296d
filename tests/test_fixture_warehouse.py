"""A stored warehouse of an earlier release is opened, and answers what it answered then.

`data/make_warehouse_1.py` says how warehouse and answers were made. A release that renames a column or a
table names the pair in `RENAMED`; one that changes the format of the warehouse converts the copy in `opened`.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
import warehouse_answers as now
from ingesting import files_under, write

DATA = Path(__file__).parent / "data"
WAREHOUSE, ANSWERS = DATA / "warehouse-1", DATA / "warehouse-1-answers"
RUNS = ("good", "odd", "slow", "timeline")
MOST_BYTES = 1 << 20

# Old name → name of today: of tables, analyses and columns, wherever they stand in an answer as a key.
RENAMED: dict[str, str] = {}
# Old sentence → sentence of today: what findings say was observed, limits the saving and could be tried.
REWORDED: dict[str, str] = json.loads((DATA / "warehouse-1-rewordings.json").read_text(encoding="utf-8"))
# What a release or a conversion may change of a run: who wrote it, in which version, and how it is stored.
NOT_COMPARED = frozenset(
    f".runs.rows.{column}" for column in ("tool_version", "version", "schema_versions", "bytes")
)
# An order of summation may differ by threads: floats of analyses agree within this. Stored ones are equal.
FLOATS_WITHIN = 1e-12


def opened(copy: Path) -> tw.Warehouse:
    """The copy as this release reads it; a release with another format converts it here first."""
    return tw.open(copy)


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """A copy of the stored warehouse."""
    return opened(Path(shutil.copytree(WAREHOUSE, tmp_path_factory.mktemp("fixture") / "warehouse")))


def today(value: Any) -> Any:
    """An old answer in the names and sentences of today."""
    if isinstance(value, dict):
        return {RENAMED.get(key, key): today(each) for key, each in value.items()}
    if isinstance(value, list):
        return [today(each) for each in value]
    return REWORDED.get(value, value) if isinstance(value, str) else value


def differences(old: Any, new: Any, within: float, place: str = "") -> Iterator[str]:
    """Each place where two answers differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        compared = [key for key in {**old, **new} if f"{place}.{key}" not in NOT_COMPARED]
        for key in compared:
            if key in old and key in new:
                yield from differences(old[key], new[key], within, f"{place}.{key}")
            else:
                yield f"{place}.{key}: only in the {'old' if key in old else 'new'} answer"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for at, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, within, f"{place}[{at}]")
    elif not same(old, new, within):
        yield f"{place}: was {old!r}, is {new!r}"


def same(old: Any, new: Any, within: float) -> bool:
    """Equality of single values; NaN equals itself, and True is not 1."""
    if isinstance(old, float) and isinstance(new, float):
        return old == new or math.isclose(old, new, rel_tol=within) or (math.isnan(old) and math.isnan(new))
    return type(old) is type(new) and bool(old == new)


def check(name: str, part: str | None, new: Any, within: float = FLOATS_WITHIN) -> None:
    """Holds answers of today against a stored file, or one part of it."""
    stored = now.read(ANSWERS / f"{name}.json.gz")
    found = list(differences(today(stored[part] if part else stored), new, within))
    assert not found, "\n".join([f"{len(found)} differences", *found[:20]])


def test_the_runs_together(wh: tw.Warehouse) -> None:
    check("whole", None, now.whole(wh))


@pytest.mark.parametrize("run", RUNS)
def test_stored_tables(run: str, wh: tw.Warehouse) -> None:
    check(f"{run}.tables", None, now.tables(wh, run), within=0)


@pytest.mark.parametrize("run", RUNS)
def test_analyses(run: str, wh: tw.Warehouse) -> None:
    check(f"{run}.answers", "analyses", now.analyses(wh, run))


@pytest.mark.parametrize("run", RUNS)
def test_the_traces_come_back(run: str, wh: tw.Warehouse) -> None:
    check(f"{run}.answers", "exported", now.exported(wh, run))


def test_what_the_warehouse_holds(wh: tw.Warehouse) -> None:
    """The cases that it is kept for are in it."""
    ranks = wh.info("odd").ranks.rows()
    assert [(row["status"], row["redacted"]) for row in ranks] == [
        ("whole", 4), ("damaged", 0), ("repaired", 0), ("whole", 0),
    ]  # fmt: skip
    assert wh.query("SELECT count(*) AS n FROM events WHERE ph IN ('B', 'E')").rows() == [{"n": 24}]
    assert len(list((WAREHOUSE / "data" / "events" / "odd").iterdir())) == 1  # packed
    assert {each.run for each in wh.chosen()} == set(RUNS)
    assert list(wh.store.waiting_runs()) == ["waits"]
    assert [version.run for version in wh.store.kept()] == ["gone"]
    assert wh.verify() == []


def test_no_planted_secret_is_stored(wh: tw.Warehouse) -> None:
    assert "planted" not in json.dumps(now.tables(wh, "odd"))  # the pages of Parquet files are compressed
    for path in WAREHOUSE.rglob("*"):
        assert path.is_dir() or b"planted" not in path.read_bytes(), path


def test_the_waiting_run_is_published_once_its_other_rank_comes(tmp_path: Path) -> None:
    wh = opened(Path(shutil.copytree(WAREHOUSE, tmp_path / "warehouse")))
    wh.ingest(*write(tmp_path / "waits", [1]), run="waits", expect_ranks=2)
    (waited,) = wh.select("waits").chosen()
    assert waited.ranks == (0, 1)


def test_reading_writes_nothing(wh: tw.Warehouse) -> None:
    before = files_under(wh.root)
    assert len(tw.open(wh.root).select("odd").run("launch_stats")) == 46
    assert files_under(wh.root) == before


def test_it_is_small() -> None:
    files = [path for folder in (WAREHOUSE, ANSWERS) for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ({"a": [1, 2]}, {"a": [1, 2]}, 0),
        ({"a": [1, 2]}, {"a": [1, 3]}, 1),
        ({"a": [1]}, {"a": [1, 2]}, 1),
        ({"a": [1]}, {"b": [1]}, 2),
        ({"a": [1]}, {"a": [True]}, 1),
        ({"a": [1.0]}, {"a": [1.0 + 1e-13]}, 0),
        ({"a": [1.0]}, {"a": [1.0 + 1e-11]}, 1),
        ({"a": [None]}, {"a": [0]}, 1),
        ({"bytes": [1]}, {"bytes": [2]}, 1),
        ({"runs": {"rows": {"bytes": [1]}}}, {"runs": {"rows": {"bytes": [2]}}}, 0),
    ],
)
def test_a_difference_is_found(old: Any, new: Any, found: int) -> None:
    assert len(list(differences(today(old), new, FLOATS_WITHIN))) == found
