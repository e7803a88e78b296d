"""Gates on the command line: their files and options, their outcome as an exit code, JUnit XML and rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import click

from tracewarehouse.errors import TwError
from tracewarehouse.hints import cli_text
from tracewarehouse.present.render.text import plural

if TYPE_CHECKING:
    from tracewarehouse.compare.diff.gate import GateResult
    from tracewarehouse.contracts.catalog import Catalog


class GateFailed(TwError):
    """A gate failed."""

    exit_code = 3


OF_GATES = ("strict", "within_run", "junit")
# Names of kernels have a # too, as in {lambda()#1}.
_COMMENT = re.compile(r"(?:^|\s)#.*")


def check_options_of_gates(own: Mapping[str, object], gates: Sequence[str]) -> None:
    """Raises UsageError for options that say how gates are tested, without a gate; TwError for no place."""
    from tracewarehouse.cli.output import check_writable

    for key in OF_GATES:
        if own[key] and not gates:
            raise click.UsageError(f"--{key.replace('_', '-')} needs --gate or --gate-file")
    if isinstance(path := own["junit"], Path):
        check_writable(path)


def gates_of_file(path: Path | None) -> list[str]:
    """The gates of a file, without comments and blank lines; raises UsageError if there are none."""
    if path is None:
        return []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{path} is not UTF-8 text: byte {error.start} is invalid") from error
    gates = [gate for line in lines if (gate := _COMMENT.sub("", line).strip())]
    if not gates:
        raise click.UsageError(f"no gates in {path}")
    return gates


def gate_error(results: Sequence[GateResult], strict: bool, hint: str | None) -> GateFailed | None:
    """The error for gates that fail; inconclusive ones fail if `strict`."""
    failed = [each for outcome in ("fail", "inconclusive") for each in results if each.outcome == outcome]
    failed = [each for each in failed if _fails(each, strict)]
    if not failed:
        return None
    texts = ", ".join(each.gate.text for each in failed)
    return GateFailed(f"{len(failed)} of {plural(len(results), 'gate')} failed: {texts}", hint)


def gate_rows(results: Iterable[GateResult]) -> list[dict[str, object]]:
    """Gates as rows of the JSON envelope."""
    return [{"gate": each.gate.text, **{key: getattr(each, key) for key in _GATE_FIELDS}} for each in results]


_GATE_FIELDS = (
    *("outcome", "base", "head", "value", "low", "high", "reason", "test"),
    *("detects", "power_at_bound", "power_at_twice"),
)


def inconclusive_gates(texts: Sequence[str], catalog: Catalog, why: str) -> list[GateResult]:
    """The results of gates that nothing was compared for."""
    from tracewarehouse.compare.diff.gate import GateResult, parse

    return [GateResult(parse(text, catalog), "inconclusive", None, None, None, reason=why) for text in texts]


def junit(results: Sequence[GateResult], line: str, strict: bool) -> str:
    """JUnit XML with a test case per gate; an inconclusive gate is skipped, or with `strict` a failure."""
    failures = sum(_fails(each, strict) for each in results)
    skipped = sum(each.outcome == "inconclusive" for each in results) if not strict else 0
    counts = {"tests": str(len(results)), "failures": str(failures), "skipped": str(skipped)}
    suite = ElementTree.Element("testsuite", {"name": "tw diff", **counts})
    for each in results:
        case = ElementTree.SubElement(suite, "testcase", {"classname": "tw.diff", "name": each.gate.text})
        if each.outcome != "pass":
            kind = "failure" if _fails(each, strict) else "skipped"
            ElementTree.SubElement(case, kind, {"message": _gate_message(each)})
    ElementTree.SubElement(suite, "system-out").text = line
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _fails(result: GateResult, strict: bool) -> bool:
    return result.outcome == "fail" or strict and result.outcome == "inconclusive"


def _gate_message(result: GateResult) -> str:
    from tracewarehouse.cli.diff_text import gate_power, gate_value
    from tracewarehouse.present.render.text import show

    base, head = (show(each, result.gate.metric.column.unit) for each in (result.base, result.head))
    parts = [f"base {base}, head {head}", gate_value(result), result.reason, gate_power(result)]
    return f"{result.outcome}: " + ", ".join(cli_text(part) for part in parts if part)
