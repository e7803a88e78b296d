"""The file that says of each mutant who caught it, and the mutants that change nothing."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from mutants import Mutant, mutants

from tracewarehouse.catalog import Catalog
from tracewarehouse.contract import Contract

HERE = Path(__file__).resolve().parent
FILE = HERE / "MUTANTS.csv"
EQUIVALENT: dict[str, dict[str, str]] = tomllib.loads((HERE / "equivalent.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Line:
    """A mutant and what caught it."""

    contract: str
    number: int
    change: str
    place: str
    killer: str

    @classmethod
    def of(cls, mutant: Mutant, killer: str) -> Line:
        """The line of a mutant; without a killer, one that is argued to change nothing says so."""
        ref = str(mutant.contract.ref)
        if not killer and f"{mutant.change} | {mutant.place}" in EQUIVALENT.get(ref, {}):
            killer = "equivalent"
        return cls(ref, mutant.number, mutant.change, mutant.place, killer)

    def same(self, mutant: Mutant) -> bool:
        """Whether it is about this mutant."""
        about = str(mutant.contract.ref), mutant.number, mutant.change, mutant.place
        return about == (self.contract, self.number, self.change, self.place)


Lines = dict[str, list[Line]]


def read(path: Path = FILE) -> Lines:
    """The lines by contract; none where there is no file."""
    found: Lines = {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                line = Line(row["contract"], int(row["number"]), row["change"], row["place"], row["killer"])
                found.setdefault(line.contract, []).append(line)
    return found


def write(lines: Lines, path: Path = FILE) -> None:
    """Writes those of contracts that are there, sorted."""
    known = {str(contract.ref) for contract in mutated()}
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, [field.name for field in fields(Line)], lineterminator="\n")
        out.writeheader()
        out.writerows(asdict(line) for ref in sorted(known & lines.keys()) for line in lines[ref])


def mutated() -> list[Contract]:
    """The contracts that are broken: every version of every analysis and view."""
    found = [c for c in Catalog.load().contracts.values() if c.kind != "table"]
    return sorted(found, key=lambda contract: contract.source)


def is_current(lines: Collection[Line], contract: Contract) -> bool:
    """Whether these are the contract's mutants, as the generator gives them now."""
    made = mutants(contract)
    return len(made) == len(lines) and all(line.same(one) for line, one in zip(lines, made, strict=True))


def chosen(lines: Lines, only: Collection[str], every: bool) -> list[Contract]:
    """The contracts to look at: those named, else those that the file does not know as they are."""
    if only:
        return [contract for contract in mutated() if {contract.name, str(contract.ref)} & set(only)]
    return [c for c in mutated() if every or not _settled(lines.get(str(c.ref), []), c)]


def _settled(lines: Collection[Line], contract: Contract) -> bool:
    return is_current(lines, contract) and all(line.killer for line in lines)
