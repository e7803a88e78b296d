"""Process groups by elimination on random layouts, against every candidate tried in plain Python."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from random import Random

import pytest

import sketch
import tracewarehouse as tw

SEEDS = range(8)
KINDS = ("all_reduce", "all_gather", "barrier")


@dataclass(frozen=True)
class Row:
    """A collective on a rank; `position` counts those of its kind on the rank."""

    rank: int
    kind: str
    position: int
    start: int
    end: int


@dataclass(frozen=True)
class Layout:
    """Groups, what each rank lists of them, and the collectives."""

    ranks: int
    groups: list[tuple[int, ...]]
    rows: list[Row]


def random_layout(seed: int) -> Layout:
    """Groups that nest and overlap; each kind of collective runs in some groups, on clocks that are off."""
    draw = Random(seed)
    ranks = draw.randint(2, 8)
    everyone = tuple(range(ranks))
    groups = {everyone}
    for _ in range(draw.randint(1, 4)):
        groups.add(tuple(sorted(draw.sample(everyone, draw.randint(2, ranks)))))
    clocks = [draw.randint(-300, 300) for _ in everyone]
    ordered = sorted(groups)
    rows: list[Row] = []
    for kind in KINDS:
        # Disjoint groups, so that every rank has one collective of the kind at a time.
        running: list[tuple[int, ...]] = []
        for group in draw.sample(ordered, len(ordered)):
            if not any(set(group) & set(other) for other in running):
                running.append(group)
        for position in range(draw.randint(1, 4)):
            for group in running:
                base = 10_000 * (position + 1) + draw.randint(0, 4_000)
                starts = {rank: base + draw.randint(0, 400) for rank in group}
                end = max(starts.values()) + 50
                rows += [Row(r, kind, position, starts[r] + clocks[r], end + clocks[r]) for r in group]
    return Layout(ranks, ordered, rows)


def drawing(run: str, layout: Layout) -> str:
    lines = []
    for rank in range(layout.ranks):
        own = [group for group in layout.groups if rank in group]
        listed = [
            {"pg_name": str(layout.groups.index(group)), "pg_size": len(group), "ranks": list(group)}
            for group in own
        ]
        info = {"backend": "gloo", "rank": rank, "world_size": layout.ranks, "pg_config": listed}
        lines.append(f"{run} {rank} header {json.dumps({'distributedInfo': info})}")
        lines.append(f"{run} {rank} op t5 aten::mm 0 10")
        lines += [
            f"{run} {rank} ann t5 gloo:{row.kind} {row.start} {row.end - row.start}"
            for row in layout.rows
            if row.rank == rank
        ]
    return "\n".join(lines) + "\n"


def holds(layout: Layout, group: tuple[int, ...], kind: str) -> bool:
    """Whether one clock offset per rank lets all ranks overlap with the lowest one in every instance."""
    at = {(row.rank, row.position): row for row in layout.rows if row.kind == kind and row.rank in group}
    counts = {rank: sum(key[0] == rank for key in at) for rank in group}
    if len(set(counts.values())) > 1:
        return False
    first, *others = group
    for rank in others:
        pairs = [(at[first, n], at[rank, n]) for n in range(counts[rank])]
        if max(b.start - a.end for a, b in pairs) > min(b.end - a.start for a, b in pairs):
            return False
    return True


def expected(layout: Layout) -> dict[tuple[int, str], tuple[int, ...] | None]:
    """(rank, kind) → its group, or None where several are possible."""
    votes: dict[tuple[int, str], tuple[int, ...] | None] = {}
    for rank, kind in {(row.rank, row.kind) for row in layout.rows}:
        own = [group for group in layout.groups if rank in group]
        left = [group for group in own if holds(layout, group, kind)]
        largest = [group for group in own if len(group) == max(map(len, own))]
        if len(largest) == 1 and largest[0] in left:
            votes[rank, kind] = largest[0]
        else:
            votes[rank, kind] = left[0] if len(left) == 1 else None
    return {
        (rank, kind): group if group and all(votes.get((r, kind)) == group for r in group) else None
        for (rank, kind), group in votes.items()
    }


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    folder = tmp_path_factory.mktemp("elimination")
    for seed in SEEDS:
        sketch.write(drawing(f"r{seed:02}", random_layout(seed)), folder / "traces")
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "traces", jobs=1)
    return warehouse


def test_groups_are_those_that_are_left(wh: tw.Warehouse) -> None:
    reported = wh.query(
        "SELECT own.run_id, own.rank, collective, own.group_ranks, group_source, instances, held "
        "FROM collective_groups AS own JOIN collectives USING (run_id, rank, event_id)"
    ).rows()
    found: dict[str, dict[tuple[int, str], set[tuple[int, ...] | None]]] = defaultdict(
        lambda: defaultdict(set)
    )
    for row in reported:
        group = tuple(json.loads(row["group_ranks"])) if row["group_source"] == "elimination" else None
        found[row["run_id"]][row["rank"], row["collective"]].add(group)
        assert row["held"] == row["instances"]
    sources = set()
    for seed in SEEDS:
        layout = random_layout(seed)
        if len(layout.groups) > 1:
            wanted = {key: {group} for key, group in expected(layout).items()}
            assert dict(found[f"r{seed:02}"]) == wanted, seed
            sources |= {len(group) if group else 0 for (group,) in wanted.values()}
    assert {0, 2, 3} < sources
