"""`--engine` and `--engine-address`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_runner import tw
from tracewarehouse import engines

FIRST_STEPS = Path(__file__).parents[2] / "data" / "first-steps"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    warehouse = tmp_path_factory.mktemp("engine") / "warehouse"
    cli = tw("ingest", FIRST_STEPS, "-w", warehouse, "--engine", "local", "--jobs", "1")
    assert cli.code == 0, cli.err
    return warehouse


@pytest.mark.deep
@pytest.mark.parametrize("name", ["temporal_breakdown", "stragglers"])
def test_worker_processes_print_the_same(stored: Path, name: str) -> None:
    whole, spread = tw("show", name, "-w", stored), tw("show", name, "-w", stored, "--engine", "local")
    assert spread.code == 0, spread.err
    assert len(whole.out.splitlines()) > 2
    assert spread.out == whole.out


@pytest.mark.deep
@pytest.mark.parametrize("command", [("check",), ("diff", "first-steps", "first-steps")])
def test_answers_are_the_same_on_an_engine(stored: Path, command: tuple[str, ...]) -> None:
    whole, spread = tw(*command, "-w", stored), tw(*command, "-w", stored, "--engine", "local")
    assert spread.code == 0, spread.err
    assert len(whole.out.splitlines()) > 2
    assert spread.out == whole.out


def test_an_address_needs_a_cluster(stored: Path) -> None:
    cli = tw("show", "temporal_breakdown", "-w", stored, "--engine-address", "auto")
    assert cli.code == 2
    assert "--engine-address needs --engine ray or spark" in cli.err


@pytest.mark.parametrize(
    "command",
    [
        ("show", "temporal_breakdown"),
        ("record", "--all"),
        ("derive", "critical_path", "first-steps"),
        ("ingest", FIRST_STEPS),
        ("check",),
        ("report", "first-steps"),
        ("diff", "first-steps", "first-steps"),
        ("history", "step_time"),
        ("query", "SELECT 1"),
    ],
)
def test_a_missing_extra_is_one_line(
    stored: Path, command: tuple[str | Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    cli = tw(*command, "-w", stored, "--engine", "ray")
    assert (cli.code, cli.out) == (1, "")
    assert cli.errors == [
        "tw: the engine ray needs ray",
        "hint: pip install 'tracewarehouse[ray]'",
    ]
