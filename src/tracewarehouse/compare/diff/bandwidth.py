"""Bandwidth of collectives on both sides, by operation, message size and number of ranks.

The rows do not depend on the model: the same collective of the same size over as many ranks should be as fast
in another job on the same machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracewarehouse.contracts.contract import Column, Contract, Ref, computed_contract

if TYPE_CHECKING:
    from tracewarehouse.result import Result
    from tracewarehouse.runs.selection import Selection

ANALYSIS = "bandwidth_by_size"
_MEMORY = "memory_pressure"  # the finding whose share is the peak of allocated memory
NOTICEABLE = 0.1  # relative change of a bandwidth from which a row is worth reading
_COLLAPSED = 0.5  # share of base's bandwidth below which causes are suggested
_NEAR_FULL = 0.9

Key = tuple[str, int, int]  # collective, size bucket in bytes, number of ranks


@dataclass(frozen=True)
class Bandwidth:
    """Rows that both sides have, the most time lost or gained first, and hypotheses about collapses."""

    rows: Result = field(repr=False)
    notices: tuple[str, ...]

    @property
    def changed(self) -> list[dict[str, Any]]:
        """The rows whose bandwidth changed noticeably."""
        return [row for row in self.rows.rows() if abs(row["ratio"] - 1) >= NOTICEABLE]


@dataclass(frozen=True)
class _Total:
    """All collectives of a key on one side."""

    instances: int = 0
    transfer_ns: int = 0
    bus_bytes: float = 0.0

    def __add__(self, other: _Total) -> _Total:
        return _Total(
            self.instances + other.instances,
            self.transfer_ns + other.transfer_ns,
            self.bus_bytes + other.bus_bytes,
        )

    @property
    def busbw(self) -> float:
        """Bus bandwidth in bytes per ns."""
        return self.bus_bytes / self.transfer_ns


def bandwidth(base: Selection, head: Selection) -> Bandwidth | None:
    """Bus bandwidths of both sides; None if they have no collective of the same kind, size and group size."""
    from tracewarehouse.duck.arrow import table_of
    from tracewarehouse.result import Result

    results = [side.run(ANALYSIS) for side in (base, head)]
    before, after = (_totals(result) for result in results)
    rows = [_row(key, before[key], after[key]) for key in before if key in after]
    if not rows:
        return None
    rows.sort(key=lambda row: (-abs(row["lost_ns"]), row["collective"], row["size_bucket_bytes"]))
    collapsed = any(row["ratio"] < _COLLAPSED for row in rows)
    notices = tuple(_hypotheses(base, head)) if collapsed else ()
    contract = _contract()
    return Bandwidth(Result(table_of(contract, rows), results[0].provenance, contract), notices)


def _totals(result: Result) -> Mapping[Key, _Total]:
    totals: dict[Key, _Total] = defaultdict(_Total)
    for row in result.rows():
        key = row["collective"], row["size_bucket_bytes"], row["members"]
        totals[key] += _Total(row["instances"], row["transfer_ns"], row["bus_bytes"])
    return totals


def _row(key: Key, base: _Total, head: _Total) -> dict[str, Any]:
    collective, size_bucket_bytes, members = key
    return {
        "collective": collective,
        "size_bucket_bytes": size_bucket_bytes,
        "members": members,
        "base_instances": base.instances,
        "head_instances": head.instances,
        "base_busbw_bytes_per_ns": base.busbw,
        "head_busbw_bytes_per_ns": head.busbw,
        "ratio": head.busbw / base.busbw,
        "lost_ns": head.transfer_ns - round(head.bus_bytes / base.busbw),
    }


def _hypotheses(base: Selection, head: Selection) -> Iterator[str]:
    """What else the traces show where a bandwidth collapsed."""
    base_share, head_share = (_memory_share(side) for side in (base, head))
    if head_share is None:
        yield (
            "bandwidth collapsed; whether GPU memory was nearly full in head, which can shrink communication"
            " buffers, is unknown: record memory (profile_memory=True or a memory snapshot)"
        )
    elif head_share >= _NEAR_FULL and (base_share or 0) < head_share:
        yield (
            f"bandwidth collapsed while {head_share:.0%} of GPU memory was allocated in head; possible cause:"
            " too little was left for communication buffers (try a smaller batch)"
        )
    else:
        yield "bandwidth collapsed; GPU memory was not nearly full: check links, network and other jobs"


def _memory_share(side: Selection) -> float | None:
    """Peak allocated memory as a share of the GPU's; None if not recorded."""
    return max((row["share"] for row in side.run(_MEMORY).rows()), default=None)


def _contract() -> Contract:
    return computed_contract(
        "bandwidth_diff",
        group="comms",
        summary="Change of the bus bandwidth by collective, message size and number of ranks.",
        requires=(Ref(ANALYSIS, 1),),
        grain=("collective", "size_bucket_bytes", "members"),
        order=("-lost_ns",),
        columns=tuple(_columns()),
    )


def _columns() -> Iterator[Column]:
    yield Column("collective", "VARCHAR", "The operation.")
    yield Column("size_bucket_bytes", "BIGINT", "Message size rounded down to a power of 2.", "bytes")
    yield Column("members", "BIGINT", "Number of ranks in the group.", "count")
    for side in ("base", "head"):
        yield Column(f"{side}_instances", "BIGINT", f"{side}: number of collectives.", "count")
    for side in ("base", "head"):
        doc = f"{side}: bus bandwidth in GB/s, without waiting for the last rank."
        yield Column(f"{side}_busbw_bytes_per_ns", "DOUBLE", doc, "bytes_per_ns", better="higher")
    yield Column("ratio", "DOUBLE", "Bandwidth of head as a multiple of that of base.", "ratio")
    doc = "Transfer time of head minus what it would be at the bandwidth of base, over all collectives."
    yield Column("lost_ns", "BIGINT", doc, "ns", signed=True)
