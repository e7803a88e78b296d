"""`tw runs`, `info` and `label`: the stored runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tracewarehouse.cli.option_types import LabelParam
from tracewarehouse.cli.session import (
    Session,
    complete_runs,
    examples,
    output_options,
    pass_session,
    result_options,
    selection_options,
    verify_option,
)
from tracewarehouse.present.render.text import show

if TYPE_CHECKING:
    from tracewarehouse.result import Result
    from tracewarehouse.runs.rows import RunInfo

# The most important first; other columns are in `tw info` and in data formats.
_TABLE_COLUMNS = ["run_id", "ranks", "start", "device_names", "bytes", "state", "labels", "version"]


@click.command(
    epilog=examples(
        "tw runs",
        "tw runs --run label:commit=3f2a91c --format json",
    )
)
@selection_options
@result_options
@pass_session
def runs(session: Session, /) -> None:
    """List runs with ranks, labels, devices, times and size."""
    stored = session.open().runs()
    if not session.json and session.out.resolved_format in ("table", "md"):
        stored = _brief(stored)
    session.out.print_result(stored)


def _brief(stored: Result) -> Result:
    """The runs as listed in a table: present and expected ranks in one column, starts without fractions."""
    rows = stored.rows()
    texts = {"ranks": [_ranks(row) for row in rows], "start": [_start(row["start_ns"]) for row in rows]}
    table = stored.table
    for name, column in texts.items():
        table = table.append_column(name, [column])
    return replace(stored, table=table.select(_TABLE_COLUMNS))


def _ranks(row: dict[str, Any]) -> str:
    present, expected = row["ranks_present"], row["ranks_expected"]
    return str(present) if expected is None else f"{present} of {expected}"


def _start(start_ns: int | None) -> str:
    text = show(start_ns, "ts")
    return text if text.endswith(" s") else text.partition(".")[0]


@click.command(
    epilog=examples(
        "tw info fp8-on",
        "tw info @latest --json",
        "tw info fp8-on@v1",
    )
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@verify_option
@output_options
@pass_session
def info(session: Session, /, run: str) -> None:
    """Show the ranks, tables and versions of a run."""
    from tracewarehouse.cli.describe import run_text

    warehouse = session.open()
    found, row = warehouse.info(run), warehouse.select(runs=run).runs()
    session.out.print_text(
        run_text(row, found.ranks, found.tables, found.versions, found.redaction, found.untested),
        [_as_json(found, row)],
    )


@click.command(
    epilog=examples(
        "tw label fp8-on commit=3f2a91c",
        "tw label fp8-on commit=      # remove the label",
    )
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.argument("labels", metavar="K=V...", nargs=-1, required=True, type=LabelParam())
@output_options
@pass_session
def label(session: Session, /, run: str, labels: tuple[tuple[str, str], ...]) -> None:
    """Set labels of a run; K= removes a label.

    The labels are stored in a new version of the run.
    """
    done = session.open().label(run, {key: value or None for key, value in labels})
    if done.version is None:
        session.out.print_text(f"{run}: labels unchanged", [])
        return
    name, labels_now = f"{done.version.run}@v{done.version.number}", dict(sorted(done.version.labels.items()))
    shown = ", ".join(f"{key}={value}" for key, value in labels_now.items()) or "no labels"
    session.out.print_text(f"{name}: {shown}", [{"run": name, "labels": labels_now}])


def _as_json(found: RunInfo, row: Result) -> dict[str, Any]:
    return {
        "run": _rows(row)[0],
        "ranks": _rows(found.ranks),
        "tables": [vars(table) for table in found.tables],
        "versions": found.versions,
        "redaction": found.redaction,
        "untested": found.untested,
    }


def _rows(result: Result) -> list[dict[str, Any]]:
    """The rows as in JSON output: timestamps as strings."""
    rows: list[dict[str, Any]] = json.loads("".join(result.json()))
    return rows
