"""`tw list`, `tw describe`, `tw sql`: the available analyses, views and tables, and their SQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

import click

from tracewarehouse.cli.session import (
    Session,
    command,
    complete_contracts,
    option_name,
    output_options,
    result_options,
)
from tracewarehouse.contracts.contract import Contract, Kind, Param, RawTable
from tracewarehouse.present.render.table import table, values, vertical
from tracewarehouse.present.render.text import plural, show
from tracewarehouse.result import Field, Result, contract_list

if TYPE_CHECKING:
    from tracewarehouse.runs.rows import TableSize

KINDS: tuple[Kind, ...] = ("analysis", "view", "table", "format")


@command("tw list copies", "tw list --kind table", "tw list --all --format json", name="list")
@click.argument("words", metavar="[WORD]...", nargs=-1)
@click.option("--kind", type=click.Choice(KINDS), help="List only this kind.")
@click.option("--all", "include_all", is_flag=True, help="Include older versions and transient tables.")
@result_options
def list_(session: Session, /, words: tuple[str, ...], kind: str | None, include_all: bool) -> None:
    """List analyses, views, tables and formats by group.

    With WORDs, those that have all of them in their name, summary or columns.
    """
    from tracewarehouse.contracts.catalog import Catalog, word_places

    catalog = Catalog.load()
    contracts = [*catalog.analyses(), *catalog.views(), *catalog.tables(), *catalog.all("format")]
    if include_all:
        contracts = [contract for each in KINDS for contract in catalog.all(each)]
    listed = [c for c in contracts if kind in (None, c.kind) and (include_all or not c.transient)]
    listed = [c for c in listed if all(word_places(c, words))]
    listed.sort(key=lambda c: (KINDS.index(c.kind), c.group or "", c.name, c.version))
    session.out.print_result(contract_list(listed))


@command("tw describe kernels", "tw describe temporal_breakdown", "tw describe coverage@1")
@click.argument("name", metavar="NAME[@VERSION]", shell_complete=complete_contracts)
@output_options
def describe(session: Session, /, name: str) -> None:
    """Show the contract of a table, view, analysis or format.

    It has columns with units, parameters, dependencies and changes between versions.
    """
    from tracewarehouse.cli.output import line_width
    from tracewarehouse.contracts.catalog import Catalog

    catalog = Catalog.load()
    contract = catalog.get(name)
    row = catalog.description(contract)
    text = contract_text(contract, row["own_hash"], row["effective_hash"], line_width(session.out))
    session.out.print_text(text, [row])


@command("tw sql temporal_breakdown", "tw sql temporal_breakdown | tw query -")
@click.argument("name", metavar="NAME[@VERSION]", shell_complete=complete_contracts)
@output_options
def sql(session: Session, /, name: str) -> None:
    """Print the SQL of a table, view, analysis or format.

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


_WIDTH = 100


def contract_text(contract: Contract, own_hash: str, effective_hash: str, width: int | None = None) -> str:
    """Title, facts, parameters, columns and changes of a contract, wrapped to the terminal."""
    width = min(width or _WIDTH, _WIDTH)
    stored = " (not stored)" if contract.transient else ""
    group = f" in {contract.group}" if contract.group else ""
    parts = [f"{contract.ref}  {contract.kind}{group}{stored}", fill(contract.summary, width)]
    if contract.deprecated:
        parts.append(fill(f"Deprecated: {contract.deprecated}", width))
    parts.append(_pairs(_facts(contract, own_hash, effective_hash), width))
    if contract.params:
        params = ((f"  {option_name(each.name)}", _param_text(each)) for each in contract.params)
        parts.append("Parameters\n" + _pairs(params, width))
    if contract.columns:
        parts.append("Columns\n" + _pairs(_columns(contract), width))
    if contract.raw_tables:
        tables = ((f"  {table.name}", _raw_columns(table)) for table in contract.raw_tables)
        parts.append("Tables of the file (required columns are marked *)\n" + _pairs(tables, width))
    changes = ((f"  {each.version}", each.text) for each in contract.changes)
    parts.append("Changes\n" + _pairs(changes, width))
    return "\n\n".join(parts) + "\n"


def _facts(contract: Contract, own_hash: str, effective_hash: str) -> Iterator[tuple[str, str]]:
    facts = {
        "grain": ", ".join(contract.grain),
        "sums per": contract.per,
        "order": ", ".join(contract.order),
        "depends on": ", ".join(map(str, contract.requires)),
        "needs": ", ".join(contract.needs),
        "confidence": contract.confidence,
        "excluded by": ", ".join(contract.excluded_by),
        "limited by": ", ".join(contract.limited_by),
        "no rows": contract.empty,
        "file": contract.source,
        "hash": f"{own_hash[:12]} (own), {effective_hash[:12]} (with dependencies)",
    }
    return ((name, text) for name, text in facts.items() if text)


def _param_text(param: Param) -> str:
    facts = [f"default {show(param.default, param.unit)}"] if param.default is not None else []
    facts += [
        f"{name} {value}" for name, value in (("min", param.min), ("max", param.max)) if value is not None
    ]
    facts += [f"one of {', '.join(map(str, param.choices))}"] if param.choices else []
    return f"{param.doc} [{', '.join((param.type, *facts))}]"


def _raw_columns(table: RawTable) -> str:
    return ", ".join(
        f"{name}{'*' if number < table.required else ''} {type_}"
        for number, (name, type_) in enumerate(table.columns)
    )


def _columns(contract: Contract) -> Iterator[tuple[str, str]]:
    """Name and type of each column, and its description with its marks."""
    width = max(len(column.name) for column in contract.columns)
    for column in contract.columns:
        marks = [column.unit or "", f"{column.better} is better" if column.better else ""]
        marks += ["may be null" if column.null else "", "may be negative" if column.signed else ""]
        listed = ", ".join(filter(None, marks))
        yield (
            f"  {column.name.ljust(width)}  {column.type}",
            f"{column.doc} ({listed})" if listed else column.doc,
        )


def _pairs(pairs: Iterable[tuple[str, str]], width: int) -> str:
    rows = list(pairs)
    names = max((len(name) for name, _ in rows), default=0)
    return "\n".join(
        fill(
            text,
            width,
            initial_indent=f"{name.ljust(names)}  ",
            subsequent_indent=" " * (names + 2),
            break_long_words=False,
        )
        for name, text in rows
    )


_RANK_COLUMNS = (
    "rank",
    "status",
    "source_name",
    "events",
    "gpu_activities",
    "steps",
    "world_size",
    "host",
    "device_name",
)


def run_text(
    run: Result,
    ranks: Result,
    tables: Sequence[TableSize],
    versions: Sequence[int],
    redaction: Sequence[str] = (),
    untested: Sequence[str] = (),
) -> str:
    """The run's row, then its ranks, tables and versions, the rules of redaction, and what is untested."""
    width = shutil.get_terminal_size((100, 24)).columns
    fields = [Field("table", "VARCHAR"), Field("version", "INTEGER"), Field("rows", "BIGINT", "count")]
    fields.append(Field("bytes", "BIGINT", "bytes"))
    sizes = [(each.table, each.version, each.rows, each.bytes) for each in tables]
    shown = [index for index, field in enumerate(ranks.columns()) if field.name in _RANK_COLUMNS]
    rank_fields = [ranks.columns()[index] for index in shown]
    rank_rows = [[row[index] for index in shown] for row in values(ranks.table)]
    parts = [
        "\n".join(vertical(run.columns(), values(run.table)[0], width).lines()),
        "\n".join(table(rank_fields, rank_rows, width=width, keys=("rank",)).lines()),
        "\n".join(table(fields, sizes, width=width).lines()),
        "versions  " + ", ".join(f"v{number}" for number in versions),
    ]
    if list(redaction) == ["off"]:
        parts[-1] += "\nredaction off"
    elif redaction:
        count = sum(row["redacted"] or 0 for row in ranks.rows())
        rules = "; ".join(rule.replace("rules ", "rules version ") for rule in redaction)
        parts[-1] += f"\nredacted  {plural(count, 'value')} ({rules})"
    if untested:
        parts[-1] += "\nuntested on real data  " + "; ".join(untested)
    return "\n\n".join(parts) + "\n"
