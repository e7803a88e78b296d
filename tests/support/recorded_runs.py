"""A warehouse of many runs with recorded steps, written through the store: no trace and no table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tracewarehouse import Warehouse
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.duck.arrow import table_of
from tracewarehouse.result import Provenance, Result
from tracewarehouse.storage.layout import uid
from tracewarehouse.storage.model import Changes, Staged
from tracewarehouse.storage.results import RecordedAnalysis, write_result
from tracewarehouse.storage.store import Store

START_NS = 1_750_000_000_000_000_000
DAY_NS = 86_400 * 10**9
STEPS = 3


def recorded_runs(
    root: Path,
    periods_ns: Sequence[int | Sequence[int]],
    labels: Mapping[int, Mapping[str, str]] | None = None,
    facts: Mapping[str, object] | None = None,
) -> Warehouse:
    """Runs `night-0000` and so on, a day apart, of one rank: `STEPS` complete steps of a period, or these.

    `facts` are what the headers of their traces say.
    """
    store, catalog = Store.open_or_create(root), Catalog.load()
    contract = catalog.get("step_summary", kind="analysis")
    analysis, files = RecordedAnalysis.of(contract, catalog), {}
    with store.staging() as folder:
        for at, given in enumerate(periods_ns):
            periods = (given,) * STEPS if isinstance(given, int) else tuple(given)
            name = f"night-{at:04d}"
            source = store.commit([_rank(name, f"{at}-{periods}", START_NS + at * DAY_NS, facts or {})])[0]
            published = store.publish(name, Changes(sources=(source,), labels=(labels or {}).get(at, {})))
            assert published.version is not None
            key = analysis.key(published.version, by_step=True)
            path = folder / f"{at}.parquet"
            metadata = {
                "run_id": name,
                "number": 1,
                "ranks": [0],
                "reason": None,
                "complete": {"0": [*range(len(periods))]},
            }
            rows = [
                {"run_id": name, "rank": 0, "step": step, "host_ns": period_ns, "device_ns": period_ns,
                 "period_ns": period_ns, "partial": False}
                for step, period_ns in enumerate(periods)
            ]  # fmt: skip
            result = Result(table_of(contract, rows), Provenance("", (f"{name}@v1",)), contract)
            write_result(path, key, result.table, result.parquet_schema().metadata, metadata)
            files[key] = path
        store.keep_results(files)
    return Warehouse(root)


def _rank(run: str, digest: str, start_ns: int, header: Mapping[str, object]) -> Staged:
    facts = {"start_ns": start_ns, "steps": STEPS, "gpu": True, "world_size": 1, **header}
    key = uid(digest, run, 0, format="kineto", format_version=1, definitions={})
    return Staged(run, 0, key, digest, 1000, "kineto", 1, {}, "intact", (), facts=facts)
