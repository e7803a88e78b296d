"""`tw list`, `tw describe`, `tw sql`: the contracts and their SQL; `tw dev`: their upkeep in a checkout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import fill

import click
from msgspec.structs import asdict

from tracewarehouse.cli.session import (
    Session,
    command,
    complete_contracts,
    examples,
    no_warehouse_options,
    option_name,
    output_options,
    result_options,
)
from tracewarehouse.contracts.contract import Contract, Kind, Param, RawTable
from tracewarehouse.errors import ContractError
from tracewarehouse.present.render.text import plural, show
from tracewarehouse.result import contract_list

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
    blocks = [f"{contract.ref}  {contract.kind}{group}{stored}", fill(contract.summary, width)]
    if contract.deprecated:
        blocks.append(fill(f"Deprecated: {contract.deprecated}", width))
    blocks.append(_pairs(_facts(contract, own_hash, effective_hash), width))
    if contract.params:
        params = ((f"  {option_name(param.name)}", _param_text(param)) for param in contract.params)
        blocks.append("Parameters\n" + _pairs(params, width))
    if contract.columns:
        blocks.append("Columns\n" + _pairs(_columns(contract), width))
    if contract.raw_tables:
        tables = ((f"  {table.name}", _raw_columns(table)) for table in contract.raw_tables)
        blocks.append("Tables of the file (required columns are marked *)\n" + _pairs(tables, width))
    changes = ((f"  {change.version}", change.text) for change in contract.changes)
    blocks.append("Changes\n" + _pairs(changes, width))
    return "\n\n".join(blocks) + "\n"


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


@click.group(
    epilog=examples(
        "tw dev sync && tw dev check",
    )
)
def dev() -> None:
    """Developer commands (source checkout only).

    Run it in the root folder of the checkout.
    """


@command("tw dev sync", parent=dev)
@no_warehouse_options
def sync(session: Session, /) -> None:
    """Regenerate files derived from the contracts.

    These are the typed methods and the SQL reference.
    """
    from tracewarehouse.devtools import checkout

    root = Path.cwd()
    changed = [str(path.relative_to(root)) for path in checkout.sync(root)]
    text = "".join(f"wrote {path}\n" for path in changed) or "all generated files are up to date\n"
    session.out.print_text(text, [{"path": path} for path in changed])


@command("tw dev new host_gaps --group launch", "tw dev new slow_copies --group findings", parent=dev)
@click.argument("name", metavar="NAME")
@click.option("--group", default="gpu", help="Folder under sql/analyses.")
@no_warehouse_options
def new(session: Session, /, name: str, group: str) -> None:
    """Write skeletons of an analysis and its golden file.

    In the group findings, the analysis is a finding rule. Generated files are updated too.
    """
    from tracewarehouse.devtools import checkout

    root = Path.cwd()
    paths = [str(path.relative_to(root)) for path in checkout.new(root, name, group)]
    text = "".join(f"wrote {path}\n" for path in paths)
    steps = f"edit the first two, then: tw dev sync && tw dev check {name}\n"
    session.out.print_text(text + steps, [{"path": path} for path in paths])


@command("tw dev check", "tw dev check kernel_summary", parent=dev)
@click.argument("name", metavar="[NAME[@VERSION]]", required=False)
@no_warehouse_options
def check(session: Session, /, name: str | None) -> int:
    """Check contracts, golden files and generated files.

    No traces are needed. With NAME, all checks of one contract are run as in CI, including its golden files
    and laws. Exit code 1 if there is a problem.
    """
    from tracewarehouse.devtools import checkout

    root = Path.cwd()
    violations = checkout.check_checkout(root) if name is None else checkout.check_contract(root, name)
    lines = [f"{each.location}: {each.message}\n    {each.remedy}\n" for each in violations]
    error = ContractError(plural(len(violations), "problem")) if violations else None
    session.out.print_text(
        "".join(lines) or "no problems found\n", [asdict(each) for each in violations], error
    )
    return 1 if violations else 0


@command("tw dev release temporal_breakdown", "tw dev release --retire gpu_busy@1", parent=dev)
@click.argument("names", metavar="[NAME[@VERSION]]...", nargs=-1)
@click.option("--retire", is_flag=True, help="Retire released versions whose file was deleted.")
@no_warehouse_options
def release(session: Session, /, names: tuple[str, ...], retire: bool) -> None:
    """Freeze contracts in sql/released.lock.

    Their dependencies are frozen too; without names, all contracts are.
    """
    from tracewarehouse.devtools import checkout

    changed = checkout.release(Path.cwd(), names, retire=retire)
    text = "".join(f"{each.status} {each.ref}\n" for each in changed) or "nothing to release\n"
    session.out.print_text(text, [{"name": str(locked.ref), "status": locked.status} for locked in changed])


@command("tw dev wheels /tmp/wheels", "tw dev wheels /tmp/wheels manylinux_2_17_x86_64", parent=dev)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.argument("tags", metavar="[PLATFORM]...", nargs=-1)
@no_warehouse_options
def wheels(session: Session, /, folder: Path, tags: tuple[str, ...]) -> None:
    """Build the source distribution and all wheels.

    They are compiled with ziglang (pip install -e '.[wheels]'), and checked: machine, version of glibc or
    macOS.
    """
    from tracewarehouse.devtools.wheels import build

    paths = [str(path) for path in build(Path.cwd(), folder, tags)]
    session.out.print_text("".join(f"built {path}\n" for path in paths), [{"path": path} for path in paths])
