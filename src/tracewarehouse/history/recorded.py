"""The values of a metric from recorded results: one read over the files of all runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import quote_name, quote_text
from tracewarehouse.duck.engine import Connection, Error, connect
from tracewarehouse.errors import WarehouseError
from tracewarehouse.metric import Measured, Metric, Ranks
from tracewarehouse.metric.model import BY_STEP
from tracewarehouse.metric.values import COMPLETE, ROWS, Step, evaluate_in, threads_for
from tracewarehouse.storage import RECORDED, Recorded, RunVersion, Store, run_key

if TYPE_CHECKING:
    import pyarrow as pa


def measured(store: Store, metric: Metric, recorded: Mapping[str, str]) -> Measured:
    """The metric of each run (`RUN@vN`) from the file of its result; raises WarehouseError for damage."""
    names = {str(store.path(key)): run for run, key in recorded.items()}
    with _reading(store, threads_for(metric)) as con:
        told = {names[path]: said for path, said in _said(con, list(names))}
        _table(con, "names", {"filename": "VARCHAR", "run_id": "VARCHAR"}, list(names.items()))
        con.execute(
            f"CREATE VIEW {ROWS} AS SELECT names.run_id, told.* EXCLUDE (run_id, filename)"
            f" FROM {_files(list(names))} AS told JOIN names USING (filename)"
        )
        ranks = {run: Ranks(tuple(told[run]["ranks"]), told[run]["reason"]) for run in recorded}
        steps = _complete_steps(metric, {run: said["complete"] for run, said in told.items()})
        if steps is not None:
            _table(con, COMPLETE, {"run_id": "VARCHAR", "rank": "INTEGER", "step": "BIGINT"}, steps)
        return evaluate_in(con, metric, ranks, steps)


def seen(store: Store, metric: Metric, recorded: Iterable[str]) -> list[pa.Table]:
    """The values that the rows have in the columns of the filters, whether they meet the filters or not."""
    if not metric.filters:
        return []
    columns = ", ".join(quote_name(column.name) for column, _ in metric.filters)
    paths = [str(store.path(key)) for key in recorded]
    with _reading(store) as con:
        return [con.sql(f"SELECT DISTINCT {columns} FROM {_files(paths)}").to_arrow_table()]


@contextmanager
def _reading(store: Store, threads: int | None = None) -> Iterator[Connection]:
    try:
        with connect(threads=threads) as con:
            yield con
    except Error as error:
        raise _damaged(str(error).partition("\n")[0]) from error


def _said(con: Connection, paths: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each file says of itself."""
    key = f"{quote_text(RECORDED)}::BLOB"
    sql = f"SELECT file_name, value FROM parquet_kv_metadata({_listed(paths)}) WHERE key = {key}"
    found = {path: json.loads(value) for path, value in con.execute(sql).fetchall()}
    for path in paths:
        if path not in found:
            raise _damaged(f"{path} is no recorded result")
        yield path, found[path]


def _damaged(what: str) -> WarehouseError:
    hint = "tw verify says which file; take it away, and tw record --all brings it back"
    return WarehouseError(f"recorded results cannot be read: {what}", hint)


def _table(con: Connection, name: str, types: Mapping[str, str], rows: Sequence[tuple[object, ...]]) -> None:
    """Makes a table of the rows; Arrow would import pandas for that, which takes longer than all the rest."""
    columns = ", ".join(f"unnest(CAST(? AS {type_}[])) AS {column}" for column, type_ in types.items())
    values = [[row[at] for row in rows] for at in range(len(types))]
    con.execute(f"CREATE TABLE {name} AS SELECT {columns}", values)


def _files(paths: Iterable[str]) -> str:
    return f"read_parquet({_listed(paths)}, filename = true, hive_partitioning = false)"


def _listed(paths: Iterable[str]) -> str:
    return f"[{', '.join(map(quote_text, paths))}]"


def _complete_steps(metric: Metric, steps: Mapping[str, Mapping[str, list[int]]]) -> list[Step] | None:
    """The complete steps of each run; None where the metric is not per step."""
    if not metric.has_steps or metric.steps_optional and not any(steps.values()):
        return None
    return [
        (run, int(rank), step)
        for run, ranks in steps.items()
        for rank, told in ranks.items()
        for step in told
    ]


@dataclass(frozen=True)
class Asking:
    """An analysis as this release defines it, with all its parameters at their defaults."""

    contract: Contract
    effective: str
    derived: frozenset[str]

    @classmethod
    def of(cls, contract: Contract, catalog: Catalog) -> Asking:
        """The analysis, with its hash and the derived tables that it reads."""
        below = (each for each in catalog.closure(contract) if each.kind == "table" and each.derived)
        return cls(contract, catalog.effective_hash(contract), frozenset(each.name for each in below))

    @property
    def steps_optional(self) -> bool:
        """Whether the analysis tells steps only where a parameter asks for it."""
        return any(param.name == BY_STEP for param in self.contract.params)

    @property
    def definition(self) -> str:
        """The begin of the effective hash, as recorded results have it in their names."""
        return self.effective[:16]

    def params(self, by_step: bool) -> dict[str, object]:
        """What the analysis is run with: steps apart where it can tell them and the run has complete ones."""
        return {BY_STEP: True} if self.steps_optional and by_step else {}

    def recorded(self, version: RunVersion, by_step: bool) -> Recorded:
        """What its result for that version of a run is recorded as."""
        return Recorded(
            self.contract.name,
            self.contract.version,
            run_key(version.run),
            self.definition,
            self._asked(version, self.params(by_step)),
            version.source,
        )

    def ways(self, version: RunVersion) -> tuple[Recorded, ...]:
        """What its result may be recorded as, the finer one first."""
        return tuple(dict.fromkeys(self.recorded(version, by_step) for by_step in (True, False)))

    def _asked(self, version: RunVersion, params: Mapping[str, object]) -> str:
        """8 hex digits for the parameters, and for tables that were derived after the trace was read."""
        derived = [
            [source.rank, file.table, file.sha256]
            for source in version.sources
            for file in source.files
            if file.table in self.derived
        ]
        return sha256(json.dumps([sorted(params.items()), sorted(derived)]).encode()).hexdigest()[:8]
