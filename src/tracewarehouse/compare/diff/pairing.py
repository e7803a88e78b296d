"""Which kernels of base and head do the same work under other names: replaced, re-typed, fused or split.

Kernels are paired where most agrees: first by operator, shapes and modules, then by less, up to all that is
left of both sides. The wider the place, the more their roles and names have to say.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.late_regex import late_regex
from tracewarehouse.present.render.text import JOINED, REPLACED

_ARGUMENTS = late_regex(r"[<(](?!anonymous namespace|unnamed>)")
_NUMBERS = late_regex(r"\d+(x\d+)*")
_WORD = late_regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SHAPE = late_regex(r"\[[\d,]+\]")
_TYPE = late_regex(r'"(?!Scalar|")([^"]+)"')
_COUNT_TOLERANCE = 0.02  # of the calls per interval of a kernel and its replacement
RETYPED = "re-typed "  # begins the change of kernels in another data type
MATRIX_PRODUCT = "matrix product"


class LocatedKernel(Struct, frozen=True):
    """A kernel at a location of the model, on one side: how often it ran there and for how long."""

    kind: str
    name: str
    path_sig: str | None
    op_sig: str | None
    count: int
    ns: int
    module_path: str | None = None


class Joined(Struct, frozen=True):
    """Kernels of base, those of head that do their work, and what happened to them."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    change: str  # replaced, re-typed with both types, fused or split

    @property
    def label(self) -> str:
        """`A → B`, or `A + B → C`."""
        return REPLACED.join(map(JOINED.join, (self.old, self.new)))


Cells = tuple[list[LocatedKernel], list[LocatedKernel]]  # of base and of head
Found = tuple[dict[LocatedKernel, Joined], dict[LocatedKernel, Joined]]


class _Part(Struct, frozen=True):
    """A kernel of which one side has more calls at a location: how many more, and where on both sides."""

    name: str
    calls: float
    cells: Cells

    @property
    def own(self) -> Sequence[LocatedKernel]:
        """Where it is, on base if it is there."""
        return self.cells[0] or self.cells[1]

    @property
    def operators(self) -> set[str]:
        """The names of the operators that launch it."""
        return {(kernel.op_sig or "").partition(" ")[0] for kernel in self.own} - {""}

    @property
    def words(self) -> set[str]:
        """The operations in its name and in those of its operators."""
        return {word for name in (self.name, *self.operators) for word in _words(name)}

    def is_enough(self, whole: _Part) -> bool:
        """Whether it ran at least as often as what may do its work, too."""
        return self.calls > whole.calls or _as_often(self.calls, whole.calls)


Locate = Callable[[LocatedKernel], object]
Parts = Sequence[_Part]
Matches = Iterable[tuple[Parts, Parts]]


def replacements(base: Sequence[LocatedKernel], head: Sequence[LocatedKernel], scale: float = 1.0) -> Found:
    """The kernels of both sides that do the same work under other names, and what they are joined to.

    `scale` is the number of intervals of head over that of base. A kernel is replaced where another of its
    kind and role has as many calls more as it has fewer; of several, by the one whose name and shapes agree
    most, if there is a single one. Several are fused where one says by its name that it does what they did,
    or is the only new one in a module that they vanished from.
    """
    paths = {kernel.path_sig for kernel in base} & {kernel.path_sig for kernel in head}
    joined: Found = ({}, {})
    sides = _with_other_calls(base, head, scale)
    for match in (_fused_or_split, _renamed):
        for place in range(_EVERYWHERE + 1):
            locate = partial(_location, place, paths)
            for removed, added in _differences(sides, scale, locate, joined):
                for old, new in match(removed, added, place):
                    _join(joined, old, new)
    return joined


# Places, the narrowest first: path and operator, path, operator where paths differ, and these.
_MODULE, _PARENT, _EVERYWHERE = 3, 4, 5


def _location(place: int, paths: Container[str | None], kernel: LocatedKernel) -> object:
    """What kernels at the same place have in common; none or empty if that is not known."""
    path, op, module, kind = kernel.path_sig, kernel.op_sig, kernel.module_path or "", kernel.kind
    everywhere = kind, (path or "").startswith("autograd::")
    parent = module.rpartition(" > ")[0]
    return (
        path and (kind, path, op),
        path and (kind, path),
        op and path not in paths and (kind, op),
        module and not module.startswith("(") and (everywhere, module),
        parent and (everywhere, parent),
        everywhere,
    )[place]


def _with_other_calls(base: Sequence[LocatedKernel], head: Sequence[LocatedKernel], scale: float) -> Cells:
    """The kernels of both sides at locations where they have more or fewer calls."""
    additional_calls: dict[LocatedKernel, float] = defaultdict(float)
    for side, factor in ((base, -scale), (head, 1.0)):
        for located in side:
            additional_calls[replace(located, count=0, ns=0)] += factor * located.count

    def differs(kernel: LocatedKernel) -> bool:
        return abs(additional_calls[replace(kernel, count=0, ns=0)]) > _COUNT_TOLERANCE * kernel.count

    return list(filter(differs, base)), list(filter(differs, head))


def _differences(sides: Cells, scale: float, locate: Locate, found: Found) -> Iterator[tuple[Parts, Parts]]:
    """The kernels of which head has fewer calls, and more calls, at each location where it has both."""
    located: dict[object, dict[str, Cells]] = defaultdict(lambda: defaultdict(lambda: ([], [])))
    for number, kernels in enumerate(sides):
        for kernel in kernels:
            if kernel not in found[number] and (location := locate(kernel)):
                located[location][kernel.name][number].append(kernel)
    for names in located.values():
        changed: tuple[list[_Part], list[_Part]] = ([], [])
        for name, cells in names.items():
            base, head = (sum(cell.count for cell in side) for side in cells)
            if not _as_often(scale * base, head):
                changed[head > scale * base].append(_Part(name, abs(head - scale * base), cells))
        if all(changed):
            yield changed


def _as_often(one: float, other: float) -> bool:
    return abs(one - other) <= _COUNT_TOLERANCE * max(one, other)


def _join(found: Found, old: Parts, new: Parts) -> None:
    """Joins these kernels of base and head, with what is left of them on the other side."""
    change = "fused" if len(old) > len(new) else "split"
    if len(old) == len(new):
        dtypes = [dtype for (kernel,) in (old, new) if (dtype := _dtype(kernel.own[0]))]
        change = f"{RETYPED}{REPLACED.join(dtypes)}" if len({*dtypes}) == 2 else "replaced"
    joined = Joined(tuple(kernel.name for kernel in old), tuple(kernel.name for kernel in new), change)
    for kernel in (*old, *new):
        for side, cells in zip(found, kernel.cells, strict=True):
            side.update(dict.fromkeys(cells, joined))


def _renamed(removed: Parts, added: Parts, place: int) -> Matches:
    """Those that agree more with each other than with any other."""
    scores: dict[tuple[int, int], tuple[bool, float]] = {}
    for (old_index, old), (new_index, new) in product(enumerate(removed), enumerate(added)):
        is_similar = _stem(old.name) == _stem(new.name) and old.words == new.words
        role = role_of(old.name)
        fits = is_similar or place < _MODULE or (place == _MODULE and role is not None)
        if fits and role == role_of(new.name) and _as_often(old.calls, new.calls):
            scores[old_index, new_index] = is_similar, _same_shapes(old, new)

    def is_best(pair: tuple[int, int]) -> bool:
        rivals = (other for other in scores if (pair[0] == other[0]) != (pair[1] == other[1]))
        return all(scores[pair] > scores[rival] for rival in rivals)

    while best := next(filter(is_best, scores), None):
        yield [removed[best[0]]], [added[best[1]]]
        scores = {
            pair: score for pair, score in scores.items() if not {*enumerate(pair)} & {*enumerate(best)}
        }


def _same_shapes(old: _Part, new: _Part) -> float:
    """The share of the shapes of inputs that both have."""
    before, after = (
        {*_SHAPE.findall(" ".join(cell.op_sig or "" for cell in kernel.own))} for kernel in (old, new)
    )
    return len(before & after) / max(len(before | after), 1)


def _fused_or_split(removed: Parts, added: Parts, place: int) -> Matches:
    fused = [(parts, [whole]) for whole, parts in _wholes(added, removed, place)]
    return fused or [([whole], parts) for whole, parts in _wholes(removed, added, place)]


def _wholes(wholes: Parts, parts: Parts, place: int) -> Iterator[tuple[_Part, Parts]]:
    """Kernels of one side that do what several of the other side did, and these, if no other one does."""
    claims = [(whole, _named(whole, parts)) for whole in wholes]
    if place in (_MODULE, _PARENT) and len(wholes) == 1:
        claims = [(whole, by_name or _all_in_one(whole, parts)) for whole, by_name in claims]
    counts = Counter(kernel.name for _, claimed in claims for kernel in claimed)
    for whole, claimed in claims:
        if len(claimed) > 1 and all(counts[kernel.name] == 1 for kernel in claimed):
            yield whole, claimed


def _named(whole: _Part, parts: Parts) -> Parts:
    """The parts whose work is in the name of the whole; none if one word means several of them."""
    operations = whole.words & {*_words(whole.name), MATRIX_PRODUCT}
    candidates = [part for part in parts if part.is_enough(whole) and operations & part.words]
    words = Counter(word for part in candidates for word in operations & part.words)
    return candidates if max(words.values(), default=0) == 1 else []


def _all_in_one(whole: _Part, parts: Parts) -> Parts:
    """All parts but conversions, if they were the work of several operators, and are that of a new one.

    A matrix product cannot just vanish: the operator of another part can have taken over its work.
    """
    others = [part for part in parts if not is_conversion(part.name)]
    role, roles = role_of(whole.name), {role_of(part.name) for part in others}
    stayed = {role_of(part.name) for part in others if whole.operators & part.operators}
    took_over = role in (None, "pointwise") and MATRIX_PRODUCT in roles - stayed
    is_attention = role == "attention" and MATRIX_PRODUCT in roles
    fits = (is_attention or role in {None, *roles}) and (took_over or not stayed)
    is_often = (
        _as_often(part.calls, whole.calls) or (is_attention and part.is_enough(whole)) for part in others
    )
    return others if fits and all(is_often) else []


def _stem(name: str) -> str:
    """The name without template arguments, parameters, and numbers, such as tile sizes."""
    return _NUMBERS.sub("#", _ARGUMENTS.split(name.removeprefix("void "), maxsplit=1)[0])


_ROLES = {
    # Before matrix products, which they prepare and whose words their names contain.
    "layout": ("nchwtonhwc", "nhwctonchw", "im2col", "col2im", "offsets", "scalepacked"),
    "attention": ("flash", "fmha", "attention", "attn"),  # its kernels name libraries of matrix products, too
    MATRIX_PRODUCT: ("gemm", "cutlass", "xmma", "cijk_", "nvjet", "matmul", "triton_tem")
    + ("conv", "cudnn_", "wgrad", "dgrad", "winograd"),
    "normalization": ("softmax", "norm"),
    "optimizer": ("multi_tensor", "adam", "sgd"),
    "reduction": ("reduce", "triton_red"),
    "pointwise": ("elementwise", "triton_poi", "pointwise", "dropout", "gelu", "silu", "relu"),
    "embedding": ("embedding", "gather", "scatter", "index"),
}
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "convolution"}
_NAMED = (
    "add bias cast clone copy div dropout embedding exp gelu mask mean mul norm pow quantize relu"
    " residual rope rotary rsqrt sigmoid silu softmax sub sum swiglu tanh topk transpose"
)
_OPERATIONS = frozenset(_NAMED.split())


def role_of(name: str) -> str | None:
    """What a kernel of this name does; None if its name does not say."""
    lowered = name.lower()
    return next((role for role, words in _ROLES.items() if any(word in lowered for word in words)), None)


def _words(name: str) -> set[str]:
    """The operations in a name."""
    words = {word.lower() for word in _WORD.findall(name)}
    is_product = _PRODUCTS & words or role_of(name) == MATRIX_PRODUCT
    return words & _OPERATIONS | ({MATRIX_PRODUCT} if is_product else set())


def is_conversion(name: str) -> bool:
    """Whether a kernel of this name copies, or converts to another type."""
    return any(word in name.lower() for word in ("copy", "cast", "quant", "convert", "amax"))


_TYPES = {"float": "fp32", "double": "fp64", "half": "fp16", "bfloat16": "bf16", "signed char": "int8"}
_NAMED_TYPE = late_regex(
    r"(?P<fp8>e4m3|e5m2|fp8|float8)|(?P<bf16>bf16|bfloat16)|(?P<fp16>fp16|_f16|hgemm|half|h\d*16816gemm)|"
    r"(?P<tf32>tf32|s1688gemm)|(?P<int8>int8|imma)|(?P<fp32>sgemm|scudnn|fp32)"
)


def _dtype(kernel: LocatedKernel) -> str | None:
    """The type it computes in: that of its operator's first input, else by its name."""
    recorded = _TYPE.search(kernel.op_sig or "")
    dtype = recorded[1].lower().removeprefix("c10::") if recorded else ""
    by_name = _NAMED_TYPE.search(kernel.name.lower())
    by_words = by_name.lastgroup if by_name else None
    by_input = "fp8" if dtype.startswith("float8") else _TYPES.get(dtype)
    return by_words if by_input is None or (by_input, by_words) == ("fp32", "tf32") else by_input
