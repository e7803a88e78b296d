"""`tw verify`, `clean`, `refresh`, `upgrade` and `remove`: maintenance of a warehouse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tracewarehouse.cli.option_types import DurationParam
from tracewarehouse.cli.session import (
    Session,
    complete_runs,
    examples,
    output_options,
    pass_session,
    result_options,
)
from tracewarehouse.errors import WarehouseError
from tracewarehouse.hints import cli_text

if TYPE_CHECKING:
    from tracewarehouse.storage.repair import Step


@click.command(
    epilog=examples(
        "tw verify",
        "tw verify --json",
    )
)
@click.option("--deep", is_flag=True, help="Download all files of an object store and compare checksums.")
@result_options
@pass_session
def verify(session: Session, /, deep: bool) -> None:
    """Verify sizes, row counts and checksums of all files.

    Of files in an object store only sizes are compared, unless --deep. Exit code 1 if there is a problem.
    """
    from tracewarehouse.present.render.text import plural
    from tracewarehouse.result import Field, from_rows

    warehouse = session.open()
    problems = warehouse.verify(deep=deep)
    if not problems:
        runs = len(warehouse.store.runs())
        session.out.print_text(f"OK: {plural(runs, 'run')} verified", [])
        return
    fields = [Field(name, "VARCHAR") for name in ("run", "path", "what")]
    damage = WarehouseError(
        f"{session.warehouse}: {plural(len(problems), 'problem')} found",
        "tw repair repairs them, or names what is lost; tw repair --dry-run shows what it would do",
    )
    rows = [(each.run, each.path, cli_text(each.what)) for each in problems]
    session.out.print_result(from_rows(fields, rows), error=damage)
    raise click.exceptions.Exit(1)


@click.command(
    epilog=examples(
        "tw repair --dry-run",
        "tw repair fp8-on --source traces/fp8-on",
    )
)
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=click.Path(exists=True),
    metavar="PATH",
    help="Trace files or folders to ingest lost ranks from (repeatable).",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done.")
@output_options
@pass_session
def repair(session: Session, /, runs: tuple[str, ...], sources: tuple[str, ...], dry_run: bool) -> int:
    """Repair damaged runs; without RUN, the entire warehouse.

    Versions are restored from their receipts and manifests, tables from the stored events. Damaged files are
    moved to _tw/quarantine; nothing is deleted. Ranks whose events are damaged are dropped and named, unless
    --source has their trace. Exit code 0: repaired; 4: repaired in part; 1: nothing could be repaired.
    """
    report = session.open().repair(runs or None, source=sources, dry_run=dry_run)
    lines = [f"{_verb(step, dry_run)}: {_place(step)}{cli_text(step.what)}" for step in report.steps]
    for problem in report.problems:
        session.out.notice(f"left: {problem.path}: {cli_text(problem.what)}")
    rows = [{**vars(step), "what": cli_text(step.what)} for step in report.steps]
    session.out.print_text("\n".join(lines) or "nothing to repair", rows)
    return report.exit_code


def _verb(step: Step, dry_run: bool) -> str:
    if step.is_loss or step.is_failure:
        return "lost" if step.is_loss else "failed"
    return "would do" if dry_run else "done"


def _place(step: Step) -> str:
    place = step.key or step.run
    return f"{place}: " if place else ""


@click.command(
    epilog=examples(
        "tw clean",
        "tw clean --grace 0s      # while no other process uses the warehouse",
    )
)
@click.option(
    "--grace", type=DurationParam(), default="1d", show_default=True, help="Keep files newer than this."
)
@click.option(
    "--keep-versions",
    type=DurationParam(),
    default="30d",
    show_default=True,
    help="Keep versions replaced within this time.",
)
@click.option("--quarantine", is_flag=True, help="Also delete what tw repair moved to the quarantine.")
@output_options
@pass_session
def clean(session: Session, /, grace: float, keep_versions: float, quarantine: bool) -> None:
    """Delete files that no version of a run uses.

    These are files of removed runs, of replaced versions and of interrupted calls. A version is kept if it is
    the newest of its run, if it was replaced within --keep-versions, or if an acknowledgement of tw history
    refers to its content. Of versions with the same rows (after tw compact, tw label), the newest is kept.
    Runs with lost or damaged objects are skipped.
    """
    from tracewarehouse.present.render.text import plural, size

    done = session.open().clean(grace, quarantine=quarantine, keep_versions_s=keep_versions)
    for run in done.skipped:
        session.out.notice(
            f"skipped run {run}: lost or damaged objects may have held its files; tw repair {run}"
        )
    files, versions = plural(done.files, "file"), plural(done.versions, "old version")
    text = f"deleted {files} ({size(done.bytes)}) and {versions}" if done.files else "nothing to delete"
    session.out.print_text(text, [vars(done)])


@click.command(
    epilog=examples(
        "tw refresh      # after moving the warehouse",
    )
)
@output_options
@pass_session
def refresh(session: Session, /) -> None:
    """Rebuild warehouse.duckdb, the file for DuckDB shells."""
    path = session.open().refresh(session.out.notice)
    session.out.print_text(f"wrote {path}", [{"path": str(path)}])


@click.command(
    epilog=examples(
        "tw upgrade      # after installing another release",
    )
)
@output_options
@pass_session
def upgrade(session: Session, /) -> int:
    """Rebuild tables for the versions that this release reads.

    They are rebuilt from the stored events; results recorded under an earlier definition are recorded again.
    Exit code 4: some runs could not be rebuilt; 1: none could.
    """
    report = session.open().upgrade()
    failed = [f"{run}: {cli_text(why)}" for run, why in report.failed.items()]
    for line in failed:
        session.out.notice(f"not rebuilt: {line}")
    lines = list(map(cli_text, report.lines))
    rows = [{"what": line} for line in (*lines, *failed)]
    session.out.print_text("\n".join(lines) or "nothing to rebuild", rows)
    return report.exit_code


@click.command(
    epilog=examples(
        "tw remove fp8-off",
        "tw remove --where label.kind=nightly --older-than 90d --dry-run",
        "tw record --all && tw remove --older-than 90d --keep-results",
    )
)
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--where", multiple=True, metavar="label.K=V", help="Select runs by label (repeatable).")
@click.option("--older-than", metavar="AGE", help="Select runs older than this: 12h, 90d, 2w.")
@click.option("--keep-results", is_flag=True, help="Keep recorded results, for tw history.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
@output_options
@pass_session
def remove(
    session: Session,
    /,
    runs: tuple[str, ...],
    where: tuple[str, ...],
    older_than: str | None,
    keep_results: bool,
    dry_run: bool,
) -> None:
    """Remove runs.

    Their files are readable as RUN@vN until tw clean deletes them. Exit code 0 also if no run matches --where
    and --older-than.
    """
    from tracewarehouse.present.render.text import plural, size

    if not runs and not where and older_than is None:
        raise click.UsageError("specify runs, --where or --older-than")
    removed = session.open().remove(
        runs or None, where=where, older_than=older_than, keep_results=keep_results, dry_run=dry_run
    )
    verb = "would remove" if dry_run else "removed"
    lines = [
        f"{verb} {each.run}: {plural(each.ranks, 'rank')}, {size(each.bytes)}"
        + (f"; kept {plural(each.results, 'recorded result')}" if keep_results else "")
        for each in removed
    ]
    session.out.print_text("\n".join(lines) or "no matching runs", [vars(each) for each in removed])
