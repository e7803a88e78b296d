"""What may catch a broken contract: its golden files, the laws, the simulator's truth; data prepared once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path

import data_laws
from limits import fails
from worlds import KeptWarehouse, Worlds

import golden_plugin
import simulated
import sketch
import test_simulate
import tracewarehouse as tw
from conftest import ROOT
from laws import left_out
from tracewarehouse import engine
from tracewarehouse.catalog import Catalog
from tracewarehouse.contract import Contract

Check = Callable[[], None]


class Caught(Exception):
    """A check that failed."""


class Killers:
    """The checks that see a contract, in the order in which they are tried."""

    def __init__(self, folder: Path, own: Path) -> None:
        self.folder, self.own = folder, own
        self.catalog = Catalog.load()
        self.worlds = Worlds(folder / "worlds")
        self.goldens: dict[Path, KeptWarehouse] = {}

    def prepare(self) -> None:
        """Makes what all processes share."""
        for name in ("base", "units", "shift", "order", "names"):
            self.worlds.world(name)
        assert self.simulated

    def users(self, contract: Contract) -> list[Contract]:
        """The contract, and the views and analyses that read it, at once or by others."""
        above = [c for c in self.catalog.contracts.values() if c.kind != "table"]
        above = [c for c in above if contract in self.catalog.closure(c)]
        return [contract, *sorted(above, key=lambda c: (len(self.catalog.closure(c)), c.source))]

    def checks(self, contract: Contract) -> Iterator[tuple[str, Check]]:
        """Name and call of each check that may see the contract."""
        users = self.users(contract)
        yield "law values", partial(self._binds, contract)
        for user in users:
            for path in self._golden_files(user):
                yield f"golden {path.stem}", partial(self._golden, path, user)
        for user in users:
            for name, law in data_laws.LAWS.items():
                yield f"law {name} of {user.ref}", partial(law, self.worlds, user, left_out(name, user))
        for user in users:
            if user.name in test_simulate.ANALYSES:
                yield f"truth of {user.name}", partial(self._truth, user)

    def killer(self, mutant: Contract, checks: list[tuple[str, Check]]) -> str | None:
        """The first check that catches the mutant."""
        self._put(mutant)
        try:
            return next((name for name, check in checks if fails(check)), None)
        finally:
            self._put(self.catalog.contracts[mutant.ref])

    def _put(self, contract: Contract) -> None:
        for world in self.worlds.made.values():
            world.replace(contract)
        for wh in (*self.goldens.values(), self.simulated):
            wh.replace(contract)

    def _binds(self, contract: Contract) -> None:
        world = self.worlds.world("base")
        own = world.contract(contract)
        with world.wh._session([own]) as con:
            sql = engine.sql_with_params(own, engine.bind(own, {}))
            engine.check_columns(own, engine.result_columns(con, sql))

    def _golden_files(self, contract: Contract) -> list[Path]:
        found = (ROOT / "tests" / "golden").rglob(f"{contract.name}.v{contract.version}*.golden")
        return sorted(found)

    def _golden(self, path: Path, contract: Contract) -> None:
        golden = golden_plugin.Golden.read(path)
        wh = self.goldens[path]
        result, abstained = golden_plugin.told(wh, wh.catalog.contracts[contract.ref], golden)
        wanted = golden.sections["result"], golden.sections.get("abstained", "")
        if (result, abstained) != wanted:
            raise Caught(path.name)

    def draw(self, contract: Contract) -> None:
        """Ingests the golden files of the contract and of what reads it."""
        for path in (path for user in self.users(contract) for path in self._golden_files(user)):
            if path not in self.goldens:
                folder = self.own / path.stem
                self.goldens[path] = KeptWarehouse(folder / "warehouse", catalog=self.catalog)
                golden = golden_plugin.Golden.read(path)
                paths = sketch.write(golden.sections["trace"], folder / "traces")
                golden_plugin.take(self.goldens[path], golden, paths)

    @cached_property
    def simulated(self) -> KeptWarehouse:
        """Simulated layouts and everything that can be planted."""
        wh = KeptWarehouse(self.folder / "simulated" / "warehouse", catalog=self.catalog)
        folder = self.folder / "simulated" / "sim"
        if not folder.exists():
            for layout, knobs in simulated.LAYOUTS.items():
                tw.simulate(folder / layout, seed=0, **simulated.SMALL, **knobs)
            simulated.plant(folder)
            wh.ingest(folder, jobs=1)
        return wh

    def _truth(self, contract: Contract) -> None:
        rows = self.simulated.run(contract.name).rows()
        for folder in sorted((self.folder / "simulated" / "sim").iterdir()):
            right = simulated.section(folder, contract.name)
            columns = list(right[0]) if right else ["rank"]
            own = [row for row in rows if row["run_id"] == folder.name and row["rank"] is not None]
            found = sorted(repr([row[column] for column in columns]) for row in own)
            if found != sorted(repr(list(row.values())) for row in right):
                raise Caught(folder.name)
