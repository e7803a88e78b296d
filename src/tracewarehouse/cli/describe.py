"""Text of `tw describe` and `tw info`: a contract, or a run with its ranks and tables."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Protocol

from tracewarehouse.contracts.contract import Contract, Param
from tracewarehouse.present.render.table import table, values, vertical
from tracewarehouse.present.render.text import plural, show
from tracewarehouse.result import Field, Result

_WIDTH = 100


def contract_text(contract: Contract, own_hash: str, effective_hash: str, width: int | None = None) -> str:
    """Title, facts, parameters, columns and changes of a contract, wrapped to the terminal."""
    width = min(width or _WIDTH, _WIDTH)
    parts = [f"{contract.ref}  {_kind(contract)}", fill(contract.summary, width)]
    if contract.deprecated:
        parts.append(fill(f"Deprecated: {contract.deprecated}", width))
    parts.append(_pairs(_facts(contract, own_hash, effective_hash), width))
    if contract.params:
        params = ((f"  {_option(each)}", _param_text(each)) for each in contract.params)
        parts.append("Parameters\n" + _pairs(params, width))
    parts.append("Columns\n" + _columns(contract, width))
    changes = ((f"  {each.version}", each.text) for each in contract.changes)
    parts.append("Changes\n" + _pairs(changes, width))
    return "\n\n".join(parts) + "\n"


def _kind(contract: Contract) -> str:
    stored = " (not stored)" if contract.transient else ""
    group = f" in {contract.group}" if contract.group else ""
    return f"{contract.kind}{group}{stored}"


def _facts(contract: Contract, own_hash: str, effective_hash: str) -> Iterable[tuple[str, str]]:
    yield "grain", ", ".join(contract.grain)
    if contract.order:
        yield "order", ", ".join(contract.order)
    if contract.requires:
        yield "depends on", ", ".join(map(str, contract.requires))
    if contract.needs:
        yield "needs", ", ".join(contract.needs)
    if contract.empty:
        yield "no rows", contract.empty
    yield "file", contract.source
    yield "hash", f"{own_hash[:12]} (own), {effective_hash[:12]} (with dependencies)"


def _option(param: Param) -> str:
    return "--" + param.name.replace("_", "-")


def _param_text(param: Param) -> str:
    facts = [f"default {show(param.default, param.unit)}"] if param.default is not None else []
    facts += [
        f"{name} {value}" for name, value in (("min", param.min), ("max", param.max)) if value is not None
    ]
    facts += [f"one of {', '.join(map(str, param.choices))}"] if param.choices else []
    return f"{param.doc} [{', '.join((param.type, *facts))}]"


def _columns(contract: Contract, width: int) -> str:
    rows = []
    for column in contract.columns:
        marks = [column.unit or "", f"{column.better} is better" if column.better else ""]
        marks += ["may be null" if column.null else "", "may be negative" if column.signed else ""]
        rows.append((column.name, column.type, column.doc, ", ".join(filter(None, marks))))
    names, types = (max(len(row[at]) for row in rows) for at in (0, 1))
    indent = 2 + names + 2 + types + 2
    return "\n".join(
        fill(
            f"{doc} ({marks})" if marks else doc,
            width,
            initial_indent=f"  {name.ljust(names)}  {type_.ljust(types)}  ",
            subsequent_indent=" " * indent,
            break_long_words=False,
        )
        for name, type_, doc, marks in rows
    )


def _pairs(pairs: Iterable[tuple[str, str]], width: int) -> str:
    rows: Sequence[tuple[str, str]] = list(pairs)
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


class TableSize(Protocol):
    """A table of a run with the rows and bytes of its files."""

    @property
    def table(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...


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
    parts = [
        "\n".join(vertical(run.columns(), values(run.table)[0], width).lines()),
        "\n".join(_ranks(ranks, width)),
        "\n".join(table(fields, sizes, width=width).lines()),
        "versions  " + ", ".join(f"v{number}" for number in versions),
    ]
    if redaction:
        parts[-1] += f"\n{_redacted(ranks, redaction)}"
    if untested:
        parts[-1] += "\nuntested on real data  " + "; ".join(untested)
    return "\n\n".join(parts) + "\n"


def _redacted(ranks: Result, redaction: Sequence[str]) -> str:
    """How many values were replaced, and the versions of the rules and of a policy."""
    count = sum(row["redacted"] or 0 for row in ranks.rows())
    if list(redaction) == ["off"]:
        return "redaction off"
    by = "; ".join(each.replace("rules ", "rules version ") for each in redaction)
    return f"redacted  {plural(count, 'value')} ({by})"


def _ranks(ranks: Result, width: int) -> list[str]:
    fields = ranks.columns()
    shown = [index for index, field in enumerate(fields) if field.name in _RANK_COLUMNS]
    rows = [[row[index] for index in shown] for row in values(ranks.table)]
    return table([fields[index] for index in shown], rows, width=width, keys=("rank",)).lines()
