"""Checks that can catch a mutant: golden files, laws and the simulator's truth, with data prepared once."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import data_laws
import polars as pl
import test_simulate
from limits import fails
from worlds import Worlds

import golden_plugin
import simulated
import sketch
import tracewarehouse as tw
from conftest import ROOT
from kept import Kept, KeptWarehouse
from laws import EXCEPTIONS, left_out, variants
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.duck import engine

Check = Callable[[], None]
# Laws that need no other traces come first.
LAWS = ("rows", "grain", "nulls", "sign", "ranks", "runs", "units", "shift", "order", "names")
PARTS = ("all", "ranks/0", "ranks/1", "runs/0", "runs/1")


class Caught(Exception):
    """A check that failed."""


def users(contract: Contract) -> list[Contract]:
    """The contract, and the views and analyses that read it directly or indirectly."""
    catalog = Catalog.load()
    above = [c for c in catalog.contracts.values() if c.kind != "table" and contract in catalog.closure(c)]
    return [contract, *sorted(above, key=lambda c: (len(catalog.closure(c)), c.source))]


class Killers:
    """The checks of a contract, in the order in which they run."""

    def __init__(self, folder: Path, own: Path) -> None:
        self.folder, self.own = folder, own
        self.catalog = Catalog.load()
        self.worlds = Worlds(folder / "worlds")
        self.goldens: dict[Path, KeptWarehouse] = {}
        self.copies: dict[Path, KeptWarehouse] = {}  # the same with copies of the rows
        self.simulated: KeptWarehouse | None = None
        self.sound: set[str] = set()
        self.wont: list[pl.DataFrame] = []

    def prepare(self) -> None:
        """Prepares the data of the laws and of the truth, before any mutation.

        Processes share the data: the first one writes it, the others wait.
        """
        with (self.folder / "prepare.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            for name in ("base", "units", "shift", "order", "names"):
                self.worlds.world(name)
            self.simulated = self.simulated or self._simulated()

    def golden_checks(self, contract: Contract) -> Iterator[tuple[str, Check]]:
        """Name and check of each golden file of the contract and its readers, then of copies of its rows."""
        for name, check in (("golden", self._golden), ("copies", self._copied)):
            for user in users(contract):
                for path in self._golden_files(user):
                    yield f"{name} {path.stem}", partial(check, path, user)

    def other_checks(self, contract: Contract) -> Iterator[tuple[str, Check]]:
        """The same for laws and truths; call `remember` before."""
        seen = users(contract)
        yield "law values", partial(self._binds, contract)
        for user in seen:
            for name in LAWS:
                if str(user.ref) not in EXCEPTIONS.get(name, {}):
                    law = partial(data_laws.LAWS[name], self.worlds, user, left_out(name, user))
                    yield f"law {name} of {user.ref}", law
        for user in seen:
            if user.name in test_simulate.ANALYSES:
                yield f"truth of {user.name}", partial(self._truth, user)

    def remember(self, contract: Contract) -> None:
        """Stores the results of the original contract."""
        self.wont = list(self._answers(contract))

    def changes(self, mutant: Contract) -> bool:
        """Whether it changes any row of the data of laws and simulator; otherwise neither can catch it."""
        self._put(mutant)
        try:
            return fails(partial(self._as_ever, mutant))
        finally:
            self._put(self.catalog.contracts[mutant.ref])

    def _as_ever(self, contract: Contract) -> None:
        for wanted, found in zip(self.wont, self._answers(contract), strict=True):
            if not wanted.equals(found):
                raise Caught(str(contract.ref))

    def _answers(self, contract: Contract) -> Iterator[pl.DataFrame]:
        """The rows of all traces, and of the halves that the laws use."""
        for name, world in self.worlds.made.items():
            own = world.contract(contract)
            for values in variants(own):
                for part in PARTS if name == "base" else PARTS[:1]:
                    yield world.ask(own, values, part).frame.sort(contract.grain, nulls_last=True)
        assert self.simulated is not None
        if any(user.name in test_simulate.ANALYSES for user in users(contract)):
            order = ", ".join(f'"{name}"' for name in contract.grain)
            if contract.kind == "view":
                yield self.simulated.query(f"SELECT * FROM {contract.name} ORDER BY {order}").polars()
            else:
                yield self.simulated.analyze(contract.name, contract.version).polars()

    def killer(self, mutant: Contract, checks: list[tuple[str, Check]]) -> str | None:
        """The first check that catches the mutant, and passes for the original."""
        self._put(mutant)
        try:
            found = next(((name, check) for name, check in checks if fails(check)), None)
        finally:
            self._put(self.catalog.contracts[mutant.ref])
        if found is None:
            return None
        name, check = found
        if name not in self.sound:
            assert not fails(check), f"{mutant.ref} as it is fails {name}"
            self.sound.add(name)
        return name

    def _put(self, contract: Contract) -> None:
        for world in self.worlds.made.values():
            world.replace(contract)
        for wh in (*self.goldens.values(), *self.copies.values()):
            wh.replace(contract)
        if self.simulated is not None:
            self.simulated.replace(contract)

    def _binds(self, contract: Contract) -> None:
        world = self.worlds.world("base")
        own = world.contract(contract)
        con, views = world.wh.connection(own)
        sql = engine.sql_with_params(own, engine.bind(own, {}))
        engine.check_columns(own, engine.result_columns(con, f"{views}SELECT * FROM (\n{sql}\n)"))

    def _golden_files(self, contract: Contract) -> list[Path]:
        found = (ROOT / "tests" / "goldens").rglob(f"{contract.name}.v{contract.version}*.golden")
        return sorted(found)

    def _golden(self, path: Path, contract: Contract) -> None:
        golden = golden_plugin.Golden.read(path)
        wh = self.goldens[path]
        result, skipped = golden_plugin.answer(wh, wh.catalog.contracts[contract.ref], golden)
        wanted = golden.sections["result"], golden.sections.get("skipped", "")
        if (result, skipped) != wanted:
            raise Caught(path.name)

    def _copied(self, path: Path, contract: Contract) -> None:
        golden = golden_plugin.Golden.read(path)
        wh = self.copies[path]
        result, _ = golden_plugin.answer(wh, wh.catalog.contracts[contract.ref], golden)
        golden_plugin.compare_copies(contract, golden, result)

    def draw(self, contract: Contract) -> None:
        """Ingests the golden files of the contract and of its readers, and drops the others."""
        wanted = {path: user for user in users(contract) for path in self._golden_files(user)}
        self.goldens = {path: wh for path, wh in self.goldens.items() if path in wanted}
        self.copies = {path: wh for path, wh in self.copies.items() if path in wanted}
        for path, user in wanted.items():
            if path not in self.goldens:
                folder = self.own / path.stem
                wh = KeptWarehouse(folder / "warehouse", catalog=self.catalog)
                golden = golden_plugin.Golden.read(path)
                paths = sketch.write(golden.sections["trace"], folder / "traces")
                golden_plugin.take(wh, golden, paths)
                kept = Kept(copies=golden_plugin.copies(user))
                self.goldens[path] = wh
                self.copies[path] = KeptWarehouse(wh.root, catalog=self.catalog, store=wh.store, kept=kept)

    def _simulated(self) -> KeptWarehouse:
        """Simulated layouts and all injected faults."""
        wh = KeptWarehouse(self.folder / "simulated" / "warehouse", catalog=self.catalog)
        folder = self.folder / "simulated" / "sim"
        if not folder.exists():
            for layout, settings in simulated.LAYOUTS.items():
                tw.simulate(folder / layout, seed=0, **simulated.SMALL, **settings)
            simulated.simulate_injections(folder)
            wh.ingest(folder, jobs=1)
        return wh

    def _truth(self, contract: Contract) -> None:
        assert self.simulated is not None
        rows = test_simulate.comparable(self.simulated.analyze(contract.name).rows())
        for folder in sorted((self.folder / "simulated" / "sim").iterdir()):
            right = simulated.section(folder, contract.name)
            columns = list(right[0]) if right else ["rank"]
            own = [row for row in rows if row["run_id"] == folder.name]
            found = sorted(repr([row[column] for column in columns]) for row in own)
            if found != sorted(repr(list(row.values())) for row in right):
                raise Caught(folder.name)
