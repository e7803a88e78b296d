"""The breakdown of steps compared with brute force: random traces with waits for data and blocking calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import sketch
import tracewarehouse as tw
from witness import answers, pieces, random_traces
from witness.answers import Row, by_grain, same
from witness.trace import Trace, read

RANKS = 12
SEEDS = [24, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (1, 19, 29))]


def run(seed: int) -> str:
    """A random run in which threads also wait for data, for streams and in copies."""
    lines = [random_traces.run("random", seed, RANKS)]
    for rank in range(RANKS):
        dice = Random(f"{seed}/{rank}/waits")
        if f"random {rank} step " not in lines[0]:  # else the waits for data would be steps
            lines.append(f"random {rank} step t1 5 {10 * dice.randrange(40)} {10 * dice.randrange(1, 60)}")
        lines += [f"random {rank} {line}" for number in range(14) for line in waits(dice, 9_000 + number)]
        lines += [f"random {rank} {line}" for line in collectives(dice, rank)]
    return "\n".join(lines)


def collectives(dice: Random, rank: int) -> list[str]:
    """Two collectives of a group of two ranks; all others of the run are of incomplete groups."""
    group = f'"Process Group Name"={rank // 2} "Process Group Ranks"="[{rank // 2 * 2},{rank // 2 * 2 + 1}]"'
    starts = sorted(10 * dice.randrange(90) for _ in range(2))
    return [
        f"gpu s40 ncclDevKernel_AllReduce {start} {10 * dice.randrange(2, 30)} {group} "
        f'"Group size"=2 "Collective name"=allreduce'
        for start in starts
    ]


def waits(dice: Random, number: int) -> list[str]:
    """Another wait of a thread: for data, for a stream, or in a copying call."""
    thread, start, length = dice.randint(1, 2), 10 * dice.randrange(150), 10 * dice.randrange(1, 40)
    copied = start + 10 * dice.randrange(length // 10 + 1)
    data = f"'enumerate(DataLoader)#_X.__next__' {start} {length}"
    return dice.choice(
        [
            [f"ann t{thread} {data}"],
            [f"ann t{thread} inside {start} {length}"],
            [f"op t{thread + 2} {data}"],  # on another thread: it explains nothing
            [f"call t{thread} cudaStreamSynchronize {start} {length} id={number}"],
            [
                f"call t{thread} cudaMemcpyAsync {start} {length} id={number}",
                f"gpu s30 'Memcpy DtoH (Device -> Pageable)' {start} {copied - start + 10} id={number}",
            ],
        ]
    )


@pytest.fixture(scope="module", params=SEEDS)
def drawn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, dict[int, Trace]]:
    """A warehouse with the random run, and each rank with GPU activities as read by the brute-force check."""
    folder = tmp_path_factory.mktemp("pieces")
    paths = sketch.write(run(request.param), folder)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "random", run="random")
    traces = {int(path.stem.removeprefix("rank")): read(path) for path in paths}
    return warehouse, {rank: trace for rank, trace in traces.items() if trace.gpu}


def test_each_segment_equals_brute_force(drawn: tuple[Any, dict[int, Trace]]) -> None:
    warehouse, traces = drawn
    found: dict[int, list[Row]] = defaultdict(list)
    for row in warehouse.query("SELECT * FROM device_segments ORDER BY rank, start_ns", limits=None).rows():
        found[row["rank"]].append(row | {"end_ns": row["start_ns"] + row["segment_ns"]})
    assert found.keys() == traces.keys()
    for rank, trace in traces.items():
        wanted, rows = list(pieces.pieces(trace)), found[rank]
        assert [row["start_ns"] for row in rows[1:]] == [row["end_ns"] for row in rows[:-1]]
        assert (rows[0]["start_ns"], rows[-1]["end_ns"]) == (wanted[0].start, wanted[-1].end)
        for piece in wanted:
            over = [row for row in rows if row["start_ns"] < piece.end and row["end_ns"] > piece.start]
            assert {tuple(row[name] for name in REPORTED) for row in over} == {reported(piece)}, (rank, piece)


REPORTED = ("step", "kernel_id", "cause", "after_id", "gap_ns")


def reported(piece: pieces.Piece) -> tuple[object, ...]:
    """The row of the view for the segment."""
    owner, gap = piece.owner, piece.gap
    after = gap.after if gap else None
    return (
        piece.step,
        owner.event_id if owner else None,
        piece.cause,
        after.event_id if after else None,
        gap.end - gap.start if gap else None,
    )


def test_why_steps_are_incomplete(drawn: tuple[Any, dict[int, Trace]]) -> None:
    warehouse, traces = drawn
    rows = warehouse.query("SELECT rank, step, partial, incomplete FROM steps", limits=None).rows()
    found = {(row["rank"], row["step"]): row["incomplete"] for row in rows if row["rank"] in traces}
    assert all(row["partial"] == (row["incomplete"] is not None) for row in rows)
    wanted = {
        (rank, row["step"]): row["incomplete"]
        for rank, trace in traces.items()
        for row in answers.steps(trace)
    }
    assert found == wanted
    assert {*wanted.values()} == {"lost_records", "cut_off", "no_gpu_work", None}


def waits_of(warehouse: Any) -> dict[int, dict[int, pieces.Wait]]:
    """Rank → matched collective → its wait: its duration minus the shortest of the instance."""
    instances: dict[str, list[Row]] = defaultdict(list)
    for row in warehouse.query("SELECT * FROM collective_arrivals WHERE instance_id IS NOT NULL").rows():
        if row["waits_for_all"] or row["collective"] in ("broadcast", "reduce", "gather", "scatter"):
            instances[row["instance_id"]].append(row)
    waits: dict[int, dict[int, pieces.Wait]] = defaultdict(dict)
    for rows in instances.values():
        shortest = min(row["dur_ns"] for row in rows)
        for row in rows:
            end_ns = row["start_ns"] + row["dur_ns"] - shortest
            waits[row["rank"]][row["event_id"]] = pieces.Wait(end_ns, row["state"] == "complete")
    return waits


def test_step_account(drawn: tuple[Any, dict[int, Trace]]) -> None:
    warehouse, traces = drawn
    # Ranks without steps are skipped: collectives are matched among the others.
    waits = waits_of(warehouse.select(ranks=[rank for rank, trace in traces.items() if trace.steps]))
    found = by_grain(warehouse.analyze("step_account").rows(), ("rank", "step", "category"))
    wanted = {
        (rank, row["step"], row["category"]): row
        for rank, trace in traces.items()
        for row in pieces.step_account(trace, waits[rank])
    }
    assert found.keys() == wanted.keys()
    assert all(same(found[key][name], value) for key, row in wanted.items() for name, value in row.items())
    idle = ("dataloader", "sync", "host", "call", "latency", "queued", "graph", "unknown", "outside")
    exposed = ("wait", "transfer", "unassigned")
    named = {*(f"idle_{cause}" for cause in idle), *(f"exposed_{part}" for part in exposed)}
    assert {part for *_, part in wanted} >= {"compute", *named}


def test_step_kernels(drawn: tuple[Any, dict[int, Trace]]) -> None:
    warehouse, traces = drawn
    found: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    for row in warehouse.analyze("step_kernels").rows():
        sums = found[row["rank"], row["step"], row["kind"], row["name"]]
        sums[:] = sums[0] + row["count"], sums[1] + row["exclusive_ns"]
    wanted = {
        (rank, row["step"], row["kind"], row["name"]): [row["count"], row["exclusive_ns"]]
        for rank, trace in traces.items()
        for row in pieces.step_kernels(trace)
    }
    assert found == wanted


@pytest.mark.parametrize("annotation", [None, "inside"])
def test_window_account_and_kernels(drawn: tuple[Any, dict[int, Trace]], annotation: str | None) -> None:
    warehouse, traces = drawn
    rows = warehouse.analyze("window_account", annotation=annotation).rows()
    found = {(row["rank"], row["occurrence"], row["category"]): row["category_ns"] for row in rows}
    waits = waits_of(warehouse)
    account = {rank: pieces.window_account(trace, annotation, waits[rank]) for rank, trace in traces.items()}
    assert found == {(rank, *key): ns for rank, parts in account.items() for key, ns in parts.items()}
    owned: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in warehouse.analyze("window_kernels", annotation=annotation).rows():
        sums = owned[row["rank"], row["occurrence"], row["kind"], row["name"]]
        reported = row["count"], row["sum_ns"], row["exclusive_ns"]
        sums[:] = (one + other for one, other in zip(sums, reported, strict=True))
    kernels = {rank: pieces.window_kernels(trace, annotation) for rank, trace in traces.items()}
    assert owned == {(rank, *key): sums for rank, named in kernels.items() for key, sums in named.items()}


SHORT_GAP_NS = 120  # some of the random gaps are longer, others are not


def is_short(piece: pieces.Piece) -> bool:
    """Whether it is in a short gap."""
    return pieces.gap_ns(piece) <= SHORT_GAP_NS


def is_late(piece: pieces.Piece) -> bool:
    """Whether the host is late: in a long gap until the call, in a short one until work usually starts."""
    return piece.cause == "host" or piece.cause in ("call", "latency") and is_short(piece)


# Each rule that reads segments: its parameters, and which segments count.
RULES: dict[str, tuple[dict[str, int], Callable[[Trace, pieces.Piece], bool]]] = {
    "low_gpu_use": (
        {},
        lambda _, piece: piece.owner is None and piece.cause not in ("graph", "queued", "outside"),
    ),
    "input_bound": ({}, lambda _, piece: piece.cause == "dataloader"),
    "host_bound": ({"short_gap_ns": SHORT_GAP_NS}, lambda _, piece: is_late(piece)),
    # Without what CUDA graphs would leave of a gap.
    "launch_bound": ({"short_gap_ns": SHORT_GAP_NS, "graph_gap_ns": 0}, lambda _, piece: is_late(piece)),
    "blocking_syncs": (
        {},
        lambda trace, piece: piece.cause == "sync" and "Synchronize" in pieces.waited_in(trace, piece).name,
    ),
    "blocking_copies": (
        {},
        lambda trace, piece: (
            piece.cause == "sync" and "Synchronize" not in pieces.waited_in(trace, piece).name
        ),
    ),
    "pageable_copies": ({}, lambda _, piece: piece.owner is not None and "Pageable" in piece.owner.name),
}


@pytest.mark.parametrize("rule", RULES)
def test_the_saving_of_a_finding_equals_brute_force(drawn: tuple[Any, dict[int, Trace]], rule: str) -> None:
    """The saving of each rule, and its analyzed interval."""
    warehouse, traces = drawn
    params, counts = RULES[rule]
    rows = {row["rank"]: row for row in warehouse.analyze(rule, **params).rows()}
    assert len(rows) > RANKS // 2 and any(row["saving_ns"] for row in rows.values())
    assert any(pieces.analyzed(traces[rank]).has_holes for rank in rows)
    for rank, row in rows.items():
        trace = traces[rank]
        analyzed = pieces.analyzed(trace)
        inside = analyzed.of(pieces.pieces(trace, analyzed.edges))
        counted = [piece for piece in inside if counts(trace, piece)]
        saved = sum(piece.end - piece.start for piece in counted)
        # Where long gaps have most of it, host_bound has the finding.
        short = sum(
            piece.end - piece.start for piece in counted if rule == "launch_bound" and is_short(piece)
        )
        if rule == "launch_bound" and 2 * short <= saved:
            saved = 0
        reported = (row["steps"], row["analyzed_ns"], row["saving_ns"])
        assert reported == (analyzed.steps, analyzed.total_ns, saved), rank


def test_exposed_comm_saves_what_is_not_waiting(drawn: tuple[Any, dict[int, Trace]]) -> None:
    warehouse, traces = drawn
    waits = waits_of(warehouse)
    rows = {(row["rank"], row["subject"]): row for row in warehouse.analyze("exposed_comm").rows()}
    assert len(rows) > RANKS
    for (rank, subject), row in rows.items():
        trace = traces[rank]
        analyzed = pieces.analyzed(trace)
        cuts = (*analyzed.edges, *pieces.within(trace, pieces.ends(waits[rank])))
        inside = analyzed.of(pieces.pieces(trace, cuts))
        category = {"transfer": "exposed_transfer", "unmatched": "exposed_unassigned"}[subject]
        saved = sum(each.end - each.start for each in inside if pieces.part(each, waits[rank]) == category)
        reported = (row["steps"], row["analyzed_ns"], row["saving_ns"])
        assert reported == (analyzed.steps, analyzed.total_ns, saved), (rank, subject)
    for subject in ("transfer", "unmatched"):
        assert any(row["saving_ns"] for (_, about), row in rows.items() if about == subject)
