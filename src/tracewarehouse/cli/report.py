"""`tw report`: one HTML page on a run, or on what changed between two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from tracewarehouse.cli.complete import complete_runs
from tracewarehouse.cli.session import Session, examples, output_options, pass_session, rank_option


@click.command(
    epilog=examples(
        "tw report fp8-on",
        "tw report @latest -o look.html",
        "tw report fp8-off fp8-on",
    )
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.argument("head_run", metavar="[HEAD]", required=False, shell_complete=complete_runs)
@click.option("--anyway", is_flag=True, help="Compare what is not comparable.")
@rank_option
@output_options
@pass_session
def report(session: Session, /, run: str, head_run: str | None, anyway: bool) -> None:
    """Write one HTML page on a run: what its GPUs did, what held them up, what is not known.

    With HEAD, on what changed from RUN to it: the verdict, an account of the change, what moved. The page
    opens offline and asks nothing of any network. It goes to RUN.html, or RUN-HEAD.html, unless -o names a
    file; `-o -` is stdout.
    """
    from tracewarehouse.plot import check_installed
    from tracewarehouse.render.output import check_writable

    check_installed()  # before the work
    if session.output is not None and str(session.output) != "-":
        check_writable(session.output)
    page = session.open().report(run, head_run, anyway=anyway, say=session.out.notice)
    path = session.output or Path(f"{page.name}.html")
    session.out.notice("drawing")
    out = replace(session.out, path=None if str(path) == "-" else path)
    out.pour(page.html(), {"sections": len(page.sections)})
