"""`tw compact`: fewer files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tracewarehouse.cli.session import (
    Session,
    SizeParam,
    complete_runs,
    examples,
    output_options,
    pass_session,
)

if TYPE_CHECKING:
    from tracewarehouse.storage import Compacted


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
    """Write small files of runs as few large ones; without RUN, of all runs.

    Rows, answers and recorded results stay the same. Files of at least half the target stay, unless ranks in
    them were replaced. tw clean deletes the replaced files.
    """
    done = session.open().compact(runs or None, target_bytes=target, dry_run=dry_run)
    for each in done:
        if each.skipped_ranks:
            ranks = ", ".join(map(str, each.skipped_ranks))
            session.out.notice(f"{each.run}: rank {ranks} changed meanwhile and was left as it is")
    changed = [each for each in done if each.files_after != each.files_before or each.bytes_after is None]
    lines = [_line(each, dry_run) for each in changed]
    session.out.print_text("\n".join(lines) or "nothing to compact", [vars(each) for each in done])


def _line(done: Compacted, dry_run: bool) -> str:
    from tracewarehouse.render.text import plural, size

    verb = "would compact" if dry_run else "compacted"
    sizes = size(done.bytes_before)
    if done.bytes_after is not None:
        sizes += f" to {size(done.bytes_after)}"
    return f"{verb} {done.run}: {plural(done.files_before, 'file')} to {done.files_after:,}, {sizes}"
