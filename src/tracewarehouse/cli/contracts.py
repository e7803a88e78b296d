"""`tw list`, `tw describe`, `tw sql`: what there is to ask, and how it is computed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tracewarehouse.cli.complete import complete_contracts
from tracewarehouse.cli.session import Session, examples, output_options, pass_session, result_options

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
@click.option("--kind", type=click.Choice(KINDS), help="Only analyses, views or tables.")
@click.option("--all", "every", is_flag=True, help="Older versions and tables that are not stored, too.")
@result_options
@pass_session
def list_(session: Session, /, kind: str | None, every: bool) -> None:
    """List analyses, views and tables, each with the answer it gives."""
    from tracewarehouse.result import Field, from_rows

    fields = [Field("name", "VARCHAR"), Field("version", "INTEGER"), Field("kind", "VARCHAR")]
    fields += [Field("group", "VARCHAR"), Field("summary", "VARCHAR")]
    rows = [(c.name, c.version, c.kind, c.group, c.summary) for c in _selected(kind, every)]
    session.out.show(from_rows(fields, rows))


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
    """Show one table, view or analysis in full: columns, units, parameters, changes."""
    from tracewarehouse.contracts.catalog import Catalog
    from tracewarehouse.render.describe import contract_text
    from tracewarehouse.render.output import width_of

    catalog = Catalog.load()
    contract = catalog.get(name)
    hashes = {"own_hash": catalog.own_hash(contract), "effective_hash": catalog.effective_hash(contract)}
    facts = {key: value for key, value in asdict(contract).items() if key not in ("body", "body_line")}
    facts["requires"] = [str(ref) for ref in contract.requires]
    session.out.say(contract_text(contract, **hashes, width=width_of(session.out)), [{**facts, **hashes}])


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
    """Print the SQL of a table, view or analysis with its defaults filled in, ready to run."""
    from tracewarehouse.contracts.catalog import Catalog
    from tracewarehouse.duck.engine import sql_with_params

    contract = Catalog.load().get(name)
    if contract.filled_by_program:
        text = f"-- {contract.ref}: the program fills it.\n"
        session.out.say(text, [{"name": str(contract.ref), "sql": None}])
        return
    text = sql_with_params(contract, {})
    session.out.say(text, [{"name": str(contract.ref), "sql": text}])


def _selected(kind: str | None, every: bool) -> list[Contract]:
    from tracewarehouse.contracts.catalog import Catalog

    catalog = Catalog.load()
    contracts = [*catalog.analyses(), *catalog.views(), *catalog.tables()]
    if every:
        contracts = [*catalog.all("analysis"), *catalog.all("view"), *catalog.all("table")]
    return [c for c in contracts if kind in (None, c.kind) and (every or not c.transient)]
