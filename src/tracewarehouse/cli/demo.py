"""`tw demo`: a first look without any trace."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracewarehouse.cli.session import Session, examples, output_options, pass_session

if TYPE_CHECKING:
    from tracewarehouse.demo import Demo


@click.command(
    epilog=examples(
        "tw demo",
        "tw demo -w /tmp/look      # in a warehouse of its own",
    )
)
@output_options
@pass_session
def demo(session: Session, /) -> None:
    """Take a first look without any trace: two simulated runs, and what differs between them.

    The runs go into the warehouse as demo-before and demo-after; whatever else is there stays as it is.
    """
    from tracewarehouse.cli.demo_text import commands, told
    from tracewarehouse.demo import demo as show
    from tracewarehouse.render.progress import bars

    with bars() as progress:
        done = show(session.open(), say=session.out.notice, progress=progress)
    lines = commands(done, _where(session.warehouse))
    session.out.say(told(done, str(session.warehouse), lines), [_row(done, lines)])


def _where(warehouse: Path) -> str:
    """What a command needs to find the warehouse: nothing where it would look there anyway."""
    usual = Path(os.environ.get("TW_WAREHOUSE", "warehouse"))
    return "" if warehouse == usual else f" -w {shlex.quote(str(warehouse))}"


def _row(done: Demo, lines: list[str]) -> dict[str, object]:
    return {
        "runs": [{**asdict(run), "shares": run.shares} for run in done.runs],
        "kernels": [asdict(each) for each in done.kernels],
        "stragglers": [asdict(each) for each in done.stragglers],
        "taken_in": done.taken_in,
        "next": lines,
    }
