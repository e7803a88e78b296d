"""Warehouses for the laws: simulated and random traces, unchanged and changed, and their results."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
from changes import SCALE, Change, Combined, Rename, Scale, Shift, Shuffle, other_names

import sketch
import tracewarehouse as tw
from conftest import ROOT
from kept import Kept, KeptWarehouse
from laws import COMBINED, variants
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import UNITS, Contract
from tracewarehouse.derive.critical_path import ScopeRequest, derive
from tracewarehouse.derive.wait_attribution import derive_wait_attribution
from tracewarehouse.duck import arrow, engine
from tracewarehouse.runs.selection import SelectedRun
from witness import random_traces

SMALL: dict[str, Any] = {"steps": 2, "layers": 1, "hidden": 64, "sequence": 64}
SLOW = "slow-rank:rank=0,what=compute,factor=3"
SIMULATED: dict[str, dict[str, Any]] = {
    "tensor": {"ranks": 4, "tensor": 2, "counters": True, "dependent_launch": True},
    "pipeline": {"ranks": 2, "pipeline": 2, "layers": 2, "microbatches": 2, "stacks": False, "steps": 3},
    "graphs": {"ranks": 1, "mode": "inference", "graphs": True},
    "amd": {"ranks": 1, "gpu": "MI300X", "dialect": "epoch"},
    # So slow that operators stay below the limits of the device.
    "old": {"ranks": 1, "gpu": "V100", "dialect": "old", "injections": [SLOW]},
}
RANDOM_RANKS = 7
DERIVED = ("odd", "tensor")  # runs with derived tables
LIMIT = re.compile(r"\b(default|min|max) = (-?\d+)\b")


@dataclass(frozen=True)
class Answer:
    """Rows, and skipped ranks."""

    frame: pl.DataFrame
    skipped: frozenset[tuple[str, int]] = frozenset()


class World:
    """The traces after a change, in a warehouse that also stores transient tables."""

    def __init__(self, folder: Path, base: Path, change: Change, stores_views: bool = False) -> None:
        self.change = change
        sources = folder / "traces"
        for path in sorted(base.rglob("rank*.json")):
            run, rank = path.parent.name, int(path.stem.removeprefix("rank"))
            place = sources / run / path.name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(change.file((run, rank), path.read_text(encoding="utf-8")), encoding="utf-8")
        sql = law_sql(ROOT / "sql", folder / "sql", change.scales_params)
        self.wh = KeptWarehouse(folder / "warehouse", catalog=Catalog.load(sql), kept=Kept(stores_views))
        if not self.wh.root.exists():
            # Files by name: memory timelines in a folder are skipped.
            report = self.wh.ingest(*sorted(sources.rglob("rank*.json")), jobs=1)
            assert {each.state for each in report.files} == {"intact"}, report
            for each in self.wh.select(runs=DERIVED).selected():
                derive(self.wh.store, self.wh.catalog, each, ScopeRequest())
            for each in self.wh.select(runs=DERIVED).selected():
                derive_wait_attribution(self.wh.selection, each)
        self.known: dict[object, Answer] = {}

    def contract(self, contract: Contract) -> Contract:
        """The contract as defined in this world."""
        return self.wh.catalog.contracts[contract.ref]

    def replace(self, contract: Contract) -> None:
        """Replaces the body of a contract."""
        self.wh.replace(contract)
        self.known.clear()

    @cached_property
    def selected(self) -> tuple[SelectedRun, ...]:
        """All runs with all ranks."""
        return self.wh.selected()

    def ask(self, contract: Contract, values: Mapping[str, object], part: str = "all") -> Answer:
        """The rows of a table, view or analysis; cached."""
        key = (contract.ref, tuple(values.items()), part)
        if key not in self.known:
            self.known[key] = self._ask(self.contract(contract), values, self._part(part))
        return self.known[key]

    def _ask(self, contract: Contract, values: Mapping[str, object], wh: KeptWarehouse) -> Answer:
        if contract.kind == "analysis":
            result = wh.analyze(contract.name, contract.version, **values)
            return Answer(result.polars(), frozenset((each.run_id, each.rank) for each in result.skipped))
        con, views = wh.connection(contract)
        sql = f'{views}SELECT * FROM "{contract.name}"'
        bound = engine.relation(con, sql)
        engine.check_columns(contract, zip(bound.columns, map(str, bound.types), strict=True))
        found = pl.from_arrow(bound.to_arrow_table().cast(arrow.schema_of(contract)))
        assert isinstance(found, pl.DataFrame)
        return Answer(found)

    def _part(self, part: str) -> KeptWarehouse:
        """All ranks, one half of the ranks of each run, or one half of the runs.

        Half 0 of `mixed` has the first rank of every second run and the second rank of the others.
        """
        what, _, half = part.partition("/")
        if what in ("ranks", "mixed"):
            firsts = [(int(half) + at * (what == "mixed")) % 2 for at in range(len(self.selected))]
            halves = [
                SelectedRun(each.version, each.ranks[first::2])
                for each, first in zip(self.selected, firsts, strict=True)
            ]
            return self.wh.over(tuple(each for each in halves if each.ranks))
        return self.wh.over(self.selected[int(half) :: 2] if half else self.selected)


@dataclass
class Worlds:
    """The base and its changes, each built on first use."""

    folder: Path
    every_value: bool = True  # of each parameter, also in the laws that compare two answers
    stores_views: bool = False
    made: dict[str, World] = field(default_factory=dict)

    @cached_property
    def traces(self) -> Path:
        """The base's trace files, one folder per run."""
        return draw(self.folder / "traces")

    def world(self, name: str) -> World:
        """The world with this change; `base` has none."""
        if name not in self.made:
            self.made[name] = World(self.folder / name, self.traces, self._change(name), self.stores_views)
        return self.made[name]

    def values(self, contract: Contract) -> list[dict[str, object]]:
        """The parameter values with which two answers are compared."""
        return list(variants(contract)) if self.every_value else [{}]

    def limits(self, contract: Contract) -> list[dict[str, object]]:
        """The parameter values with which one answer is checked: findings have many thresholds."""
        few = "/findings/" in contract.source and not self.every_value
        return [{}] if few else list(variants(contract))

    def _change(self, name: str) -> Change:
        if name == "names":
            return Rename(other_names(self.traces))
        if name == "changed":
            return Combined(*(self._change(each) for each in COMBINED[name]))
        return {"base": Change, "units": Scale, "shift": Shift, "order": Shuffle}[name]()


def draw(folder: Path) -> Path:
    """Writes the traces of the base as plain JSON, unless they exist."""
    if folder.exists():
        return folder
    odd = Path(__file__).with_name("odd.sketch").read_text(encoding="utf-8")
    sketch.write(odd + random_traces.run("random", 7, RANDOM_RANKS), folder)
    for name, settings in SIMULATED.items():
        made = tw.simulate(folder / name, seed=3, **{**SMALL, **settings})
        made.truth.unlink()
        for path in made.files:
            path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
            path.unlink()
    return folder


def law_sql(source: Path, folder: Path, scaled: bool) -> Path:
    """The contracts with all tables with a SELECT stored, and thresholds multiplied like times.

    An existing folder is not changed.
    """
    if folder.exists():
        return folder
    for path in source.rglob("*.sql"):
        text = path.read_text(encoding="utf-8")
        if "\nSELECT" in text and not path.name.startswith("diff_"):  # computed per comparison, never stored
            text = re.sub(r"-- transient +=.*\n", "", text)
        if scaled:
            text = "".join(_scaled(line) for line in text.splitlines(keepends=True))
        place = folder / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return folder


def _scaled(line: str) -> str:
    unit = re.search(r'unit = "(\w+)"', line)
    power = UNITS[unit[1]].time_power if unit else 0
    if not line.startswith("--") or power == 0 or not LIMIT.search(line):
        return line
    assert power == 1, f"{line}: thresholds of this unit are not supported yet"
    return LIMIT.sub(lambda found: f"{found[1]} = {int(found[2]) * SCALE}", line)
