"""`tw gate init`: the workflow of a CI system, or of Slurm, that records runs and checks their gates."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace

from tracewarehouse.cli.output import write_text
from tracewarehouse.cli.session import Session, command, examples, no_warehouse_options
from tracewarehouse.errors import TwError

# System → its template, and where its file belongs.
_FILES = {
    "github": ("github.yml", ".github/workflows/performance.yml"),
    "gitlab": ("gitlab.yml", ".gitlab/performance.yml"),
    "slurm": ("slurm.sh", "tw-epilog.sh"),
}


@click.group(epilog=examples("tw gate init github"))
def gate() -> None:
    """Check gates in CI."""


@command("tw gate init github", "tw gate init slurm --output tools/tw-epilog.sh", parent=gate)
@click.argument("system", type=click.Choice(list(_FILES)), default="github", metavar="[github|gitlab|slurm]")
@no_warehouse_options
def init(session: Session, /, system: str) -> None:
    """Write a workflow that records runs and checks gates.

    For GitHub Actions, GitLab CI, or a Slurm epilog; it also ingests the traces, and says what to adapt.
    Without --output, the file is .github/workflows/performance.yml, .gitlab/performance.yml or tw-epilog.sh.
    An existing file is kept.
    """
    name, place = _FILES[system]
    path = session.output or Path(place)
    if path.exists():
        raise TwError(f"{path} exists", "choose another file with --output, or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, (Path(__file__).parent / "workflows" / name).read_text(encoding="utf-8"))
    if path.suffix == ".sh":
        path.chmod(path.stat().st_mode | 0o111)
    replace(session.out, output=None).print_text(f"wrote {path}", [{"path": str(path)}])
