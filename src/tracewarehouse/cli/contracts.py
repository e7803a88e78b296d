"""`tw list`, `tw describe`, `tw sql`: the available analyses, views and tables, and their SQL."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tracewarehouse.cli.session import (
    Session,
    complete_contracts,
    examples,
    output_options,
    pass_session,
    result_options,
)

if TYPE_CHECKING:
    from tracewarehouse.contracts.contract import Contract

KINDS = ("analysis", "view", "table")


@click.command(
    "list",
    epilog=examples(
        "tw list",
        "tw list --kind table",
        "tw list --all --format json",
    ),
)
@click.option("--kind", type=click.Choice(KINDS), help="List only this kind.")
@click.option("--all", "include_all", is_flag=True, help="Include older versions and transient tables.")
@result_options
@pass_session
def list_(session: Session, /, kind: str | None, include_all: bool) -> None:
    """List analyses, views and tables by group."""
    from tracewarehouse.result import Field, from_rows

    fields = [Field("kind", "VARCHAR"), Field("group", "VARCHAR"), Field("name", "VARCHAR")]
    fields += [Field("version", "INTEGER"), Field("summary", "VARCHAR")]
    rows = [(c.kind, c.group, c.name, c.version, c.summary) for c in _listed(kind, include_all)]
    session.out.print_result(from_rows(fields, rows))


@click.command(
    epilog=examples(
        "tw describe kernels",
        "tw describe temporal_breakdown",
        "tw describe coverage@1",
    )
)
@click.argument("name", metavar="NAME[@VERSION]", shell_complete=complete_contracts)
@output_options
@pass_session
def describe(session: Session, /, name: str) -> None:
    """Show the contract of a table, view or analysis.

    It has columns with units, parameters, dependencies and changes between versions.
    """
    from tracewarehouse.cli.describe import contract_text
    from tracewarehouse.cli.output import line_width
    from tracewarehouse.contracts.catalog import Catalog

    catalog = Catalog.load()
    contract = catalog.get(name)
    hashes = {"own_hash": catalog.own_hash(contract), "effective_hash": catalog.effective_hash(contract)}
    facts = {key: value for key, value in asdict(contract).items() if key not in ("body", "body_line")}
    facts["requires"] = [str(ref) for ref in contract.requires]
    session.out.print_text(
        contract_text(contract, **hashes, width=line_width(session.out)), [{**facts, **hashes}]
    )


@click.command(
    epilog=examples(
        "tw sql temporal_breakdown",
        "tw sql temporal_breakdown | tw query -",
    )
)
@click.argument("name", metavar="NAME[@VERSION]", shell_complete=complete_contracts)
@output_options
@pass_session
def sql(session: Session, /, name: str) -> None:
    """Print the SQL of a table, view or analysis.

    Parameters have their default values, so that the SQL can be run as it is.
    """
    from tracewarehouse.contracts.catalog import Catalog
    from tracewarehouse.duck.engine import sql_with_params

    contract = Catalog.load().get(name)
    if contract.filled_by_program:
        text = f"-- {contract.ref} is not computed by SQL.\n"
        session.out.print_text(text, [{"name": str(contract.ref), "sql": None}])
        return
    text = sql_with_params(contract, {})
    session.out.print_text(text, [{"name": str(contract.ref), "sql": text}])


def _listed(kind: str | None, include_all: bool) -> list[Contract]:
    from tracewarehouse.contracts.catalog import Catalog

    catalog = Catalog.load()
    contracts = [*catalog.analyses(), *catalog.views(), *catalog.tables()]
    if include_all:
        contracts = [*catalog.all("analysis"), *catalog.all("view"), *catalog.all("table")]
    listed = [c for c in contracts if kind in (None, c.kind) and (include_all or not c.transient)]
    return sorted(listed, key=lambda c: (KINDS.index(c.kind), c.group or "", c.name, c.version))
