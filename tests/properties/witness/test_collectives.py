"""Waits, offsets and stragglers of random runs, compared with plain Python over the files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import sketch
import tracewarehouse as tw
from witness.random_collectives import GROUPS, RANKS, WAITING, run

SEEDS = range(1, 5)
Row = dict[str, Any]


def rows_of(paths: Iterable[Path]) -> list[Row]:
    """The collectives of all ranks, in ns, with their true instances."""
    found = []
    for path in paths:
        for event_id, event in enumerate(json.loads(path.read_text())["traceEvents"]):
            if event["cat"] == "kernel":
                start, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
                found.append(
                    {"rank": int(path.stem.removeprefix("rank")), "id": event_id, "start": start}
                    | {"end": start + length, "length": length, "args": event["args"]}
                )
    return found


def meetings(rows: list[Row]) -> dict[str, list[Row]]:
    """The key that matches collectives: sequence number, else position if all ranks have the same count."""
    kinds: dict[tuple[Any, ...], dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: (row["start"], row["end"])):
        args = row["args"]
        even = args["Collective name"] != "all_to_all"
        kind = (args["Process Group Name"], args["Collective name"], args.get("Seq"))
        size = args["In msg nelems"] if even and "Seq" not in args else None
        kinds[*kind, size][row["rank"]].append(row)
    found: dict[str, list[Row]] = {}
    for kind, by_rank in kinds.items():
        if len({len(each) for each in by_rank.values()}) == 1 and len(by_rank) > 1:
            for place, met in enumerate(zip(*by_rank.values(), strict=True)):
                found[f"{kind} {place}"] = list(met)
    return found


def offsets(met: Iterable[list[Row]]) -> dict[int, tuple[int, int, int | None]]:
    """Rank → reference, offset, uncertainty: from the lowest rank outwards, best link first."""
    pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for rows in met:
        if rows[0]["args"]["Collective name"] in WAITING:
            first = min(rows, key=lambda row: row["rank"])
            for row in rows:
                if row is not first:
                    pairs[first["rank"], row["rank"]].append(row["end"] - first["end"])
    links: dict[int, list[tuple[int, int, int | None, int]]] = defaultdict(list)
    for (low, high), ahead in pairs.items():
        middle = sorted(ahead)[(len(ahead) - 1) // 2]
        spread = sorted(abs(each - middle) for each in ahead)[len(ahead) // 2] if len(ahead) > 1 else None
        links[low].append((high, middle, spread, len(ahead)))
        links[high].append((low, -middle, spread, len(ahead)))
    known: dict[int, tuple[int, int, int | None]] = {}
    for reference in range(RANKS):
        if reference in known:
            continue
        ring: dict[int, tuple[int, int | None, float]] = {reference: (0, 0, float("inf"))}
        while ring:
            known |= {rank: (reference, offset, doubt) for rank, (offset, doubt, _) in ring.items()}
            offers: dict[int, list[tuple[float, int, int, int | None]]] = defaultdict(list)
            for rank, (offset, doubt, fewest) in ring.items():
                for other, ahead, spread, count in links[rank]:
                    total = None if doubt is None or spread is None else doubt + spread
                    offers[other].append((-min(fewest, count), rank, offset + ahead, total))
            best = {rank: min(each, key=lambda offer: offer[:2]) for rank, each in offers.items()}
            ring = {r: (o[2], o[3], -o[0]) for r, o in best.items() if r not in known}
    return known


def apart(rows: list[Row], known: dict[int, tuple[int, int, int | None]]) -> bool:
    """Whether a rank left before another arrived, on aligned clocks, beyond twice the uncertainty."""
    if len({known[row["rank"]][0] for row in rows}) > 1:
        return False
    slack = {row["rank"]: 2 * (known[row["rank"]][2] or 0) for row in rows}
    came = max(row["start"] - known[row["rank"]][1] - slack[row["rank"]] for row in rows)
    return came > min(row["end"] - known[row["rank"]][1] + slack[row["rank"]] for row in rows)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[tw.Warehouse, dict[str, list[Row]]]:
    """A warehouse with the random runs, and the collectives of each from the files."""
    folder = tmp_path_factory.mktemp("collectives")
    warehouse, files = tw.open(folder / "warehouse"), {}
    for seed in SEEDS:
        files[f"r{seed}"] = rows_of(sketch.write(run(f"r{seed}", seed), folder / "traces"))
    warehouse.ingest(folder / "traces")
    return warehouse, files


def test_offsets(drawn: tuple[tw.Warehouse, dict[str, list[Row]]]) -> None:
    warehouse, files = drawn
    reported = warehouse.query("SELECT * FROM clock_offsets", limits=None).rows()
    for name, rows in files.items():
        known = offsets(meetings(rows).values())
        found = {
            row["rank"]: (row["reference_rank"], row["offset_ns"], row["uncertainty_ns"])
            for row in reported
            if row["run_id"] == name
        }
        assert found == known, name
    assert {known["reference_rank"] for known in reported} > {0, 3, 7}


def test_waits(drawn: tuple[tw.Warehouse, dict[str, list[Row]]]) -> None:
    warehouse, files = drawn
    reported = warehouse.collective_waits().rows()
    seen: set[str] = set()
    for name, rows in files.items():
        met = meetings(rows)
        known = offsets(met.values())
        wanted = {(row["rank"], row["id"]): (None, None, None) for row in rows}
        for each in met.values():
            if not apart(each, known) and each[0]["args"]["Collective name"] in WAITING:
                shortest = min(each, key=lambda row: (row["length"], row["rank"]))
                for row in each:
                    wait = row["length"] - shortest["length"]
                    wanted[row["rank"], row["id"]] = (wait, shortest["length"], shortest["rank"])
        own = [row for row in reported if row["run_id"] == name]
        names = ("wait_ns", "transfer_ns", "straggler_rank")
        found = {(r["rank"], r["event_id"]): tuple(r[name] for name in names) for r in own}
        assert found == wanted, name
        seen |= {row["state"] for row in own}
    assert seen == {"complete", "partial", "unmatched", "ambiguous", "inconsistent_clocks"}


def test_matches_are_true_instances(drawn: tuple[tw.Warehouse, dict[str, list[Row]]]) -> None:
    warehouse, files = drawn
    truth = {(n, r["rank"], r["id"]): r["args"]["truth"] for n, rows in files.items() for r in rows}
    by_meeting: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in warehouse.collective_waits().rows():
        if row["instance_id"] is not None:
            event = row["run_id"], row["rank"], row["event_id"]
            by_meeting[row["run_id"], row["instance_id"]].add(truth[event])
    wrong = sum(len(each) > 1 for each in by_meeting.values())
    assert by_meeting and wrong == 0


def test_stragglers_sum_to_the_waits(drawn: tuple[tw.Warehouse, dict[str, list[Row]]]) -> None:
    warehouse, files = drawn
    caused: dict[tuple[str, int], int] = defaultdict(int)
    waits: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for row in warehouse.collective_waits().rows():
        if row["wait_ns"] is not None:
            caused[row["run_id"], row["straggler_rank"]] += row["wait_ns"]
            start = next(
                r["start"]
                for r in files[row["run_id"]]
                if (r["rank"], r["id"]) == (row["rank"], row["event_id"])
            )
            waits[row["run_id"], row["rank"]].append((start, start + row["wait_ns"]))
    for row in warehouse.stragglers().rows():
        key = row["run_id"], row["rank"]
        if row["collectives"]:
            moments = sorted({edge for span in waits[key] for edge in span})
            covered = sum(
                after - before
                for before, after in zip(moments, moments[1:], strict=False)
                if any(start <= before and after <= end for start, end in waits[key])
            )
            assert (row["caused_wait_ns"], row["waiting_ns"]) == (caused[key], covered)
            assert row["wait_ns"] == sum(end - start for start, end in waits[key])
    assert set(GROUPS) == {"dp", "tp", "tq", "far"}


def test_slow_collectives_save_the_time_above_the_typical_duration(
    drawn: tuple[tw.Warehouse, dict[str, list[Row]]],
) -> None:
    warehouse, _ = drawn
    alike: dict[tuple[str, int], dict[tuple[Any, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in warehouse.collective_waits().rows():
        if row["transfer_ns"] is not None and row["state"] == "complete":
            kind = row["collective"], row["process_group"], row["bytes"]
            alike[row["run_id"], row["rank"]][kind].append(row["transfer_ns"])
    found = {}
    for row in warehouse.analyze("slow_collectives", factor=1.0, min_excess_ns=1, min_count=2).rows():
        found[row["run_id"], row["rank"]] = row["count"], row["saving_ns"]
    wanted = {}
    for rank, kinds in alike.items():
        usual = {kind: sorted(times)[(len(times) - 1) // 2] for kind, times in kinds.items()}
        over = [ns - usual[kind] for kind, times in kinds.items() for ns in times if ns > usual[kind]]
        wanted[rank] = len(over), sum(over)
    assert found == wanted and len({saving for _, saving in found.values()}) > 10
