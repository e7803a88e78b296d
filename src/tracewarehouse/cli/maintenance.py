"""`tw verify`, `repair`, `clean`, `refresh`, `upgrade`, `remove`, `seal`, `publish`, `secrets`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from tracewarehouse.cli.session import (
    DURATION,
    LABEL,
    Session,
    command,
    complete_runs,
    output_options,
    result_options,
)
from tracewarehouse.errors import TwError, WarehouseError
from tracewarehouse.exact_text import MOST_RANKS, rank_list
from tracewarehouse.hints import cli_text

if TYPE_CHECKING:
    from tracewarehouse.ingest.secrets import SecretReport


@command("tw verify", "tw verify --json")
@click.option("--deep", is_flag=True, help="Download all files of an object store and compare checksums.")
@result_options
def verify(session: Session, /, deep: bool) -> None:
    """Verify sizes, row counts and checksums of all files.

    Of files in an object store only sizes are compared, unless --deep. Exit code 1 if there is a problem.
    """
    from tracewarehouse.present.render.text import plural
    from tracewarehouse.result import Field, from_rows

    warehouse = session.open()
    problems = warehouse.verify(deep=deep)
    if not problems:
        runs = len(warehouse.store.runs())
        session.out.print_text(f"OK: {plural(runs, 'run')} verified", [])
        return
    fields = [Field(name, "VARCHAR") for name in ("run", "path", "what")]
    damage = WarehouseError(
        f"{session.warehouse}: {plural(len(problems), 'problem')} found",
        "tw repair repairs them, or names what is lost; tw repair --dry-run shows what it would do",
    )
    rows = [(problem.run, problem.path, cli_text(problem.what)) for problem in problems]
    session.out.print_result(from_rows(fields, rows), error=damage)
    raise click.exceptions.Exit(1)


@command("tw repair --dry-run", "tw repair fp8-on --source traces/fp8-on")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=click.Path(exists=True),
    metavar="PATH",
    help="Trace files or folders to ingest lost ranks from (repeatable).",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done.")
@output_options
def repair(session: Session, /, runs: tuple[str, ...], sources: tuple[str, ...], dry_run: bool) -> int:
    """Repair damaged runs; without RUN, the entire warehouse.

    Versions are restored from the index and the commits, tables from the stored events.

    \fDamaged files stay where they are, and nothing uses them. Ranks whose events are damaged are dropped and
    named, unless --source has their trace.

    Exit code 0: repaired; 4: repaired in part; 1: nothing could be repaired.
    """
    report = session.open().repair(runs or None, source=sources, dry_run=dry_run)
    lines = []
    for step in report.steps:
        verb = "lost" if step.is_loss else "failed" if step.is_failure else "would do" if dry_run else "done"
        subject = step.key or step.run
        lines.append(f"{verb}: {f'{subject}: ' if subject else ''}{cli_text(step.what)}")
    for problem in report.problems:
        session.out.notice(f"left: {problem.path}: {cli_text(problem.what)}")
    rows = [{**asdict(step), "what": cli_text(step.what)} for step in report.steps]
    session.out.print_text("\n".join(lines) or "nothing to repair", rows)
    return report.exit_code


@command("tw clean", "tw clean --grace 0s      # while no other process uses the warehouse")
@click.option("--grace", type=DURATION, default="1d", help="Keep files newer than this.")
@click.option(
    "--keep-versions", type=DURATION, default="30d", help="Keep versions replaced within this time."
)
@click.option("--taken-out", is_flag=True, help="Also delete what tw repair took out.")
@output_options
def clean(session: Session, /, grace: float, keep_versions: float, taken_out: bool) -> None:
    """Delete files that no version of a run uses.

    These are files of removed runs, of replaced versions and of interrupted calls.

    \fA version is kept if it is
    the newest of its run, if it was replaced within --keep-versions, or if an acknowledgement of tw history
    refers to its content. Of versions with the same rows (after tw compact, tw label), the newest is kept.
    Runs with lost or damaged objects are skipped.
    """
    from tracewarehouse.present.render.text import plural, size

    cleaned = session.open().clean(grace, taken_out=taken_out, keep_versions_s=keep_versions)
    for run in cleaned.skipped:
        session.out.notice(
            f"skipped run {run}: lost or damaged objects may have held its files; tw repair {run}"
        )
    files, versions = plural(cleaned.files, "file"), plural(cleaned.versions, "old version")
    text = f"deleted {files} ({size(cleaned.bytes)}) and {versions}" if cleaned.files else "nothing to delete"
    session.out.print_text(text, [asdict(cleaned)])


@command("tw refresh      # after moving the warehouse")
@output_options
def refresh(session: Session, /) -> None:
    """Rebuild warehouse.duckdb, the file for DuckDB shells."""
    path = session.open().refresh(session.out.notice)
    session.out.print_text(f"wrote {path}", [{"path": str(path)}])


@command("tw upgrade      # after installing another release")
@output_options
def upgrade(session: Session, /) -> int:
    """Upgrade stored tables to this release.

    They are rebuilt from the stored events; results recorded under an earlier definition are recorded again.

    \fExit code 4: some runs could not be rebuilt; 1: none could.
    """
    report = session.open().upgrade()
    failed = [f"{run}: {cli_text(why)}" for run, why in report.failed.items()]
    for line in failed:
        session.out.notice(f"not rebuilt: {line}")
    lines = list(map(cli_text, report.lines))
    rows = [{"what": line} for line in (*lines, *failed)]
    session.out.print_text("\n".join(lines) or "nothing to rebuild", rows)
    return report.exit_code


@command(
    "tw remove fp8-off",
    "tw remove --where label.kind=nightly --older-than 90d --dry-run",
    "tw record --all && tw remove --older-than 90d --keep-results",
)
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--where", multiple=True, metavar="label.K=V", help="Select runs by label (repeatable).")
@click.option("--older-than", metavar="AGE", help="Select runs older than this: 12h, 90d, 2w.")
@click.option("--keep-results", is_flag=True, help="Keep recorded results, for tw history.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
@output_options
def remove(
    session: Session, /, runs: tuple[str, ...], keep_results: bool, dry_run: bool, **which: Any
) -> None:
    """Remove runs.

    Their files are readable as RUN@vN until tw clean deletes them. Exit code 0 also if no run matches --where
    and --older-than.
    """
    from tracewarehouse.present.render.text import plural, size

    if not runs and not which["where"] and which["older_than"] is None:
        raise click.UsageError("specify runs, --where or --older-than")
    removed = session.open().remove(runs or None, keep_results=keep_results, dry_run=dry_run, **which)
    verb = "would remove" if dry_run else "removed"
    lines = [
        f"{verb} {removed_run.run}: {plural(removed_run.ranks, 'rank')}, {size(removed_run.bytes)}"
        + (f"; kept {plural(removed_run.results, 'recorded result')}" if keep_results else "")
        for removed_run in removed
    ]
    session.out.print_text("\n".join(lines) or "no matching runs", [asdict(each) for each in removed])


@command(
    "tw seal fp8-on",
    "tw seal fp8-on --expect-ranks 64 --label commit=3f2a91c",
    "tw seal fp8-on --allow-missing       # some ranks failed",
)
@click.argument("run", metavar="RUN")
@click.option(
    "--expect-ranks",
    type=click.IntRange(1, MOST_RANKS),
    metavar="N",
    help="Number of ranks. [default: from ingest or world size]",
)
@click.option("--allow-missing", is_flag=True, help="Publish the run even if ranks are missing.")
@click.option("--label", "labels", multiple=True, type=LABEL, help="Label of the run (repeatable).")
@output_options
def seal(session: Session, /, run: str, labels: tuple[tuple[str, str], ...], **settings: Any) -> int:
    """Publish the ranks that wait for others.

    They wait since `tw ingest --expect-ranks`. All of them appear at once, in one version.

    \fRanks that come later are added by the next seal. Exit code 1: ranks are missing, and nothing was
    published. Exit code 4: some ranks conflict with stored ones.
    """
    sealed = session.open().seal(run, labels=dict(labels), **settings)
    if sealed.conflicts:
        ranks = rank_list(list(sealed.conflicts))
        session.out.notice(f"not published: different content is stored: ranks {ranks}")
        session.out.notice("hint: ingest them with --replace")
    name, noun = f"{sealed.run}@v{sealed.version}", "rank" if len(sealed.ranks) == 1 else "ranks"
    of_expected = f" of {sealed.expected_ranks}" if sealed.expected_ranks is not None else ""
    text = f"{noun} {rank_list(list(sealed.ranks))}{of_expected}" if sealed.written else "nothing to publish"
    session.out.print_text(f"{name}: {text}", [asdict(sealed)])
    return sealed.exit_code


_COLUMNS = ("file", "where", "rule", "values")


@command(
    "tw secrets traces/                 # before sharing or ingesting them",
    "tw secrets                         # everything in the warehouse",
    "tw secrets --run fp8-on --redact",
    "tw secrets --redact --purge        # while no other process writes",
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
def secrets(
    session: Session, /, paths: tuple[str, ...], runs: tuple[str, ...], redact: bool, purge: bool
) -> None:
    """Search trace files, or the warehouse, for secrets.

    With PATH, trace files are read and nothing is stored. The output says where a secret is and which rule
    found it, never the secret. Exit code 1 if there is any.

    \fWithout PATH, columns, headers, commits, recorded results, warehouse.duckdb, paths and the inbox of the
    warehouse are searched. Exit code 4 if some files could not be searched.

    Ingest replaces secrets before anything is stored; --redact does so for runs that an earlier release
    ingested, or whose secrets a new rule of the policy (_tw/redact.toml) finds. Their old versions stay
    readable until --purge. Traces in the inbox are as the training job wrote them, until tw ingest --inbox.
    """
    if paths and (runs or redact or purge):
        raise click.UsageError("--run, --redact and --purge apply to the warehouse, not to PATH")
    if redact or purge:
        _remove(session, runs, redact, purge)
        return
    if not paths:
        _print(session, session.open().secrets(runs or None))
        return
    from tracewarehouse.formats.redact.rules import policy_of
    from tracewarehouse.ingest.secrets import scan_traces

    root = session.warehouse
    folder = root if isinstance(root, Path) else session.open().store.folder
    _print(session, scan_traces(paths, policy_of(folder)))


def _print(session: Session, report: SecretReport) -> None:
    """Prints where secrets are; exit code 4 if some files could not be searched, 1 if none could."""
    from tracewarehouse.present.render.text import plural
    from tracewarehouse.result import Field, from_rows

    for failure in report.failed:
        session.out.notice(f"not searched: {failure.file}: {failure.reason}")
    if not report.found:
        nothing = f"no secrets found in {plural(report.files, 'file')}"
        if not report.failed:
            session.out.print_text(nothing, [])
            return
        error = TwError(f"{nothing}; {plural(len(report.failed), 'file')} could not be searched")
        not_searched = [{"not_searched": failure.file, "reason": failure.reason} for failure in report.failed]
        session.out.print_text("", not_searched, error=error)
        raise click.exceptions.Exit(4 if report.files else 1)
    fields = [Field(name, "BIGINT" if name == "values" else "VARCHAR") for name in _COLUMNS]
    rows = [tuple(getattr(each, name) for name in _COLUMNS) for each in report.found]
    files = len({each.file for each in report.found})
    error = TwError(
        f"secrets found in {plural(files, 'file')} of {report.files:,}",
        "tw ingest replaces them; tw secrets --redact --purge cleans a warehouse",
    )
    session.out.print_result(from_rows(fields, rows), error=error)
    raise click.exceptions.Exit(1)


def _remove(session: Session, runs: tuple[str, ...], redact: bool, purge: bool) -> None:
    removal = session.open().remove_secrets(runs or None, redact=redact, purge=purge)
    session.out.print_text(
        "\n".join(removal.lines) or "nothing to redact", [{"done": line} for line in removal.lines]
    )
    if removal.left:
        for line in removal.left:
            session.out.notice(f"still has secrets: {line}")
        if any(line.startswith("inbox/") for line in removal.left):
            session.out.notice("hint: tw ingest --inbox redacts the traces in the inbox")
        if not purge:
            session.out.notice("hint: older versions stay readable until tw secrets --purge")
            return
        raise click.exceptions.Exit(4)
