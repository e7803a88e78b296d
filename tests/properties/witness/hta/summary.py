"""The verdicts as a page: by method, which traces are equal, which are apart, and because of which traps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from witness.hta.compare import Verdict
from witness.hta.critical_path import MOST_ROWS, WINDOWS
from witness.hta.rules import TRAPS

WORDS = {
    "equal": "both say the same, within HTA's rounding",
    "apart": "they differ, and HTA's own rules over our tables give HTA's number",
    "fails": "HTA ends with an error, which its rules foresee; we have an answer or be skipped",
    "none": "neither has anything to say",
    "unexplained": "must not be",
}
HEAD = """# HTA 0.6.1 beside us, on {traces} traces, sets and pairs

Written by `python -m witness.hta --summary`; not by hand. Each method of HTA is run over each Kineto trace
(in HTA's own Python, pandas 2.3), and held against our analysis of the same question. Where the two differ,
a model of the method is computed from our tables under a set of HTA's rules: with none of them it gives our
number, with those named it gives HTA's. Each set is a smallest one: without any of its rules HTA's number
is missed.

"""
# What only HTA's rules are modeled for: no analysis of ours has the question in the same words.
MODELED = {
    "ranks=None": "HTA's default is rank 0; ours is all ranks, so there is nothing to compare",
    "get_potential_stragglers": "HTA's are the ranks that start last, by clocks that are not synchronized; "
    "our `stragglers` are those that the others waited for, and `witness/collectives.py` is their witness",
    "TraceDiff.compare_traces(short)": "HTA's short name is what follows the last blank; ours leaves out "
    "brackets and return type only, so names that HTA takes together stay apart",
    **dict.fromkeys(
        (f"{name} graph" for name in WINDOWS),
        "nodes of the path, and edges of HTA's graph by type and weight: the path is HTA's own, not only as "
        "long",
    ),
}
OURS = dict.fromkeys(
    WINDOWS,
    "Ours is what every moment was spent on, so it is as long as the scope; HTA's is the longest way through "
    "a graph in which much time has no edge. Its length and its shares are held against ours. Of a set the "
    f"first rank is requested; '' is all of a trace, and not of those with steps and more than {MOST_ROWS:,} "
    "rows, for HTA's time. None other was left out: it was given 20 minutes and 6 GiB.",
)


def page(found: Sequence[Verdict], left_out: Mapping[str, str]) -> str:
    """The whole page."""
    places = {case: at for at, case in enumerate(sorted({each.case for each in found}), start=1)}
    parts = [HEAD.format(traces=len(places)), _counts(found), _rules(), _modeled()]
    names = dict.fromkeys(each.method for each in found)
    parts += [_method(name, [each for each in found if each.method == name], places) for name in names]
    parts += ["## Traces\n\n", *(f"{at}. {case}\n" for case, at in places.items()), "\n"]
    parts += ["## Not run\n\n", *(f"- {path}: {why}\n" for path, why in left_out.items())]
    return "".join(parts)


def _counts(found: Sequence[Verdict]) -> str:
    count = Counter(each.word for each in found)
    rows = [f"| {word} | {count[word]} | {about} |\n" for word, about in WORDS.items()]
    return "| verdict | of method and trace | meaning |\n|---|---:|---|\n" + "".join(rows) + "\n"


def _rules() -> str:
    rows = [f"| {rule} | {trap} | {about} |\n" for rule, (trap, about) in sorted(TRAPS.items(), key=_trap)]
    return "| rule | trap | what HTA does |\n|---|---:|---|\n" + "".join(rows) + "\n"


def _modeled() -> str:
    rows = [f"- {name}: {why}\n" for name, why in MODELED.items()]
    return (
        "Modeled by HTA's rules alone, as no analysis of ours answers the same words:\n\n"
        + "".join(rows)
        + "\n"
    )


def _trap(item: tuple[str, tuple[int, str]]) -> tuple[int, str]:
    return item[1][0], item[0]


def _method(name: str, found: Sequence[Verdict], places: Mapping[str, int]) -> str:
    by_verdict: dict[tuple[str, str], list[int]] = defaultdict(list)
    for each in found:
        by_verdict[each.word, each.why].append(places[each.case])
    rows = [
        f"| {word} | {why} | {len(traces)} | {_spans(sorted(traces))} |\n"
        for (word, why), traces in sorted(by_verdict.items(), key=lambda item: (item[0][0], -len(item[1])))
    ]
    reported = f"{OURS[name]}\n\n" if name in OURS else ""
    if name in MODELED:
        reported = f"No analysis of ours answers this: {MODELED[name]}.\n\n"
    return (
        f"## {name}\n\n{reported}| verdict | because of | traces | which |\n|---|---|---:|---|\n"
        + "".join(rows)
        + "\n"
    )


def _spans(numbers: Sequence[int]) -> str:
    """1, 2, 3, 7 as 1-3, 7."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
