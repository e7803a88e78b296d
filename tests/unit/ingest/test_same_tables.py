"""Every stored table of a trace is the same when read row by row and when rebuilt from stored events."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

import ingesting
import sketch
import table_cases
from conftest import ROOT, real_traces
from trace_texts import EVENT, KINETO_HEAD, SMALL_BYTES, event, trace
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.formats.base import ACTIVITIES, Outcome, Part, Request
from tracewarehouse.formats.kineto import library
from tracewarehouse.formats.kineto.format import KinetoFile, KinetoSource
from tracewarehouse.formats.stored_source import StoredSource
from tracewarehouse.ingest.columns import Columns
from tracewarehouse.ingest.rebuild import READ, Rebuild, rank_rows, stored_files
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.tables.quality import ADDED_TABLES
from tracewarehouse.storage.model import RankSource
from tracewarehouse.storage.store import Store

DATA = ROOT / "tests" / "data"
FOLDER = real_traces()
# Real traces that are small and different: NVIDIA and AMD, graphs, waits for events, counters, odd values.
SMALL_TRACES = (
    "hta-singles/a100_event_sync_multi_stream.json.gz",
    "hta-singles/a100_cupti_profiler_range.json.gz",
    "hta-singles/a100_critical_path_alexnet.json.gz",
    "inference-graphs-mi300/sglang_decode__Qwen3-8B_decode.json.gz",
    "amd-misc/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "odd/zoology_a100_lost_gpu_events.json",
    "odd-derived/odd_types.json.gz",
)
# Rules of `data_quality` that only reading the file finds; every other row is recomputed from the events.
OF_THE_FILE = frozenset(rule for rule, known in rules_of().quality.items() if known.source == "file")
# Those of them that the samples fire, so that no sample loses its point.
OF_THE_SAMPLES = {"lost_events", "repaired_file", "repaired_event", "redacted_value", "time_unit"}
NEEDS_SCANNER = pytest.mark.skipif(not library.available(), reason="the native scanner was not built")


@contextmanager
def row_by_row() -> Iterator[None]:
    """Intact Kineto files are read row by row in this process."""
    read = KinetoFile.read

    def exact(file: KinetoFile, part: Part, request: Request) -> KinetoSource:
        return read(file, part, replace(request, exact=True))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KinetoFile, "read", exact)
        yield


def made_samples() -> dict[str, bytes]:
    """Name → the text of a small trace."""
    deep = '{"correlation":7,"a":' + "[" * 1000 + "]" * 1000 + "}"
    secret = "hf" + "_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"
    odd: list[Any] = [
        event(args={"correlation": "7", "grid": ["x", 2.5], "Collective name": "a"}), 17, {}, event(args="x"),
        event(args={"Input Dims": [1.5], "Ev Idx": 3, "bytes": 2**70}), event(args=None), [1, 2, 3, 4], None,
        event(cat="kernel", args={"correlation": 4294967295, "stream": "0x10"}), event(ts=1.0004, dur=-3),
        event(name=None, ts="nan"), event(ts=1e300), event(cat="new", pid=[1], tid={"a": 1}),
    ]  # fmt: skip
    brackets = [
        *(event(ph="B", name=f"b{at}", tid=at % 2, ts=at, dur=0) for at in range(9)),
        *({"ph": "E", "pid": 1, "tid": at % 2, "ts": 20 + at} for at in range(10)),
    ]
    late = 1712195495521311104
    return {
        "small": SMALL_BYTES,
        "brackets": trace(brackets),
        "deep": KINETO_HEAD + EVENT + b"," + EVENT[:-1] + b',"args":' + deep.encode() + b"}]}",
        "odd": trace(odd),
        "secret": trace([event(), event(args={"token": secret, "a": 1})], password=secret),
        "late": trace([event(ts=late, dur=1500), event(ts=late + 7, dur=20)]),
        "damaged": trace([event(name=f"op {at}") for at in range(9)])[:-20],
        "repaired": trace([event(), event(ts=0.25)]).replace(b"0.25", b"NaN"),
        "timeline": json.dumps([[-1, 1, 512, 7], [5, 2, 8, 0], [6, 9, 8, 12], "x", [7, 2, 1.5, 0]]).encode(),
    }


def write_samples(folder: Path) -> list[Path]:
    """Small traces, each a run."""
    paths = sketch.write((ROOT / "tests" / "properties" / "laws" / "odd.sketch").read_text(), folder)[:1]
    for name, text in made_samples().items():
        paths.append(folder / f"made-{name}" / "trace.json")
        paths[-1].parent.mkdir()
        paths[-1].write_bytes(text)
    given = [DATA / "torch-cpu" / f"{name}.json.gz" for name in ("memory", "stacks", "threads")]
    given += [DATA / "gloo-cpu" / "rank1.json.gz", DATA / "first-steps" / "rank2.json.gz"]
    given += [FOLDER / name for name in SMALL_TRACES] if FOLDER else []
    return paths + [link(path, folder) for path in given]


def link(path: Path, folder: Path) -> Path:
    """A link to a trace, in a folder that is its run."""
    found = folder / f"{path.parent.name}-{path.name.partition('.')[0]}" / path.name
    found.parent.mkdir()
    found.symlink_to(path.resolve())
    return found


@dataclass(frozen=True)
class Kept:
    """The stored tables of a source."""

    store: Store
    source: RankSource

    @property
    def outcome(self) -> Outcome:
        """The outcome of a file without the findings of its reader."""
        source, facts = self.source, self.source.facts
        base_time_ns = facts["base_time_ns"] or 0
        assert isinstance(base_time_ns, int)
        return Outcome(source.digest, self.header, source.text_bytes, 0, base_time_ns=base_time_ns)

    @property
    def header(self) -> str:
        return self.store.headers([self.source])[self.source.name]

    def files(self, table: str) -> tuple[Path, ...]:
        version = self.store.newest(self.source.run)
        assert version is not None
        return stored_files(self.store, Catalog.load(), version, self.source, table)

    def rows(self, table: str) -> Iterator[pa.Table]:
        for path in self.files(table):
            yield from rank_rows(path, self.source.rank)

    def table(self, table: str) -> dict[str, list[Any]]:
        """Column → values; empty without rows."""
        parts = list(self.rows(table))
        return pa.concat_tables(parts).to_pydict() if parts else {}

    def tables(self) -> dict[str, dict[str, list[Any]]]:
        return {contract.name: self.table(contract.name) for contract in Catalog.load().stored_tables()}

    def built_again(self) -> dict[str, dict[str, list[Any]]]:
        """The tables as rebuilt from stored events."""
        table = "memory_timeline" if self.files("memory_timeline") else "events"
        source = StoredSource({table: self.rows(table)}, self.outcome)
        tables = {
            name: Columns.read(reader) if name == ACTIVITIES else reader.read_all()
            for name, reader in source.tables.items()
        }
        return plain(table_cases.built(tables, source.outcome())[1])


def plain(tables: Mapping[str, pa.Table]) -> dict[str, dict[str, list[Any]]]:
    return {name: rows.to_pydict() if rows.num_rows else {} for name, rows in tables.items()}


def kept(root: Path) -> dict[str, Kept]:
    """Run → its only source."""
    store, found = Store.open(root), {}
    for run in store.runs():
        version = store.newest(run)
        assert version is not None
        (source,) = version.sources
        found[run] = Kept(store, source)
    return found


def warehouse(folder: Path, name: str) -> Path:
    """An empty warehouse; all in a folder have the same salt."""
    empty = folder / "empty"
    if not empty.is_dir():
        Store.open_or_create(empty)
    return Path(shutil.copytree(empty, folder / name))


@dataclass(frozen=True)
class Samples:
    folder: Path
    files: list[Path]

    def ingested(self, name: str) -> dict[str, Kept]:
        report = ingesting.take(warehouse(self.folder, name), *self.files, jobs=1)
        assert not report.of("refused")
        return kept(self.folder / name)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    folder = tmp_path_factory.mktemp("samples")
    return Samples(folder, write_samples(folder / "traces"))


@pytest.fixture(scope="module")
def natively(samples: Samples) -> dict[str, Kept]:
    return samples.ingested("natively")


@NEEDS_SCANNER
@pytest.mark.deep
def test_read_row_by_row_every_table_is_the_same(samples: Samples, natively: dict[str, Kept]) -> None:
    with row_by_row():
        rowwise = samples.ingested("row-by-row")
    assert rowwise.keys() == natively.keys() and len(natively) == len(samples.files) > 13
    for run, one in natively.items():
        check_same(one.tables(), rowwise[run].tables(), run)
        assert one.source.facts == rowwise[run].source.facts, run


@pytest.mark.deep
def test_rebuilt_from_stored_events_every_table_is_the_same(natively: dict[str, Kept]) -> None:
    found: set[str] = set()
    for one in natively.values():
        found |= check_built_again(one)
    assert found == OF_THE_SAMPLES


def test_tables_that_a_file_adds_are_the_same_when_rebuilt(tmp_path: Path) -> None:
    node = {"name": "aten::mm", "id": 2, "rf_id": 1, "parent": 1, "inputs": [[1, 2], 0.5], "outputs": [3]}
    kinds = {"input_shapes": [[], []], "input_types": [], "output_shapes": [[]], "output_types": []}
    path = tmp_path / "job" / "rank0_et.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"schema": "1.0.1", "pid": 1, "nodes": [node | kinds]}))
    report = ingesting.take(tmp_path / "wh", path, jobs=1, run="a")
    assert [file.state for file in report.files] == ["intact"]
    (one,) = kept(tmp_path / "wh").values()
    assert one.table("execution_nodes")["inputs"] == ["[[1, 2], 0.5]"]
    check_rebuilt(one)


def check_same(one: dict[str, Any], other: dict[str, Any], what: str) -> None:
    """Every table, cell by cell: texts, so that 1 is not 1.0 and NaN is itself."""
    assert one.keys() == other.keys()
    for table, columns in one.items():
        assert columns.keys() == other[table].keys(), (what, table)
        for name, values in columns.items():
            assert list(map(repr, values)) == list(map(repr, other[table][name])), (what, table, name)


def check_built_again(one: Kept) -> set[str]:
    """The rules of the file reader that fired; only they cannot be recomputed from events."""
    stored, again = one.tables(), one.built_again()
    of_file = split_quality(stored) & OF_THE_FILE
    assert not split_quality(again) & OF_THE_FILE
    for table in ADDED_TABLES:  # not built from events: `check_rebuilt` compares them
        assert not again[table]
        again[table] = stored[table]
    check_same(stored, again, one.source.run)
    check_rebuilt(one)
    return of_file


def split_quality(tables: dict[str, Any]) -> set[str]:
    """The rules that fired; those of the file reader are removed from the table."""
    rules = tables["data_quality"].get("rule", [])
    keep = [at for at, rule in enumerate(rules) if rule not in OF_THE_FILE]
    columns = tables["data_quality"].items()
    tables["data_quality"] = {name: [values[at] for at in keep] for name, values in columns} if keep else {}
    return set(rules)


def check_rebuilt(one: Kept) -> None:
    """Rebuilt as by a later release, with the findings of the file reader, nothing differs."""
    files = {name: one.files(name) for name in READ}
    made: dict[str, pa.Table] = {}

    def add(table: str, rows: Any) -> None:
        made[table] = rows if isinstance(rows, pa.Table) else pa.Table.from_batches(rows)

    task = Rebuild(one.source, one.header, files, one.store.folder, Catalog.load().folder)
    facts = task.build(rules_of(), add, one.store.folder)
    check_same(one.tables(), plain(made), one.source.run)
    assert facts == {**one.source.facts}


def real_files() -> list[Any]:
    """Every file that may be a trace."""
    if FOLDER is None:
        return [pytest.param(None, marks=pytest.mark.skip(reason="no folder of real traces"))]
    files = sorted(path for path in FOLDER.rglob("*") if path.name.endswith((".json", ".gz")))
    return [pytest.param(path, id=str(path.relative_to(FOLDER))) for path in files]


@pytest.mark.deep
@pytest.mark.parametrize("path", real_files())
def test_every_real_trace(tmp_path: Path, path: Path) -> None:
    report = ingesting.take(warehouse(tmp_path, "natively"), path, jobs=1, run="a")
    with row_by_row():
        again = ingesting.take(warehouse(tmp_path, "row-by-row"), path, jobs=1, run="a")
    said, again_said = ([(one.state, one.reason, one.hint) for one in each.files] for each in (report, again))
    assert said == again_said
    if not report.stored:
        return
    (one,), (other,) = kept(tmp_path / "natively").values(), kept(tmp_path / "row-by-row").values()
    check_same(one.tables(), other.tables(), path.name)
    check_built_again(one)
