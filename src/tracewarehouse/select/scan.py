"""A table as a Polars LazyFrame over just the files of the chosen ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracewarehouse.arrow import table_of
from tracewarehouse.contract import Contract
from tracewarehouse.errors import UnknownName
from tracewarehouse.result import lazy_frame
from tracewarehouse.select.chosen import Chosen
from tracewarehouse.select.facts import built_rows
from tracewarehouse.select.quality import run_rules
from tracewarehouse.select.reads import is_built, is_stored
from tracewarehouse.select.relations import data_files

if TYPE_CHECKING:
    import polars


def scan(root: Path, contract: Contract, chosen: Sequence[Chosen]) -> polars.LazyFrame:
    """The table's columns and no others; of a file shared by ranks only the chosen ones.

    Raises UnknownName for what is not stored: views and analyses are SQL.
    """
    if not (is_stored(contract) or is_built(contract)):
        raise UnknownName("stored table", contract.name, [], "views and analyses are read with query or run")
    return lazy_frame(data_files(root, contract, chosen), table_of(contract, _rows(root, contract, chosen)))


def _rows(root: Path, contract: Contract, chosen: Sequence[Chosen]) -> list[dict[str, object]]:
    """The rows that stand in no file."""
    if is_built(contract):
        return built_rows(root, contract, chosen)
    if contract.name == "data_quality":
        return [vars(fired) for fired in run_rules(chosen)]
    return []
