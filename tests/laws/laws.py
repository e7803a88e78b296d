"""What the laws share: the contracts they run over, and the one list of exceptions."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest

from conftest import ROOT
from tracewarehouse.catalog import Catalog
from tracewarehouse.contract import Contract

CATALOG = Catalog.load(ROOT / "sql")
EXCEPTIONS: dict[str, dict[str, str]] = tomllib.loads((ROOT / "tests" / "law_exceptions.toml").read_text())


def contracts(law: str, *, body: bool = True) -> pytest.MarkDecorator:
    """Runs a test once per contract, every version; an excepted one must fail, for the reason given."""
    chosen = [c for c in CATALOG.contracts.values() if c.body or not body]
    cases = [_case(law, c) for c in sorted(chosen, key=lambda c: c.source)]
    return pytest.mark.parametrize("contract", cases)


def _case(law: str, contract: Contract) -> object:
    reason = EXCEPTIONS.get(law, {}).get(str(contract.ref))
    marks = [] if reason is None else [pytest.mark.xfail(reason=reason, strict=True)]
    return pytest.param(contract, id=str(contract.ref), marks=marks)


def required(contract: Contract) -> list[Contract]:
    """What the contract reads, as contracts."""
    return [CATALOG.contracts[ref] for ref in contract.requires]


def variants(contract: Contract) -> Iterator[dict[str, object]]:
    """Parameters at their defaults, then one after the other at its limits and choices."""
    yield {}
    for param in contract.params:
        for value in (param.min, param.max, *param.choices):
            if value is not None:
                yield {param.name: value}
