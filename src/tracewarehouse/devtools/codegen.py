"""Texts that are generated from the contracts: typed methods, reference, the table of the README."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.params import Param, python_type

WIDTH = 110
BEGIN, END = "<!-- analyses -->", "<!-- /analyses -->"
STUB = '''"""The analyses as typed methods. Written by `tw dev sync` from `sql/analyses`; not by hand."""

from typing import Generic, TypeVar

from tracewarehouse.contracts.catalog import Catalog

T_co = TypeVar("T_co", covariant=True)

class Analyses(Generic[T_co]):
    """One method per analysis, in its newest version; `run` takes any name and version."""

    catalog: Catalog

    def run(self, name: str, version: int | None = None, **params: object) -> T_co:
        """The rows of an analysis. Raises UnknownName, ParamError."""
    def __dir__(self) -> list[str]: ...
'''


def analyses_pyi(catalog: Catalog) -> str:
    """The stub `analyses.pyi`, formatted as ruff would."""
    return STUB + "".join(_method(contract) for contract in catalog.analyses())


def _method(contract: Contract) -> str:
    return "\n".join([_signature(contract), *_paragraph('"""' + contract.summary + '"""')]) + "\n"


def _signature(contract: Contract) -> str:
    params = [_argument(param) for param in contract.params]
    arguments = ["self", "*", *params] if params else ["self"]
    line = f"    def {contract.name}({', '.join(arguments)}) -> T_co:"
    if len(line) <= WIDTH:
        return line
    inner = "        " + ", ".join(arguments)
    lines = [inner] if len(inner) <= WIDTH else [f"        {argument}," for argument in arguments]
    return "\n".join([f"    def {contract.name}(", *lines, "    ) -> T_co:"])


def _argument(param: Param) -> str:
    default = f'"{param.default}"' if _plain(param.default) else repr(param.default)
    type_ = python_type(param)
    return f"{param.name}: {getattr(type_, '__name__', type_)} = {default}"


def _plain(value: object) -> bool:
    return isinstance(value, str) and not {'"', "\\"} & set(value) and value.isprintable()


def _paragraph(text: str) -> list[str]:
    safe = text.replace("\\", "\\\\")
    safe = safe[:3] + safe[3:-3].replace('"""', "'''") + safe[-3:]
    return wrap(safe, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8)


def reference_md(catalog: Catalog) -> str:
    """The file `sql/README.md`: every analysis, view and table."""

    def in_folder(name: str) -> list[Contract]:
        return [contract for contract in catalog.tables() if contract.folder == name]

    sections = (
        ("Analyses", "Run on demand: `tw show NAME`, `warehouse.NAME()`.", catalog.analyses()),
        ("Views", "Building blocks that analyses share; never stored.", catalog.views()),
        ("Tables", "Built at ingest and stored, unless marked otherwise.", in_folder("tables")),
        ("Derived tables", "Built by `tw derive`.", in_folder("derived")),
        ("Rules", "Constant lists that tables, views and analyses read.", in_folder("rules")),
    )
    lines = ["# Reference", "", "Written by `tw dev sync` from the `.sql` files beside it; not by hand.", ""]
    for title, says, contracts in sections:
        lines += [f"## {title}", "", says, ""]
        if contracts:
            lines += [*_index(contracts), ""]
        for contract in contracts:
            lines += _entry(catalog, contract)
    return "\n".join(lines).rstrip() + "\n"


def readme_table(catalog: Catalog) -> str:
    """The README's table of analyses, with the markers around it."""
    rows = [("analysis", "what it answers"), ("---", "---")]
    rows += [(f"[`{c.name}`]({c.source})", c.summary) for c in catalog.analyses()]
    return "\n".join([BEGIN, *map(_row, rows), END])


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _index(contracts: Iterable[Contract]) -> Iterator[str]:
    yield _row(("name", "in one sentence"))
    yield _row(("---", "---"))
    for contract in contracts:
        yield _row((f"[`{contract.name}`](#{contract.name})", contract.summary))


def _entry(catalog: Catalog, contract: Contract) -> Iterator[str]:
    yield from (f"### {contract.name}", "", contract.summary, "")
    if contract.deprecated:
        yield from (f"**Deprecated.** {contract.deprecated}", "")
    yield from (f"{_facts(contract)}", "")
    yield from _columns(contract)
    yield from _params(contract)
    yield from _changes(catalog, contract)


def _facts(contract: Contract) -> str:
    link = contract.source.removeprefix("sql/")
    facts = [f"Version {contract.version}, [{link}]({link})"]
    if contract.group:
        facts.append(f"group {contract.group}")
    if contract.transient:
        facts.append("transient")
    if contract.derived:
        facts.append(f"made by `tw derive {contract.derived}`")
    if contract.definition is not None:
        facts.append(f"filled by the program, definition {contract.definition}")
    elif contract.filled_by_program:
        facts.append("filled by the program")
    if contract.scope == "run":
        facts.append("looks at a whole run")
    facts.append(f"a row per {', '.join(f'`{name}`' for name in contract.grain)}")
    if contract.requires:
        facts.append(f"reads {', '.join(f'[`{ref}`](#{ref.name})' for ref in contract.requires)}")
    if contract.needs:
        facts.append(f"needs {', '.join(f'`{need}`' for need in contract.needs)}")
    return " · ".join(facts) + "."


def _columns(contract: Contract) -> Iterator[str]:
    yield _row(("column", "type", "unit", "null", "better", "meaning"))
    yield _row(("---",) * 6)
    for c in contract.columns:
        unit = (c.unit or "") + (", signed" if c.signed else "")
        yield _row((f"`{c.name}`", c.type, unit, "yes" if c.null else "", c.better or "", c.doc))
    yield ""


def _params(contract: Contract) -> Iterator[str]:
    if not contract.params:
        return
    yield _row(("parameter", "type", "default", "unit", "allowed", "meaning"))
    yield _row(("---",) * 6)
    for p in contract.params:
        default = "" if p.default is None else f"`{p.default}`"
        yield _row((f"`{p.name}`", p.type, default, p.unit or "", _allowed(p), p.doc))
    yield ""


def _allowed(param: Param) -> str:
    limits = [
        f"{word} {limit}" for word, limit in (("from", param.min), ("to", param.max)) if limit is not None
    ]
    return ", ".join(f"`{choice}`" for choice in param.choices) or " ".join(limits)


def _changes(catalog: Catalog, contract: Contract) -> Iterator[str]:
    kept = {
        c.version: c.source.removeprefix("sql/")
        for c in catalog.all(contract.kind)
        if c.name == contract.name
    }
    for change in contract.changes:
        number, note = change.version, " (compatible)" if change.compatible else ""
        yield f"- {f'[{number}]({kept[number]})' if number in kept else number}{note}: {change.text}"
    yield ""
