"""Checks between contracts: invalid `requires`, names used twice, cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tracewarehouse.contracts.contract import Contract, Ref
from tracewarehouse.errors import ContractError, UnknownName

# The public names of `Warehouse`, which no contract may have, because every analysis becomes a method.
WAREHOUSE_NAMES = frozenset((
    "acknowledge", "catalog", "check", "clean", "close", "compact", "derive", "diff", "export_trace",
    "fetch", "files", "history", "info", "ingest", "label", "left_out", "moved_parts", "on",
    "publish_delta", "query", "query_all", "record", "recorded_runs", "refresh", "remove", "remove_secrets",
    "repair", "report", "report_runs", "retain", "root", "run", "run_or_skip", "runs", "scan", "seal",
    "secrets", "select", "selected", "shell_file", "store", "upgrade", "verify", "whatif",
))  # fmt: skip
_RESERVED = WAREHOUSE_NAMES | {"open", "export"}
RUN_SCOPE_TABLES = ("runs", "secrets", "ranks", "rank_sources", "data_quality", "blame", "blame_basis")


def reference_errors(contract: Contract, contracts: Mapping[Ref, Contract]) -> Iterator[ContractError]:
    """Errors between one contract and its direct requirements."""
    yield from _name_errors(contract, contracts)
    yield from _require_errors(contract, contracts)


def cycles(contracts: Mapping[Ref, Contract]) -> Iterator[ContractError]:
    """An error for each contract that requires itself indirectly."""
    done: set[Ref] = set()

    def visit(ref: Ref, above: tuple[Ref, ...]) -> Iterator[ContractError]:
        if ref in above:
            yield cycle(contracts[ref], (*above[above.index(ref) :], ref))
        elif ref in contracts and ref not in done:
            for below in contracts[ref].requires:
                yield from visit(below, (*above, ref))
            done.add(ref)

    for ref in contracts:
        yield from visit(ref, ())


def cycle(contract: Contract, path: tuple[Ref, ...]) -> ContractError:
    """The error for a cycle of `requires` along this path."""
    return reference_error(contract, f"requires itself: {' → '.join(map(str, path))}", "break the cycle")


def _name_errors(contract: Contract, contracts: Mapping[Ref, Contract]) -> Iterator[ContractError]:
    # `Warehouse.runs()` returns the table `runs`: one meaning, so one name.
    if contract.name in _RESERVED and contract.ref.name != "runs":
        yield reference_error(contract, f"{contract.name} is a method of Warehouse", "rename the contract")
    if contract.group in (None, contract.name):
        return
    other = next((contracts[ref] for ref in contracts if ref.name == contract.group), None)
    taken = other is not None and (
        other.kind == "view" or other.kind == "analysis" and other.group != contract.group
    )
    if taken or contract.group in _RESERVED:
        yield reference_error(contract, f"group {contract.group} is already in use", "rename the folder")


def _require_errors(contract: Contract, contracts: Mapping[Ref, Contract]) -> Iterator[ContractError]:
    for ref in contract.requires:
        required = contracts.get(ref)
        if required is None:
            unknown = UnknownName("table or view", str(ref), map(str, contracts))
            yield reference_error(contract, f"requires {ref}, which does not exist", unknown.hint or "add it")
        elif remedy := _why_not(contract, required):
            yield reference_error(contract, f"may not require the {required.kind} {ref}", remedy)
    for name in sorted(set(contract.optional) - set(_tables_below(contract, contracts))):
        yield reference_error(contract, f"optional names {name}, which it does not read", "remove it")


def _tables_below(contract: Contract, contracts: Mapping[Ref, Contract]) -> Iterator[str]:
    """The names of the stored tables that a contract reads, also through views."""
    for ref in contract.requires:
        required = contracts.get(ref)
        if required is not None and required.is_stored:
            yield required.name
        elif required is not None and required.kind == "view":
            yield from _tables_below(required, contracts)


def reference_error(contract: Contract, message: str, hint: str) -> ContractError:
    """An error about an entire contract."""
    return ContractError(f"{contract.source}:1: {message}", hint)


def _why_not(contract: Contract, required: Contract) -> str | None:
    """The hint if the contract may not read the other, else None."""
    if required.kind == "analysis":
        return "turn what you need of it into a view"
    if contract.derived and contract.filled_by_program and required.kind == "view":
        return None  # the program reads a whole run
    if contract.kind == "table" and required.kind == "view":
        return "tables are built at ingest: read tables"
    if contract.kind == "table" and required.derived not in (None, contract.derived):
        return f"only tables with derived = {required.derived!r} may read it"
    later = contract.kind != "table" or contract.derived is not None and required.derived is None
    if later and required.transient and not required.is_constant:
        return "a transient table exists only during ingest: read a stored one"
    if contract.kind != "table" and contract.scope == "run":
        readable = required.name in RUN_SCOPE_TABLES or required.is_constant
        if required.kind == "table" and not readable:
            tables = ", ".join(RUN_SCOPE_TABLES)
            return f"with scope run read views, rules, {tables}: turn what you need into a view"
    elif required.scope == "run" and (contract.kind, required.kind) != ("analysis", "table"):
        return 'data of a rank does not depend on its run; to read an entire run, write scope = "run"'
    return None
