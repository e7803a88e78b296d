"""The `.sql` files of a folder: where they are, and the contracts in them, each read when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from .between import circle, faults_of
from .contract import FOLDERS, Contract, Kind, Ref, parse, ref_of
from .errors import ContractError


class SqlFiles(Mapping[Ref, Contract]):
    """The contracts under a folder by name and version; one and all it requires are read on first use.

    Raises ContractError: for a path that is none of a contract at once, for what is wrong in a file then.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths: dict[Ref, Path] = {}
        self._read: dict[Ref, Contract] = {}
        self._reading: dict[Ref, Contract] = {}
        for path in contract_files(folder):
            self._paths[ref_of(path) or read_contract(folder, path).ref] = path

    def __getitem__(self, ref: Ref) -> Contract:
        if ref in self._reading:
            above = tuple(self._reading)
            raise circle(self._reading[ref], (*above[above.index(ref) :], ref))
        if ref not in self._read:
            self._read[ref] = self._checked(ref, read_contract(self.folder, self._paths[ref]))
        return self._read[ref]

    def __iter__(self) -> Iterator[Ref]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def kind(self, ref: Ref) -> Kind:
        """What a contract is, by its folder: read from the path alone."""
        return FOLDERS[self._paths[ref].relative_to(self.folder).parts[0]]

    def _checked(self, ref: Ref, contract: Contract) -> Contract:
        self._reading[ref] = contract
        try:
            for error in faults_of(contract, self):
                raise error
        finally:
            del self._reading[ref]
        return contract


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
