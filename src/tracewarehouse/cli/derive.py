"""`tw derive` and `tw whatif`: critical paths, measured and estimated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tracewarehouse.cli.session import (
    RANKS,
    Session,
    command,
    complete_runs,
    engine_options,
    examples,
    option_group,
    output_options,
    result_options,
    verify_option,
)
from tracewarehouse.present.render.table import markdown, table
from tracewarehouse.present.render.text import one_line, plural, show

if TYPE_CHECKING:
    from tracewarehouse.derive.critical_path import Derived
    from tracewarehouse.result import Result


# Select ranks and scopes: steps, annotations or entire traces.
scope_options = option_group(
    click.option("--rank", "ranks", type=RANKS, help="Select ranks: 3, 0,2 or 0-3."),
    click.option("--step", "steps", type=int, multiple=True, metavar="N", help="Step number (repeatable)."),
    click.option(
        "--annotation",
        "annotations",
        multiple=True,
        metavar="NAME#K",
        help="K-th host annotation of this name, from 0 (repeatable).",
    ),
    click.option("--entire-trace", is_flag=True, help="Use the entire trace."),
)


@click.group(
    epilog=examples(
        "tw derive critical_path fp8-on", "tw derive wait_attribution fp8-on", "tw derive graphs decode"
    )
)
def derive() -> None:
    """Compute critical paths, wait attribution and graph operators.

    They are stored as a new version of the run.
    """


@command(
    "tw derive critical_path fp8-on && tw show critical_path_breakdown --run fp8-on",
    "tw derive critical_path fp8-on --rank 0-3 --step 12 --step 13",
    "tw derive critical_path @latest --annotation 'forward#2'",
    name="critical_path",
    parent=derive,
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@scope_options
@engine_options
@output_options
def critical_path(session: Session, /, run: str, **scopes: Any) -> None:
    """Compute the critical path of each complete step.

    --step, --annotation and --entire-trace select other scopes; a trace without steps is one scope. Results
    are stored with the run; scopes that are already derived are not computed again.
    """
    warehouse = session.open()
    with session.engine() as engine:
        result = warehouse.derive("critical_path", run, **scopes, engine=engine)
    scope_names = {scope for scopes_of_rank in result.scopes.values() for scope in scopes_of_rank}
    text = f"{plural(len(result.scopes), 'rank')}, {plural(len(scope_names), 'scope')}"
    _print_derived(session, result, text, scopes={str(rank): names for rank, names in result.scopes.items()})


def _print_derived(session: Session, result: Derived, text: str | None, **facts: object) -> None:
    """Prints what was stored; `text` is None if there was nothing to derive."""
    version = f"{result.run}@v{result.version}" if result.version else f"{result.run}: already derived"
    for notice in result.notices:
        session.out.notice(notice)
    row = {"run": result.run, "version": result.version, **facts}
    session.out.print_text(f"{version}: {text}" if text else f"{result.run}: nothing to derive", [row])


@command(
    "tw derive wait_attribution fp8-on && tw show straggler_causes --run fp8-on",
    name="wait_attribution",
    parent=derive,
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@output_options
def attribution(session: Session, /, run: str) -> None:
    """Find the ranks that other ranks wait for, and why.

    Reads all ranks of the run, and stores the result with it.

    \fWaits at collectives are charged to the rank that caused them: a rank that was
    late only because it waited itself passes them on. tw check and tw
    report do the same: this is only needed before analyses such as straggler_causes.
    """
    result = session.open().derive("wait_attribution", run)
    ranks = len(result.scopes)
    _print_derived(session, result, plural(ranks, "rank"), ranks=ranks)


@command(
    "tw derive graphs decode && tw show graph_summary --run decode",
    "tw derive graphs decode --capture warmup",
    name="graphs",
    parent=derive,
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.option(
    "--capture", metavar="RUN", help="Run that recorded the captures.", shell_complete=complete_runs
)
@output_options
def graphs(session: Session, /, run: str, capture: str | None) -> None:
    """Find the operators of kernels in CUDA or HIP graph launches.

    Operators are recorded when a graph is captured, not when it is launched. Captures are
    looked for in the same trace, then in the run of --capture; by default in traces of the same folder with
    "capture" in their file name, for the same rank and world size. The result is stored with the run.
    """
    result = session.open().derive("graphs", run, capture=capture)
    ranks = len(result.scopes)
    if result.attributed is None:
        _print_derived(session, result, None, ranks=ranks)
        return
    attributed, activities = result.attributed
    text = f"operators for {attributed:,} of {activities:,} GPU activities in graph launches"
    _print_derived(session, result, text, ranks=ranks, attributed=attributed, activities=activities)


@command(
    "tw whatif fp8-on",
    "tw whatif fp8-on --scale 'kernels[kind=communication]=0.5'",
    "tw whatif fp8-on --rank 0 --step 12 --scale 'kernels[op=aten::mm]=0.8' --scale host=0.9",
    "tw whatif @latest --scale \"kernels[name='*gemm*']=0.5\" --by op --limit 20",
)
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.option(
    "--scale",
    "scales",
    multiple=True,
    metavar="WHAT[FILTER,...]=FACTOR",
    help="Multiply the time of WHAT by FACTOR (repeatable).",
)
@click.option(
    "--by", type=click.Choice(["category", "op"]), default="category", help="Granularity of the result."
)
@verify_option
@scope_options
@result_options
def whatif(session: Session, /, run: str, scales: tuple[str, ...], by: str, **scopes: Any) -> None:
    """Estimate the step time after fixes, or with faster work.

    Without --scale: a table of fixes, largest saving first. With --scale: the critical path with other times.

    \fWithout --scale: a table of fixes, largest saving first, each with an interval and what it assumes (tw
    describe what_if): no waiting for data, no blocking calls, CUDA graphs, the slow rank at the median,
    perfect overlap, the three largest kernels at their roof. Savings overlap and do not add up.

    With --scale: the critical path with other times. WHAT is kernels, host, launch, a category of
    critical_path_breakdown, or all. Filters are kind=, name= and op= (any enclosing operator); * matches any
    text. All dependencies are kept, so the critical path may move to other work. Ranks are independent: a
    collective takes as long as it did on this rank, times its factor. A step lasts from its start on the
    host to the end of its work, longer than its period where steps overlap. Waits that no recorded
    dependency explains keep their time. Nothing is stored.
    """
    result = session.open().whatif(run, scales, by=by, **scopes)
    layout = text if scales else fixes_text
    session.out.print_result(result, as_text=partial(layout, as_markdown=session.out.resolved_format == "md"))


Row = Mapping[str, Any]
_OF_FIX = ("fix", "after_ns", "low_ns", "high_ns", "saving_ns", "saving_share")
_NO_FIX = "no listed fix saves enough of the step to be worth a row (tw describe what_if: min_share)"


def fixes_text(result: Result, as_markdown: bool) -> str:
    """The largest saving in a sentence, the table of fixes, what each assumes, and which have no estimate."""
    rows = result.rows()
    estimated = [row for row in rows if row["after_ns"] is not None]
    not_estimated = [row for row in rows if row["after_ns"] is None]
    fields = [field for field in result.columns() if field.name in _OF_FIX]
    cells = [[row[field.name] for field in fields] for row in estimated]
    blocks = [[_largest(estimated[0]) if estimated else _NO_FIX]]
    if estimated:
        blocks += [markdown(fields, cells).splitlines() if as_markdown else table(fields, cells).lines()]
        blocks += [["Assumed (savings overlap and do not add up):", *map(_why, estimated)]]
    blocks += [["Not estimated:", *map(_why, not_estimated)]] if not_estimated else []
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _largest(row: Row) -> str:
    steps = f"median of {plural(row['steps'], 'step')}" if row["steps"] else "profiling window"
    after, low, high = (show(row[name], "ns") for name in ("after_ns", "low_ns", "high_ns"))
    lengths = f"{show(row['step_ns'], 'ns')} → {after} (-{show(row['saving_share'], 'ratio')})"
    return one_line(f"{steps}: {lengths} with the largest saving, {row['fix']}; interval {low} to {high}")


def _why(row: Row) -> str:
    return f"- {one_line(row['fix'])}: {one_line(row['assumption'])}"


_HIDDEN = ("run_id", "rank", "scope", "saved_ns", "period_ns")
_PATH = "critical path before and after (it moves to other work where some gets shorter)"


def text(result: Result, as_markdown: bool) -> str:
    """A block per scope: how much of its path is not explained, its estimated length, and the path."""
    scopes: dict[tuple[object, ...], list[Row]] = {}
    for row in result.rows():
        scopes.setdefault((row["rank"], row["scope"]), []).append(row)
    fields = [field for field in result.columns() if field.name not in _HIDDEN]
    blocks = []
    for (rank, scope), (length, *path_rows) in scopes.items():
        rows = [[row[field.name] for field in fields] for row in path_rows]
        layout = markdown(fields, rows).splitlines() if as_markdown else table(fields, rows).lines()
        lines = [one_line(line) for line in _lines(f"rank {rank}, {scope}", length, path_rows)]
        blocks.append(
            "\n".join([*lines, "", _PATH, "", *layout] if as_markdown else [*lines, "", _PATH, *layout])
        )
    return "\n\n".join(blocks) + "\n"


def _lines(scope_name: str, length: Row, parts: Sequence[Row]) -> Iterator[str]:
    from tracewarehouse.derive.whatif import UNEXPLAINED

    base_ns, new_ns = length["base_ns"], length["new_ns"]
    unexplained_ns = sum(row["base_ns"] for row in parts if row["category"] in UNEXPLAINED)
    if unexplained_ns:
        share = show(unexplained_ns / base_ns, "ratio")
        yield f"{scope_name}: {share} of the path are waits of unknown cause, which scaling does not change"
    change = f" ({(new_ns - base_ns) / base_ns:+.1%})".replace("%", " %") if base_ns else ""
    lengths = f"{show(base_ns, 'ns')} → {show(new_ns, 'ns')}{change}"
    yield f"{scope_name}: {lengths}, from its start on the host to the end of its work"
    if length["period_ns"] is not None:
        yield f"its period, from the end of the previous step, is {show(length['period_ns'], 'ns')}"
