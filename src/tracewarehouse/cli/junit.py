"""Gates as JUnit XML, which CI systems show as tests."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from tracewarehouse.diff.change import Change
    from tracewarehouse.diff.gate import Judged


def junit(change: Change, strict: bool) -> str:
    """A test case per gate; an inconclusive one is skipped, or with `strict` a failure."""
    bad = sum(_fails(each, strict) for each in change.gates)
    skipped = len(change.open) if not strict else 0
    suite = ElementTree.Element(
        "testsuite",
        {"name": "tw diff", "tests": str(len(change.gates)), "failures": str(bad), "skipped": str(skipped)},
    )
    for each in change.gates:
        case = ElementTree.SubElement(suite, "testcase", {"classname": "tw.diff", "name": each.gate.text})
        if each.outcome != "pass":
            kind = "failure" if _fails(each, strict) else "skipped"
            ElementTree.SubElement(case, kind, {"message": _said(each)})
    ElementTree.SubElement(suite, "system-out").text = change.line
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _fails(judged: Judged, strict: bool) -> bool:
    return judged.outcome == "fail" or strict and judged.outcome == "inconclusive"


def _said(judged: Judged) -> str:
    return f"{judged.outcome}: base {judged.base}, head {judged.head}" + (
        f", {judged.reason}" if judged.reason else ""
    )
