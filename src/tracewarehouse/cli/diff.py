"""`tw diff`: compares two runs, in total or by analysis; gates with their exit code, and `tw gate`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import click
from msgspec.structs import replace

from tracewarehouse.cli.paths import resolve
from tracewarehouse.cli.session import (
    FORMATS,
    STEPS,
    Session,
    command,
    complete_analyses,
    complete_runs,
    engine_options,
    examples,
    no_warehouse_options,
    option_name,
    rank_option,
    ratio_param,
    result_options,
    rows_options,
    strict_runs_option,
    top_option,
    verify_option,
)
from tracewarehouse.cli.show import AnalysisCommand
from tracewarehouse.errors import DamagedRunError, NoBaseline, TwError
from tracewarehouse.hints import cli_text
from tracewarehouse.late_regex import late_regex
from tracewarehouse.present.render.text import plural, show

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracewarehouse.compare.diff.change import Change
    from tracewarehouse.compare.diff.diff import Diff
    from tracewarehouse.compare.diff.gate import GateResult
    from tracewarehouse.contracts.contract import Contract
    from tracewarehouse.warehouse import Warehouse


class GateFailed(TwError):
    """A gate failed."""

    exit_code = 3


class GateInconclusive(TwError):
    """No gate failed, but one is inconclusive."""

    exit_code = 5


_NOT_HELD = ("fail", "inconclusive")
OF_GATES = ("allow_inconclusive", "junit")
# Names of kernels have a # too, as in {lambda()#1}.
_COMMENT = late_regex(r"(?:^|\s)#.*")


def check_options_of_gates(own: Mapping[str, object], gates: Sequence[str]) -> None:
    """Raises UsageError for options that say how gates are tested, without a gate; TwError for no place.

    Also TwError for a gate that is not valid, before anything is read.
    """
    from tracewarehouse.cli.output import check_writable
    from tracewarehouse.contracts.catalog import Catalog

    for key in OF_GATES:
        if own[key] and not gates:
            raise click.UsageError(f"{option_name(key)} needs --gate or --gate-file")
    if isinstance(path := own["junit"], Path):
        check_writable(path)
    if gates:
        from tracewarehouse.compare.diff.gate import parse

        for gate in gates:
            parse(gate, Catalog.load())


def gates_of_file(path: Path | None) -> list[str]:
    """The gates of a file, without comments and blank lines; raises UsageError if there are none."""
    if path is None:
        return []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{path} is not UTF-8 text: byte {error.start} is invalid") from error
    gates = [gate for line in lines if (gate := _COMMENT.sub("", line).strip())]
    if not gates:
        raise click.UsageError(f"no gates in {path}")
    return gates


def gate_error(results: Sequence[GateResult], allowed: bool, hint: str | None) -> TwError | None:
    """The error for gates that fail, else for inconclusive ones, unless they are `allowed`."""
    failed, unknown = ([each.gate.text for each in results if each.outcome == kind] for kind in _NOT_HELD)
    kind = f"of {plural(len(results), 'gate')}"
    if failed:
        return GateFailed(f"{len(failed)} {kind} failed: {', '.join(failed)}", hint)
    if unknown and not allowed:
        text = f"{len(unknown)} {kind} inconclusive: {', '.join(unknown)}"
        return GateInconclusive(text, "--allow-inconclusive makes this exit code 0")
    return None


def junit(results: Sequence[GateResult], line: str, allowed: bool) -> str:
    """JUnit XML with a test case per gate; an inconclusive gate is a failure, or skipped if `allowed`."""
    skipped = sum(each.outcome == "inconclusive" for each in results) if allowed else 0
    failures = sum(each.outcome != "pass" for each in results) - skipped
    counts = {"tests": str(len(results)), "failures": str(failures), "skipped": str(skipped)}
    suite = ElementTree.Element("testsuite", {"name": "tw diff", **counts})
    for result in results:
        case = ElementTree.SubElement(suite, "testcase", {"classname": "tw.diff", "name": result.gate.text})
        if result.outcome != "pass":
            kind = "skipped" if allowed and result.outcome == "inconclusive" else "failure"
            ElementTree.SubElement(case, kind, {"message": _gate_message(result)})
    ElementTree.SubElement(suite, "system-out").text = line
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _gate_message(result: GateResult) -> str:
    from tracewarehouse.present.answers import gate_power, gate_value

    base, head = (show(each, result.gate.metric.column.unit) for each in (result.base, result.head))
    phrases = [f"base {base}, head {head}", gate_value(result), result.reason, gate_power(result)]
    return f"{result.outcome}: " + ", ".join(cli_text(part) for part in phrases if part)


LEVELS = ("breakdown", "kernels", "operators", "categories", "modules", "work", "ranks")
_DEFAULT_LEVELS = ("breakdown", "kernels", "operators")
_HOST_LEVELS = ("breakdown", "operators")  # without GPU activities
_TOP = 10
# What a terminal shows without --level: the answer, on about a screen.
_SHORT_LEVELS, _SHORT_TOP = ("breakdown", "kernels"), 5
BASELINE = "@baseline"


class DiffCommand(AnalysisCommand):
    """Like `tw show`, but analyses are optional and follow the two runs."""

    def _positional(self, args: list[str], added: Collection[str] = ()) -> list[str]:
        return super()._positional(args, added)[2:3]

    def _example(self, contract: Contract) -> str:
        return f"tw diff @previous @latest {contract.name}"


@command(
    "tw diff fp8-off fp8-on",
    "tw diff traces/fp8-off traces/fp8-on",
    "tw diff label:commit=3f2a91c label:commit=9be0c11 --level ranks",
    "tw diff @baseline @latest --match-label branch --gate 'step_time<=+3%'",
    "tw diff @previous @latest --gate 'step_time<=+3%' --junit gates.xml",
    "tw diff fp8-off fp8-on --format github > comment.md",
    "tw diff fp8-off fp8-on name_summary kernel_summary --top 20",
    "tw diff fp8-off fp8-on temporal_breakdown --by-rank",
    "tw diff fp8-off fp8-on -w s3://bucket/warehouse --engine ray",
    cls=DiffCommand,
    rare=(
        *("interval", "normalize", "steps", "alpha", "noise", "match_label", "allow_inconclusive", "junit"),
        *("by_rank", "all_steps", "measure", "json"),
    ),
)
@click.argument("base_run", metavar="BASE|PATH", shell_complete=complete_runs)
@click.argument("head_run", metavar="HEAD|PATH", shell_complete=complete_runs)
@click.argument("names", metavar="[NAME[@VERSION]]...", nargs=-1, shell_complete=complete_analyses)
@click.option(
    "--interval", metavar="RANGE", help="Break down per step, window or annotation:NAME. [default: step]"
)
@click.option("--normalize", metavar="UNIT", help="Compare times and sizes per sample, token or label.K.")
@click.option("--steps", type=STEPS, help="Select steps: 3, 3,5 or 3-8.")
@click.option(
    "--level",
    "levels",
    type=click.Choice(LEVELS),
    multiple=True,
    help="Breakdown level to show (repeatable).",
)
@click.option(
    "--alpha",
    metavar="RATIO",
    type=click.FloatRange(0, 1, True, True),
    default=0.05,
    help="Significance level of the tests.",
)
@click.option(
    "--min-effect",
    metavar="RATIO",
    type=ratio_param(),
    default=0.01,
    help="Smallest relative change that matters.",
)
@click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="GATE",
    help="Condition that must hold, for example 'step_time<=+3%'.",
)
@click.option(
    "--gate-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Read gates from a file, one per line; # starts a comment.",
)
@click.option(
    "--noise",
    type=click.Choice(["within", "history"]),
    default="within",
    help="Noise of these runs, or of recorded ones.",
)
@click.option(
    "--match-label",
    multiple=True,
    metavar="K",
    help="Use only recorded runs with the same value of this label.",
)
@click.option("--allow-inconclusive", is_flag=True, help="Exit with 0, not 5, if gates are inconclusive.")
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the gates as JUnit XML.",
)
@click.option("--by-rank", is_flag=True, help="For analyses: compare each rank, not the mean of all ranks.")
@click.option("--all-steps", is_flag=True, help="For analyses: include time outside complete steps.")
@click.option("--measure", metavar="COLUMN", help="For analyses: column that classifies rows as increased, …")
@rank_option
@engine_options
@verify_option
@strict_runs_option
@top_option
@rows_options
@result_options
def diff(session: Session, /, base_run: str, head_run: str, names: tuple[str, ...], **options: Any) -> None:
    """Compare two runs, sets of runs, or trace files or folders.

    Prints configuration differences, the verdict on the step time with its confidence interval, and a
    breakdown of the change in mean step time, whose rows sum to it; then the collectives whose bandwidth
    changed by 10 % or more, by message size and number of ranks. With --gate, exit code 3 if a gate fails.

    \fWith --gate, exit code 0 if all gates hold, 3 if one fails, and 5 if none fails but one is inconclusive.
    With one run per side, a time fails or holds if it is beyond the bound by 3 σ between runs: of recorded
    runs like these, else 3 %. step_time in a gate is the mean of complete steps; median(step_time),
    p95(step_time) and worst(step_time) are others.

    --format github writes a comment of at most 60 kB for a pull request, and the job summary in Actions.

    --normalize sample divides times and sizes, also in gates, by the label samples_per_step of each run: the
    samples that a rank processes in a step. --normalize token divides by tokens_per_step. Earlier runs that
    --noise history or @baseline reads are divided by their own labels; those without it are left out.

    @baseline as BASE is the recorded runs before HEAD on the same GPUs, since the last change point; gates
    then test a single run. With fewer than 12 such runs, or 3 after a change, they are inconclusive.
    --noise history takes only the noise between runs from them.

    With names of analyses: base, head and difference of each measure, and whether a row was added, deleted,
    increased, decreased or unchanged. Values are means over ranks, and over complete steps if the analysis
    has steps.
    """
    if len(names) != 1:
        session.prefer_text()  # several tables, or a verdict
    own = {param.name: options.pop(param.name) for param in diff.params if param.name in options}
    params = {key: value for key, value in options.items() if value is not None}
    for_analyses = {key: own[key] for key in ("by_rank", "all_steps", "measure")}
    thresholds = {key: own[key] for key in ("alpha", "min_effect", "noise", "match_label")}
    gates = [*own["gates"], *gates_of_file(own["gate_file"])]
    if own["match_label"] and base_run != BASELINE and own["noise"] != "history":
        raise click.UsageError("--match-label needs @baseline or --noise history")
    if not names:
        check_options_of_gates(own, gates)
    base_run, head_run = resolve(session, (base_run, head_run), by_name=True)
    warehouse = session.open_on_engine()
    if gates:
        _check_intact(warehouse, base_run, head_run)
    if names:
        if session.format == _GITHUB:
            raise click.UsageError("--format github cannot be combined with an analysis")
        _check_no_change_options(own)
        comparison = warehouse.diff(base_run, head_run, **for_analyses, **thresholds)
        _print_analyses(session, comparison, names, params)
        return
    if any(for_analyses.values()):
        raise click.UsageError("--by-rank, --all-steps and --measure need the name of an analysis")
    try:
        _print_change(session, warehouse.diff(base_run, head_run, **thresholds), own, gates)
        if session.place:
            session.out.notice(f"report: tw report {base_run} {head_run}{session.place}")
    except NoBaseline as error:
        if not gates:
            raise
        _print_untested(session, warehouse, own, gates, error)


_GITHUB = "github"
for _option in diff.params:
    if _option.name == "format":
        _option.type = click.Choice((*FORMATS, _GITHUB))


def _check_intact(warehouse: Warehouse, *selectors: str) -> None:
    """Raises DamagedRunError if a damaged run may match: no gate passes without it."""
    for selector in selectors:
        if selector == BASELINE:
            continue
        for run in warehouse.select(selector).left_out:
            raise DamagedRunError(f"run {run.run} is damaged, so gates are not tested: {run.why}", run.hint)


def _check_no_change_options(own: dict[str, Any]) -> None:
    """Raises UsageError for options that do not apply to analyses."""
    for key in ("interval", "normalize", "steps", "levels", "gates", "gate_file", *OF_GATES):
        if own[key]:
            option = option_name({"levels": "level", "gates": "gate"}.get(key, key))
            raise click.UsageError(f"{option} cannot be combined with an analysis")


def _print_analyses(
    session: Session, comparison: Diff, names: tuple[str, ...], params: dict[str, Any]
) -> None:
    session.out.check_top(None)
    if len(names) == 1:
        session.out.print_result(comparison.analyze(names[0], **params))
        return
    if not session.json and session.out.resolved_format not in ("table", "md"):
        raise click.UsageError("several analyses need --format table, --format md or --json")
    from tracewarehouse.cli.output import table_text

    results = {name: comparison.analyze(name, **params) for name in names}
    texts = [f"{name}\n{table_text(result, session.out)}" for name, result in results.items()]
    rows = [{"analysis": name, "rows": result.rows()} for name, result in results.items()]
    session.out.print_text("\n".join(texts), rows)
    for notice in dict.fromkeys(notice for result in results.values() for notice in result.notices):
        session.out.notice(notice)


def _print_change(session: Session, comparison: Diff, own: dict[str, Any], gates: list[str]) -> None:
    """Prints verdict and breakdown; exits with code 3 if a gate fails, 5 if one is inconclusive."""
    from tracewarehouse.cli.output import write_text
    from tracewarehouse.present.answers import github_comment

    settings = {key: own[key] for key in ("interval", "normalize")}
    change = comparison.changes(gates=gates, steps=own["steps"] or (), **settings)
    on_host = change.breakdown is not None and change.breakdown.on_host
    levels = own["levels"] or (_HOST_LEVELS if on_host else _DEFAULT_LEVELS)
    hint = "the breakdown shows where the time went" if change.breakdown else None
    error = gate_error(change.gates, own["allow_inconclusive"], hint)
    if own["junit"] is not None:
        write_text(own["junit"], junit(change.gates, change.line, own["allow_inconclusive"]))
    if session.format == _GITHUB:
        comment = github_comment(change, levels, _TOP if session.top is None else session.top)
        _print_comment(session, comment, error)
    else:
        _print_levels(session, change, levels, error, is_short=not own["levels"] and not on_host)
    _finish(session, change.gates, error)


def _finish(session: Session, results: Sequence[GateResult], error: TwError | None) -> None:
    """Warns of inconclusive gates; exits with the code of the error."""
    for result in results:
        if result.outcome == "inconclusive":
            reason = cli_text(result.reason or "")
            session.out.notice(f"warning: gate {result.gate.text} is inconclusive: {reason}")
    if error is not None:
        raise click.exceptions.Exit(error.exit_code)


def _print_untested(
    session: Session, warehouse: Warehouse, own: dict[str, Any], gates: list[str], why: NoBaseline
) -> None:
    """Prints gates that cannot be tested yet: inconclusive, so exit code 5 unless that is allowed."""
    from tracewarehouse.cli.output import line_width, write_text
    from tracewarehouse.compare.diff.gate import GateResult, parse
    from tracewarehouse.present.answers import gate_rows, untested_gates

    format_ = session.format if session.format == _GITHUB else session.out.resolved_format
    if not session.json and format_ not in ("table", "md", _GITHUB):
        raise why
    parsed = [parse(gate, warehouse.catalog) for gate in gates]
    results = [GateResult(gate, "inconclusive", None, None, None, reason=why.message) for gate in parsed]
    error = gate_error(results, own["allow_inconclusive"], why.hint)
    if own["junit"] is not None:
        write_text(own["junit"], junit(results, why.message, own["allow_inconclusive"]))
    text = untested_gates(results, why.message, format_, line_width(session.out))
    if format_ == _GITHUB:
        _print_comment(session, text, error)
    else:
        session.out.print_text(text, [{"gates": gate_rows(results), "no_baseline": why.message}], error)
    if why.hint:
        session.out.notice(f"hint: {cli_text(why.hint)}")
    _finish(session, results, error)


def _print_levels(
    session: Session, change: Change, levels: tuple[str, ...], error: TwError | None, is_short: bool
) -> None:
    from tracewarehouse.cli.output import line_width
    from tracewarehouse.present.answers import change_row, change_text, markdown_comment

    top = _TOP if session.top is None else session.top
    format_ = session.out.resolved_format
    if session.json or format_ in ("table", "md"):
        width = line_width(session.out)
        if format_ == "md":
            lines = markdown_comment(change, levels, top)
        elif is_short:
            top = _SHORT_TOP if session.top is None else session.top
            lines = change_text(change, _SHORT_LEVELS, top, width)
        else:
            lines = change_text(change, levels, top, width)
        session.out.print_text(lines, [] if not session.json else [change_row(change)], error)
    else:
        session.out.print_result(change.rows(levels), error)
    for part in (change.breakdown, change.bandwidth):
        for notice in part.notices if part else ():
            session.out.notice(notice)


def _print_comment(session: Session, text: str, error: TwError | None) -> None:
    """Prints a comment, and adds it to the summary of the job that GitHub Actions runs."""
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(text)
    session.out.print_text(text, [], error)


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
    name, default_path = _FILES[system]
    from tracewarehouse.cli.output import write_text

    path = session.output or Path(default_path)
    if path.exists():
        raise TwError(f"{path} exists", "choose another file with --output, or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, (Path(__file__).parent / "workflows" / name).read_text(encoding="utf-8"))
    if path.suffix == ".sh":
        path.chmod(path.stat().st_mode | 0o111)
    replace(session.out, output=None).print_text(f"wrote {path}", [{"path": str(path)}])
