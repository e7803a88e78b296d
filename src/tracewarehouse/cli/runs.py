"""`tw runs`, `info` and `label`: what is stored."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tracewarehouse.cli.complete import complete_runs
from tracewarehouse.cli.session import (
    Pair,
    Session,
    choosing_options,
    examples,
    output_options,
    pass_session,
    result_options,
)

if TYPE_CHECKING:
    from tracewarehouse.result import Result
    from tracewarehouse.runs.rows import RunInfo

# The rest of a run is for machines, and in `tw info`.
_FOR_EYES = [
    *("run_id", "version", "state", "ranks_present", "ranks_expected", "start_ns", "labels", "device_names"),
    "bytes",
]


@click.command(
    epilog=examples(
        "tw runs",
        "tw runs --run label:commit=3f2a91c --format json",
    )
)
@choosing_options
@result_options
@pass_session
def runs(session: Session, /) -> None:
    """List the stored runs: ranks, labels, devices, times, bytes, state."""
    found = session.open().runs()
    if not session.json and session.out.chosen_format in ("table", "md"):
        found = replace(found, table=found.table.select(_FOR_EYES))
    session.out.show(found)


@click.command(
    epilog=examples(
        "tw info fp8-on",
        "tw info @latest --json",
        "tw info fp8-on@v1",
    )
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@output_options
@pass_session
def info(session: Session, /, run: str) -> None:
    """Show one run in full: its ranks, its tables with rows and bytes, its versions."""
    from tracewarehouse.render.describe import run_text

    warehouse = session.open()
    found, row = warehouse.info(run), warehouse.select(runs=run).runs()
    session.out.say(run_text(row, found.ranks, found.tables, found.versions), [_as_json(found, row)])


@click.command(
    epilog=examples(
        "tw label fp8-on commit=3f2a91c",
        "tw label fp8-on commit=      # take it away",
    )
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.argument("labels", metavar="K=V...", nargs=-1, required=True, type=Pair())
@output_options
@pass_session
def label(session: Session, /, run: str, labels: tuple[tuple[str, str], ...]) -> None:
    """Set labels of a run; a new version of it carries them. K= takes a label away."""
    done = session.open().label(run, {key: value or None for key, value in labels})
    if done.version is None:
        session.out.say(f"{run}: nothing to change", [])
        return
    name, kept = f"{done.version.run}@v{done.version.number}", dict(sorted(done.version.labels.items()))
    shown = ", ".join(f"{key}={value}" for key, value in kept.items()) or "no labels"
    session.out.say(f"{name}: {shown}", [{"run": name, "labels": kept}])


def _as_json(found: RunInfo, row: Result) -> dict[str, Any]:
    return {
        "run": _rows(row)[0],
        "ranks": _rows(found.ranks),
        "tables": [vars(table) for table in found.tables],
        "versions": found.versions,
    }


def _rows(result: Result) -> list[dict[str, Any]]:
    """The rows as JSON gives them: times as strings."""
    rows: list[dict[str, Any]] = json.loads("".join(result.json()))
    return rows
