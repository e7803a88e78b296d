"""The catalog of contracts: read from `sql/`, hashed, checked together, and linked by `requires`.

Those of the installation are compiled: parsed, checked and hashed in one file, which takes 3 ms to read;
parsing all `.sql` files takes 200 ms. An installation writes the file beside this module, and `tw dev sync`
in a checkout. It is used as long as it fits the `.sql` files and the modules that parse them. Its first line
has the version of the tool and a checksum of what follows: a line about all contracts, and one per contract
as JSON.
"""

from __future__ import annotations

import json
import os
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, cached_property
from hashlib import sha256
from itertools import accumulate, pairwise, starmap
from pathlib import Path, PurePath, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
from msgspec import Struct, field, to_builtins
from msgspec.structs import astuple, replace

from tracewarehouse import hints
from tracewarehouse.contracts.contract import FOLDERS, RUN_TABLES, Contract, Kind, Ref
from tracewarehouse.errors import ContractError, UnknownName
from tracewarehouse.version import __version__

# The public names of `Warehouse`, which no contract may have, because every analysis becomes a method.
WAREHOUSE_NAMES = frozenset((
    "acknowledge", "analyze", "catalog", "check", "clean", "close", "compact", "derive", "diff", "discard",
    "export_trace", "fetch", "files", "history", "inbox", "info", "ingest", "label", "left_out",
    "moved_parts", "on", "export_delta", "noted", "query", "read_only", "record", "recorded_runs",
    "refresh", "remove", "remove_secrets", "repair", "report", "report_runs", "expire", "root",
    "runs", "scan", "seal", "secrets", "select", "selected", "selection", "shell_file",
    "store", "upgrade", "verify", "whatif",
))  # fmt: skip
_RESERVED = WAREHOUSE_NAMES | {"open", "export"}
# Names the folder with a team's own contracts. A warehouse never does: SQL of others would run.
OWN_FOLDER = "TW_SQL"
_OWN = ("analyses", "formats")
RUN_SCOPE_TABLES = (
    "runs", "secrets", "ranks", "rank_sources", "recording_reasons", "data_quality", "wait_attribution",
    "wait_attribution_basis",
)  # fmt: skip


def cycles(contracts: Mapping[Ref, Contract]) -> Iterator[ContractError]:
    """An error for each contract that requires itself indirectly."""
    done: set[Ref] = set()

    def visit(ref: Ref, above: tuple[Ref, ...]) -> Iterator[ContractError]:
        if ref in above:
            path = " → ".join(map(str, (*above[above.index(ref) :], ref)))
            yield reference_error(contracts[ref], f"requires itself: {path}", "break the cycle")
        elif ref in contracts and ref not in done:
            for below in contracts[ref].requires:
                yield from visit(below, (*above, ref))
            done.add(ref)

    for ref in contracts:
        yield from visit(ref, ())


def _name_errors(contract: Contract, contracts: Mapping[Ref, Contract]) -> Iterator[ContractError]:
    # `Warehouse.runs()` returns the table `runs`: one meaning, so one name.
    if contract.name in _RESERVED and contract.ref.name != "runs":
        yield reference_error(contract, f"{contract.name} is a method of Warehouse", "rename the contract")
    if contract.group in (None, contract.name):
        return
    same_group = next((contracts[ref] for ref in contracts if ref.name == contract.group), None)
    is_taken = same_group is not None and (
        same_group.kind == "view" or same_group.kind == "analysis" and same_group.group != contract.group
    )
    if is_taken or contract.group in _RESERVED:
        yield reference_error(contract, f"group {contract.group} is already in use", "rename the folder")


def _require_errors(contract: Contract, contracts: Mapping[Ref, Contract]) -> Iterator[ContractError]:
    for ref in contract.requires:
        required = contracts.get(ref)
        if required is None:
            unknown = UnknownName("table or view", str(ref), map(str, contracts))
            yield reference_error(contract, f"requires {ref}, which does not exist", unknown.hint or "add it")
        elif remedy := _why_not(contract, required):
            yield reference_error(contract, f"may not require the {required.kind} {ref}", remedy)
    # The stored tables that the contract reads, also through views.
    refs = list(contract.requires)
    for ref in refs:
        if ref in contracts and contracts[ref].kind == "view":
            refs += [below for below in contracts[ref].requires if below not in refs]
    stored = {ref.name for ref in refs if ref in contracts and contracts[ref].is_stored}
    reasons = {*contract.excluded_by, *contract.limited_by}
    if reasons and (unknown_reasons := reasons - _reasons(contracts)):
        names = ", ".join(sorted(unknown_reasons))
        yield reference_error(contract, f"no reason in recording_rules is named {names}", "write one of them")
    for name in sorted(set(contract.optional) - stored):
        yield reference_error(contract, f"optional names {name}, which it does not read", "remove it")


def _reasons(contracts: Mapping[Ref, Contract]) -> set[object]:
    """The names of the reasons that limit a recording."""
    from tracewarehouse.contracts.sql_tokens import values_list

    rules = max((ref for ref in contracts if ref.name == "recording_rules"), default=None)
    return set() if rules is None else {row["reason"] for row in values_list(contracts[rules].body)}


def reference_error(contract: Contract, message: str, hint: str) -> ContractError:
    """An error about an entire contract."""
    return ContractError(f"{contract.source}:1: {message}", hint)


def _why_not(contract: Contract, required: Contract) -> str | None:
    """The hint if the contract may not read the other, else None."""
    if required.kind == "analysis":
        return "turn what you need of it into a view"
    if required.is_recorded and contract.scope != "fleet":
        return 'its rows depend on what was recorded: write scope = "fleet"'
    if contract.scope == "fleet":
        readable = required.is_recorded or required.is_constant or required.name in RUN_TABLES
        return None if readable else "over runs, read recorded results, rules, runs and ranks"
    if contract.derived and contract.filled_by_program and required.kind == "view":
        return None  # the program reads a whole run
    if contract.kind == "table" and required.kind == "view":
        return "tables are built at ingest: read tables"
    if contract.kind == "table" and required.derived not in (None, contract.derived):
        return f"only tables with derived = {required.derived!r} may read it"
    is_read_later = contract.kind != "table" or contract.derived is not None and required.derived is None
    if is_read_later and required.transient and not required.is_constant:
        return "a transient table exists only during ingest: read a stored one"
    if contract.kind != "table" and contract.scope == "run":
        readable = required.name in RUN_SCOPE_TABLES or required.is_constant
        if required.kind == "table" and not readable:
            tables = ", ".join(RUN_SCOPE_TABLES)
            return f"with scope run read views, rules, {tables}: turn what you need into a view"
    elif required.scope == "run" and required.kind != "table":
        return 'data of a rank does not depend on its run; to read an entire run, write scope = "run"'
    return None


# Reports of `nsys stats` that users of nsys expect by name, and the analysis that is most like each.
NSYS_REPORTS: Mapping[str, str] = MappingProxyType(
    {
        "cuda_gpu_kern_sum": "kernel_summary",
        "cuda_api_sum": "name_summary",
        "cuda_kern_exec_sum": "launch_summary",
        "cuda_gpu_mem_size_sum": "memory_bandwidth_summary",
        "cuda_gpu_mem_time_sum": "memory_bandwidth_summary",
        "cuda_gpu_sum": "kernel_type_breakdown",
        "nvtx_sum": "annotation_breakdown",
        "nvtx_pushpop_sum": "annotation_breakdown",
        "nvtx_startend_sum": "annotation_breakdown",
        "nvtx_kern_sum": "kernels_by_annotation",
        "nvtx_gpu_proj_sum": "kernels_by_annotation",
        "osrt_sum": "name_summary",
    }
)
LOCK_HEADER = "# Written by `tw dev release`. A released version never changes: this file has its hashes.\n"


class Locked(NamedTuple):
    """A line of `released.lock`; the status is `released` or `retired`."""

    ref: Ref
    status: str
    own: str
    effective: str


class Catalog(Struct, frozen=True, dict=True):
    """The contracts by name and version."""

    contracts: Mapping[Ref, Contract]
    folder: Path
    # Those of a team, beside those of the installation.
    own: tuple[Ref, ...] = ()
    _hashes: dict[Ref, str] = field(default_factory=dict)
    _refs: dict[Kind | None, tuple[Ref, ...]] = field(default_factory=dict)
    _serving: dict[Ref, tuple[Contract, ...]] = field(default_factory=dict)
    _own_hashes: Mapping[Ref, str] = field(default_factory=dict)
    _digest: str = ""
    # Why the contracts of the installation were parsed: the compiled ones cannot be used.
    parsed_because: str | None = None

    @classmethod
    def load(cls, root: Path | None = None) -> Catalog:
        """The contracts under `root`, a folder like `sql/`, by default those of the installation; cached.

        To those of the installation, the folder that `TW_SQL` names adds a team's own. Raises ContractError
        for an invalid file.
        """
        own_folder = os.environ.get(OWN_FOLDER) if root is None else None
        return _load(root or sql_folder(), Path(own_folder).absolute() if own_folder else None)

    @classmethod
    def read(cls, folder: Path) -> Catalog:
        """Reads every file without the cache; raises the first ContractError."""
        catalog, errors = cls.scan(folder)
        for error in errors:
            raise error
        return catalog

    @classmethod
    def scan(cls, folder: Path) -> tuple[Catalog, list[ContractError]]:
        """The readable contracts under `folder`, and the errors of the others."""
        contracts: dict[Ref, Contract] = {}
        errors = []
        for path in sorted(path for name in FOLDERS for path in (folder / name).rglob("*.sql")):
            try:
                contract = read_contract(folder, path)
                contracts[contract.ref] = contract
            except ContractError as error:
                errors.append(error)
        catalog = cls(MappingProxyType(contracts), folder)
        return catalog, errors or list(catalog.reference_errors())

    def with_own(self, folder: Path) -> Catalog:
        """These contracts and a team's: formats and analyses, whose names begin with that of the folder."""
        own: dict[Ref, Contract] = {}
        for path in sorted(path for name in _OWN for path in (folder / name).rglob("*.sql")):
            try:
                contract = read_contract(folder, path, self.folder)
            except ContractError as error:
                message = error.message.replace("sql/", f"{folder}/", 1)
                raise ContractError(message, error.hint) from None
            if not contract.name.startswith(f"{folder.name}_"):
                hint = f"rename it, so that no other contract has its name: {folder.name}_{contract.name}"
                raise ContractError(f"{path}: the name does not begin with {folder.name}_", hint)
            own[contract.ref] = contract
        if not own:
            hint = "put files into analyses/findings, another folder of analyses, or formats"
            raise ContractError(f"{OWN_FOLDER}: {folder} has no contracts", hint)
        added = sha256(repr([self.digest, *map(repr, own.values())]).encode()).hexdigest()
        contracts = ChainMap(own, dict(self.contracts))
        combined = replace(self, contracts=contracts, own=tuple(own), _refs={}, _serving={}, _digest=added)
        for contract in own.values():
            for broken in (*_name_errors(contract, contracts), *_require_errors(contract, contracts)):
                raise broken
        return combined

    @property
    def custom_folder(self) -> Path | None:
        """The folder, None for that of the installation, which may be elsewhere on another machine."""
        return None if self.folder == sql_folder() else self.folder

    def get(self, name: str, version: int | None = None, kind: Kind | None = None) -> Contract:
        """The contract with that name, the newest unless a version is given (also as `name@2`)."""
        name, _, text = name.partition("@")
        refs = [ref for ref in self.refs(kind) if ref.name == name]
        if not refs:
            raise self._unknown(name, kind)
        if text and version is None:
            version = int(text) if text.isdecimal() else -1
        ref = max(refs) if version is None else Ref(name, version)
        if ref not in refs:
            raise UnknownName("version", f"{name}@{text or version}", map(str, refs))
        return self.contracts[ref]

    def _unknown(self, name: str, kind: Kind | None) -> UnknownName:
        """The error for an unknown name; the hint names a contract of another kind."""
        same_name = [self.contracts[ref] for ref in self.refs() if ref.name == name]
        if kind and same_name and not same_name[-1].transient:
            return UnknownName(
                kind, name, (), hints.fill("it is a {}: {}", same_name[-1].kind, hints.query(f"FROM {name}"))
            )
        if name in NSYS_REPORTS:
            similar = hints.analysis(NSYS_REPORTS[name])
            return UnknownName(
                kind or "table, view or analysis",
                name,
                (),
                hints.fill("the analysis most like this report of nsys stats: {}", similar),
            )
        names = [ref.name for ref in self.refs(kind)]
        hint = hints.fill("{} lists all of them", hints.call("list"))
        return UnknownName(kind or "table, view or analysis", name, names, hint)

    def tables(self) -> tuple[Contract, ...]:
        """The newest version of each table, by name."""
        return self._newest("table")

    def stored_tables(self) -> tuple[Contract, ...]:
        """The newest versions of the tables that an ingest stores, by name."""
        return tuple(table for table in self.tables() if table.definition and not table.transient)

    def views(self) -> tuple[Contract, ...]:
        """The newest version of each view, by name."""
        return self._newest("view")

    def analyses(self) -> tuple[Contract, ...]:
        """The newest version of each analysis, by name."""
        return self._newest("analysis")

    def rules(self) -> tuple[Contract, ...]:
        """The newest version of each finding rule, by name."""
        return tuple(rule for rule in self.analyses() if rule.group == "findings")

    def answerable(self) -> list[Contract]:
        """The newest versions of analyses, views and tables that a warehouse answers from."""
        contracts = (*self.analyses(), *self.views(), *self.tables())
        return [contract for contract in contracts if not contract.transient]

    def all(self, kind: Kind) -> tuple[Contract, ...]:
        """Every version of every contract of a kind, by name and version."""
        return tuple(self.contracts[ref] for ref in self.refs(kind))

    def refs(self, kind: Kind | None = None) -> tuple[Ref, ...]:
        """Name and version of every contract of a kind, sorted."""
        if kind not in self._refs:
            refs = sorted(self.contracts)
            self._refs[kind] = tuple(ref for ref in refs if kind in (None, self.contracts[ref].kind))
        return self._refs[kind]

    def closure(self, contract: Contract) -> tuple[Contract, ...]:
        """All direct and indirect requirements, each after its own; without the contract."""
        order: dict[Ref, Contract] = {}

        def visit(current: Contract) -> None:
            for ref in current.requires:
                if ref not in order:
                    visit(self.contracts[ref])
                    order[ref] = self.contracts[ref]

        visit(contract)
        return tuple(order.values())

    @cached_property
    def digest(self) -> str:
        """sha256 over all contracts with their docs and comments."""
        if self._digest:
            return self._digest
        texts = [repr(self.contracts[ref]) for ref in sorted(self.contracts)]
        return sha256(repr(texts).encode()).hexdigest()

    def own_hash(self, contract: Contract) -> str:
        """sha256 over the meaning of a contract: without docs, comments, spacing and order."""
        is_known = self.contracts.get(contract.ref) is contract and contract.ref in self._own_hashes
        return self._own_hashes[contract.ref] if is_known else own_hash(contract)

    def description(self, contract: Contract) -> dict[str, Any]:
        """All that a contract says, with its hashes, without its SQL."""
        facts = to_builtins(contract, enc_hook=str)
        requires = [str(ref) for ref in contract.requires]
        hashes = {"own_hash": self.own_hash(contract), "effective_hash": self.effective_hash(contract)}
        entries = {key: value for key, value in facts.items() if key not in ("body", "body_line")}
        return {**entries, "requires": requires, **hashes}

    def effective_hash(self, contract: Contract) -> str:
        """sha256 over its own hash and the hashes of its requirements.

        For a table without a SELECT only the columns that the contract names count, so that a new column
        changes only the hashes of contracts that name it.
        """
        hash_ = self._hashes.get(contract.ref)
        if hash_ is None:
            from tracewarehouse.contracts.sql_tokens import names_read

            names = names_read(contract.body) if contract.body else None
            required = [self.contracts[ref] for ref in sorted(contract.requires)]
            hashes = [self.hash_as_read(table, names) for table in required]
            hash_ = sha256("\n".join([own_hash(contract), *hashes]).encode()).hexdigest()
            self._hashes[contract.ref] = hash_
        return hash_

    def hash_as_read(self, required: Contract, names: Collection[str] | None) -> str:
        """The hash of a table or view for a consumer that names these columns (None: all).

        Compatible versions of a table have the same hash for the columns that both have.
        """
        if required.body:
            return self.effective_hash(required)
        columns = tuple(column for column in required.columns if names is None or column.name in names)
        read = replace(required, version=required.compatible_since, columns=columns)
        below = [self.effective_hash(self.contracts[ref]) for ref in sorted(required.requires)]
        return sha256("\n".join([own_hash(read), *below]).encode()).hexdigest()

    def compatible(self, contract: Contract) -> tuple[Contract, ...]:
        """Every version of a table that its consumers can read, newest first, including itself.

        Older ones lack some nullable columns.
        """
        if contract.ref not in self._serving:
            versions = (self.contracts[ref] for ref in reversed(self.refs()) if ref.name == contract.name)
            self._serving[contract.ref] = tuple(
                version
                for version in versions
                if max(version, contract, key=lambda item: item.version).compatible_since
                <= min(version.version, contract.version)
            )
        return self._serving[contract.ref]

    def _newest(self, kind: Kind) -> tuple[Contract, ...]:
        latest = {ref.name: ref for ref in self.refs(kind)}
        return tuple(self.contracts[ref] for ref in latest.values())

    def reference_errors(self) -> Iterator[ContractError]:
        """Errors between contracts: invalid `requires`, names used twice."""
        kinds: dict[str, str] = {}
        for contract in self.contracts.values():
            if kinds.setdefault(contract.name, contract.kind) != contract.kind:
                yield reference_error(
                    contract, f"{contract.name} is a {kinds[contract.name]} too", "rename one"
                )
            yield from _name_errors(contract, self.contracts)
            yield from _require_errors(contract, self.contracts)
        yield from cycles(self.contracts)

    def compiled(self, *, dated: bool) -> bytes:
        """The file of all contracts. If `dated`, it fits files of the same time or content, else, in a wheel,
        which keeps no times, files of the same size.
        """
        contracts = [self.contracts[ref] for ref in self.refs()]
        lines = [_line(contract) for contract in contracts]
        files = {name: _described(entry, dated) for name, entry in _contract_files(self.folder)}
        about = {
            "digest": self.digest,
            "refs": self.refs(),
            "kinds": [contract.kind for contract in contracts],
            "own_hashes": [self.own_hash(contract) for contract in contracts],
            "effective_hashes": [self.effective_hash(contract) for contract in contracts],
            "files": files,
            "sizes": [len(line) for line in lines],
        }
        content = b"".join([_line(about), *lines])
        return _seal(content) + content


@cache
def _load(folder: Path, own: Path | None) -> Catalog:
    catalog = _installed(folder) if folder == sql_folder() else Catalog.read(folder)
    return catalog if own is None else catalog.with_own(own)


def _installed(folder: Path) -> Catalog:
    """The compiled contracts; where they cannot be used, those in the files of the folder."""
    try:
        about, contracts = _read_compiled(folder)
    except (OSError, ValueError) as error:
        return replace(Catalog.read(folder), parsed_because=str(error))
    kinds = list(zip(contracts, about["kinds"], strict=True))
    return Catalog(
        contracts,
        folder,
        _digest=about["digest"],
        _own_hashes=dict(zip(contracts, about["own_hashes"], strict=True)),
        _hashes=dict(zip(contracts, about["effective_hashes"], strict=True)),
        _refs={
            kind: tuple(ref for ref, own_kind in kinds if kind in (None, own_kind))
            for kind in {None, *about["kinds"]}
        },
    )


def own_hash(contract: Contract) -> str:
    """sha256 over the meaning of a contract, with the tokens of its body or the number of its definition.

    Documentation, the order of rows, and which runs are served (`optional`) may change after a release.
    """
    from tracewarehouse.contracts.sql_tokens import token_texts

    meaning = {
        "kind": contract.kind,
        "scope": contract.scope,
        "name": contract.name,
        "version": contract.version,
        "grain": contract.grain,
        "transient": contract.transient,
        "needs": sorted(contract.needs),
        "params": [[p.name, p.type, p.default, p.unit, p.min, p.max, p.choices] for p in contract.params],
        "columns": [
            [c.name, c.type, c.unit, c.better, c.null, c.signed, c.aggregate] for c in contract.columns
        ],
        "body": token_texts(contract.body),
    }
    if contract.per is not None:
        meaning["per"] = contract.per
    if contract.definition is not None:
        meaning["definition"] = contract.definition
    if contract.raw_tables:
        meaning["raw_tables"] = [astuple(raw_table) for raw_table in contract.raw_tables]
    return sha256(json.dumps(meaning, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def read_lock(folder: Path) -> dict[Ref, Locked]:
    """The content of `released.lock`; empty if nothing was released. Raises ContractError."""
    import tomllib

    path = folder / "released.lock"
    if not path.exists():
        return {}
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        return {locked.ref: locked for locked in (_locked(key, entry) for key, entry in entries.items())}
    except (tomllib.TOMLDecodeError, ValueError, KeyError, TypeError) as error:
        hint = "restore it from version control; only `tw dev release` writes it"
        raise ContractError(f"sql/released.lock: cannot be read: {error}", hint) from None


def _locked(key: str, entry: Mapping[str, str]) -> Locked:
    name, version = key.split("@")
    return Locked(Ref(name, int(version)), entry["status"], entry["own"], entry["effective"])


def write_lock(entries: Mapping[Ref, Locked]) -> str:
    """The text of `released.lock`, one line per contract, by name and version."""
    lines = (
        f'"{ref}" = {{ status = "{status}", own = "{own}", effective = "{effective}" }}\n'
        for ref, status, own, effective in sorted(entries.values())
    )
    return LOCK_HEADER + "".join(lines)


def word_places(contract: Contract, words: Iterable[str]) -> list[int]:
    """Where each word is: 3 in the name of a contract, 2 in its summary, 1 in its columns, 0 nowhere."""
    columns = " ".join(f"{column.name} {column.doc}" for column in contract.columns)
    texts = ("", columns.lower(), contract.summary.lower(), contract.name)
    return [max(n for n, text in enumerate(texts) if not n or word.lower() in text) for word in words]


def sql_folder() -> Path:
    """The `sql/` folder of the installed package, else of the checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "sql", package.parent.parent / "sql"):
        if folder.is_dir():
            return folder
    raise ContractError(f"{package}: no sql folder", "install the package again")


def read_contract(folder: Path, path: Path, bases: Path | None = None) -> Contract:
    """The contract in one file of the folder, like bases of that or another one; raises ContractError."""
    from tracewarehouse.contracts.parse import parse

    def read_base(base: PurePath) -> str:
        return ((bases or folder) / base.relative_to("sql")).read_text(encoding="utf-8")

    source = PurePosixPath("sql", path.relative_to(folder).as_posix())
    try:
        return parse(path.read_text(encoding="utf-8"), source, read_base)
    except UnicodeDecodeError as error:
        raise ContractError(f"{source}: byte {error.start}: not UTF-8", "save it as UTF-8") from None


COMPILED_FILE = Path(__file__).with_name("contracts.jsonl")


class CompiledContracts(Mapping[Ref, Contract]):
    """Contracts by name and version, each decoded on first use from its lines of the file."""

    def __init__(self, file: bytes, lines: Mapping[Ref, slice]) -> None:
        self._file, self._lines = file, lines
        self._decoded: dict[Ref, Contract] = {}

    def __getitem__(self, ref: Ref) -> Contract:
        if ref not in self._decoded:
            self._decoded.setdefault(ref, msgspec.json.decode(self._file[self._lines[ref]], type=Contract))
        return self._decoded[ref]

    def __iter__(self) -> Iterator[Ref]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


def _described(entry: os.DirEntry[str], dated: bool) -> list[int]:
    """The size of a file and, if `dated`, its time and checksum."""
    stat = entry.stat()
    return [stat.st_size, stat.st_mtime_ns, _checksum(entry)] if dated else [stat.st_size]


def _read_compiled(folder: Path) -> tuple[dict[str, Any], CompiledContracts]:
    """What the file holds about all contracts, and the contracts.

    Raises OSError or ValueError with the reason if it is missing, damaged or out of date.
    """
    file = COMPILED_FILE.read_bytes()
    head = file.find(b"\n") + 1
    if file[:head] != _seal(memoryview(file)[head:]):
        raise ValueError(f"{COMPILED_FILE} is damaged, or of another version")
    start = file.index(b"\n", head) + 1
    about: dict[str, Any] = msgspec.json.decode(file[head:start])
    if changed := min(_changed(about["files"], dict(_contract_files(folder))), default=None):
        raise ValueError(f"{COMPILED_FILE} is out of date with {changed}")
    lines = starmap(slice, pairwise(accumulate(about["sizes"], initial=start)))
    refs = (Ref(*pair) for pair in about["refs"])
    return about, CompiledContracts(file, dict(zip(refs, lines, strict=True)))


def _seal(content: bytes | memoryview) -> bytes:
    return f"tracewarehouse {__version__} {crc32(content)}\n".encode()


def _changed(files: Mapping[str, list[int]], entries: Mapping[str, os.DirEntry[str]]) -> Iterator[str]:
    """The files that are not those that the contracts were compiled from. Most are known by their time."""
    yield from files.keys() ^ entries.keys()
    for name in files.keys() & entries.keys():
        size, *dated = files[name]
        stat = entries[name].stat()
        if stat.st_size != size or (
            dated and stat.st_mtime_ns != dated[0] and _checksum(entries[name]) != dated[1]
        ):
            yield name


def _checksum(entry: os.DirEntry[str]) -> int:
    return crc32(Path(entry).read_bytes())


def _contract_files(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Each file that the contracts are made from."""
    folders = [("", str(folder)), ("", str(Path(__file__).parent))]
    for above, path in folders:
        for entry in os.scandir(path):
            if entry.is_dir():
                folders.append((f"{above}{entry.name}/", entry.path))
            elif entry.name.endswith((".sql", ".py")):
                yield f"{above}{entry.name}", entry


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"
