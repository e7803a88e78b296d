"""The contracts that laws run on, and the list of exceptions."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator

import pytest

from conftest import ROOT
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Ref

CATALOG = Catalog.load(ROOT / "sql")
# Laws that test several others at once, each with the exceptions of all.
COMBINED = {"changed": ("units", "shift", "order", "names"), "halves": ("ranks", "runs")}
EXCEPTIONS: dict[str, dict[str, str]] = tomllib.loads(
    (ROOT / "tests" / "properties" / "law_exceptions.toml").read_text()
)
for _law, _parts in COMBINED.items():
    EXCEPTIONS[_law] = {key: why for part in _parts for key, why in EXCEPTIONS.get(part, {}).items()}


def contracts(law: str, *, body: bool = True, params: bool = False) -> pytest.MarkDecorator:
    """Runs a test once per contract and version; excepted ones must fail, for the documented reason.

    Only contracts with a SELECT if `body`, only those with parameters if `params`.
    """
    chosen = [c for c in _all() if (c.body or not body) and (c.params or not params)]
    cases = [pytest.param(c, id=str(c.ref), marks=_marks(law, c)) for c in chosen]
    return pytest.mark.parametrize("contract", cases)


def pairs(laws: Iterable[str]) -> pytest.MarkDecorator:
    """Runs a test once per law and contract with a SELECT, law by law."""
    # Tables of a comparison have no rows in a warehouse: compare/diff/test_diff_amounts.py checks them.
    stored = [contract for contract in _all() if contract.body and not contract.name.startswith("diff_")]
    cases = [(law, contract) for law in laws for contract in stored]
    params = [
        pytest.param(law, c, id=f"{law}-{c.ref}", marks=[*_marks(law, c), *_rare(law, c)]) for law, c in cases
    ]
    return pytest.mark.parametrize(("law", "contract"), params)


def _all() -> list[Contract]:
    readable = (contract for contract in CATALOG.contracts.values() if contract.kind != "format")
    return sorted(readable, key=lambda contract: contract.source)


def _marks(law: str, contract: Contract) -> list[pytest.MarkDecorator]:
    reason = EXCEPTIONS.get(law, {}).get(str(contract.ref))
    return [] if reason is None else [pytest.mark.xfail(reason=reason, strict=True)]


def _rare(law: str, contract: Contract) -> list[pytest.MarkDecorator]:
    """Deep where another contract shows the same: findings, views, and analyses with the needs of another.

    The whole laws (`ranks`, `runs`, `units` and so on) run there on all contracts.
    """
    if "/findings/" in contract.source:
        return [pytest.mark.deep] if law in ("halves", "changed") else []
    others = {"halves": ("view", "analysis"), "changed": ("analysis",)}.get(law, ())
    return [pytest.mark.deep] if contract.kind in others and contract.ref not in _FIRST else []


def _first() -> frozenset[Ref]:
    """The first analysis of each group of analyses with the same needs."""
    found: dict[object, Ref] = {}
    for each in CATALOG.analyses():
        found.setdefault((each.source.rpartition("/")[0], each.scope, each.needs), each.ref)
    return frozenset(found.values())


_FIRST = _first()


def left_out(law: str, contract: Contract) -> frozenset[str]:
    """The columns of the contract that are exceptions of the law."""
    known = [key.partition(".") for key in EXCEPTIONS.get(law, {})]
    return frozenset(column for ref, _, column in known if ref == str(contract.ref) and column)


def required(contract: Contract) -> list[Contract]:
    """The contracts that the contract reads."""
    return [CATALOG.contracts[ref] for ref in contract.requires]


def variants(contract: Contract) -> Iterator[dict[str, object]]:
    """Default parameters, then each parameter in turn at its limits and choices."""
    yield {}
    for param in contract.params:
        for value in (param.min, param.max, *param.choices):
            if value is not None:
                yield {param.name: value}
