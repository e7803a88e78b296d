"""`tw verify`, `clean`, `refresh` and `upgrade`: looking after what is stored."""

from __future__ import annotations

import click

from tracewarehouse.cli.complete import complete_runs
from tracewarehouse.cli.session import (
    Duration,
    Session,
    examples,
    output_options,
    pass_session,
    result_options,
)
from tracewarehouse.errors import WarehouseError


@click.command(
    epilog=examples(
        "tw verify",
        "tw verify --json",
    )
)
@result_options
@pass_session
def verify(session: Session, /) -> None:
    """Check every manifest and file: there, whole, with the rows and checksum it was stored with."""
    from tracewarehouse.result import Field, from_rows
    from tracewarehouse.storage.format1 import Format1

    warehouse = session.open()
    problems = warehouse.verify()
    if not problems and Format1.is_at(warehouse.root):
        runs = len(Format1(warehouse.root).runs())
        session.out.say(
            f"all well: format 1, {runs} run{'s' if runs != 1 else ''}; tw upgrade converts it", []
        )
        return
    if not problems:
        runs = len(warehouse.store.runs())
        session.out.say(f"all well: {runs} run{'s' if runs != 1 else ''}", [])
        return
    fields = [Field(name, "VARCHAR") for name in ("run", "path", "what")]
    damage = WarehouseError(
        f"{session.warehouse}: {len(problems)} problem{'s' if len(problems) > 1 else ''} found",
        "tw remove the named runs, ingest them again, then tw clean --grace 0s",
    )
    session.out.show(from_rows(fields, [(each.run, each.path, each.what) for each in problems]), error=damage)
    raise click.exceptions.Exit(1)


@click.command(
    epilog=examples(
        "tw clean",
        "tw clean --grace 0s      # nobody else is writing or reading",
    )
)
@click.option("--grace", type=Duration(), default="1d", show_default=True, help="Spare what is younger.")
@output_options
@pass_session
def clean(session: Session, /, grace: float) -> None:
    """Take away files that no kept version of a run holds."""
    from tracewarehouse.render.text import count, size

    done = session.open().clean(grace)
    told = f"{count(done.files)} files taken away, {size(done.bytes)}; {count(done.versions)} old versions"
    session.out.say(told if done.files else "nothing to take away", [vars(done)])


@click.command(
    epilog=examples(
        "tw refresh      # after moving the warehouse to another place",
    )
)
@output_options
@pass_session
def refresh(session: Session, /) -> None:
    """Write warehouse.duckdb, the file for the DuckDB shell, anew."""
    path = session.open().refresh()
    session.out.say(f"wrote {path}", [{"path": str(path)}])


@click.command(
    epilog=examples(
        "tw upgrade      # after installing another release",
    )
)
@output_options
@pass_session
def upgrade(session: Session, /) -> int:
    """Rebuild the tables that this release reads in another version than is stored, from the events.

    Ends with exit code 4 where a rank of an earlier format cannot be converted, its stored files damaged.
    """
    report = session.open().upgrade()
    lost = [one.line for one in report.unconverted]
    for line in lost:
        session.out.notice(f"lost: {line}")
    rows = [{"what": line} for line in (*report.lines, *lost)]
    session.out.say("\n".join(report.lines) or "nothing to rebuild", rows)
    return report.exit_code


@click.command(
    epilog=examples(
        "tw remove fp8-off",
        "tw remove --where label.kind=nightly --older-than 90d --dry-run",
        "tw record --all && tw remove --older-than 90d --keep-results",
    )
)
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--where", multiple=True, metavar="label.K=V", help="Only runs with this label.")
@click.option("--older-than", metavar="AGE", help="Only runs older than this: 12h, 90d, 2w.")
@click.option("--keep-results", is_flag=True, help="Keep what was recorded of them, for tw history.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be taken out.")
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
    """Take runs out. Their files stay, and are readable as RUN@vN, until `tw clean`."""
    from tracewarehouse.render.text import size

    if not runs and not where and older_than is None:
        raise click.UsageError("name runs, or give --where or --older-than")
    gone = session.open().remove(
        runs or None, where=where, older_than=older_than, keep_results=keep_results, dry_run=dry_run
    )
    verb = "would remove" if dry_run else "removed"
    kept = (f"; {each.results} recorded results are kept" if keep_results else "" for each in gone)
    lines = [
        f"{verb} {each.run}: {each.ranks} ranks, {size(each.bytes)}{what}"
        for each, what in zip(gone, kept, strict=True)
    ]
    session.out.say("\n".join(lines) or "no run matches", [vars(each) for each in gone])
