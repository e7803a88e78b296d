"""`tw runs`, `info`, `label`, `files`, `fetch`, `compact`, `expire`: the stored runs and their files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict, replace

from tracewarehouse.cli.session import (
    LABEL,
    SIZE,
    Session,
    command,
    complete_runs,
    output_options,
    result_options,
    selection_options,
    verify_option,
)
from tracewarehouse.present.render.text import plural, show, size

if TYPE_CHECKING:
    from tracewarehouse.result import Result
    from tracewarehouse.runs.rows import TableSize
    from tracewarehouse.storage.model import Compacted, Expired


# The most important first; other columns are in `tw info` and in data formats.
_TABLE_COLUMNS = ["run_id", "ranks", "start", "device_names", "bytes", "state", "labels", "version"]


@command("tw runs", "tw runs --run label:commit=3f2a91c --format json")
@selection_options
@result_options
def runs(session: Session, /) -> None:
    """List runs with ranks, labels, devices, times and size."""
    session.prefer_text()
    stored = session.open().runs()
    if not session.json and session.out.resolved_format in ("table", "md"):
        stored = _brief(stored)
    session.out.print_result(stored)


def _brief(stored: Result) -> Result:
    """The runs as listed in a table: present and expected ranks in one column, starts without fractions."""
    rows = stored.rows()
    ranks, starts = [], []
    for row in rows:
        present, expected = row["ranks_present"], row["ranks_expected"]
        ranks.append(str(present) if expected is None else f"{present} of {expected}")
        start = show(row["start_ns"], "ts")
        starts.append(start if start.endswith(" s") else start.partition(".")[0])
    table = stored.table.append_column("ranks", [ranks]).append_column("start", [starts])
    return replace(stored, table=table.select(_TABLE_COLUMNS))


@command("tw info fp8-on", "tw info @latest --json", "tw info fp8-on@v1")
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@verify_option
@output_options
def info(session: Session, /, run: str) -> None:
    """Show the ranks, tables and versions of a run."""
    warehouse = session.open()
    details = warehouse.info(run)
    row = warehouse.select(runs=f"{details.run['run_id']}@v{details.run['version']}").runs()
    session.out.print_text(
        run_text(row, details.ranks, details.tables, details.versions, details.redaction, details.untested),
        [
            {
                "run": _rows(row)[0],
                "ranks": _rows(details.ranks),
                "tables": [asdict(table) for table in details.tables],
                "versions": details.versions,
                "redaction": details.redaction,
                "untested": details.untested,
            }
        ],
    )


_RANK_COLUMNS = (
    "rank",
    "status",
    "source_name",
    "events",
    "gpu_activities",
    "steps",
    "world_size",
    "host",
    "device_name",
)


def run_text(
    run: Result,
    ranks: Result,
    tables: Sequence[TableSize],
    versions: Sequence[int],
    redaction: Sequence[str] = (),
    untested: Sequence[str] = (),
) -> str:
    """The run's row, then its ranks, tables and versions, the rules of redaction, and what is untested."""
    from tracewarehouse.present.render.table import table, values, vertical
    from tracewarehouse.result import Field

    width = shutil.get_terminal_size((100, 24)).columns
    fields = [Field("table", "VARCHAR"), Field("version", "INTEGER"), Field("rows", "BIGINT", "count")]
    fields.append(Field("bytes", "BIGINT", "bytes"))
    sizes = [(each.table, each.version, each.rows, each.bytes) for each in tables]
    indices = [index for index, field in enumerate(ranks.columns()) if field.name in _RANK_COLUMNS]
    rank_fields = [ranks.columns()[index] for index in indices]
    rank_rows = [[row[index] for index in indices] for row in values(ranks.table)]
    blocks = [
        "\n".join(vertical(run.columns(), values(run.table)[0], width).lines()),
        "\n".join(table(rank_fields, rank_rows, width=width, keys=("rank",)).lines()),
        "\n".join(table(fields, sizes, width=width).lines()),
        "versions  " + ", ".join(f"v{number}" for number in versions),
    ]
    if list(redaction) == ["off"]:
        blocks[-1] += "\nredaction off"
    elif redaction:
        count = sum(row["redacted"] or 0 for row in ranks.rows())
        rules = "; ".join(rule.replace("rules ", "rules version ") for rule in redaction)
        blocks[-1] += f"\nredacted  {plural(count, 'value')} ({rules})"
    if untested:
        blocks[-1] += "\nuntested on real data  " + "; ".join(untested)
    return "\n\n".join(blocks) + "\n"


def _rows(result: Result) -> list[dict[str, Any]]:
    """The rows as in JSON output: timestamps as strings."""
    rows: list[dict[str, Any]] = json.loads("".join(result.json()))
    return rows


@command("tw label fp8-on commit=3f2a91c", "tw label fp8-on commit=      # remove the label")
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.argument("labels", metavar="K=V...", nargs=-1, required=True, type=LABEL)
@output_options
def label(session: Session, /, run: str, labels: tuple[tuple[str, str], ...]) -> None:
    """Set labels of a run; K= removes a label.

    The labels are stored in a new version of the run.
    """
    result = session.open().label(run, {key: value or None for key, value in labels})
    if (version := result.version) is None:
        session.out.print_text(f"{run}: labels unchanged", [])
        return
    name, labels_now = f"{version.run}@v{version.number}", dict(sorted(version.labels.items()))
    labels_text = ", ".join(f"{key}={value}" for key, value in labels_now.items()) or "no labels"
    session.out.print_text(f"{name}: {labels_text}", [{"run": name, "labels": labels_now}])


@command("tw compact", "tw compact 'nightly-*' --target 256MB --dry-run")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--target", type=SIZE, default="128MB", help="Size of the new files.")
@click.option("--dry-run", is_flag=True, help="Show what would be done.")
@output_options
def compact(session: Session, /, runs: tuple[str, ...], target: int, dry_run: bool) -> None:
    """Merge small files of runs into a few large ones.

    Without RUN, of all runs. Rows, answers and recorded results stay the same.

    \fFiles of at least half the
    target stay, unless ranks in them were replaced. tw clean deletes the replaced files.
    """
    compacted = session.open().compact(runs or None, target_bytes=target, dry_run=dry_run)
    for run in compacted:
        _notice_skipped(session, run)
    lines = [_compacted_line(each, dry_run) for each in compacted if each.rewritten]
    session.out.print_text("\n".join(lines) or "nothing to compact", [asdict(each) for each in compacted])


def _notice_skipped(session: Session, changed: Compacted | Expired) -> None:
    if changed.skipped_ranks:
        ranks = ", ".join(map(str, changed.skipped_ranks))
        session.out.notice(f"{changed.run}: rank {ranks} changed meanwhile and was left as it is")


def _compacted_line(compacted: Compacted, dry_run: bool) -> str:
    verb = "would compact" if dry_run else "compacted"
    sizes = size(compacted.bytes_before)
    if compacted.bytes_after is not None:
        sizes += f" to {size(compacted.bytes_after)}"
    files = f"{plural(compacted.files_before, 'file')} to {compacted.files_after:,}"
    return f"{verb} {compacted.run}: {files}, {sizes}"


@command(
    "tw expire retention.toml --dry-run",
    "tw expire retention.toml && tw compact && tw clean --keep-versions 7d",
)
@click.argument("policy", type=click.Path(path_type=Path), metavar="POLICY.toml")
@click.option("--dry-run", is_flag=True, help="Show what would expire.")
@output_options
def expire(session: Session, /, policy: Path, dry_run: bool) -> None:
    """Delete old tables by a retention policy.

    All other tables and recorded results stay.

    \fEach [[rule]] of POLICY.toml has tables = ["events"], older_than = "7d" since the rank was ingested, and
    optionally keep = { every = 64, outliers = 8 }: every 64th rank, and the 8 whose GPU time differs most
    from the median of their run. Analyses that read an expired table skip the rank. Ingesting its trace again
    restores it. tw clean deletes the files.
    """
    expired = session.open().expire(policy, dry_run=dry_run)
    for run in expired:
        _notice_skipped(session, run)
        if run.shared_files:
            files = plural(run.shared_files, "file")
            compaction = f"tw compact {run.run} writes those without the expired"
            session.out.notice(f"{run.run}: {files} also hold other ranks; {compaction}")
    lines = [_expired_line(each, dry_run) for each in expired]
    session.out.print_text("\n".join(lines) or "nothing expired", [asdict(each) for each in expired])


def _expired_line(expired: Expired, dry_run: bool) -> str:
    verb = "would expire" if dry_run else "expired"
    tables = f"{expired.run}: {', '.join(expired.tables)} of {plural(expired.ranks, 'rank')}"
    return f"{verb} {tables}, {plural(expired.files, 'file')} ({size(expired.bytes)})"


@command("tw fetch fp8-on -w s3://bucket/warehouse", "tw fetch fp8-on fp8-off --table kernels --table steps")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_runs)
@click.option("--table", "tables", multiple=True, metavar="TABLE", help="Only this table (repeatable).")
@output_options
def fetch(session: Session, /, runs: tuple[str, ...], tables: tuple[str, ...]) -> None:
    """Download the files of runs from an object store.

    Subsequent queries use the local copies.

    \fThe local copies are compared with their checksums.
    TW_MIRROR names their folder, TW_MIRROR_BYTES limits them: runs that need more are refused before anything
    is downloaded.
    """
    fetched = session.open().fetch(runs, tables=tables)
    text = f"{plural(fetched.files, 'file')} ({size(fetched.bytes)}), {fetched.downloaded} downloaded"
    session.out.print_text(
        f"{text} ({size(fetched.downloaded_bytes)})" if fetched.downloaded else text, [asdict(fetched)]
    )


@command("tw files fp8-on kernels", "tw files fp8-on@v1 events --format json")
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.argument("table", metavar="TABLE")
@result_options
def files(session: Session, /, run: str, table: str) -> None:
    """List the Parquet files of a table of a run.

    Each with its bytes, rows, ranks and SHA-256. Other tools may read these files, and nothing else in the
    folder.
    """
    session.out.print_result(session.open().files(run, table))
