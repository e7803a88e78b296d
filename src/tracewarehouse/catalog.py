"""All contracts: found in the package's `sql/` or the checkout's, hashed, and joined by `requires`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from .contract import FOLDERS, Contract, Kind, Ref, parse
from .errors import ContractError, UnknownName
from .sqltext import token_texts

WAREHOUSE_METHODS = frozenset(
    ("open", "select", "run", "query", "scan", "runs", "ingest", "info", "label", "remove", "verify")
    + (
        "clean",
        "refresh",
        "changes",
        "upgrade",
        "derive",
        "whatif",
        "diff",
        "record",
        "acknowledge",
        "history",
        "report",
        "check",
        "export",
        "export_trace",
        "close",
    )
    + ("root", "catalog", "store", "chosen", "shell_file")
)
RUN_SCOPE_TABLES = ("runs", "ranks", "data_quality")
LOCK_HEADER = "# Written by `tw dev release`. A released version never changes: its hashes stand here.\n"


@dataclass(frozen=True)
class Locked:
    """A line of `released.lock`; status is released or retired."""

    ref: Ref
    status: str
    own: str
    effective: str


@dataclass(frozen=True)
class Catalog:
    """The contracts by name and version."""

    contracts: Mapping[Ref, Contract]
    folder: Path
    _hashes: dict[Ref, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(cls, root: Path | None = None) -> Catalog:
        """The contracts under `root`, a folder like `sql/`; cached. Raises ContractError."""
        return _load(root or sql_folder())

    @classmethod
    def read(cls, folder: Path) -> Catalog:
        """Like `load`, but reads the files anew."""
        catalog, errors = cls.scan(folder)
        for error in errors:
            raise error
        return catalog

    @classmethod
    def scan(cls, folder: Path) -> tuple[Catalog, list[ContractError]]:
        """What can be read under `folder`, and everything that is wrong with the rest."""
        found: dict[Ref, Contract] = {}
        errors = []
        for path in contract_files(folder):
            try:
                contract = read_contract(folder, path)
                found[contract.ref] = contract
            except ContractError as error:
                errors.append(error)
        catalog = cls(MappingProxyType(found), folder)
        return catalog, errors or list(catalog.faults())

    def get(self, name: str, version: int | None = None, kind: Kind | None = None) -> Contract:
        """The contract of that name, newest unless a version is given (`name@2` too)."""
        name, _, text = name.partition("@")
        refs = [ref for ref, c in self.contracts.items() if ref.name == name and kind in (None, c.kind)]
        if not refs:
            known = [c.name for c in self.contracts.values() if kind in (None, c.kind)]
            raise UnknownName(kind or "table, view or analysis", name, known)
        if text and version is None:
            version = int(text) if text.isdecimal() else -1
        ref = max(refs) if version is None else Ref(name, version)
        if ref not in refs:
            raise UnknownName("version", f"{name}@{text or version}", map(str, refs))
        return self.contracts[ref]

    def tables(self) -> tuple[Contract, ...]:
        """The newest version of each table, by name."""
        return self._newest("table")

    def views(self) -> tuple[Contract, ...]:
        """The newest version of each view, by name."""
        return self._newest("view")

    def analyses(self) -> tuple[Contract, ...]:
        """The newest version of each analysis, by name."""
        return self._newest("analysis")

    def all(self, kind: Kind) -> tuple[Contract, ...]:
        """Every version of every contract of that kind, by name and version."""
        return tuple(
            self.contracts[ref] for ref in sorted(self.contracts) if self.contracts[ref].kind == kind
        )

    def closure(self, contract: Contract) -> tuple[Contract, ...]:
        """What it requires, and what that requires, each after what it stands on; not itself."""
        order: dict[Ref, Contract] = {}

        def visit(current: Contract) -> None:
            for ref in current.requires:
                if ref not in order:
                    visit(self.contracts[ref])
                    order[ref] = self.contracts[ref]

        visit(contract)
        return tuple(order.values())

    def own_hash(self, contract: Contract) -> str:
        """sha256 over what the contract means: not its docs, comments, spacing or order."""
        return own_hash(contract)

    def effective_hash(self, contract: Contract) -> str:
        """sha256 over its own hash and the effective hashes of all it requires."""
        known = self._hashes.get(contract.ref)
        if known is None:
            below = [self.effective_hash(self.contracts[ref]) for ref in sorted(contract.requires)]
            known = sha256("\n".join([own_hash(contract), *below]).encode()).hexdigest()
            self._hashes[contract.ref] = known
        return known

    def _newest(self, kind: Kind) -> tuple[Contract, ...]:
        return tuple({contract.name: contract for contract in self.all(kind)}.values())

    def faults(self) -> Iterator[ContractError]:
        """What is wrong between contracts: `requires` that cannot be, names used twice."""
        kinds: dict[str, str] = {}
        for contract in self.contracts.values():
            if kinds.setdefault(contract.name, contract.kind) != contract.kind:
                yield _fault(contract, f"{contract.name} is a {kinds[contract.name]} too", "rename one")
            yield from self._name_faults(contract)
            yield from self._require_faults(contract)
        yield from self._cycles()

    def _name_faults(self, contract: Contract) -> Iterator[ContractError]:
        # `Warehouse.runs()` gives the table `runs`: one meaning, so one name.
        if contract.name in WAREHOUSE_METHODS and contract.ref.name != "runs":
            yield _fault(contract, f"{contract.name} is a method of Warehouse", "rename the contract")
        if contract.group is None:
            return
        other = next((c for c in self.contracts.values() if c.name == contract.group), None)
        taken = other is not None and (
            other.kind == "view" or other.kind == "analysis" and other.group != contract.group
        )
        if taken or contract.group in WAREHOUSE_METHODS:
            yield _fault(contract, f"group {contract.group} is another name already", "rename the folder")

    def _require_faults(self, contract: Contract) -> Iterator[ContractError]:
        for ref in contract.requires:
            required = self.contracts.get(ref)
            if required is None:
                unknown = UnknownName("table or view", str(ref), map(str, self.contracts))
                yield _fault(contract, f"requires {ref}, which is not there", unknown.hint or "add it")
            elif remedy := _why_not(contract, required):
                yield _fault(contract, f"may not require the {required.kind} {ref}", remedy)

    def _cycles(self) -> Iterator[ContractError]:
        done: set[Ref] = set()

        def visit(ref: Ref, above: tuple[Ref, ...]) -> Iterator[ContractError]:
            if ref in above:
                path = " → ".join(map(str, (*above[above.index(ref) :], ref)))
                yield _fault(self.contracts[ref], f"requires itself: {path}", "break the circle")
            elif ref in self.contracts and ref not in done:
                for below in self.contracts[ref].requires:
                    yield from visit(below, (*above, ref))
                done.add(ref)

        for ref in self.contracts:
            yield from visit(ref, ())


def _fault(contract: Contract, message: str, hint: str) -> ContractError:
    return ContractError(f"{contract.source}:1: {message}", hint)


def _why_not(contract: Contract, required: Contract) -> str | None:
    """The remedy where the one may not read the other, else None."""
    if required.kind == "analysis":
        return "make what you need of it a view"
    if contract.kind == "table" and required.kind == "view":
        return "tables are made at ingest: read tables"
    if contract.kind == "table" and required.derived not in (None, contract.derived):
        return f"only tables with derived = {required.derived!r} may read it"
    later = contract.kind != "table" or contract.derived is not None and required.derived is None
    if later and required.transient and not required.is_constant:
        return "a transient table is gone after ingest: read a stored one"
    if contract.kind != "table" and contract.scope == "run":
        if required.kind == "table" and required.name not in RUN_SCOPE_TABLES:
            return f"with scope run read views, {', '.join(RUN_SCOPE_TABLES)}: make what you need a view"
    elif required.scope == "run" and (contract.kind, required.kind) != ("analysis", "table"):
        return 'what a rank holds does not depend on its run; what looks at a whole run says scope = "run"'
    return None


@cache
def _load(folder: Path) -> Catalog:
    return Catalog.read(folder)


def sql_folder() -> Path:
    """The `sql/` inside the installed package, else the one of the checkout."""
    package = Path(__file__).parent
    for folder in (package / "sql", package.parent.parent / "sql"):
        if folder.is_dir():
            return folder
    raise ContractError(f"{package}: no sql folder", "install the package again")


def contract_files(folder: Path) -> list[Path]:
    """Every `.sql` file that holds a contract, in a stable order."""
    return sorted(path for name in FOLDERS for path in (folder / name).rglob("*.sql"))


def read_contract(folder: Path, path: Path) -> Contract:
    """The contract in one file of the folder; raises ContractError."""
    source = PurePosixPath("sql", path.relative_to(folder).as_posix())
    try:
        return parse(path.read_text(encoding="utf-8"), source)
    except UnicodeDecodeError as error:
        raise ContractError(f"{source}: byte {error.start}: not UTF-8", "save it as UTF-8") from None


def own_hash(contract: Contract) -> str:
    """sha256 over kind, scope, name, version, grain, parameters, columns, needs and the body's tokens."""
    meaning = {
        "kind": contract.kind,
        "scope": contract.scope,
        "name": contract.name,
        "version": contract.version,
        "grain": contract.grain,
        "transient": contract.transient,
        "needs": sorted(contract.needs),
        "params": [[p.name, p.type, p.default, p.unit, p.min, p.max, p.choices] for p in contract.params],
        "columns": [[c.name, c.type, c.unit, c.better] for c in contract.columns],
        "body": token_texts(contract.body),
    }
    return sha256(json.dumps(meaning, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def read_lock(folder: Path) -> dict[Ref, Locked]:
    """What `released.lock` says; empty where nothing was released. Raises ContractError."""
    path = folder / "released.lock"
    if not path.exists():
        return {}
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        return {locked.ref: locked for locked in (_locked(k, v) for k, v in entries.items())}
    except (tomllib.TOMLDecodeError, ValueError, KeyError, TypeError) as error:
        hint = "take it back from version control; only `tw dev release` writes it"
        raise ContractError(f"sql/released.lock: not readable: {error}", hint) from None


def _locked(key: str, entry: Mapping[str, str]) -> Locked:
    name, version = key.split("@")
    return Locked(Ref(name, int(version)), entry["status"], entry["own"], entry["effective"])


def write_lock(entries: Mapping[Ref, Locked]) -> str:
    """The text of `released.lock`, one line per contract, by name and version."""
    lines = []
    for ref in sorted(entries):
        _, status, own, effective = astuple(entries[ref])
        lines.append(f'"{ref}" = {{ status = "{status}", own = "{own}", effective = "{effective}" }}\n')
    return LOCK_HEADER + "".join(lines)
