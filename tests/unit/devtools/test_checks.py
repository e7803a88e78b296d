"""Checks without a trace: binding, style and the lock; each has an example that violates it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tracewarehouse.contracts.catalog import Catalog, Locked, write_lock
from tracewarehouse.devtools.contract_checks import check_catalog
from tracewarehouse.devtools.sql_style import Violation

KERNELS = "tables/kernels.v1.sql"
VIEW = "views/kernel_ends.v1.sql"
BUSY = "analyses/gpu/gpu_busy.v2.sql"
END = "  ts_ns + dur_ns AS end_ns"


def found(folder: Path, file: str, old: str, new: str) -> list[Violation]:
    path = folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return check_catalog(Catalog.read(folder))


def test_the_example_is_clean(sql: Path) -> None:
    assert check_catalog(Catalog.read(sql)) == []


# name of the case: file, text to replace, its replacement
BAD = {
    "sum widens": (BUSY, "END)::BIGINT", "END)"),
    "a column more": (VIEW, END, f"{END},\n  dur_ns"),
    "a column is not there": (VIEW, END, "  ts_ns + duration_ns AS end_ns"),
    "reads what it does not require": (VIEW, "FROM kernels", "FROM kernels\nSEMI JOIN parsed USING (run_id)"),
    "reads a file": (VIEW, "FROM kernels", "FROM read_csv('kernels.csv')"),
    "requires what it does not read": (BUSY, '"kernels@1"]', '"kernels@1", "kernel_ends@1"]'),
    "lower keyword": (VIEW, "FROM kernels", "from kernels"),
    "lower type": (VIEW, END, "  (ts_ns + dur_ns)::bigint AS end_ns"),
    "upper function": (VIEW, END, "  GREATEST(ts_ns, ts_ns + dur_ns) AS end_ns"),
    "camel case": (VIEW, "FROM kernels", "FROM kernels AS theKernels"),
    "quoted camel case": (VIEW, "FROM kernels", 'FROM kernels AS "theKernels"'),
    "star": (VIEW, "FROM kernels", "FROM (SELECT * FROM kernels)"),
    "star of a table": (VIEW, "FROM kernels", "FROM (SELECT k.* FROM kernels AS k)"),
    "from first": (VIEW, "FROM kernels", "FROM (FROM kernels)"),
    "natural join": (VIEW, "FROM kernels", "FROM kernels NATURAL JOIN (SELECT run_id FROM kernels)"),
    "pivot": (VIEW, "FROM kernels", "FROM kernels SEMI JOIN (PIVOT kernels ON rank) USING (run_id)"),
    "columns": (VIEW, "FROM kernels", "FROM kernels WHERE COLUMNS('ts_ns') > 0"),
    "limit": (VIEW, "FROM kernels", "FROM kernels\nLIMIT 10"),
    "sample": (VIEW, "FROM kernels", "FROM kernels USING SAMPLE 10"),
    "order at the top": (VIEW, "FROM kernels", "FROM kernels\nORDER BY ts_ns"),
    "the clock": (VIEW, "FROM kernels", "FROM kernels\nWHERE now() IS NOT NULL"),
    "the clock as a word": (VIEW, "FROM kernels", "FROM kernels\nWHERE current_date IS NOT NULL"),
    "chance": (VIEW, "FROM kernels", "FROM kernels\nWHERE random() > 0"),
    "mean of doubles": (VIEW, "FROM kernels", "FROM kernels\nQUALIFY dur_ns > avg(dur_ns) OVER ()"),
    "deviation": (VIEW, "FROM kernels", "FROM kernels\nQUALIFY 2 < stddev(dur_ns) OVER ()"),
    "approximate": (VIEW, "FROM kernels", "FROM kernels\nQUALIFY 2 < approx_count_distinct(rank) OVER ()"),
    "tuning constant": (VIEW, "FROM kernels", "FROM kernels\nWHERE dur_ns < 30000"),
    "tuning constant between": (VIEW, "FROM kernels", "FROM kernels\nWHERE dur_ns BETWEEN 0 AND 30000"),
    "lead of several": (VIEW, END, "  lead(ts_ns, 1, (ts_ns)) OVER (ORDER BY event_id) AS end_ns"),
    "last value": (VIEW, END, "  last_value(ts_ns IGNORE NULLS) OVER (ORDER BY event_id) AS end_ns"),
    "window without a unique order": (BUSY, "ORDER BY ts_ns, event_id", "ORDER BY ts_ns"),
    "rows as they come": (VIEW, END, "  max(ts_ns) OVER (ROWS UNBOUNDED PRECEDING) AS end_ns"),
    "rows as they come from no unique order": (
        VIEW,
        f"{END}\nFROM kernels",
        "  max(ts_ns) OVER (ROWS UNBOUNDED PRECEDING) AS end_ns\nFROM (SELECT run_id, rank, event_id, ts_ns\n"
        "FROM kernels ORDER BY ts_ns)",
    ),
}  # fmt: skip


def said(folder: Path, case: str) -> list[Violation]:
    return found(folder, *BAD[case])


@pytest.mark.parametrize("case", BAD)
def test_each_rule_fires_once(sql: Path, case: str) -> None:
    findings = said(sql, case)
    assert len(findings) == 1 and findings[0].remedy
    assert findings[0].location.startswith(f"sql/{BAD[case][0]}:")


def test_messages(sql: Path, same_text: Callable[[str, str], None]) -> None:
    lines = []
    for case, (file, _, _) in BAD.items():
        before = (sql / file).read_text()
        for finding in said(sql, case):
            lines += [f"# {case}", f"{finding.location}: {finding.message}", f"hint: {finding.remedy}", ""]
        (sql / file).write_text(before)
    same_text("messages/checks.txt", "\n".join(lines))


@pytest.mark.parametrize(
    "body",
    [
        "SELECT run_id, rank, event_id, count(*) OVER () * 2 AS end_ns FROM kernels",
        "SELECT run_id, rank, event_id, (1000 * ts_ns)::BIGINT AS end_ns FROM kernels WHERE dur_ns <> 4294",
        "SELECT run_id, rank, event_id, {'Big Key': ts_ns}.\"Big Key\" AS end_ns FROM kernels",
        "SELECT run_id, rank, event_id, ts_ns AS end_ns FROM kernels WHERE ts_ns * 1000 > dur_ns",
        "SELECT run_id, rank, event_id, left('SELECT * from x limit 1', 2)::BIGINT AS end_ns FROM kernels",
        "SELECT run_id, rank, event_id, coalesce(lag((ts_ns)) OVER (ORDER BY event_id), 0) AS end_ns "
        "FROM kernels",
        "SELECT run_id, rank, event_id, max(n) OVER (ORDER BY n ROWS UNBOUNDED PRECEDING) AS end_ns FROM ("
        "SELECT run_id, rank, event_id, row_number() OVER (ORDER BY ts_ns, event_id) AS n FROM kernels)",
        "SELECT run_id, rank, event_id, max(ts_ns) OVER (w ROWS UNBOUNDED PRECEDING) AS end_ns FROM kernels "
        "WINDOW w AS (PARTITION BY rank ORDER BY event_id)",
        "WITH turn AS (SELECT run_id, rank, event_id, ts_ns FROM kernels ORDER BY ts_ns, event_id) "
        "SELECT run_id, rank, event_id, max(ts_ns) OVER (ROWS UNBOUNDED PRECEDING) AS end_ns FROM turn",
    ],
)
def test_valid_sql_has_no_violations(sql: Path, body: str) -> None:
    text = (sql / VIEW).read_text()
    assert found(sql, VIEW, text[text.index("SELECT") :], f"{body}\n") == []


def locked(folder: Path, *names: str, status: str = "released") -> None:
    catalog = Catalog.read(folder)
    entries = {
        c.ref: Locked(c.ref, status, catalog.own_hash(c), catalog.effective_hash(c))
        for c in map(catalog.get, names)
    }
    (folder / "released.lock").write_text(write_lock(entries))


def test_a_released_contract_does_not_change(sql: Path) -> None:
    locked(sql, "gpu_busy", "kernels")
    assert check_catalog(Catalog.read(sql)) == []
    findings = found(sql, BUSY, "nullif(span_ns, 0)", "nullif(span_ns, 1)")
    assert findings == [
        Violation(
            "sql/analyses/gpu/gpu_busy.v2.sql:1",
            "gpu_busy@2 is released, but was changed",
            "restore the released file and write gpu_busy.v3.sql",
        )
    ]


def test_a_released_contract_keeps_its_dependencies(sql: Path) -> None:
    locked(sql, "gpu_busy", "kernels")
    findings = found(sql, KERNELS, "'kernel'", "'gpu_kernel'")
    assert [(f.location, f.message) for f in findings] == [
        (
            "sql/analyses/gpu/gpu_busy.v2.sql:1",
            "gpu_busy@2 is released, but its dependency kernels@1 was changed",
        ),
        ("sql/tables/kernels.v1.sql:1", "kernels@1 is released, but was changed"),
    ]


def test_a_released_file_is_not_deleted(sql: Path) -> None:
    locked(sql, "gpu_busy")
    (sql / BUSY).unlink()
    (finding,) = check_catalog(Catalog.read(sql))
    assert (finding.location, finding.message) == (
        "sql/released.lock",
        "gpu_busy@2 is released, but its file was deleted",
    )


def test_a_retired_version_is_not_used_again(sql: Path) -> None:
    locked(sql, "gpu_busy", status="retired")
    (finding,) = check_catalog(Catalog.read(sql))
    assert (finding.message, finding.remedy) == ("gpu_busy@2 is retired", "use the next number")
