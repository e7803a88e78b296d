"""Categories and roles of events: from the spelling in the file, else from the event's process and name.

Slices without a category get one: those of a process that is a device are kernels, copies or sets by the
rules for uncategorized names; calls of a runtime are known by their names. Other vendors' backends name
runtime categories after the device (musa_runtime, gcu_driver).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final, NamedTuple

import pyarrow as pa

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.duck import engine
from tracewarehouse.formats.kineto.rules_connection import evaluate

_DEVICE_PROCESS: Final = "^(Ascend Hardware|GPU ?[0-9]+)$"
_RUNTIME_CALL: Final = "^(hip|cuda|cu)[A-Z]|^AscendCL@"


class Category(NamedTuple):
    """A category in Kineto's spelling, and the part that such events play; None where we do not know it."""

    name: str | None
    role: str | None


NOTHING: Final = Category(None, None)
KERNEL: Final = Category("kernel", "device")


def category(raw: str, *, is_slice: bool) -> Category:
    """The category of events whose file spells it so; `is_slice`: of X and B events."""
    known = _known().get(raw)
    if known is not None:
        return known
    if is_slice and raw.endswith(("_runtime", "_driver")):
        return Category(f"privateuse1_{raw.rpartition('_')[2]}", "runtime")
    return Category(raw, None)


def device_processes(named: Iterable[tuple[str | None, str | None]]) -> frozenset[str]:
    """The pid texts that metadata calls a device, of (pid text, args) of its rows."""
    rows = [(pid, args) for pid, args in named if pid is not None and args is not None]
    if not rows:
        return frozenset()
    given = {"pid": pa.array([pid for pid, _ in rows]), "args": pa.array([args for _, args in rows])}
    found = evaluate(
        f"SELECT pid FROM given WHERE regexp_matches(args ->> 'name', '{_DEVICE_PROCESS}')", given
    )
    return frozenset(found.column("pid").to_pylist())


def on_device(names: pa.Array) -> list[Category]:
    """The categories of slices without one, of a process that is a device, by their names."""
    rules = _device_rules()
    table = evaluate(_FIRST_RULE.format(rules=rules), {"place": pa.array(range(len(names))), "name": names})
    activities: Mapping[int, str] = dict(zip(*(table.column(at).to_pylist() for at in range(2)), strict=True))
    return [
        Category(f"gpu_{activities[at]}", "device") if at in activities else KERNEL
        for at in range(len(names))
    ]


def on_host(names: pa.Array) -> list[Category]:
    """The categories of other slices without one, by their names."""
    table = evaluate(f"SELECT regexp_matches(name, '{_RUNTIME_CALL}') FROM given", {"name": names})
    return [
        NOTHING if not is_call else Category(_runtime(name), "runtime")
        for name, is_call in zip(names.to_pylist(), table.column(0).to_pylist(), strict=True)
    ]


def _runtime(name: str) -> str:
    return "privateuse1_runtime" if name.startswith("AscendCL@") else "cuda_runtime"


_FIRST_RULE: Final = """
SELECT place, arg_min(rule.activity, rule.rule_id)
FROM given
JOIN ({rules}) AS rule ON regexp_matches(given.name, rule.pattern)
WHERE rule.category = 'uncategorized'
GROUP BY place
"""


@cache
def _known() -> Mapping[str, Category]:
    table = evaluate(_select("categories"), {"unused": pa.array([0])})
    rows = zip(
        *(table.column(name).to_pylist() for name in ("raw_category", "category", "role")), strict=True
    )
    return {raw: Category(name, role) for raw, name, role in rows}


@cache
def _device_rules() -> str:
    return _select("kernel_rules")


def _select(name: str) -> str:
    contract = Catalog.load().get(name, kind="table")
    return engine.sql_with_params(contract, {})
