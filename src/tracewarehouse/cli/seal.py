"""`tw seal`: publishes the ranks that jobs pushed."""

from __future__ import annotations

import click

from tracewarehouse.cli.option_types import LabelParam
from tracewarehouse.cli.session import Session, examples, output_options, pass_session
from tracewarehouse.exact_text import rank_list


@click.command(
    epilog=examples(
        "tw seal fp8-on",
        "tw seal fp8-on --expect-ranks 64 --label commit=3f2a91c",
        "tw seal fp8-on --allow-missing       # some ranks failed",
    )
)
@click.argument("run", metavar="RUN")
@click.option(
    "--expect-ranks",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of ranks. [default: as pushed, or the world size]",
)
@click.option("--allow-missing", is_flag=True, help="Publish the run even if ranks are missing.")
@click.option("--label", "labels", multiple=True, type=LabelParam(), help="Label of the run (repeatable).")
@output_options
@pass_session
def seal(
    session: Session,
    /,
    run: str,
    expect_ranks: int | None,
    allow_missing: bool,
    labels: tuple[tuple[str, str], ...],
) -> int:
    """Publish the ranks that jobs stored with `tw ingest --push`.

    All of them appear at once, in one version. Ranks that are pushed later are added by the next seal.
    Exit code 1: ranks are missing, and nothing was published. Exit code 4: some pushed ranks conflict with
    stored ones.
    """
    done = session.open().seal(
        run, expect_ranks=expect_ranks, allow_missing=allow_missing, labels=dict(labels)
    )
    if done.conflicts:
        ranks = rank_list(list(done.conflicts))
        session.out.notice(f"not published: different content is stored: ranks {ranks}")
        session.out.notice("hint: push them with --replace")
    name, noun = f"{done.run}@v{done.version}", "rank" if len(done.ranks) == 1 else "ranks"
    of = f" of {done.expected_ranks}" if done.expected_ranks is not None else ""
    text = f"{noun} {rank_list(list(done.ranks))}{of}" if done.written else "nothing to publish"
    session.out.print_text(f"{name}: {text}", [vars(done)])
    return done.exit_code
