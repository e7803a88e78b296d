"""`tw diff`: what changed between two runs, as a whole or by analyses, and gates on it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import click

from tracewarehouse.cli.complete import complete_analyses, complete_runs
from tracewarehouse.cli.session import (
    RankList,
    Session,
    examples,
    pass_session,
    rank_option,
    result_options,
    top_option,
)
from tracewarehouse.cli.show import AnalysisCommand
from tracewarehouse.errors import TwError

if TYPE_CHECKING:
    from tracewarehouse.diff import Diff
    from tracewarehouse.diff.change import Change
    from tracewarehouse.diff.gate import GateResult


LEVELS = ("breakdown", "kernels", "operators", "categories", "ranks")
_FIRST = ("breakdown", "kernels", "operators")  # what is shown where no level is asked for
_TOP = 10


class GateFailed(TwError):
    """A gate that does not hold."""

    exit_code = 3


class DiffCommand(AnalysisCommand):
    """Like `tw show`, but analyses come after the two runs, and there may be none."""

    def _words(self, args: list[str]) -> list[str]:
        return super()._words(args)[2:3]


@click.command(
    cls=DiffCommand,
    epilog=examples(
        "tw diff fp8-off fp8-on",
        "tw diff label:commit=3f2a91c label:commit=9be0c11 --level ranks",
        "tw diff @previous @latest --gate 'step_time<=+3%' --junit gates.xml",
        "tw diff fp8-off fp8-on -f md > comment.md",
        "tw diff fp8-off fp8-on name_summary kernel_summary --top 20",
        "tw diff fp8-off fp8-on temporal_breakdown --by-rank",
    ),
)
@click.argument("base_run", metavar="BASE", shell_complete=complete_runs)
@click.argument("head_run", metavar="HEAD", shell_complete=complete_runs)
@click.argument("names", metavar="[NAME[@VERSION]]...", nargs=-1, shell_complete=complete_analyses)
@click.option("--per", metavar="step|window|annotation:NAME", help="What is accounted for.  [default: step]")
@click.option("--steps", type=RankList(), metavar="STEPS", help="Only these steps: 3, or 3,5, or 3-8.")
@click.option("--level", "levels", type=click.Choice(LEVELS), multiple=True, help="A level of the account.")
@click.option(
    "--alpha",
    type=click.FloatRange(0, 1, True, True),
    default=0.05,
    show_default=True,
    help="How often noise alone may pass for a change.",
)
@click.option(
    "--min-effect",
    type=click.FloatRange(0),
    default=0.01,
    show_default=True,
    help="A change of the step that does not matter, in parts of it.",
)
@click.option("--anyway", is_flag=True, help="Compare what is not comparable.")
@click.option(
    "--gate", "gates", multiple=True, metavar="GATE", help="What must hold: METRIC OP [+|-]NUMBER UNIT."
)
@click.option(
    "--gate-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with a gate in each line; # begins a comment.",
)
@click.option("--strict", is_flag=True, help="An inconclusive gate fails, too.")
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the gates as JUnit XML.",
)
@click.option("--by-rank", is_flag=True, help="Of analyses: rank by rank, not the mean of all ranks.")
@click.option(
    "--all-steps", is_flag=True, help="Of analyses: all that was recorded, not complete steps only."
)
@click.option("--measure", metavar="COLUMN", help="Of analyses: what decides about increased and decreased.")
@rank_option
@top_option
@result_options
@pass_session
def diff(session: Session, /, base_run: str, head_run: str, names: tuple[str, ...], **options: Any) -> None:
    """Show what changed between two runs, or two sets of runs.

    First whether they can be compared, then the verdict on the step time, then an account of the change
    of the mean step, whose rows add up to it. With --gate, exit code 3 where a bound does not hold.

    With names of analyses: base, head and difference of every measure, and whether a row was added, deleted,
    increased, decreased or is unchanged. Values are the mean of all ranks, and of their complete steps where
    the analysis tells steps.
    """
    if len(names) != 1 and session.output is None and session.format is None:
        session.format = "table"  # several tables and a verdict are for eyes, in a pipe too
    own = {key: options.pop(key) for key in _OWN}
    given = {key: value for key, value in options.items() if value is not None}
    asked = {key: own[key] for key in ("by_rank", "all_steps", "measure")}
    noise = {key: own[key] for key in ("alpha", "min_effect")}
    compared = session.open().diff(base_run, head_run, **asked, **noise)
    if names:
        _check_alone(own, "an analysis")
        _analyses(session, compared, names, given)
        return
    if any(asked.values()):
        raise click.UsageError("--by-rank, --all-steps and --measure concern analyses: name one")
    _whole(session, compared, own)


_OWN = (
    *("per", "steps", "levels", "alpha", "min_effect", "anyway", "gates", "gate_file", "strict", "junit"),
    *("by_rank", "all_steps", "measure"),
)


def _check_alone(own: dict[str, Any], what: str) -> None:
    """Raises UsageError for options of the whole comparison beside an analysis."""
    for key in ("per", "steps", "levels", "gates", "gate_file", "junit"):
        if own[key]:
            option = {"levels": "level", "gates": "gate"}.get(key, key).replace("_", "-")
            raise click.UsageError(f"--{option} does not go with {what}")


def _analyses(session: Session, compared: Diff, names: tuple[str, ...], given: dict[str, Any]) -> None:
    session.out.check_top(None)
    if len(names) == 1:
        session.out.show(compared.run(names[0], **given))
        return
    if not session.json and session.out.chosen_format not in ("table", "md"):
        raise click.UsageError(
            "several analyses make several tables: one at a time, or --format table, md or --json"
        )
    from tracewarehouse.render.output import laid_out

    results = {name: compared.run(name, **given) for name in names}
    texts = [f"{name}\n{laid_out(result, session.out)}" for name, result in results.items()]
    rows = [{"analysis": name, "rows": result.rows()} for name, result in results.items()]
    session.out.say("\n".join(texts), rows)
    for notice in dict.fromkeys(notice for result in results.values() for notice in result.notices):
        session.out.notice(notice)


def _whole(session: Session, compared: Diff, own: dict[str, Any]) -> None:
    """The verdict and the account; exit code 3 where a gate fails."""
    texts = [*own["gates"], *_lines(own["gate_file"])]
    wanted = {key: own[key] for key in ("per", "anyway")}
    wanted["steps"] = own["steps"] or ()
    change = compared.changes(gates=texts, **wanted)
    levels = own["levels"] or _FIRST
    error = _failed(change, own["strict"])
    if own["junit"] is not None:
        own["junit"].write_text(junit(change, own["strict"]), encoding="utf-8")
    _told(session, change, levels, error)
    for each in change.inconclusive:
        if not own["strict"]:
            session.out.notice(f"warning: gate {each.gate.text} is inconclusive: {each.reason}")
    if error is not None:
        raise click.exceptions.Exit(error.exit_code)


def _told(session: Session, change: Change, levels: tuple[str, ...], error: TwError | None) -> None:
    from tracewarehouse.cli.diff_text import comment, text
    from tracewarehouse.render.output import width_of

    top = _TOP if session.top is None else session.top
    form = session.out.chosen_format
    if session.json or form in ("table", "md"):
        width = width_of(session.out)
        said = comment(change, levels, top) if form == "md" else text(change, levels, top, width)
        session.out.say(said, [] if not session.json else [_row(change)], error)
    else:
        session.out.show(change.rows(levels), error)
    for notice in change.breakdown.notices if change.breakdown else ():
        session.out.notice(notice)


def _lines(path: Path | None) -> list[str]:
    """The gates of a file."""
    lines = [] if path is None else path.read_text(encoding="utf-8").splitlines()
    stripped = (line.partition("#")[0].strip() for line in lines)
    return [line for line in stripped if line]


def _failed(change: Change, strict: bool) -> GateFailed | None:
    bad = [*change.failed, *(change.inconclusive if strict else ())]
    if not bad:
        return None
    return GateFailed(
        f"{len(bad)} of {len(change.gates)} gates failed: {', '.join(each.gate.text for each in bad)}",
        "the account above says where the time went",
    )


def _row(change: Change) -> dict[str, object]:
    """All of it, for programs."""
    return {
        "base": list(change.base),
        "head": list(change.head),
        "differences": [asdict(each) for each in change.differences],
        "verdict": {**asdict(change.verdict), "line": change.line},
        "gates": [
            {"gate": each.gate.text, **{key: getattr(each, key) for key in _JUDGED}} for each in change.gates
        ],
        "account": None if change.breakdown is None else change.rows().rows(),
        "lacks": change.no_breakdown_reason,
    }


_JUDGED = ("outcome", "base", "head", "value", "low", "high", "reason")


def junit(change: Change, strict: bool) -> str:
    """A test case per gate; an inconclusive one is skipped, or with `strict` a failure."""
    bad = sum(_fails(each, strict) for each in change.gates)
    skipped = len(change.inconclusive) if not strict else 0
    suite = ElementTree.Element(
        "testsuite",
        {"name": "tw diff", "tests": str(len(change.gates)), "failures": str(bad), "skipped": str(skipped)},
    )
    for each in change.gates:
        case = ElementTree.SubElement(suite, "testcase", {"classname": "tw.diff", "name": each.gate.text})
        if each.outcome != "pass":
            kind = "failure" if _fails(each, strict) else "skipped"
            ElementTree.SubElement(case, kind, {"message": _said(each)})
    ElementTree.SubElement(suite, "system-out").text = change.line
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _fails(judged: GateResult, strict: bool) -> bool:
    return judged.outcome == "fail" or strict and judged.outcome == "inconclusive"


def _said(judged: GateResult) -> str:
    return f"{judged.outcome}: base {judged.base}, head {judged.head}" + (
        f", {judged.reason}" if judged.reason else ""
    )
