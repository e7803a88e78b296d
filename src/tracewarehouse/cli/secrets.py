"""`tw secrets`: what looks like a secret in trace files, or in a warehouse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracewarehouse.cli.session import Session, complete_runs, examples, pass_session, result_options
from tracewarehouse.errors import TwError

if TYPE_CHECKING:
    from tracewarehouse.ingest.secrets import SecretReport

_COLUMNS = ("file", "where", "rule", "values")


@click.command(
    epilog=examples(
        "tw secrets traces/                 # before sharing or ingesting them",
        "tw secrets                         # everything in the warehouse",
        "tw secrets --run fp8-on --redact",
        "tw secrets --redact --purge        # while no other process writes",
    )
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(readable=False))
@click.option(
    "--run",
    "runs",
    multiple=True,
    metavar="RUN",
    shell_complete=complete_runs,
    help="Search only what is stored of this run (repeatable).",
)
@click.option("--redact", is_flag=True, help="Publish versions of the runs without secrets.")
@click.option("--purge", is_flag=True, help="Delete old versions that hold secrets, and what tw clean would.")
@result_options
@pass_session
def secrets(
    session: Session, /, paths: tuple[str, ...], runs: tuple[str, ...], redact: bool, purge: bool
) -> None:
    """Search trace files, or the warehouse, for secrets.

    With PATH, trace files are read and nothing is stored. Without, columns, headers, manifests, recorded
    results, warehouse.duckdb, paths and the inbox of the warehouse are searched. The output says where a
    secret is and which rule found it, never the secret. Exit code 1 if there is any, 4 if some files
    could not be searched.

    Ingest replaces secrets before anything is stored; --redact does so for runs that an earlier release
    ingested, or whose secrets a new rule of the policy (_tw/redact.toml) finds. Their old versions stay
    readable until --purge. Traces in the inbox are as the training job wrote them, until tw ingest --inbox.
    """
    if paths and (runs or redact or purge):
        raise click.UsageError("--run, --redact and --purge apply to the warehouse, not to PATH")
    if redact or purge:
        _remove(session, runs, redact, purge)
        return
    report = _search_paths(session, paths) if paths else session.open().secrets(runs or None)
    _print(session, report)


def _search_paths(session: Session, paths: tuple[str, ...]) -> SecretReport:
    from tracewarehouse.formats.redact import policy_of
    from tracewarehouse.ingest.secrets import scan_traces

    place = session.warehouse
    return scan_traces(paths, policy_of(place if isinstance(place, Path) else session.open().store.folder))


def _print(session: Session, report: SecretReport) -> None:
    from tracewarehouse.present.render.text import plural
    from tracewarehouse.result import Field, from_rows

    for one in report.failed:
        session.out.notice(f"not searched: {one.file}: {one.reason}")
    if not report.found:
        _print_none_found(session, report)
        return
    fields = [Field(name, "BIGINT" if name == "values" else "VARCHAR") for name in _COLUMNS]
    rows = [tuple(getattr(each, name) for name in _COLUMNS) for each in report.found]
    files = len({each.file for each in report.found})
    error = TwError(
        f"secrets found in {plural(files, 'file')} of {report.files:,}",
        "tw ingest replaces them; tw secrets --redact --purge cleans a warehouse",
    )
    session.out.print_result(from_rows(fields, rows), error=error)
    raise click.exceptions.Exit(1)


def _print_none_found(session: Session, report: SecretReport) -> None:
    """Exit code 4 if some files could not be searched, 1 if none could."""
    from tracewarehouse.present.render.text import plural

    none = f"no secrets found in {plural(report.files, 'file')}"
    if not report.failed:
        session.out.print_text(none, [])
        return
    error = TwError(f"{none}; {plural(len(report.failed), 'file')} could not be searched")
    not_searched = [{"not_searched": one.file, "reason": one.reason} for one in report.failed]
    session.out.print_text("", not_searched, error=error)
    raise click.exceptions.Exit(4 if report.files else 1)


def _remove(session: Session, runs: tuple[str, ...], redact: bool, purge: bool) -> None:
    done = session.open().remove_secrets(runs or None, redact=redact, purge=purge)
    session.out.print_text(
        "\n".join(done.lines) or "nothing to redact", [{"done": line} for line in done.lines]
    )
    if done.left:
        for line in done.left:
            session.out.notice(f"still has secrets: {line}")
        if any(line.startswith("inbox/") for line in done.left):
            session.out.notice("hint: tw ingest --inbox redacts the traces in the inbox")
        if not purge:
            session.out.notice("hint: older versions stay readable until tw secrets --purge")
            return
        raise click.exceptions.Exit(4)
