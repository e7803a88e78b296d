"""The lock on golden rows of tables that builders fill: rows change only with a new definition or version.

A SELECT has a hash that changes with it; a builder has none, so its golden rows stand for what it does.
`sql/definitions.lock` has a line for each golden file of such a table: the definition, a hash of the trace
and one of the rows.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.devtools.sql_style import Finding
from tracewarehouse.errors import ContractError

FILE = "definitions.lock"
_HEADER = "# Written by `tw dev sync`. Golden rows of a table without a SELECT change with its definition.\n"
_SYNC = "run `tw dev sync`"


@dataclass(frozen=True)
class Shown:
    """What a golden file shows: the definition in force, hashes of what is given and of the rows."""

    definition: int
    given: str
    rows: str


def shown(catalog: Catalog, root: Path) -> dict[str, Shown]:
    """Golden file in `tests/golden/tables` → what it shows, of all tables with a definition."""
    found = {}
    for contract in catalog.all("table"):
        if contract.definition is None:
            continue
        stem = f"{contract.name}.v{contract.version}"
        for path in sorted((root / "tests" / "golden" / "tables").glob(f"{stem}.*golden")):
            given, rows = _parts(path.read_text(encoding="utf-8"))
            found[path.name] = Shown(contract.definition, _hash(given), _hash(rows))
    return found


def lock_text(catalog: Catalog, root: Path) -> str:
    """The lock as it should be: lines that still hold are kept, so no run of it allows other rows."""
    known, now = read(catalog.folder), shown(catalog, root)
    kept = {name: known[name] if name in known and _moved(known[name], new) else new
            for name, new in now.items()}  # fmt: skip
    lines = [
        f'"{name}" = {{ definition = {one.definition}, given = "{one.given}", rows = "{one.rows}" }}\n'
        for name, one in sorted(kept.items())
    ]
    return _HEADER + "".join(lines) if lines else ""


def check(catalog: Catalog, root: Path) -> Iterator[Finding]:
    """Golden rows that changed under one definition, and lines that are missing or left over."""
    known, now = read(catalog.folder), shown(catalog, root)
    for name, new in now.items():
        place = f"tests/golden/tables/{name}"
        if name in known and _moved(known[name], new):
            remedy = "raise its `definition`, or give it a new version; if the rows are wrong, correct them"
            yield Finding(place, f"other rows of the same trace under definition {new.definition}", remedy)
        elif known.get(name) != new:
            yield Finding(place, f"sql/{FILE} does not say what it shows", _SYNC)
    for name in sorted(known.keys() - now.keys()):
        yield Finding(f"sql/{FILE}", f"{name} is gone", _SYNC)


def read(folder: Path) -> Mapping[str, Shown]:
    """What the lock says; empty where there is none. Raises ContractError."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        return {name: Shown(**entry) for name, entry in entries.items()}
    except (tomllib.TOMLDecodeError, ValueError, TypeError) as error:
        raise ContractError(f"sql/{FILE}: not readable: {error}", "restore it from version control") from None


def _moved(known: Shown, new: Shown) -> bool:
    """The same trace gives other rows under the same definition."""
    return (known.definition, known.given) == (new.definition, new.given) and known.rows != new.rows


def _parts(text: str) -> tuple[str, str]:
    """What a golden file gives, without comments and blank lines, and the rows that come out."""
    given, _, rows = text.partition("\nresult\n")
    lines = [line.rstrip() for line in given.splitlines()]
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#")), rows


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]
