"""Skeletons of a new analysis or finding rule and its golden file, and all checks of one contract."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.parse import NAME
from tracewarehouse.devtools.release import check_checkout, golden_stem, sql_folder_of, sync
from tracewarehouse.devtools.sql_style import Violation
from tracewarehouse.errors import ContractError, ParamError

TODO = "TODO"
# Analyses of this group are finding rules.
_RULES = "findings"
# Tests of all contracts; those of one are selected by its name.
_TESTS = ("tests/properties/laws", "tests/unit/query/test_answers.py", "tests/unit/query/test_plans.py")
_CONTRACT = """-- /// tw
-- kind     = "analysis"
-- name     = "{name}"
-- version  = 1
-- summary  = "TODO: what a row is, in one sentence."
-- requires = ["{ref}"]
-- needs    = ["gpu"]
-- grain    = ["run_id", "rank"]
-- per      = "window"
-- order    = ["run_id", "rank"]
--
-- [columns]
-- run_id = {{ type = "VARCHAR", doc = "The run." }}
-- rank   = {{ type = "INTEGER", doc = "The rank." }}
-- count  = {{ type = "BIGINT", unit = "count", aggregate = "sum", doc = "TODO: what is counted." }}
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  count(*) AS count
FROM {table}
GROUP BY run_id, rank
"""
_GOLDEN = """# TODO: what the trace contains (see tests/support/sketch.py), and why these rows are expected.
trace
  a 0 gpu s7 gemm 0 40
  a 0 gpu s7 gemm 100 10
result
  run_id,rank,count
  a,0,2
"""
_RULE = """-- /// tw
-- kind     = "analysis"
-- like     = "culprit_base@1"
-- name     = "{name}"
-- version  = 1
-- summary  = "TODO: what it detects, in one sentence."
-- requires = ["analyzed_segments@1", "{ref}"]
-- needs    = ["gpu"]
-- confidence = "medium"
--
-- [params]
-- warning_share  = {{ default = 0.1 }}
-- critical_share = {{ default = 0.3 }}
--
-- [columns]
-- subject  = {{ doc = "Always: TODO. Ranks without GPU activity have no row." }}
-- share    = {{ doc = "TODO: which time is lost, as a share of analyzed_ns." }}
-- count    = {{ doc = "Number of such segments." }}
-- culprit  = {{ doc = "The GPU activity with most of this time." }}
-- event_id = {{ doc = "The GPU activity with the longest such segment." }}
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  segment.run_id,
  segment.rank,
  segment.steps,
  segment.analyzed_ns,
  -- TODO: the condition.
  segment.kind = 'memory' AS matches,
  activity.name AS label,
  segment.segment_ns AS lost_ns,
  segment.kernel_id AS event_id,
  segment.step,
  segment.start_ns AS from_ns,
  segment.start_ns + segment.segment_ns AS to_ns,
  {{
    subject: 'TODO',
    saving_limit: 'TODO: what limits the saving',
    observation: 'TODO: what was observed: it takes {{lost}}. The largest part is {{culprit}} ({{detail}}).',
    advice: 'TODO: what to try.',
    evidence: 'kernel_summary',
    evidence_filter: 'kind = ''memory''',
    only_largest: FALSE,
    is_context: FALSE
  }} AS words
FROM analyzed_segments AS segment
LEFT JOIN {table} AS activity
  ON activity.run_id = segment.run_id
  AND activity.rank = segment.rank
  AND activity.event_id = segment.kernel_id
"""
_RULE_GOLDEN = """# TODO: in the complete step 2 (1000 to 2000), rank 0 at the threshold, rank 1 just below.
trace
  a 0 step t1 1 0 1000
  a 0 step t1 2 1000 1000
  a 0 step t1 3 2000 1000
  a 0 gpu s7 first 900 100
  a 0 gpu s7 'Memcpy HtoD (Pinned -> Device)' 1000 100
  a 0 gpu s7 k 1100 900
  a 0 gpu s7 last 2100 900
  a 1 step t1 1 0 1000
  a 1 step t1 2 1000 1000
  a 1 step t1 3 2000 1000
  a 1 gpu s7 first 900 100
  a 1 gpu s7 'Memcpy HtoD (Pinned -> Device)' 1000 99
  a 1 gpu s7 k 1100 900
  a 1 gpu s7 last 2100 900
result
"""


def new(root: Path, name: str, group: str) -> list[Path]:
    """Writes skeletons of an analysis and its golden file, and updates generated files; returns their paths.

    In the group `findings`, the analysis is a finding rule; its golden file has no rows yet, because they
    repeat its texts. Raises ContractError, and ParamError for an invalid or existing name.
    """
    catalog = Catalog.read(sql_folder_of(root))
    for text in (name, group):
        if not NAME.fullmatch(text):
            raise ParamError(f"{text!r} is not snake case", "use lowercase letters, digits and underscores")
    if any(ref.name == name for ref in catalog.refs()):
        raise ParamError(f"{name} already exists", "use another name; for a new version, copy its file")
    kernels = catalog.get("kernels", kind="table")
    contract, golden = (_RULE, _RULE_GOLDEN) if group == _RULES else (_CONTRACT, _GOLDEN)
    texts = {
        root / "sql" / "analyses" / group / f"{name}.v1.sql": contract.format(
            name=name, table=kernels.name, ref=f"{kernels.name}@{kernels.compatible_since}"
        ),
        root / "tests" / "goldens" / "analyses" / group / f"{name}.v1.golden": golden,
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [*texts, *sync(root)]


def check_contract(root: Path, name: str) -> list[Violation]:
    """All problems that CI would report for one contract: in its file, golden files and laws.

    Raises UnknownName.
    """
    catalog, errors = Catalog.scan(sql_folder_of(root))
    if errors:
        return check_checkout(root)
    contract = catalog.get(name)
    own = (contract.source, f"tests/goldens/{golden_stem(contract)}.")
    others = {each.source for each in catalog.contracts.values()} - {contract.source}
    violations = []
    for violation in check_checkout(root):
        source, _, _ = violation.location.partition(":")
        is_of_another = source in others or source.startswith("tests/goldens/")
        if not is_of_another or violation.location.startswith(own):
            violations.append(violation)
    for path in (root / contract.source, *_goldens(root, contract)):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if TODO in line:
                location = f"{path.relative_to(root).as_posix()}:{number}"
                violations.append(Violation(location, f"{TODO} of the skeleton", "replace it"))
    return violations or list(_failed_tests(root, contract))


def _goldens(root: Path, contract: Contract) -> list[Path]:
    stem = root / "tests" / "goldens" / golden_stem(contract)
    return sorted(stem.parent.glob(f"{stem.name}.*golden"))


def _failed_tests(root: Path, contract: Contract) -> Iterator[Violation]:
    """The failed tests of the contract, golden files first, each with the first line of its message."""
    goldens = [path.relative_to(root).as_posix() for path in _goldens(root, contract)]
    failed = list(_run_tests(root, goldens))
    laws = [each for each in _TESTS if (root / each).exists()]
    yield from failed or (_run_tests(root, [*laws, "-k", contract.name]) if laws else ())


def _run_tests(root: Path, arguments: Sequence[str]) -> Iterator[Violation]:
    if not arguments:
        return
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-rfE", "--no-header", "--tb=short"]
    # pytest cuts the reasons in its summary to the width of the terminal.
    wide = {**os.environ, "COLUMNS": "1000"}
    done = subprocess.run([*command, *arguments], cwd=root, env=wide, capture_output=True, text=True)
    if done.returncode in (0, 5):  # 5: no test was selected
        return
    failures = re.findall(r"^(?:FAILED|ERROR) (\S+)(?: - (.*))?$", done.stdout, re.MULTILINE)
    if not failures:
        what = (done.stderr or done.stdout).strip().splitlines()
        raise ContractError(f"pytest cannot run: {what[-1] if what else ''}", "pip install -e '.[dev]'")
    for test, reason in failures:
        folder, _, name = test.partition("::")
        if folder.endswith(".py"):
            yield Violation(test, f"fails: {reason or 'see pytest'}", f"run pytest -n 0 {test}")
        else:
            path = f"{folder}/{name}.golden"
            shows = f"pytest -n 0 {path} shows it; --update-golden accepts the new rows"
            yield Violation(path, f"fails: {reason or 'see pytest'}", shows)
