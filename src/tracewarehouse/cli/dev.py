"""`tw dev`: commands for contributors, in a checkout."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import asdict

from tracewarehouse.cli.session import Session, command, examples, no_warehouse_options
from tracewarehouse.errors import ContractError
from tracewarehouse.present.render.text import plural


@click.group(
    epilog=examples(
        "tw dev sync && tw dev check",
    )
)
def dev() -> None:
    """Developer commands (source checkout only).

    Run it in the root folder of the checkout.
    """


@command("tw dev sync", parent=dev)
@no_warehouse_options
def sync(session: Session, /) -> None:
    """Regenerate files derived from the contracts.

    These are the typed methods and the SQL reference.
    """
    from tracewarehouse.devtools import release as devtools

    root = Path.cwd()
    changed = [str(path.relative_to(root)) for path in devtools.sync(root)]
    text = "".join(f"wrote {path}\n" for path in changed) or "all generated files are up to date\n"
    session.out.print_text(text, [{"path": path} for path in changed])


@command("tw dev new host_gaps --group launch", "tw dev new slow_copies --group findings", parent=dev)
@click.argument("name", metavar="NAME")
@click.option("--group", default="gpu", help="Folder under sql/analyses.")
@no_warehouse_options
def new(session: Session, /, name: str, group: str) -> None:
    """Write skeletons of an analysis and its golden file.

    In the group findings, the analysis is a finding rule. Generated files are updated too.
    """
    from tracewarehouse.devtools import skeleton

    root = Path.cwd()
    paths = [str(path.relative_to(root)) for path in skeleton.new(root, name, group)]
    text = "".join(f"wrote {path}\n" for path in paths)
    steps = f"edit the first two, then: tw dev sync && tw dev check {name}\n"
    session.out.print_text(text + steps, [{"path": path} for path in paths])


@command("tw dev check", "tw dev check kernel_summary", parent=dev)
@click.argument("name", metavar="[NAME[@VERSION]]", required=False)
@no_warehouse_options
def check(session: Session, /, name: str | None) -> int:
    """Check contracts, golden files and generated files.

    No traces are needed. With NAME, all checks of one contract are run as in CI, including its golden files
    and laws. Exit code 1 if there is a problem.
    """
    from tracewarehouse.devtools import release as devtools
    from tracewarehouse.devtools import skeleton

    root = Path.cwd()
    violations = devtools.check_checkout(root) if name is None else skeleton.check_contract(root, name)
    lines = [f"{each.location}: {each.message}\n    {each.remedy}\n" for each in violations]
    error = ContractError(plural(len(violations), "problem")) if violations else None
    session.out.print_text(
        "".join(lines) or "no problems found\n", [asdict(each) for each in violations], error
    )
    return 1 if violations else 0


@command("tw dev release temporal_breakdown", "tw dev release --retire gpu_busy@1", parent=dev)
@click.argument("names", metavar="[NAME[@VERSION]]...", nargs=-1)
@click.option("--retire", is_flag=True, help="Retire released versions whose file was deleted.")
@no_warehouse_options
def release(session: Session, /, names: tuple[str, ...], retire: bool) -> None:
    """Freeze contracts in sql/released.lock.

    Their dependencies are frozen too; without names, all contracts are.
    """
    from tracewarehouse.devtools import release as devtools

    new = devtools.release(Path.cwd(), names, retire=retire)
    text = "".join(f"{each.status} {each.ref}\n" for each in new) or "nothing to release\n"
    session.out.print_text(text, [{"name": str(each.ref), "status": each.status} for each in new])


@command("tw dev wheels /tmp/wheels", "tw dev wheels /tmp/wheels manylinux_2_17_x86_64", parent=dev)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.argument("tags", metavar="[PLATFORM]...", nargs=-1)
@no_warehouse_options
def wheels(session: Session, /, folder: Path, tags: tuple[str, ...]) -> None:
    """Build the source distribution and all wheels.

    They are compiled with ziglang (pip install -e '.[wheels]'), and checked: machine, version of glibc or
    macOS.
    """
    from tracewarehouse.devtools import wheels as devtools

    paths = [str(path) for path in devtools.build(Path.cwd(), folder, tags)]
    session.out.print_text("".join(f"built {path}\n" for path in paths), [{"path": path} for path in paths])
