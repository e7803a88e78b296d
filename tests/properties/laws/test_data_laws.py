"""Laws of every contract with a SELECT, on simulated and random traces."""

from __future__ import annotations

import pytest
from data_laws import LAWS, QUICK_LAWS
from worlds import Worlds

from laws import left_out, pairs
from tracewarehouse.contracts.contract import Contract


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(tmp_path_factory.mktemp("laws"), every_value=False, stores_views=True)


@pytest.fixture(scope="module")
def thorough(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(tmp_path_factory.mktemp("thorough"))


@pairs(QUICK_LAWS)
def test_law(worlds: Worlds, law: str, contract: Contract) -> None:
    QUICK_LAWS[law](worlds, contract, left_out(law, contract))


@pytest.mark.deep
@pairs(LAWS)
def test_law_for_every_parameter(thorough: Worlds, law: str, contract: Contract) -> None:
    LAWS[law](thorough, contract, left_out(law, contract))
