"""A small warehouse with its own contracts and rows written as Parquet, without traces."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conftest import ROOT
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.sql_tokens import quote_text
from tracewarehouse.duck.engine import create_from_rows, scratch
from tracewarehouse.storage.layout import uid
from tracewarehouse.storage.model import Changes, Published, Staged, StagedTable
from tracewarehouse.storage.store import Store

START = 1_750_000_000_000_000_000

KEYS = """
-- run_id = { type = "VARCHAR", doc = "The run." }
-- rank = { type = "INTEGER", doc = "The rank." }"""

KERNELS = f"""{KEYS}
-- event_id = {{ type = "BIGINT", unit = "id", doc = "The event's place." }}
-- name = {{ type = "VARCHAR", doc = "It's the \\"name\\"." }}
-- ts_ns = {{ type = "BIGINT", unit = "ts", doc = "Start." }}
-- dur_ns = {{ type = "BIGINT", unit = "ns", doc = "Length." }}"""

TIMES = f"""{KEYS}
-- count = {{ type = "BIGINT", unit = "count", doc = "Kernels." }}
-- sum_ns = {{ type = "BIGINT", unit = "ns", doc = "Their time." }}"""

BY_RANK = 'grain = ["run_id", "rank"]'
BY_EVENT = 'grain = ["run_id", "rank", "event_id"]'

SQL = {
    "tables/raw.v1.sql": ("table", f"{BY_EVENT}\n-- transient = true", KERNELS, ""),
    "tables/kernels.v1.sql": (
        "table",
        'requires = ["raw@1"]\n-- ' + BY_EVENT,
        KERNELS,
        "SELECT run_id, rank, event_id, name, ts_ns, dur_ns FROM raw",
    ),
    "tables/kernels.v2.sql": (
        "table",
        'requires = ["raw@1"]\n-- ' + BY_EVENT,
        KERNELS,
        "SELECT run_id, rank, event_id, name, ts_ns, dur_ns * 2 AS dur_ns FROM raw",
    ),
    "tables/counters.v1.sql": (
        "table",
        'requires = ["raw@1"]\n-- ' + BY_EVENT,
        KERNELS + '\n-- args = { type = "JSON", null = true, doc = "What it says." }',
        "SELECT run_id, rank, event_id, name, ts_ns, dur_ns, NULL::JSON AS args FROM raw WHERE false",
    ),
    "tables/name_rules.v1.sql": (
        "table",
        'grain = ["word"]',
        '\n-- word = { type = "VARCHAR", doc = "Part of a name." }',
        "SELECT word FROM (VALUES ('gemm'), ('it''s')) AS rule(word)",
    ),
    "tables/data_quality.v1.sql": (
        "table",
        'requires = ["raw@1"]\n-- grain = ["run_id", "rank", "rule"]',
        """
-- run_id = { type = "VARCHAR", doc = "The run." }
-- rank = { type = "INTEGER", null = true, doc = "The rank; null means the run." }
-- rule = { type = "VARCHAR", doc = "The rule." }
-- severity = { type = "VARCHAR", doc = "How bad." }
-- rows = { type = "BIGINT", unit = "count", doc = "Rows." }
-- affected_ns = { type = "BIGINT", unit = "ns", null = true, doc = "Time." }
-- example = { type = "VARCHAR", null = true, doc = "One of them." }""",
        "SELECT run_id, rank, name AS rule, name AS severity, 1, NULL, name AS example FROM raw",
    ),
    "views/gemms.v1.sql": (
        "view",
        'requires = ["kernels@1", "name_rules@1"]\n-- ' + BY_EVENT,
        KERNELS,
        """SELECT run_id, rank, event_id, name, ts_ns, dur_ns
FROM kernels SEMI JOIN name_rules ON contains(name, word)""",
    ),
    "analyses/gpu/kernel_time.v1.sql": (
        "analysis",
        'requires = ["kernels@1"]\n-- needs = ["gpu"]\n-- order = ["-sum_ns"]\n-- ' + BY_RANK,
        TIMES,
        """SELECT run_id, rank, count(*) AS count, sum(dur_ns)::BIGINT AS sum_ns
FROM kernels GROUP BY run_id, rank""",
    ),
    "analyses/gpu/kernel_time.v2.sql": (
        "analysis",
        'requires = ["kernels@1"]\n-- needs = ["gpu"]\n-- order = ["-sum_ns"]\n-- ' + BY_RANK,
        TIMES,
        """WITH
  kernels AS (
    SELECT run_id, rank, dur_ns, name FROM kernels
    WHERE dur_ns >= $least_ns AND ($word IS NULL OR contains(name, $word)) AND name <> '$least_ns'
  )
SELECT run_id, rank, count(*) AS count, sum(dur_ns)::BIGINT AS sum_ns FROM kernels GROUP BY run_id, rank""",
    ),
    "analyses/gpu/doubled_time.v1.sql": (
        "analysis",
        'requires = ["kernels@2", "gemms@1"]\n-- ' + BY_RANK,
        TIMES,
        """SELECT k.run_id, k.rank, count(*) AS count, sum(k.dur_ns - g.dur_ns)::BIGINT AS sum_ns
FROM kernels k JOIN gemms g USING (run_id, rank, event_id) GROUP BY k.run_id, k.rank""",
    ),
    "analyses/gpu/gemm_shapes.v1.sql": (
        "analysis",
        f'requires = ["gemms@1", "ranks@1"]\n-- needs = ["shapes", "steps>=2", "ranks>=2"]\n-- {BY_RANK}',
        TIMES,
        """SELECT g.run_id, g.rank, count(*) AS count, sum(dur_ns)::BIGINT AS sum_ns
FROM gemms g JOIN ranks r ON g.run_id = r.run_id AND g.rank = r.rank GROUP BY g.run_id, g.rank""",
    ),
    "analyses/gpu/launch_time.v1.sql": (
        "analysis",
        f'requires = ["kernels@1"]\n-- needs = ["launches"]\n-- {BY_RANK}',
        TIMES,
        """SELECT run_id, rank, count(*) AS count, sum(dur_ns)::BIGINT AS sum_ns
FROM kernels GROUP BY run_id, rank""",
    ),
    "analyses/quality/findings.v1.sql": (
        "analysis",
        'scope = "run"\n-- requires = ["data_quality@1", "runs@1"]\n-- grain = ["run_id", "rule"]',
        """
-- run_id = { type = "VARCHAR", doc = "The run." }
-- rule = { type = "VARCHAR", doc = "The rule." }
-- rows = { type = "BIGINT", unit = "count", doc = "Rows." }""",
        """SELECT run_id, rule, sum(rows)::BIGINT AS rows
FROM data_quality JOIN runs USING (run_id) GROUP BY run_id, rule""",
    ),
}  # fmt: skip
PARAMS = """--
-- [params]
-- least_ns = { type = "BIGINT", default = 5, unit = "ns", min = 0, doc = "Shorter ones are left out." }
-- word = { type = "VARCHAR", doc = "Only kernels with it in their name." }
"""


def small_catalog(folder: Path, *, without: Sequence[str] = ()) -> Catalog:
    """Contracts with two versions of a table and an analysis, a view, a rule list, and needs."""
    for path, (kind, head, columns, body) in SQL.items():
        if path in without:
            continue
        name, version = Path(path).name.removesuffix(".sql").split(".v")
        changes = "\n".join(f'-- {number} = "Made."' for number in range(int(version), 0, -1))
        params = PARAMS if path.endswith("kernel_time.v2.sql") else ""
        text = (
            f'-- /// tw\n-- kind = "{kind}"\n-- name = "{name}"\n-- version = {version}\n'
            f'-- summary = "It\'s {name}."\n-- {head}\n{params}--\n-- [columns]{columns}\n--\n'
            f"-- [changes]\n{changes}\n-- ///\n{body}\n"
        )
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    for name in ("runs", "ranks"):
        shutil.copy(ROOT / "sql" / "tables" / f"{name}.v1.sql", folder / "tables")
    return Catalog.read(folder)


def kernel(run: str, rank: int, event_id: int, name: str, dur_ns: int) -> dict[str, Any]:
    """A row of `kernels`."""
    start = START + event_id * 100
    return {"run_id": run, "rank": rank, "event_id": event_id, "name": name, "ts_ns": start, "dur_ns": dur_ns}


def kernels(run: str, rank: int) -> list[dict[str, Any]]:
    """Three kernels, different in each rank."""
    named = [("gemm", 10 + rank), ("it's relu", 4), ("copy", 20 * (rank + 1))]
    return [kernel(run, rank, at, name, dur) for at, (name, dur) in enumerate(named)]


def facts(run: str, rank: int, **other: Any) -> dict[str, Any]:
    """The facts of a rank, as in its row of `ranks`."""
    defaults = {
        "source_name": f"{run}-rank{rank}.json.gz",
        "world_size": 2,
        "base_time_ns": START - 1000,
        "start_ns": START + rank,
        "end_ns": START + 1_000_000,
        "device_name": "H100",
        "header": json.dumps({"distributedInfo": {"rank": rank}}),
        "rank_in_file": rank,
        "steps": 3,
        "gpu": True,
        "launches": True,
        "shapes": True,
    }
    return {**defaults, **other}


def stage(
    folder: Path,
    catalog: Catalog,
    run: str,
    rank: int,
    tables: Mapping[str, list[dict[str, Any]]] | None = None,
    content: str = "a",
    **other: Any,
) -> Staged:
    """A rank as ingest would stage it; tables are named `kernels@1`."""
    rows = {"kernels@1": kernels(run, rank)} if tables is None else tables
    made = [_write(folder / f"{name}-{rank}.parquet", catalog, name, rows[name]) for name in rows]
    status, listed_tables = other.pop("status", "intact"), other.pop("listed_tables", None)
    other |= {} if listed_tables is None else {"tables": listed_tables}
    digest = f"{content}-{run}-{rank}"
    rank_facts = facts(run, rank, **other)
    return Staged(
        run=run,
        rank=rank,
        uid=uid(digest, run, rank, format="kineto", format_version=1, definitions={}),
        digest=digest,
        text_bytes=1000,
        format="kineto",
        format_version=1,
        definitions={},
        status=status,
        tables=tuple(made),
        header=rank_facts.pop("header"),
        facts=rank_facts,
    )


def store_run(
    store: Store,
    catalog: Catalog,
    run: str,
    ranks: Sequence[int] = (0, 1),
    *,
    labels: Mapping[str, str | None] | None = None,
    replace: bool = False,
    expected_ranks: int | None = None,
    packed: bool = True,
    **other: Any,
) -> Published:
    """Publishes a run of these ranks."""
    with store.staging() as folder:
        staged = [stage(folder, catalog, run, rank, **other) for rank in ranks]
        sources = store.commit(staged) if packed else tuple(store.commit([one])[0] for one in staged)
    changes = Changes(sources=sources, labels=labels or {}, replace=replace, expected_ranks=expected_ranks)
    return store.publish(run, changes)


def _write(path: Path, catalog: Catalog, name: str, rows: list[dict[str, Any]]) -> StagedTable:
    contract = catalog.get(name)
    types = {column.name: column.type for column in contract.columns}
    with scratch(1) as con:
        create_from_rows(con, "made", types, rows)
        con.execute(f"COPY made TO {quote_text(str(path))} (FORMAT parquet)")
    return StagedTable(contract.name, contract.version, path, len(rows))
