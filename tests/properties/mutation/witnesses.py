"""A pytest plugin: each test that uses a mutant's contract is called again with the mutant.

Only tests whose data come from fixtures: a test that ingests data itself would do so for each mutant.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from limits import fails
from listing import Line, lines_of
from mutants import Mutant

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Ref
from tracewarehouse.query.connections import ConnectionPool
from tracewarehouse.query.relations import Relations

ALIVE = "TW_MUTANTS"  # a file: contract → numbers of its mutants; the results are written next to it


class Witnesses:
    """The mutants that nothing has caught yet, and the tests that caught the others."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_suffix(".caught")
        self.catalog = Catalog.load()
        wanted = {tuple(each) for each in json.loads(path.read_text(encoding="utf-8"))}
        broken = [self.catalog.get(ref) for ref in sorted({one[0] for one in wanted})]
        made = [each for contract in broken for each in lines_of(contract, every=True)]
        self.alive = [each for each in made if (each[0].contract, each[0].change, each[0].place) in wanted]
        self.caught: list[Line] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Excludes items that are not functions, and functions with a temporary folder."""
        functions = [item for item in items if isinstance(item, pytest.Function)]
        items[:] = [item for item in functions if "tmp_path" not in item.fixturenames]

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool:
        """Calls the test, then again with each mutant of the contracts it used."""
        names = pyfuncitem._fixtureinfo.argnames
        call = partial(pyfuncitem.obj, **{name: pyfuncitem.funcargs[name] for name in names})
        with used() as refs:
            call()
        todo = [each for each in self.alive if each[1].contract.ref in refs]
        if todo and not fails(call):
            for each in todo:
                self._try(each, call, pyfuncitem.nodeid)
        return True

    def _try(self, each: tuple[Line, Mutant], call: Callable[[], object], test: str) -> None:
        line, mutant = each
        own = self.catalog.contracts
        changed = MappingProxyType({**own, mutant.contract.ref: mutant.contract})
        object.__setattr__(self.catalog, "contracts", changed)
        try:
            if fails(call):
                self.alive.remove(each)
                self.caught.append(replace(line, killed_by=test.removeprefix("tests/")))
        finally:
            object.__setattr__(self.catalog, "contracts", own)

    def pytest_sessionfinish(self) -> None:
        """Writes which test caught which mutant."""
        self.path.write_text(json.dumps([asdict(line) for line in self.caught]), encoding="utf-8")


@contextmanager
def used() -> Iterator[set[Ref]]:
    """The contracts that queries read in the block, themselves included."""
    refs: set[Ref] = set()
    execute, borrowed = ConnectionPool.execute, ConnectionPool._borrowed

    def executing(self: ConnectionPool, selected: Any, contract: Contract, *other: Any) -> Any:
        refs.add(contract.ref)
        return execute(self, selected, contract, *other)

    def borrowing(self: ConnectionPool, relations: Relations, *other: Any) -> Any:
        refs.update(contract.ref for contract in relations.dependencies.contracts)
        return borrowed(self, relations, *other)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConnectionPool, "execute", executing)
        patch.setattr(ConnectionPool, "_borrowed", borrowing)
        yield refs


def pytest_configure(config: pytest.Config) -> None:
    """Registers the plugin if mutants are given."""
    if ALIVE in os.environ:
        # A connection of before would still have the views without the mutant.
        ConnectionPool._take = lambda *_: None  # type: ignore[method-assign]
        config.pluginmanager.register(Witnesses(Path(os.environ[ALIVE])))
