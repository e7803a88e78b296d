"""What the rows of a level promise: a contract made here, since no SQL makes them."""

from __future__ import annotations

from tracewarehouse.columns import Column
from tracewarehouse.contract import Contract, Ref

SUMMARIES = {
    "breakdown": "What changed, by what the devices did, or why they stood idle.",
    "kernels": "What changed, by kernel; a kernel that goes by another name at the same place is one row.",
    "operators": "What changed, by the innermost operator around the launch of the kernels.",
    "categories": "What changed, by pass of training and kind of kernel.",
    "ranks": "What changed, by rank: its own time, and what it spent in communication that nothing hid.",
}
CHANGES = (
    "new, gone, renamed (same place, other kernel), more calls, fewer calls, slower, faster,"
    " more exposed or less exposed (calls as long, but less or more of them under others);"
    " of what is not made of calls longer or shorter; unchanged"
)


def promised(level: str, per: str) -> Contract:
    """The contract of a level's rows; `per` says what a unit is."""
    return Contract(
        kind="analysis",
        scope="run",
        name=f"account_{level}",
        version=1,
        group="steps",
        summary=SUMMARIES[level],
        requires=(Ref("step_account", 1), Ref("step_kernels", 1)),
        needs=(),
        grain=("part",),
        order=("-delta_ns", "part"),
        params=(),
        columns=_columns(per),
        changes=((1, "First version."),),
        deprecated=None,
        transient=False,
        derived=None,
        definition=None,
        body="",
        body_line=0,
        source=f"account_{level}",
    )


def _columns(per: str) -> tuple[Column, ...]:
    calls = "null for what is not made of calls"
    untested = "null where not tested"
    return (
        Column("level", "VARCHAR", "The level."),
        Column("part", "VARCHAR", "The part; the last may be all others together."),
        _ns("base_ns", f"Base: ns of a mean {per}. All rows add up to the mean."),
        _ns("head_ns", f"Head: ns of a mean {per}. All rows add up to the mean."),
        _ns("delta_ns", "head_ns less base_ns.", signed=True),
        _ratio("share", "Part of the whole change; null where there is none."),
        _ns(
            "calls_ns",
            f"Of delta_ns what more or fewer calls made, at the mean of base; {calls}.",
            True,
            True,
        ),
        _ns("speed_ns", f"Of delta_ns what slower or faster calls made: the rest; {calls}.", True, True),
        _count("base_count", f"Base: calls in a mean {per}; {calls}."),
        _count("head_count", f"Head: calls in a mean {per}; {calls}."),
        Column("change", "VARCHAR", f"{CHANGES}; null for rows taken together.", null=True),
        _ratio("low", f"Where the interval of the relative change begins; {untested}."),
        _ratio("high", f"Where it ends; {untested}."),
        _ratio("q", f"p after Benjamini and Hochberg over the rows of the level; {untested}."),
        Column("significant", "BOOLEAN", f"q is at most alpha; {untested}.", null=True),
    )


def _ns(name: str, doc: str, signed: bool = False, null: bool = False) -> Column:
    return Column(name, "BIGINT", doc, "ns", null=null, signed=signed, fold="sum")


def _ratio(name: str, doc: str) -> Column:
    return Column(name, "DOUBLE", doc, "ratio", null=True, signed=True)


def _count(name: str, doc: str) -> Column:
    return Column(name, "DOUBLE", doc, "count", null=True)
