"""Maintenance of a checkout: generated files, checks without a trace, and the lock of released contracts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tracewarehouse.contracts.catalog import Catalog, Locked, read_lock, write_lock
from tracewarehouse.contracts.contract import Contract, Ref
from tracewarehouse.devtools import definitions, wording
from tracewarehouse.devtools.codegen import analyses_pyi, reference_md
from tracewarehouse.devtools.contract_checks import check_catalog, check_lock, violation
from tracewarehouse.devtools.sql_style import Violation
from tracewarehouse.errors import ContractError, UnknownName


def sync(root: Path) -> list[Path]:
    """Updates the files generated from contracts and golden files; returns the changed ones."""
    changed = []
    catalog = Catalog.read(sql_folder_of(root))
    locked = {catalog.folder / definitions.FILE: definitions.lock_text(catalog, root)}
    for path, text in (generated(catalog, root) | locked).items():
        if not text and not path.exists():
            continue
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def check(root: Path) -> list[Violation]:
    """All problems of the contracts of a checkout that can be found without a trace."""
    catalog, errors = Catalog.scan(sql_folder_of(root))
    if errors:
        return [violation(error) for error in errors]
    found = [*check_catalog(catalog), *_missing_goldens(catalog, root), *definitions.check(catalog, root)]
    return [*found, *wording.check(root), *_stale(catalog, root)]


def release(root: Path, names: Iterable[str] = (), *, retire: bool = False) -> list[Locked]:
    """Adds contracts with their dependencies to `released.lock`, by default all; returns the new lines.

    With `retire`, marks released versions whose file was deleted. Raises ContractError if a released contract
    was changed, UnknownName.
    """
    catalog = Catalog.read(sql_folder_of(root))
    lock = read_lock(catalog.folder)
    new = _retired(catalog, lock, names) if retire else _released(catalog, lock, names)
    if new:
        text = write_lock({**lock, **{locked.ref: locked for locked in new}})
        (catalog.folder / "released.lock").write_text(text, encoding="utf-8")
    return new


def sql_folder_of(root: Path) -> Path:
    """The folder `sql` of a checkout; raises ContractError if `root` is not a checkout."""
    for needed in (root / "sql", root / "src" / "tracewarehouse", root / "README.md"):
        if not needed.exists():
            raise ContractError(
                f"{root}: not a checkout, {needed.name} is missing", "run it in the root folder of a checkout"
            )
    return root / "sql"


def _released(catalog: Catalog, lock: dict[Ref, Locked], names: Iterable[str]) -> list[Locked]:
    for broken in check_lock(catalog):
        raise ContractError(f"{broken.location}: {broken.message}", broken.remedy)
    selected = [catalog.get(name) for name in names] or list(catalog.contracts.values())
    wanted = {c.ref: c for one in selected for c in (*catalog.closure(one), one)}
    return [
        Locked(ref, "released", catalog.own_hash(c), catalog.effective_hash(c))
        for ref, c in sorted(wanted.items())
        if ref not in lock
    ]


def _retired(catalog: Catalog, lock: dict[Ref, Locked], names: Iterable[str]) -> list[Locked]:
    new = []
    for name in names:
        locked = next((locked for ref, locked in lock.items() if str(ref) == name), None)
        if locked is None:
            raise UnknownName("released version", name, map(str, lock))
        if locked.ref in catalog.contracts:
            source = catalog.contracts[locked.ref].source
            raise ContractError(
                f"{source}:1: {name} still exists", "delete the file, then retire the version"
            )
        new.append(Locked(locked.ref, "retired", locked.own, locked.effective))
    return new


def generated(catalog: Catalog, root: Path) -> dict[Path, str]:
    """Generated file of a checkout → its expected text."""
    return {
        root / "src" / "tracewarehouse" / "analyses.pyi": analyses_pyi(catalog),
        root / "sql" / "README.md": reference_md(catalog),
    }


def _stale(catalog: Catalog, root: Path) -> Iterator[Violation]:
    for path, text in generated(catalog, root).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            location = path.relative_to(root).as_posix()
            yield Violation(location, "is out of date with the contracts", "run `tw dev sync`")


def golden_stem(contract: Contract) -> str:
    """The path of the contract's golden files in `tests/golden`, without their suffix."""
    return contract.source.removeprefix("sql/").removesuffix(".sql")


def needs_golden(contract: Contract) -> bool:
    """Whether the contract has rows for a trace, and is not transient."""
    return bool(contract.requires or contract.definition) and not contract.transient


def _missing_goldens(catalog: Catalog, root: Path) -> Iterator[Violation]:
    folder = root / "tests" / "golden"
    for contract in sorted(catalog.contracts.values(), key=lambda c: c.source):
        stem = folder / golden_stem(contract)
        if needs_golden(contract) and not list(stem.parent.glob(f"{stem.name}.*golden")):
            location = f"tests/golden/{golden_stem(contract)}.golden"
            yield Violation(
                location, f"no golden file for {contract.ref}", "write a trace and its expected rows"
            )
