"""Which kernels changed between which runs: recorded results of simulated runs with one kernel more."""

from __future__ import annotations

from pathlib import Path

import pytest

import cli_runner
import tracewarehouse as tw

SIZE = ("--ranks", "1", "--layers", "1", "--steps", "5", "--no-stacks", "--no-memory", "--noise-run", "0.01")


ANALYSES = ["kernel_summary", "op_summary", "idle_breakdown", "step_summary"]
EXTRA, BLOCKING = "extra-kernel:us=70", "blocking-item"


def runs(
    folder: Path, before: int, after: int, injection: str = EXTRA, others: tuple[str, ...] = ()
) -> tw.Warehouse:
    """A warehouse of recorded runs, hours apart, of which the later ones have a fault, or other settings."""
    later = others or ("--inject", injection)
    for at in range(before + after):
        extra = later if at >= before else ()
        start = ("--start", f"2026-05-{1 + at // 24:02}T{at % 24:02}:00:00", "--seed", str(at))
        done = cli_runner.tw("simulate", folder / "traces" / f"run-{at:02}", *SIZE, *start, *extra)
        assert done.code == 0, done.err
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "traces", jobs=1)
    warehouse.record(analyses=ANALYSES)
    return warehouse


@pytest.mark.deep
def test_a_new_kernel_is_named_with_the_runs_between_which_it_came(tmp_path: Path) -> None:
    warehouse = runs(tmp_path, 18, 10)
    first, *_ = warehouse.moved_parts()
    assert (first.before, first.after) == ("run-17@v1", "run-18@v1")
    new = first.parts[0]
    assert new.kind == "kernel" and new.calls[0] == 0 and new.calls[1] >= 1 and "new" in str(new)
    # Kernels that did not change are not among them, although their share of the time did.
    assert {part.name for part in first.parts if part.kind == "kernel"} == {new.name}
    done = cli_runner.tw("history", "step_time", "--parts", "-w", tmp_path / "warehouse", "-f", "table")
    assert done.code == 0 and "between run-17@v1 and run-18@v1, " in done.err


@pytest.mark.deep
def test_more_recorded_steps_move_no_kernel(tmp_path: Path) -> None:
    """Idle time at both edges of a recording is less of each step, the more steps there are."""
    events = runs(tmp_path, 8, 8, others=("--steps", "9")).moved_parts()
    assert {part.kind for event in events for part in event.parts} <= {"idle"}


@pytest.mark.deep
def test_idle_time_and_operators_are_parts_too(tmp_path: Path) -> None:
    """From the ninth run on, a call in each step blocks the host: it waits, and an operator is new."""
    events = runs(tmp_path, 8, 8, BLOCKING).moved_parts()
    moved = {part.title: part for event in events for part in event.parts}
    assert {(event.before, event.after) for event in events} == {("run-07@v1", "run-08@v1")}
    operator = moved["operator aten::item"]
    assert operator.calls[0] == 0 < operator.calls[1] and "new" in str(operator)
    assert moved["idle: waiting for launch"].ns[1] > moved["idle: waiting for launch"].ns[0]


def test_without_recorded_kernels_the_hint_names_the_command(tmp_path: Path) -> None:
    from recorded_runs import recorded_runs

    root = recorded_runs(tmp_path / "warehouse", [100_000_000] * 3).root
    done = cli_runner.tw("history", "step_time", "--parts", "-w", root, "-f", "table")
    assert done.code == 1 and "tw record --all --analysis kernel_summary" in done.err
