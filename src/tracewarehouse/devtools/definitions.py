"""The lock of golden rows of tables without a SELECT: they change only with a new definition or version.

The hash of a SELECT changes with it. Tables that a builder fills have no such hash, so their golden rows are
locked instead: `sql/definitions.lock` has a line per golden file with the definition, a hash of the trace and
a hash of the rows.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.devtools.sql_style import Violation
from tracewarehouse.errors import ContractError

FILE = "definitions.lock"
_HEADER = "# Written by `tw dev sync`. Golden rows of a table without a SELECT change with its definition.\n"
_SYNC = "run `tw dev sync`"


@dataclass(frozen=True)
class LockedGolden:
    """The state of a golden file: the table's definition, a hash of the trace (`given`), one of the rows."""

    definition: int
    given: str
    rows: str


def current(catalog: Catalog, root: Path) -> dict[str, LockedGolden]:
    """Golden file in `tests/golden/tables` → its state, for all tables with a definition."""
    found = {}
    for contract in catalog.all("table"):
        if contract.definition is None:
            continue
        stem = f"{contract.name}.v{contract.version}"
        for path in sorted((root / "tests" / "golden" / "tables").glob(f"{stem}.*golden")):
            given, rows = _parts(path.read_text(encoding="utf-8"))
            found[path.name] = LockedGolden(contract.definition, _hash(given), _hash(rows))
    return found


def lock_text(catalog: Catalog, root: Path) -> str:
    """The updated lock; lines that `check` reports are kept, so updating cannot accept changed rows."""
    known, now = read(catalog.folder), current(catalog, root)
    kept = {name: known[name] if name in known and _has_changed_rows(known[name], new) else new
            for name, new in now.items()}  # fmt: skip
    lines = [
        f'"{name}" = {{ definition = {one.definition}, given = "{one.given}", rows = "{one.rows}" }}\n'
        for name, one in sorted(kept.items())
    ]
    return _HEADER + "".join(lines) if lines else ""


def check(catalog: Catalog, root: Path) -> Iterator[Violation]:
    """Golden rows that changed without a new definition, and missing or obsolete lines."""
    known, now = read(catalog.folder), current(catalog, root)
    for name, new in now.items():
        location = f"tests/golden/tables/{name}"
        if name in known and _has_changed_rows(known[name], new):
            remedy = (
                "raise `definition` or add a version; if the locked rows were never released,"
                f" delete the line of the file in sql/{FILE} and run `tw dev sync`"
            )
            yield Violation(location, f"the rows changed, but not definition {new.definition}", remedy)
        elif known.get(name) != new:
            yield Violation(location, f"sql/{FILE} is out of date", _SYNC)
    for name in sorted(known.keys() - now.keys()):
        yield Violation(f"sql/{FILE}", f"{name} does not exist", _SYNC)


def read(folder: Path) -> Mapping[str, LockedGolden]:
    """The lines of the lock; empty without a lock. Raises ContractError."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        return {name: LockedGolden(**entry) for name, entry in entries.items()}
    except (tomllib.TOMLDecodeError, ValueError, TypeError) as error:
        raise ContractError(f"sql/{FILE}: not readable: {error}", "restore it from version control") from None


def _has_changed_rows(known: LockedGolden, new: LockedGolden) -> bool:
    """Whether the same trace has other rows under the same definition."""
    return (known.definition, known.given) == (new.definition, new.given) and known.rows != new.rows


def _parts(text: str) -> tuple[str, str]:
    """The input of a golden file, without comments and blank lines, and the expected rows."""
    given, _, rows = text.partition("\nresult\n")
    lines = [line.rstrip() for line in given.splitlines()]
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#")), rows


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]
