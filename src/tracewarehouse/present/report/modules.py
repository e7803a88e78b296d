"""Modules: the tree of nn.Module instances with their time, and those that differ from their siblings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.by_step import kernels_by_step
from tracewarehouse.present.report.data import ReportData, Row
from tracewarehouse.present.report.document import Section, TreeNode
from tracewarehouse.present.report.tables import combined_ranks, first_rows
from tracewarehouse.present.report.text import duration, percent

# Branches with less than this share of the time are one line each, and so are those after the largest ones.
_MIN_SHARE = 0.002
_MAX_CHILDREN = 30
_OPEN_DEPTH = 2
_PASSES = ("forward_ns", "backward_ns", "recompute_ns")
_TOTALS = """
SELECT
  module_path,
  any_value(depth) AS depth,
  sum(calls)::BIGINT AS calls,
  sum(coalesce(kernel_sum_ns, host_ns))::BIGINT AS total_ns,
  sum(coalesce(kernel_self_sum_ns, host_self_ns))::BIGINT AS self_ns,
  sum(forward_ns)::BIGINT AS forward_ns,
  sum(backward_ns)::BIGINT AS backward_ns,
  sum(recompute_ns)::BIGINT AS recompute_ns,
  count(kernel_sum_ns) > 0 AS on_gpu
FROM module_summary
GROUP BY module_path
ORDER BY total_ns DESC, module_path
"""
_OUTLIERS = """
SELECT
  module_path,
  any_value(name) AS name,
  max(instances) AS instances,
  sum(kernel_sum_ns) / nullif(sum(median_ns), 0) AS factor,
  max(abs(robust_z)) AS z
FROM module_siblings
WHERE is_outlier
GROUP BY module_path
ORDER BY len(string_split(module_path, ' > ')), z DESC, module_path
"""


def modules_sections(data: ReportData) -> list[Section]:
    """The section; none if the traces have no modules."""
    rows = data.rows(_TOTALS, "module_summary")
    if all(row["depth"] is None for row in rows):
        return []
    outliers = data.rows(_OUTLIERS, "module_siblings")
    per_step = _per_step(data, rows)
    tree = _Tree(
        data,
        rows if per_step is None else per_step,
        per_step is not None,
        {row["module_path"]: _outlier(row) for row in outliers},
    )
    tables = [
        combined_ranks(
            data, "module_summary", "Modules", "kernel_self_sum_ns DESC, host_self_ns DESC, module_path"
        )
    ]
    if outliers:
        order = "is_outlier DESC, abs(robust_z) DESC, module_path"
        tables.append(
            first_rows(data, "module_siblings", "Modules compared with their siblings", order=order)
        )
    summary = _summary(tree, outliers)
    return [Section("modules", "Modules", summary, tables=tuple(tables), trees=tree.roots())]


def _per_step(data: ReportData, rows: Sequence[Row]) -> list[Row] | None:
    """The rows with the GPU time of the mean complete step; None without such steps, or without a GPU."""
    by_step = kernels_by_step(data, "module_path", "pass")
    if by_step is None or not any(row["on_gpu"] for row in rows):
        return None
    times = {row["module_path"]: dict.fromkeys(("total_ns", "self_ns", *_PASSES), 0.0) for row in rows}
    for (path, phase), ns in by_step.mean_ns.items():
        parts = (path or "").split(" > ")
        for above in (" > ".join(parts[:end]) for end in range(1, len(parts) + 1)):
            if above in times:
                times[above]["total_ns"] += ns
                if f"{phase}_ns" in _PASSES:
                    times[above][f"{phase}_ns"] += ns
        if path in times:
            times[path]["self_ns"] += ns
    found = [{**row, **times[row["module_path"]]} for row in rows]
    return sorted(found, key=lambda row: (-row["total_ns"], row["module_path"]))


def _outlier(row: Row) -> str:
    return f"{row['factor']:.2f} × the median of {row['instances']} siblings"


def _summary(tree: _Tree, outliers: Sequence[Row]) -> str:
    modules = [row for row in tree.rows if row["depth"] is not None]
    inside = sum(row["total_ns"] for row in modules if row["depth"] == 1)
    what = "GPU time" if tree.on_gpu else "host time"
    parts = [f"{plural(len(modules), 'module')} with {percent(inside, tree.total_ns)} of {what}"]
    if tree.is_per_step:
        parts.append("times are per step")
    if outliers:
        first = outliers[0]
        parts.append(f"{first['name']} differs most from its siblings: {_outlier(first)}")
    return "; ".join(parts) + "."


class _Tree:
    """The rows of all modules, and their nodes."""

    def __init__(
        self, data: ReportData, rows: Sequence[Row], is_per_step: bool, outliers: Mapping[str, str]
    ) -> None:
        self.rows = rows
        self.time = duration if is_per_step else data.per_rank
        self.is_per_step = is_per_step
        self.outliers = outliers
        self.on_gpu = any(row["on_gpu"] for row in rows)
        self.total_ns = sum(row["self_ns"] for row in rows)
        self._below: dict[str, list[Row]] = {}
        for row in rows:
            above = row["module_path"].rpartition(" > ")[0] if row["depth"] is not None else ""
            self._below.setdefault(above, []).append(row)

    def roots(self) -> tuple[TreeNode, ...]:
        """The outermost modules, and the rows without a module."""
        return self._nodes("", 1)

    def _nodes(self, path: str, depth: int) -> tuple[TreeNode, ...]:
        rows = self._below.get(path, [])
        limit = _MIN_SHARE * self.total_ns
        shown = [
            row
            for place, row in enumerate(rows)
            if row["module_path"] in self.outliers or place < _MAX_CHILDREN and row["total_ns"] >= limit
        ]
        nodes = [self._node(row, depth) for row in shown]
        rest = [row for row in rows if row not in shown]
        if rest:
            ns = sum(row["total_ns"] for row in rest)
            text = self.time(ns)
            nodes.append(TreeNode(f"{plural(len(rest), 'other')}", text, self._share(ns), 0.0))
        return tuple(nodes)

    def _node(self, row: Row, depth: int) -> TreeNode:
        path = row["module_path"]
        return TreeNode(
            name=path.rpartition(" > ")[2],
            text=self._text(row),
            total=self._share(row["total_ns"]),
            own=self._share(row["self_ns"]),
            note=self.outliers.get(path, ""),
            children=self._nodes(path, depth + 1) if row["depth"] is not None else (),
            is_open=depth < _OPEN_DEPTH or any(each.startswith(f"{path} > ") for each in self.outliers),
        )

    def _text(self, row: Row) -> str:
        time = self.time
        parts = [f"{time(row['total_ns'])} ({percent(row['total_ns'], self.total_ns)})"]
        if row["self_ns"] and row["self_ns"] != row["total_ns"]:
            parts.append(f"self {time(row['self_ns'])}")
        if row["depth"] is not None and self.on_gpu:
            passes = [(name, row[f"{name}_ns"]) for name in ("forward", "backward", "recompute")]
            parts += [f"{name} {time(ns)}" for name, ns in passes if ns] if len(self._used(row)) > 1 else []
        return ", ".join(parts)

    def _used(self, row: Row) -> list[str]:
        return [name for name in ("forward", "backward", "recompute") if row[f"{name}_ns"]]

    def _share(self, ns: int) -> float:
        return ns / self.total_ns if self.total_ns else 0.0
