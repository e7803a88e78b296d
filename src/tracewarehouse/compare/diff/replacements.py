"""Kernels that another one replaced at the same location of the model: renamed, or of another library."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

_ARGUMENTS = re.compile(r"[<(](?!anonymous namespace)")
_NUMBERS = re.compile(r"\d+(x\d+)*")
_COUNT_TOLERANCE = 0.02  # of the calls per interval of a kernel and its replacement


@dataclass(frozen=True)
class LocatedKernel:
    """A kernel at a location of the model, on one side: how often it ran there and for how long."""

    kind: str
    name: str
    path_sig: str | None
    op_sig: str | None
    count: int = field(compare=False)
    ns: int = field(compare=False)


Location = tuple[Hashable, ...]
Locate = Callable[[LocatedKernel], Location | None]


def replacements(
    base: Sequence[LocatedKernel], head: Sequence[LocatedKernel], scale: float = 1.0
) -> tuple[dict[LocatedKernel, str], dict[LocatedKernel, str]]:
    """The name in head of each kernel of base that was replaced, and the name in base of its replacement.

    A kernel is replaced at a location that it was removed from and where another one of its kind was added
    that does the same work as often: `scale` is the number of intervals of head over that of base. Where
    several fit, only similar names are paired; the others are removed, or added.
    """
    new_names: dict[LocatedKernel, str] = {}
    old_names: dict[LocatedKernel, str] = {}
    for locate in _locators(base, head):
        before, after = _by_location(base, locate), _by_location(head, locate)
        for location in before.keys() & after.keys():
            old, new = before[location], after[location]
            common = {kernel.name for kernel in old} & {kernel.name for kernel in new}
            removed = _by_name(each for each in old if each not in new_names and each.name not in common)
            added = _by_name(each for each in new if each not in old_names and each.name not in common)
            for old_name, new_name in _pairs(removed, added, scale).items():
                new_names |= dict.fromkeys(removed[old_name], new_name)
                old_names |= dict.fromkeys(added[new_name], old_name)
    return new_names, old_names


def _pairs(
    removed: Mapping[str, Sequence[LocatedKernel]],
    added: Mapping[str, Sequence[LocatedKernel]],
    scale: float,
) -> dict[str, str]:
    """Old name → new name of those that fit only each other: first of similar names, then of the rest."""
    pairs: dict[str, str] = {}
    fitting = {
        (old, new) for old in removed for new in added if _can_replace(removed[old], added[new], scale)
    }
    similar = {(old, new) for old, new in fitting if _stem(old) == _stem(new)}
    for candidates in (similar, fitting):
        left = {(old, new) for old, new in candidates if old not in pairs and new not in pairs.values()}
        olds, news = Counter(old for old, _ in left), Counter(new for _, new in left)
        pairs |= {old: new for old, new in left if olds[old] == news[new] == 1}
    return pairs


def _stem(name: str) -> str:
    """The name without template arguments, parameters, and numbers, such as tile sizes."""
    return _NUMBERS.sub("#", _ARGUMENTS.split(name.removeprefix("void "), maxsplit=1)[0])


_ROLES = {
    # Before matrix products, which they prepare and whose words their names contain.
    "layout": ("nchwtonhwc", "nhwctonchw", "im2col", "col2im", "offsets", "scalepacked"),
    "attention": ("flash", "fmha", "attention", "attn"),  # its kernels name libraries of matrix products, too
    "matrix product": ("gemm", "cutlass", "xmma", "cijk_", "nvjet", "matmul", "triton_tem")
    + ("conv", "cudnn_", "wgrad", "dgrad", "winograd"),
    "normalization": ("softmax", "norm"),
    "optimizer": ("multi_tensor", "adam", "sgd"),
    "reduction": ("reduce", "triton_red"),
    "pointwise": ("elementwise", "triton_poi", "pointwise", "dropout", "gelu", "silu", "relu"),
    "embedding": ("embedding", "gather", "scatter", "index"),
}


def _role(name: str) -> str | None:
    """What a kernel of this name does; None if its name does not say."""
    lowered = name.lower()
    return next((role for role, words in _ROLES.items() if any(word in lowered for word in words)), None)


def _can_replace(old: Sequence[LocatedKernel], new: Sequence[LocatedKernel], scale: float) -> bool:
    """Whether a kernel does the work of another: as often per interval, and in the same role, if known."""
    counts = sum(kernel.count for kernel in old) * scale, sum(kernel.count for kernel in new)
    roles = _role(old[0].name), _role(new[0].name)
    as_often = abs(counts[0] - counts[1]) <= _COUNT_TOLERANCE * max(counts)
    return as_often and roles[0] == roles[1]


def _locators(base: Sequence[LocatedKernel], head: Sequence[LocatedKernel]) -> tuple[Locate, ...]:
    """What a location is, the narrowest first: path and operator, path, operator where paths differ."""
    paths = {kernel.path_sig for kernel in base} & {kernel.path_sig for kernel in head}

    def path_and_operator(kernel: LocatedKernel) -> Location | None:
        return None if kernel.path_sig is None else (kernel.kind, kernel.path_sig, kernel.op_sig)

    def path(kernel: LocatedKernel) -> Location | None:
        return None if kernel.path_sig is None else (kernel.kind, kernel.path_sig)

    def operator(kernel: LocatedKernel) -> Location | None:
        known = kernel.op_sig is not None and kernel.path_sig not in paths
        return (kernel.kind, kernel.op_sig) if known else None

    return path_and_operator, path, operator


def _by_location(kernels: Iterable[LocatedKernel], locate: Locate) -> dict[Location, list[LocatedKernel]]:
    grouped: dict[Location, list[LocatedKernel]] = defaultdict(list)
    for kernel in kernels:
        location = locate(kernel)
        if location is not None:
            grouped[location].append(kernel)
    return grouped


def _by_name(kernels: Iterable[LocatedKernel]) -> dict[str, list[LocatedKernel]]:
    grouped: dict[str, list[LocatedKernel]] = defaultdict(list)
    for kernel in kernels:
        grouped[kernel.name].append(kernel)
    return grouped
