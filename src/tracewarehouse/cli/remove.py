"""`tw remove`: runs out of the warehouse."""

from __future__ import annotations

import click

from tracewarehouse.cli.complete import complete_runs
from tracewarehouse.cli.session import Session, examples, output_options, pass_session


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
    from tracewarehouse.render.values import size

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
