"""Which kernels of base and head do the same work under other names: replaced, re-typed, fused or split.

Kernels are paired where most agrees: first by operator, shapes and modules, then by less, up to all that is
left of both sides. The wider the place, the more their roles and names have to say.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.late_regex import late_regex
from tracewarehouse.present.render.text import JOINED, REPLACED

_ARGUMENTS = late_regex(r"[<(](?!anonymous namespace)")
_NUMBERS = late_regex(r"\d+(x\d+)*")
_WORD = late_regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SHAPE = late_regex(r"\[[\d,]+\]")
_TYPE = late_regex(r'"(?!Scalar|")([^"]+)"')
_COUNT_TOLERANCE = 0.02  # of the calls per interval of a kernel and its replacement
RETYPED = "re-typed "  # begins the change of kernels in another data type
_MOST_LISTED = 4  # of the kernels that were fused


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
    """Kernels of base, and those of head that do their work; `dtypes` if they compute in another type."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    dtypes: str | None = None  # such as `fp32 → bf16`

    @property
    def label(self) -> str:
        """`A → B`, or `A + B → C`."""
        return REPLACED.join(map(_listed, (self.old, self.new)))

    @property
    def change(self) -> str:
        """What happened to the kernels of base."""
        if len(self.old) != len(self.new):
            return "fused" if len(self.old) > len(self.new) else "split"
        return f"{RETYPED}{self.dtypes}" if self.dtypes else "replaced"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_LISTED
    return JOINED.join([*names[:_MOST_LISTED], *([f"{more} more"] if more > 0 else [])])


Location = tuple[Hashable, ...]
Cells = tuple[list[LocatedKernel], list[LocatedKernel]]  # of base and of head
Found = tuple[dict[LocatedKernel, Joined], dict[LocatedKernel, Joined]]


class _Place(Struct, frozen=True):
    """What kernels have in common there, and what else has to agree."""

    locate: Callable[[LocatedKernel], Location | None]
    needs: str = ""  # their `role`, or their `name`
    is_module: bool = False  # what vanished from it and what is new there belong together


class _Part(Struct, frozen=True):
    """A kernel of which one side has more calls at a location: how many more, and where on both sides."""

    calls: float
    cells: Cells

    @property
    def own(self) -> Sequence[LocatedKernel]:
        """Where it is, on base if it is there."""
        return self.cells[0] or self.cells[1]


Parts = Mapping[str, _Part]
Match = Callable[[Parts, Parts, _Place], Iterable[tuple[list[str], list[str]]]]


def replacements(base: Sequence[LocatedKernel], head: Sequence[LocatedKernel], scale: float = 1.0) -> Found:
    """The kernels of both sides that do the same work under other names, and what they are joined to.

    `scale` is the number of intervals of head over that of base. A kernel is replaced where another of its
    kind and role has as many calls more as it has fewer; of several, by the one whose name and shapes agree
    most, if there is a single one. Several are fused where one says by its name that it does what they did,
    or is the only new one in a module that they vanished from.
    """
    sides = _with_other_calls(base, head, scale)
    matches: tuple[Match, ...] = (_fused, _split, _renamed)
    found: Found = ({}, {})
    for match in matches:
        for place in _places(base, head):
            for removed, added in _differences(sides, scale, place, found):
                for old, new in match(removed, added, place):
                    _join(found, {name: removed[name] for name in old}, {name: added[name] for name in new})
    return found


def _places(base: Sequence[LocatedKernel], head: Sequence[LocatedKernel]) -> tuple[_Place, ...]:
    """From the narrowest: path and operator; path; operator where paths differ; module; its parent; all."""
    paths = {kernel.path_sig for kernel in base} & {kernel.path_sig for kernel in head}

    def path_and_operator(kernel: LocatedKernel) -> Location | None:
        return None if kernel.path_sig is None else (kernel.kind, kernel.path_sig, kernel.op_sig)

    def path(kernel: LocatedKernel) -> Location | None:
        return None if kernel.path_sig is None else (kernel.kind, kernel.path_sig)

    def operator(kernel: LocatedKernel) -> Location | None:
        known = kernel.op_sig is not None and kernel.path_sig not in paths
        return (kernel.kind, kernel.op_sig) if known else None

    def module(kernel: LocatedKernel) -> Location | None:
        known = kernel.module_path and not kernel.module_path.startswith("(")
        return (*everywhere(kernel), kernel.module_path) if known else None

    def parent(kernel: LocatedKernel) -> Location | None:
        outer = (kernel.module_path or "").rpartition(" > ")[0]
        return (*everywhere(kernel), outer) if outer else None

    def everywhere(kernel: LocatedKernel) -> Location:
        return kernel.kind, (kernel.path_sig or "").startswith("autograd::")

    return (
        _Place(path_and_operator),
        _Place(path),
        _Place(operator),
        _Place(module, "role", is_module=True),
        _Place(parent, "name", is_module=True),
        _Place(everywhere, "name"),
    )


def _with_other_calls(base: Sequence[LocatedKernel], head: Sequence[LocatedKernel], scale: float) -> Cells:
    """The kernels of both sides at locations where they have more or fewer calls."""
    calls: dict[LocatedKernel, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for number, (side, factor) in enumerate(zip((base, head), (scale, 1.0), strict=True)):
        for kernel in side:
            calls[_same(kernel)][number] += factor * kernel.count
    before, after = ([each for each in side if not _as_often(*calls[_same(each)])] for side in (base, head))
    return before, after


def _same(kernel: LocatedKernel) -> LocatedKernel:
    """What it is on both sides."""
    return replace(kernel, count=0, ns=0)


def _differences(sides: Cells, scale: float, place: _Place, found: Found) -> Iterator[tuple[Parts, Parts]]:
    """The kernels of which head has fewer calls, and more calls, at each location where it has both."""
    located: dict[Location, dict[str, Cells]] = defaultdict(lambda: defaultdict(lambda: ([], [])))
    for number, kernels in enumerate(sides):
        for kernel in kernels:
            location = None if kernel in found[number] else place.locate(kernel)
            if location is not None:
                located[location][kernel.name][number].append(kernel)
    for names in located.values():
        removed, added = dict[str, _Part](), dict[str, _Part]()
        for name, cells in names.items():
            base, head = (sum(each.count for each in side) for side in cells)
            if not _as_often(scale * base, head):
                (added if head > scale * base else removed)[name] = _Part(abs(head - scale * base), cells)
        if removed and added:
            yield removed, added


def _as_often(one: float, other: float) -> bool:
    return abs(one - other) <= _COUNT_TOLERANCE * max(one, other)


def _join(found: Found, old: Parts, new: Parts) -> None:
    """Joins these kernels of base and head, with what is left of them on the other side."""
    parts = [*old.values(), *new.values()]
    joined = Joined(tuple(old), tuple(new), _retyped(parts[0], parts[1]) if len(parts) == 2 else None)
    for number, side in enumerate(found):
        side.update(dict.fromkeys((cell for part in parts for cell in part.cells[number]), joined))


def _renamed(removed: Parts, added: Parts, place: _Place) -> Iterator[tuple[list[str], list[str]]]:
    """Those that agree more with each other than with any other."""
    scores = dict[tuple[str, str], tuple[bool, float]]()
    for old, before in removed.items():
        for new, after in added.items():
            role = _role(old)
            is_similar = _stem(old) == _stem(new) and _words(before) == _words(after)
            fits = is_similar or not place.needs or (place.needs == "role" and role is not None)
            if fits and role == _role(new) and _as_often(before.calls, after.calls):
                scores[old, new] = is_similar, _same_shapes(before, after)
    while best := next((pair for pair in scores if _is_best(pair, scores)), None):
        yield [best[0]], [best[1]]
        scores = {pair: score for pair, score in scores.items() if not {*best} & {*pair}}


def _is_best(pair: tuple[str, str], scores: Mapping[tuple[str, str], tuple[bool, float]]) -> bool:
    rivals = (score for other, score in scores.items() if other != pair and {*other} & {*pair})
    return all(scores[pair] > score for score in rivals)


def _same_shapes(old: _Part, new: _Part) -> float:
    """The share of the shapes of inputs that both have."""
    one, other = ({*_SHAPE.findall(" ".join(each.op_sig or "" for each in part.own))} for part in (old, new))
    return len(one & other) / max(len(one | other), 1)


def _fused(removed: Parts, added: Parts, place: _Place) -> Iterator[tuple[list[str], list[str]]]:
    return ((parts, [whole]) for whole, parts in _wholes(added, removed, place))


def _split(removed: Parts, added: Parts, place: _Place) -> Iterator[tuple[list[str], list[str]]]:
    return (([whole], parts) for whole, parts in _wholes(removed, added, place))


def _wholes(wholes: Parts, parts: Parts, place: _Place) -> Iterator[tuple[str, list[str]]]:
    """Kernels of one side that do what several of the other side did, and these, if no other one does."""
    claims = {name: _named(whole, parts) for name, whole in wholes.items()}
    if place.is_module and len(wholes) == 1:
        ((name, whole),) = wholes.items()
        claims[name] = claims[name] or _all_in_one(whole, parts)
    counts = Counter(part for claimed in claims.values() for part in claimed)
    for name, claimed in claims.items():
        if len(claimed) > 1 and all(counts[part] == 1 for part in claimed):
            yield name, claimed


def _named(whole: _Part, parts: Parts) -> list[str]:
    """The parts whose work is in the name of the whole, or of its operator if none of them had it.

    None if one word means several of them.
    """
    is_new = not any(_operators(whole) & _operators(part) for part in parts.values())
    said = _words(whole) if is_new else _words(whole) & {*_words_in(whole.own[0].name), _PRODUCT}
    shared = {name: said & _words(part) for name, part in parts.items() if _is_enough(part, whole)}
    words = Counter(word for words in shared.values() for word in words)
    return [name for name in shared if shared[name]] if max(words.values(), default=0) == 1 else []


def _all_in_one(whole: _Part, parts: Parts) -> list[str]:
    """All parts but conversions, if they were the work of several operators, and are that of a new one.

    A matrix product cannot just vanish: another operator can also have taken over its work.
    """
    rest = {name: part for name, part in parts.items() if not is_conversion(name)}
    role, roles = _role(whole.own[0].name), {_role(name): part for name, part in rest.items()}
    product = roles.get(_MATRIX_PRODUCT)
    others = [part for part in rest.values() if _operators(whole) & _operators(part)]
    took_over = product is not None and product not in others and role in (None, "pointwise")
    fits = role is None or role in roles or (role == "attention" and product is not None)
    is_often = all(
        _as_often(part.calls, whole.calls) or (role == "attention" and _is_enough(part, whole))
        for part in rest.values()
    )
    return list(rest) if is_often and fits and (took_over or not others) else []


def _operators(part: _Part) -> set[str]:
    return {(each.op_sig or "").partition(" ")[0] for each in part.own} - {""}


def _is_enough(part: _Part, whole: _Part) -> bool:
    return part.calls > whole.calls or _as_often(part.calls, whole.calls)


def _stem(name: str) -> str:
    """The name without template arguments, parameters, and numbers, such as tile sizes."""
    return _NUMBERS.sub("#", _ARGUMENTS.split(name.removeprefix("void "), maxsplit=1)[0])


_MATRIX_PRODUCT = "matrix product"
_ROLES = {
    # Before matrix products, which they prepare and whose words their names contain.
    "layout": ("nchwtonhwc", "nhwctonchw", "im2col", "col2im", "offsets", "scalepacked"),
    "attention": ("flash", "fmha", "attention", "attn"),  # its kernels name libraries of matrix products, too
    _MATRIX_PRODUCT: ("gemm", "cutlass", "xmma", "cijk_", "nvjet", "matmul", "triton_tem")
    + ("conv", "cudnn_", "wgrad", "dgrad", "winograd"),
    "normalization": ("softmax", "norm"),
    "optimizer": ("multi_tensor", "adam", "sgd"),
    "reduction": ("reduce", "triton_red"),
    "pointwise": ("elementwise", "triton_poi", "pointwise", "dropout", "gelu", "silu", "relu"),
    "embedding": ("embedding", "gather", "scatter", "index"),
}
_PRODUCT = "gemm"  # what any of these words means
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "convolution", "gemm", "conv"}
_NAMED = (
    "gemm add bias cast clone copy div dropout embedding exp gelu mask mean mul norm pow quantize relu"
    " residual rope rotary rsqrt sigmoid silu softmax sub sum swiglu tanh topk transpose"
)
_OPERATIONS = frozenset(_NAMED.split())


def _role(name: str) -> str | None:
    """What a kernel of this name does; None if its name does not say."""
    lowered = name.lower()
    return next((role for role, words in _ROLES.items() if any(word in lowered for word in words)), None)


def _words(part: _Part) -> set[str]:
    """The operations in the name of a kernel and in those of its operators."""
    return {word for text in (part.own[0].name, *_operators(part)) for word in _words_in(text)}


def _words_in(name: str) -> set[str]:
    found = {word.lower() for word in _WORD.findall(name)}
    is_product = _PRODUCTS & found or _role(name) == _MATRIX_PRODUCT
    return ({*found, _PRODUCT} if is_product else found) & _OPERATIONS


def is_product(name: str) -> bool:
    """Whether a kernel of this name is a matrix product or a convolution."""
    return _role(name) == _MATRIX_PRODUCT


def is_conversion(name: str) -> bool:
    """Whether a kernel of this name copies, or converts to another type."""
    return any(word in name.lower() for word in ("copy", "cast", "quant", "convert", "amax"))


_TYPES = {"float": "fp32", "double": "fp64", "half": "fp16", "bfloat16": "bf16", "signed char": "int8"}
_NAMED_TYPES = {
    "fp8": ("e4m3", "e5m2", "fp8", "float8"),
    "int8": ("int8", "i8816", "imma"),
    "bf16": ("bf16", "bfloat16"),
    "fp16": ("fp16", "f16", "half", "hgemm", "h884", "h1688"),
    "tf32": ("tf32",),
    "fp32": ("sgemm", "scudnn", "fp32", "f32"),
}


def _retyped(old: _Part, new: _Part) -> str | None:
    before, after = _dtype(old.own[0]), _dtype(new.own[0])
    return f"{before} → {after}" if before and after and before != after else None


def _dtype(kernel: LocatedKernel) -> str | None:
    """The type it computes in: that of its operator's first input, else by its name."""
    recorded = _TYPE.search(kernel.op_sig or "")
    name, lowered = recorded[1].lower().removeprefix("c10::") if recorded else "", kernel.name.lower()
    types = (type_ for type_, words in _NAMED_TYPES.items() if any(word in lowered for word in words))
    named = next(types, None)
    known = "fp8" if name.startswith("float8") else _TYPES.get(name)
    return named if known is None or (known, named) == ("fp32", "tf32") else known
