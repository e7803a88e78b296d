"""A connection that sees the chosen ranks, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tracewarehouse.catalog import Catalog
from tracewarehouse.contract import Contract
from tracewarehouse.engine import Connection, Error, connect
from tracewarehouse.errors import WarehouseError
from tracewarehouse.select.chosen import Chosen
from tracewarehouse.select.reads import below, names_of, readable
from tracewarehouse.select.relations import Relations


@contextmanager
def session(
    root: Path, catalog: Catalog, chosen: Sequence[Chosen], contracts: Iterable[Contract] | None = None
) -> Iterator[Connection]:
    """A connection with views over just the files of the chosen ranks.

    It holds what `contracts` read (None: every table and view, in the newest version). Raises
    WarehouseError where a file is gone.
    """
    wanted = readable(catalog) if contracts is None else below(catalog, contracts := tuple(contracts))
    direct = [ref for contract in contracts or () for ref in contract.requires]
    relations = Relations(root, tuple(chosen), names_of(wanted, direct))
    with TemporaryDirectory(prefix="tw-") as folder:
        con = connect(temp_directory=Path(folder))
        try:
            for contract in wanted:
                create(con, relations, contract)
            yield con
        finally:
            con.close()


def create(con: Connection, relations: Relations, contract: Contract, replace: bool = False) -> None:
    """Makes one relation; raises WarehouseError where its files cannot be read."""
    try:
        relations.create(con, contract, replace)
    except Error as error:
        what = str(error).partition("\n")[0]
        hint = "tw verify says what is missing; tw refresh after a move"
        raise WarehouseError(f"{relations.root}: {contract.ref} cannot be read: {what}", hint) from error
