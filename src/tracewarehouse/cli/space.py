"""`tw compact` and `tw retain`: fewer files, and fewer tables of earlier ranks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracewarehouse.cli.option_types import SizeParam
from tracewarehouse.cli.session import Session, complete_runs, examples, output_options, pass_session

if TYPE_CHECKING:
    from tracewarehouse.storage import Compacted, Expired


@click.command(
    epilog=examples(
        "tw compact",
        "tw compact 'nightly-*' --target 256MB --dry-run",
    )
)
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--target", type=SizeParam(), default="128MB", show_default=True, help="Size of the new files.")
@click.option("--dry-run", is_flag=True, help="Show what would be done.")
@output_options
@pass_session
def compact(session: Session, /, runs: tuple[str, ...], target: int, dry_run: bool) -> None:
    """Merge small files of runs into a few large ones.

    Without RUN, of all runs. Rows, answers and recorded results stay the same. Files of at least half the
    target stay, unless ranks in them were replaced. tw clean deletes the replaced files.
    """
    done = session.open().compact(runs or None, target_bytes=target, dry_run=dry_run)
    for each in done:
        if each.skipped_ranks:
            ranks = ", ".join(map(str, each.skipped_ranks))
            session.out.notice(f"{each.run}: rank {ranks} changed meanwhile and was left as it is")
    lines = [_line(each, dry_run) for each in done if each.rewritten]
    session.out.print_text("\n".join(lines) or "nothing to compact", [vars(each) for each in done])


def _line(done: Compacted, dry_run: bool) -> str:
    from tracewarehouse.present.render.text import plural, size

    verb = "would compact" if dry_run else "compacted"
    sizes = size(done.bytes_before)
    if done.bytes_after is not None:
        sizes += f" to {size(done.bytes_after)}"
    return f"{verb} {done.run}: {plural(done.files_before, 'file')} to {done.files_after:,}, {sizes}"


@click.command(
    epilog=examples(
        "tw retain retention.toml --dry-run",
        "tw retain retention.toml && tw compact && tw clean --keep-versions 7d",
    )
)
@click.argument("policy", type=click.Path(path_type=Path), metavar="POLICY.toml")
@click.option("--dry-run", is_flag=True, help="Show what would expire.")
@output_options
@pass_session
def retain(session: Session, /, policy: Path, dry_run: bool) -> None:
    """Drop tables of ranks by age.

    All other tables and recorded results stay.
    Each [[rule]] of POLICY.toml has tables = ["events"], older_than = "7d" since the rank was ingested, and
    optionally keep = { every = 64, outliers = 8 }: every 64th rank, and the 8 whose GPU time differs most
    from the median of their run. Analyses that read an expired table skip the rank. Ingesting its trace again
    restores it. tw clean deletes the files.
    """
    done = session.open().retain(policy, dry_run=dry_run)
    for each in done:
        if each.skipped_ranks:
            ranks = ", ".join(map(str, each.skipped_ranks))
            session.out.notice(f"{each.run}: rank {ranks} changed meanwhile and was left as it is")
        if each.shared_files:
            session.out.notice(_shared(each))
    lines = [_expired_line(each, dry_run) for each in done]
    session.out.print_text("\n".join(lines) or "nothing expired", [vars(each) for each in done])


def _shared(done: Expired) -> str:
    from tracewarehouse.present.render.text import plural

    files = plural(done.shared_files, "file")
    return (
        f"{done.run}: {files} also hold other ranks; tw compact {done.run} writes those without the expired"
    )


def _expired_line(done: Expired, dry_run: bool) -> str:
    from tracewarehouse.present.render.text import plural, size

    verb = "would expire" if dry_run else "expired"
    where = f"{done.run}: {', '.join(done.tables)} of {plural(done.ranks, 'rank')}"
    return f"{verb} {where}, {plural(done.files, 'file')} ({size(done.bytes)})"
