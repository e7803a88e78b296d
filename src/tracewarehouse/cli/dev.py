"""`tw dev`: for those who write analyses, in a checkout."""

from __future__ import annotations

from pathlib import Path

import click

from tracewarehouse.cli.session import Session, examples, output_options, pass_session
from tracewarehouse.errors import ContractError


@click.group(
    epilog=examples(
        "tw dev sync && tw dev check",
    )
)
def dev() -> None:
    """Write analyses: generated files, checks, releases. At the top of a checkout."""


@dev.command(
    epilog=examples(
        "tw dev sync",
    )
)
@output_options
@pass_session
def sync(session: Session, /) -> None:
    """Write the files that are made from the contracts: methods, reference, table in the README."""
    from tracewarehouse.devtools import release as work

    root = Path.cwd()
    changed = [str(path.relative_to(root)) for path in work.sync(root)]
    text = "".join(f"wrote {path}\n" for path in changed) or "all generated files are fresh\n"
    session.out.say(text, [{"path": path} for path in changed])


@dev.command(
    epilog=examples(
        "tw dev new host_gaps --group launch",
    )
)
@click.argument("name", metavar="NAME")
@click.option("--group", default="gpu", show_default=True, help="Folder under sql/analyses.")
@output_options
@pass_session
def new(session: Session, /, name: str, group: str) -> None:
    """Write the skeletons of an analysis and its golden file, ready to edit, and the generated files."""
    from tracewarehouse.devtools import authoring

    root = Path.cwd()
    paths = [str(path.relative_to(root)) for path in authoring.new(root, name, group)]
    text = "".join(f"wrote {path}\n" for path in paths)
    steps = f"edit the first two, then: tw dev sync && tw dev check {name}\n"
    session.out.say(text + steps, [{"path": path} for path in paths])


@dev.command(
    epilog=examples(
        "tw dev check",
        "tw dev check kernel_summary",
    )
)
@click.argument("name", metavar="[NAME[@VERSION]]", required=False)
@output_options
@pass_session
def check(session: Session, /, name: str | None) -> int:
    """Check every contract, golden file and generated file; needs no trace. Exit code 1 on a finding.

    With NAME, everything that CI checks of this contract: its golden files and laws are run, too.
    """
    from tracewarehouse.devtools import authoring
    from tracewarehouse.devtools import release as work

    findings = work.check(Path.cwd()) if name is None else authoring.check_contract(Path.cwd(), name)
    lines = [f"{each.place}: {each.message}\n    {each.remedy}\n" for each in findings]
    stale = ContractError(f"{len(findings)} finding{'s' if len(findings) > 1 else ''}") if findings else None
    session.out.say("".join(lines) or "all well\n", [vars(each) for each in findings], stale)
    return 1 if findings else 0


@dev.command(
    epilog=examples(
        "tw dev release temporal_breakdown",
        "tw dev release --retire gpu_busy@1",
    )
)
@click.argument("names", metavar="[NAME[@VERSION]]...", nargs=-1)
@click.option("--retire", is_flag=True, help="Mark released numbers whose file is gone.")
@output_options
@pass_session
def release(session: Session, /, names: tuple[str, ...], retire: bool) -> None:
    """Freeze contracts, and all they read, in sql/released.lock; without names, all of them."""
    from tracewarehouse.devtools import release as work

    new = work.release(Path.cwd(), names, retire=retire)
    text = "".join(f"{each.status} {each.ref}\n" for each in new) or "nothing new\n"
    session.out.say(text, [{"name": str(each.ref), "status": each.status} for each in new])
