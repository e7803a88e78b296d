"""HTA's rules by name, each with the number of its trap in the map of HTA (its section 5; 16 is new).

A model of a method is one piece of code that takes a set of rules: with none it is our definition, with
all of them HTA's. Which of them are needed for HTA's number is found by leaving them out one by one.
"""

from __future__ import annotations

from collections.abc import Callable

Rules = frozenset[str]
NONE: Rules = frozenset()

TRAPS = {
    "stream": (
        1,
        "a GPU activity is what carries a stream: syncs and Triton's operators count, by name not category",
    ),
    "join": (2, "GPU activities without a launch in the trace are dropped"),
    "many": (3, "ids are joined rank-wide, N:1 and 1:N: rows double, the last partner wins"),
    "rounding": (4, "starts rounded up and ends down to whole µs, in float64"),
    "last_step": (6, "the last profiler step is dropped, with all GPU activities that it launched"),
    "names": (7, "kinds by the start of the name, `hip…` and `…Sync` among them"),
    "other": (7, "rows of no kind are in no table"),
    "idle": (8, "a gap is to the row before, may be negative; without launch there is no host wait"),
    "devices": (13, "streams of all devices of a rank are one"),
    "queue": (9, "calls and rows are put together by id, ties in any order"),
    "apis": (9, "only some launching functions count"),
    "moments": (12, "several changes at one moment count as several"),
    "rate": (15, "the profiler's bandwidth, also of copies without length; residues of floats"),
    "on_stream": (14, "an annotation is that which overlaps on the stream, not that around the launch"),
    "last_stream": (9, "only the last stream of a rank is kept"),
    "marks": (6, "copies of the steps' marks on the GPU count as steps"),
    "clocks": (13, "who starts last by clocks that are not synchronized, of kernels called ncclKernel…"),
    "default": (13, "ranks=None means rank 0"),
    "delay": (10, "the delay is clipped at 0"),
    "aggregate": (11, "what is folded is folded again: statistics of sums"),
    "denominator": (12, "shares of another whole"),
    "ranks": (13, "ranks are summed"),
    "nesting": (14, "operators by time alone, on any thread"),
    "path": (16, "the longest path through another graph: time without an edge there is not counted"),
    "gaps": (16, "no time passes between one outermost operator of a thread and the next"),
    "blocking": (16, "calls that may block take no time, copies and queries among them, wait or no wait"),
    "lock": (16, "launches, copies and allocations of all threads wait for whichever of them ends first"),
    "threads": (16, "a thread with `autograd` in a name is put on that with `forward` in one"),
    "limit": (16, "rows of a stream that are 1.5 ms apart have nothing to do with each other"),
    "last_list": (15, "of several `traceEvents` the last one only"),
}


class Fails(Exception):
    """Under its rules HTA ends with this error."""

    def __init__(self, error: str, trap: int, why: str) -> None:
        super().__init__(why)
        self.error, self.trap, self.why = error, trap, why


def needed(rules: tuple[str, ...], same: Callable[[Rules], bool]) -> Rules | None:
    """A smallest set of the rules with which the two are the same; None where all of them are not enough."""
    selected = frozenset(rules)
    if not same(selected):
        return None
    # Twice: a rule that another one needs can be left out once that one has been.
    for rule in (*rules, *rules):
        without = selected - {rule}
        if rule in selected and same(without):
            selected = without
    return selected


def reported(rules: Rules) -> str:
    """The traps of a set of rules, for people."""
    return ", ".join(f"{TRAPS[rule][0]} ({rule})" for rule in sorted(rules, key=lambda rule: TRAPS[rule]))
