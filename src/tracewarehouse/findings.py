"""All rules asked, their rows put together, and what no rule could judge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.result import Abstained, Field, Provenance, Result, from_rows

GROUP = "findings"
NONE = "none"
NOTHING = "nothing to judge by"
SEVERITIES = (NONE, "info", "warning", "critical")  # mild to grave


def rules(catalog: Catalog) -> tuple[Contract, ...]:
    """The rules, by name: the newest version of each analysis of the group."""
    return tuple(each for each in catalog.analyses() if each.group == GROUP)


def fields_of(rule: Contract) -> tuple[Field, ...]:
    """The columns of findings: those that every rule has, with the rule's name before its subject."""
    own = [Field(each.name, each.type, each.unit) for each in rule.columns]
    keys = ("run_id", "rank")
    first = [each for each in own if each.name in keys]
    return (*first, Field("rule", "VARCHAR"), *(each for each in own if each.name not in keys))


def ask(
    catalog: Catalog,
    run: Callable[[str], Result],
    ranks: Iterable[tuple[str, int]],
    *,
    passed: bool = False,
) -> Result:
    """What each rule found, by severity, then by what could be saved; with `passed` also what it did not.

    `run` gives the result of an analysis over the `ranks` (run, rank). Those that a rule could not judge, or
    has no row of, are in `abstained`, the rules after the reason.
    """
    asked = rules(catalog)
    found = {rule.name: run(rule.name) for rule in asked}
    fields = fields_of(asked[0])
    rows = [
        {**row, "rule": name}
        for name, result in found.items()
        for row in result.rows()
        if passed or row["severity"] != NONE
    ]
    rows.sort(key=_gravest)
    told = from_rows(fields, [[row[each.name] for each in fields] for row in rows])
    notices = tuple(dict.fromkeys(each for result in found.values() for each in result.notices))
    return replace(
        told,
        provenance=_provenance(list(found.values())),
        abstained=tuple(_abstained(found, tuple(ranks))),
        notices=notices,
    )


def at_least(result: Result, severity: str) -> int:
    """How many findings are of that severity or a graver one."""
    grave = SEVERITIES[SEVERITIES.index(severity) :]
    return sum(row["severity"] in grave for row in result.rows())


def _gravest(row: dict[str, Any]) -> tuple[object, ...]:
    saving = row["saving_ns"]
    grave = SEVERITIES.index(row["severity"])
    return (-grave, saving is None, -(saving or 0), row["run_id"], row["rank"], row["rule"], row["subject"])


def _abstained(found: Mapping[str, Result], ranks: Sequence[tuple[str, int]]) -> Iterator[Abstained]:
    """A line per rank and reason, with the rules that need what it lacks."""
    silent: dict[tuple[str, int, str], list[str]] = defaultdict(list)
    for name, result in found.items():
        told = {(row["run_id"], row["rank"]) for row in result.rows()}
        why = {(each.run_id, each.rank): each.reason for each in result.abstained}
        for place in ranks:
            if place not in told:
                silent[*place, why.get(place, NOTHING)].append(name)
    for (run, rank, reason), names in silent.items():
        yield Abstained(run, rank, hints.fill("{}: {}", reason, ", ".join(names)))


def _provenance(results: Sequence[Result]) -> Provenance:
    """Where all rows come from; `params` has each rule's, by rule and version."""
    first = results[0].provenance
    asked = {f"{each.provenance.analysis}@{each.provenance.version}": each.provenance for each in results}
    return Provenance(
        tool=first.tool,
        runs=first.runs,
        params={rule: each.params for rule, each in asked.items()},
        tables={name: number for each in asked.values() for name, number in each.tables.items()},
        ranks=first.ranks,
    )
