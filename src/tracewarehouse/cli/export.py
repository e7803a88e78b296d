"""`tw export`: stored data as files for other tools."""

from __future__ import annotations

import re
import shutil
import webbrowser
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer
from tempfile import TemporaryFile
from time import monotonic
from typing import IO, Any

import click
from msgspec.structs import asdict

from tracewarehouse.cli.session import (
    COLUMNS,
    NAMES,
    RANKS,
    Session,
    command,
    complete_runs,
    examples,
    output_options,
    verify_option,
)
from tracewarehouse.errors import TwError


@click.group(epilog=examples("tw export trace fp8-on --rank 0 --output rank0.json.gz"))
def export() -> None:
    """Export traces, or tables to Delta Lake."""


@command(
    "tw export trace fp8-on --rank 0 --output rank0.json.gz",
    "tw export trace fp8-on --rank 0 --step 12 -o clips/step12.json.gz",
    "tw export trace fp8-on --around input_bound --margin 5ms -o clips/input.json.gz",
    "tw export trace fp8-on --rank 0-3 --from 1.2s --to 1350ms -o clips/four-ranks.json.gz",
    "tw export trace fp8-on --rank 0 --counters queue_length,memory_bandwidth -o clips/rank0.json.gz",
    "tw export trace fp8-on --rank 0 --overlay annotations,kernel_sequences -o clips/rank0.json.gz",
    "tw export trace fp8-on --rank 0 --overlay critical_path -o clips/rank0.json.gz",
    rare=("margin", "counters", "overlays", "plain"),
    parent=export,
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.option("--rank", "ranks", type=RANKS, help="Select a rank; 0,2 or 0-3 merges several, clocks aligned.")
@click.option(
    "--from",
    "start",
    metavar="TIME",
    help="Start: 1.2s or 350ms since the first event of the run, or a ts_ns.",
)
@click.option("--to", "end", metavar="TIME", help="End, written as for --from.")
@click.option("--step", type=int, metavar="N", help="Export one step, on the host and on the GPU.")
@click.option(
    "--around", metavar="FINDING", help="Export the worst occurrence of a finding, such as input_bound."
)
@click.option(
    "--margin", metavar="TIME", help="Extra time on both sides. [default: 1ms with --around, else 0]"
)
@click.option(
    "--counters", type=NAMES, multiple=True, help="Add counter tracks: queue_length, memory_bandwidth."
)
@click.option("--overlay", "overlays", type=NAMES, multiple=True, help="Add tracks, see below.")
@click.option("--plain", is_flag=True, help="Add no tracks, also for a clip or several ranks.")
@verify_option
@output_options
def trace(
    session: Session,
    /,
    run: str,
    ranks: tuple[int, ...] | None,
    counters: tuple[tuple[str, ...], ...],
    overlays: tuple[tuple[str, ...], ...],
    **time_range: Any,
) -> None:
    """Export the trace of a rank, for Perfetto and others.

    The file has the header and every event of the original trace, or those of a time range.

    \fA time range (--from and --to, --step,
    --around) keeps overlapping slices in full, and flows whose ends are both inside. Time ranges and several
    ranks get tracks for idle causes, steps, findings and queue length, unless --overlay, --counters or
    --plain say otherwise. Added events have the category overlay.

    \b
    Overlays:
      annotations       annotations enclosing the launch of each GPU activity
      critical_path     the critical path (after tw derive critical_path)
      findings          the worst occurrence of each finding
      idle              idle time of each device with its cause
      kernel_sequences  kernels launched by each operator, numbered by frequency
      steps             profiler steps

    Several ranks are merged with separate process ids, and clocks are aligned where collectives allow it. The
    output must be a new file, and not next to the original trace, where tw ingest would find both.
    """
    if session.json and session.output is None:
        raise click.UsageError("--json describes the file written; add --output FILE")
    warehouse = session.open()
    counter_names, overlay_names = (sum(names, ()) if names else None for names in (counters, overlays))
    exported = warehouse.export_trace(
        run, ranks, counters=counter_names, overlays=overlay_names, **time_range
    )
    if exported.is_new and session.output is not None:
        _check_destination(session.output, {row["source_name"] for row in warehouse.info(run).ranks.rows()})
    for notice in exported.notices:
        session.out.notice(notice)
    ranks_fact = {"ranks": list(exported.ranks)} if len(exported.ranks) > 1 else {"rank": exported.ranks[0]}
    session.out.print_stream(exported, {"run": run, **ranks_fact})


def _check_destination(output: Path, sources: set[str | None]) -> None:
    """Raises TwError if the file exists, or if its folder contains a source trace of the run."""
    if output.exists():
        raise TwError(f"{output} already exists", "choose a new file name")
    sources_there = sorted(name for name in sources if name and (output.parent / name).exists())
    if sources_there:
        raise TwError(
            f"{output.parent} contains {sources_there[0]}, a source trace of this run",
            "choose another folder",
        )


@command(
    "tw open fp8-on --around input_bound",
    "tw open fp8-on --rank 0-3 --step 12",
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.option("--around", metavar="FINDING", help="Only around the worst occurrence of a finding.")
@click.option("--step", type=int, metavar="N", help="Only one step.")
@click.option(
    "--rank", "ranks", type=RANKS, help="These ranks. [default: all of up to 8, else that of the finding]"
)
@output_options
def open_(
    session: Session, /, run: str, ranks: tuple[int, ...] | None, around: str | None, step: int | None
) -> None:
    """Open a run in Perfetto, in your browser.

    The browser loads ui.perfetto.dev, which fetches the trace from this machine once and uploads nothing. The
    command ends after the download or after 60 s.

    \fThe trace is that of tw export trace, served at 127.0.0.1:9001, from where Perfetto accepts it. On
    another machine, forward the port (ssh -L 9001:127.0.0.1:9001) and open the address that is printed.
    """
    with _PerfettoServer() as server, TemporaryFile() as file:
        warehouse = session.open()
        stored = warehouse.selection.one_run(run).selected()[0].ranks
        chosen = ranks or (stored if len(stored) <= _MOST_RANKS else None)
        exported = warehouse.export_trace(run, chosen, around=around, step=step)
        for chunk in exported:
            file.write(chunk.encode())
        for notice in exported.notices:
            session.out.notice(notice)
        server.content, server.name = file, re.sub(r"[^\w.-]", "_", f"{run}-{around or 'trace'}.json")
        address = f"{_PERFETTO}/#!/?url=http://127.0.0.1:{_PORT}/{server.name}"
        session.out.notice(f"opening {address}")
        webbrowser.open(address)
        server.serve_once()
    session.out.print_text(f"Perfetto has loaded {server.name}", [{"url": address}])


_PERFETTO, _PORT, _WAIT_S = "https://ui.perfetto.dev", 9001, 60
_MOST_RANKS = 8


class _PerfettoServer(TCPServer):
    """Serves one file to Perfetto, on the port of this machine that its page may read."""

    allow_reuse_address = True
    name: str
    content: IO[bytes]
    is_done = False

    def __init__(self) -> None:
        try:
            super().__init__(("127.0.0.1", _PORT), _OneFile)
        except OSError as error:
            raise TwError(
                f"port {_PORT}, the only one that Perfetto reads, cannot be used: {error.strerror}",
                "end the other tw open or trace_processor, or open a file made by tw export trace",
            ) from error

    def serve_once(self) -> None:
        """Answers until the file was read. Raises TwError if nothing reads it in time."""
        end_s = monotonic() + _WAIT_S
        while not self.is_done and (remaining_s := end_s - monotonic()) > 0:
            self.timeout = remaining_s
            self.handle_request()
        if not self.is_done:
            raise TwError(f"nothing loaded the trace in {_WAIT_S} s", "open the address above in a browser")


class _OneFile(BaseHTTPRequestHandler):
    server: _PerfettoServer
    timeout = 10

    def do_GET(self) -> None:
        """Sends the file."""
        if self.path != f"/{self.server.name}":
            return self.send_error(404)
        content = self.server.content
        self.send_response(200)
        self.send_header("Access-Control-Allow-Origin", _PERFETTO)
        self.send_header("Content-Length", str(content.tell()))
        self.end_headers()
        content.seek(0)
        shutil.copyfileobj(content, self.wfile)
        self.server.is_done = True

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


@command(
    "tw export delta",
    "tw export delta lake/",
    "tw export delta s3://bucket/lake 'nightly-*' --tables kernels,steps",
    parent=export,
)
@click.argument("destination", metavar="[DEST]", required=False)
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--tables", type=COLUMNS, help="Tables to copy to DEST. [default: all]")
@output_options
def delta(
    session: Session, /, destination: str | None, runs: tuple[str, ...], tables: tuple[str, ...] | None
) -> None:
    """Make tables readable as Delta tables, in place or as copies.

    Without DEST, the files of the warehouse are registered in data/TABLE/_delta_log, which later commands
    keep up to date. With DEST, a folder or URL, each version of a run is copied once. The row of a run in
    table runs is written last: join it to read complete runs only.

    \fIn place, a file with replaced or expired ranks is first compacted, and events have their arguments as
    template and numbers; copies have them as text. Rows of removed runs are deleted. Never run VACUUM or
    OPTIMIZE on tables in place: their files belong to the warehouse.
    """
    copies = session.open().export_delta(destination, runs or None, tables=tables or ())
    verbs = {True: "deleted", False: "exported"}
    lines = [f"{verbs[copy.removed]} {copy.run}@v{copy.version}" for copy in copies if copy.written]
    session.out.print_text("\n".join(lines) or "nothing to export", [asdict(each) for each in copies])
