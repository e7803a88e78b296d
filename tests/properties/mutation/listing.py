"""The list of mutants with the check that catches each, and equivalent mutants."""

from __future__ import annotations

import csv
import hashlib
import re
import tomllib
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from mutants import Mutant, mutants

from conftest import ROOT
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.parse import INPUT
from tracewarehouse.contracts.sql_tokens import token_texts

HERE = Path(__file__).resolve().parent
FILE = HERE / "MUTANTS.csv"
EQUIVALENT: dict[str, dict[str, str]] = tomllib.loads((HERE / "equivalent.toml").read_text(encoding="utf-8"))
NO_CHANGE = "equivalent"
LIKE = re.compile(r'^-- like += "(\w+)@(\d+)"', re.MULTILINE)
ENDLESS = "no end"  # its query does not end, and cannot be interrupted


@dataclass(frozen=True)
class Line:
    """A mutant and the check that caught it; `sql` is a hash of the original SELECT."""

    contract: str
    sql: str
    change: str
    place: str
    killed_by: str = ""

    @property
    def reason(self) -> str | None:
        """Why no data can distinguish it from the original, if that is documented."""
        return EQUIVALENT.get(self.contract, {}).get(f"{self.change} | {self.place}")

    def same(self, other: Line) -> bool:
        """Whether both are the same mutant."""
        return (self.contract, self.sql, self.change, self.place) == (
            other.contract, other.sql, other.change, other.place,
        )  # fmt: skip


Lines = dict[str, list[Line]]


def lines_of(contract: Contract, *, every: bool = False) -> list[tuple[Line, Mutant]]:
    """The current mutants of the contract, each with a line without a check."""
    sql = hashlib.sha256(" ".join(token_texts(contract.body)).encode()).hexdigest()[:8]
    made = mutants(contract, every=every)
    return [(Line(str(contract.ref), sql, one.change, one.place), one) for one in made]


def read(path: Path = FILE) -> Lines:
    """The lines by contract; none without a file."""
    found: Lines = {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                found.setdefault(row["contract"], []).append(Line(**row))
    return found


def write(lines: Lines, path: Path = FILE) -> None:
    """Writes the lines of existing contracts, sorted."""
    known = {str(contract.ref) for contract in mutated()}
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, [field.name for field in fields(Line)], lineterminator="\n")
        out.writeheader()
        out.writerows(asdict(line) for ref in sorted(known & lines.keys()) for line in lines[ref])


def caught_in_base(lines: Lines) -> list[Line]:
    """Mutants of a base's own SELECT that nothing catches in one contract, but a golden file in another.

    A base is one file: this edit makes that golden file fail.
    """
    based = {str(contract.ref): base for contract in mutated() if (base := _base(contract.source))}
    known = [(based[ref], line) for ref in based for line in lines.get(ref, []) if _is_of_base(line)]
    golden = {
        (base, line.change, line.place): line.killed_by
        for base, line in known
        if line.killed_by.startswith("golden ")
    }
    open_ = [
        (line, base, golden.get((base, line.change, line.place)))
        for base, line in known
        if not line.killed_by
    ]
    return [replace(line, killed_by=f"base {base}: {found}") for line, base, found in open_ if found]


def _is_of_base(line: Line) -> bool:
    return not line.place.startswith(f"{INPUT}:")


def _base(source: str) -> str | None:
    """The base with the outermost SELECT, of an `.sql` file below the root."""
    found = LIKE.search((ROOT / source).read_text(encoding="utf-8"))
    if found is None:
        return None
    return _base(f"sql/bases/{found[1]}.v{found[2]}.sql") or f"{found[1]}@{found[2]}"


def mutated() -> list[Contract]:
    """The contracts to mutate: every version of every analysis and view."""
    found = [c for c in Catalog.load().contracts.values() if c.kind != "table"]
    return sorted(found, key=lambda contract: contract.source)


def is_current(lines: Collection[Line], contract: Contract, *, every: bool = False) -> bool:
    """Whether these are the current mutants of the contract."""
    made = lines_of(contract, every=every)
    return len(made) == len(lines) and all(line.same(one) for line, (one, _) in zip(lines, made, strict=True))


def selected(lines: Lines, only: Collection[str], again: bool, every: bool) -> list[Contract]:
    """The contracts to check: the named ones, else those that changed since the list was written."""
    if only:
        found = [contract for contract in mutated() if {contract.name, str(contract.ref)} & set(only)]
        assert found, f"no analysis or view with the name {', '.join(only)}"
        return found
    return [c for c in mutated() if again or not _settled(lines.get(str(c.ref), []), c, every)]


def _settled(lines: Collection[Line], contract: Contract, every: bool) -> bool:
    return is_current(lines, contract, every=every) and all(line.killed_by for line in lines)
