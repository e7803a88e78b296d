"""Findings: every rule of the group `findings` asked, and what they found in one result, gravest first.

A rule is one analysis, `sql/analyses/findings/<rule>.v1.sql`; all have the same columns.
"""

from tracewarehouse.findings.ask import GROUP, SEVERITIES, ask, at_least, fields_of, rules

__all__ = ["GROUP", "SEVERITIES", "ask", "at_least", "fields_of", "rules"]
