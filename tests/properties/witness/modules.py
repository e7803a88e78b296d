"""Modules of calls and of GPU activities by brute force: every enclosing slice is searched for, each time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from witness.trace import Slice, Trace, nesting

MODULE = "nn.Module: "
ENGINE = "autograd::engine::evaluate_function: "
BACKWARD = re.compile(r"^autograd::engine|Backward\d*$|^torch::autograd::")
SEPARATOR = " > "
Path = tuple[str, ...]


@dataclass(frozen=True)
class Owner:
    """The module that a GPU activity belongs to."""

    module_id: int | None = None
    forward_id: int | None = None
    path: str | None = None
    attribution_method: str | None = None


def is_module(each: Slice) -> bool:
    return each.name.startswith(MODULE)


def repeats(each: Slice) -> bool:
    """Whether a forward runs again inside."""
    return ": recompute_fn" in each.name


def enclosing(slices: list[Slice], inner: Slice) -> list[Slice]:
    """The slices that enclose the start of another one on its thread, outermost first."""
    found = (
        each
        for each in slices
        if each.thread == inner.thread and nesting(each) < nesting(inner) and each.end > inner.start
    )
    return sorted(found, key=nesting)


def path_of(trace: Trace, frame: Slice) -> Path:
    """The instances that enclose a call, and itself; a recomputation continues the original path."""
    around = enclosing(trace.frames, frame)
    cut = max((at for at, each in enumerate(around) if repeats(each)), default=-1)
    inside = [each for each in around[cut + 1 :] if is_module(each)]
    names = tuple(each.name.removeprefix(MODULE) for each in (*inside, frame))
    if cut < 0:
        return names
    return (*_before(trace, (*inside, frame)[0]), *names)


def _before(trace: Trace, first: Slice) -> Path:
    """The path above an instance when it last ran outside of a recomputation."""
    earlier = [
        each
        for each in trace.frames
        if each.name == first.name
        and each.start <= first.start
        and not any(map(repeats, enclosing(trace.frames, each)))
    ]
    return path_of(trace, max(earlier, key=nesting))[:-1] if earlier else ()


def modules(trace: Trace) -> dict[int, str]:
    """Call of a module → its path."""
    return {each.event_id: SEPARATOR.join(path_of(trace, each)) for each in trace.frames if is_module(each)}


def innermost(trace: Trace, each: Slice) -> Slice | None:
    """The innermost module that encloses a slice; None if a recomputation lies between the two."""
    around = [frame for frame in enclosing(trace.frames, each) if is_module(frame) or repeats(frame)]
    return around[-1] if around and is_module(around[-1]) else None


def owners(trace: Trace) -> Iterator[tuple[int, Owner]]:
    """Each GPU activity with its module."""
    paths = modules(trace)
    for row in trace.gpu:
        call = trace.launch(row)
        known = call is not None and row.kind != "communication"
        yield row.event_id, _owner(trace, call, paths) if known and call is not None else Owner()


def _owner(trace: Trace, call: Slice, paths: dict[int, str]) -> Owner:
    frame = innermost(trace, call)
    engine = [op for op in enclosing(trace.ops, call) if op.name.startswith(ENGINE)]
    if engine and (frame is None or nesting(frame) < nesting(engine[-1])):
        if engine[-1].name.endswith("AccumulateGrad"):
            return Owner(path="(gradient accumulation)", attribution_method="accumulation")
        forward = _forward(trace, engine[-1])
        if forward is not None:
            frame = innermost(trace, forward)
            if frame is None:
                return Owner(forward_id=forward.event_id)
            return Owner(frame.event_id, forward.event_id, paths[frame.event_id], "sequence")
    return Owner(frame.event_id, None, paths[frame.event_id], "enclosing") if frame else Owner()


def _forward(trace: Trace, engine: Slice) -> Slice | None:
    """The last operator of forward with the number that starts by then; of one start the outermost."""
    number = engine.args.get("Sequence number")
    numbered = [
        op
        for op in trace.ops
        if op.args.get("Sequence number") == number
        and op.start <= engine.start
        and not BACKWARD.search(op.name)
    ]
    if number is None or number < 0 or not numbered:
        return None
    latest = max(op.start for op in numbered)
    return min((op for op in numbered if op.start == latest), key=nesting)
