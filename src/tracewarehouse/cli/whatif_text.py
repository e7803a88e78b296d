"""What-if estimates as text: the length of each scope in one line, then its critical path by category."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracewarehouse.derive.whatif import UNEXPLAINED
from tracewarehouse.present.render.table import markdown, table
from tracewarehouse.present.render.text import one_line, show

if TYPE_CHECKING:
    from tracewarehouse.result import Result

_HIDDEN = ("run_id", "rank", "scope", "saved_ns", "period_ns")
_PATH = "critical path before and after (it moves to other work where some gets shorter)"
Row = Mapping[str, Any]


def text(result: Result, as_markdown: bool) -> str:
    """A block per scope: how much of its path is not explained, its estimated length, and the path."""
    scopes: dict[tuple[object, ...], list[Row]] = {}
    for row in result.rows():
        scopes.setdefault((row["rank"], row["scope"]), []).append(row)
    fields = [field for field in result.columns() if field.name not in _HIDDEN]
    blocks = []
    for (rank, scope), (length, *parts) in scopes.items():
        rows = [[row[field.name] for field in fields] for row in parts]
        layout = markdown(fields, rows).splitlines() if as_markdown else table(fields, rows).lines()
        lines = [one_line(each) for each in _lines(f"rank {rank}, {scope}", length, parts)]
        blocks.append(
            "\n".join([*lines, "", _PATH, "", *layout] if as_markdown else [*lines, "", _PATH, *layout])
        )
    return "\n\n".join(blocks) + "\n"


def _lines(where: str, length: Row, parts: Sequence[Row]) -> Iterator[str]:
    base_ns, new_ns = length["base_ns"], length["new_ns"]
    unexplained_ns = sum(row["base_ns"] for row in parts if row["category"] in UNEXPLAINED)
    if unexplained_ns:
        share = show(unexplained_ns / base_ns, "ratio")
        yield f"{where}: {share} of the path are waits of unknown cause, which scaling does not change"
    change = f" ({(new_ns - base_ns) / base_ns:+.1%})".replace("%", " %") if base_ns else ""
    lengths = f"{show(base_ns, 'ns')} → {show(new_ns, 'ns')}{change}"
    yield f"{where}: {lengths}, from its start on the host to the end of its work"
    if length["period_ns"] is not None:
        yield f"its period, from the end of the previous step, is {show(length['period_ns'], 'ns')}"
