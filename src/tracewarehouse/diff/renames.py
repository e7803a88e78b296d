"""Which kernels of one side go by another name on the other, judged place by place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

Place = tuple[Hashable, ...]


@dataclass(frozen=True)
class Cell:
    """A kernel at a place of the model, on one side: how often it ran there and for how long."""

    kind: str
    name: str
    path_sig: str | None
    op_sig: str | None
    count: int = field(compare=False)
    ns: int = field(compare=False)


PlaceOf = Callable[[Cell], Place | None]


def renames(base: Sequence[Cell], head: Sequence[Cell]) -> tuple[dict[Cell, str], dict[Cell, str]]:
    """For cells of base their name in head, for cells of head their name in base, where that is another one.

    A kernel is renamed at a place where it is gone and another one of its kind is new. Of several the most
    frequent are paired first; what is left over is gone, or new.
    """
    forth: dict[Cell, str] = {}
    back: dict[Cell, str] = {}
    for place_of in _places(base, head):
        before, after = _by_place(base, place_of), _by_place(head, place_of)
        for place in before.keys() & after.keys():
            old, new = before[place], after[place]
            gone = _by_name(cell for cell in old if cell not in forth)
            come = _by_name(cell for cell in new if cell not in back)
            kept = {cell.name for cell in old} & {cell.name for cell in new}
            for one, other in zip(_frequent(gone, kept), _frequent(come, kept), strict=False):
                forth |= dict.fromkeys(gone[one], other)
                back |= dict.fromkeys(come[other], one)
    return forth, back


def _places(base: Sequence[Cell], head: Sequence[Cell]) -> tuple[PlaceOf, ...]:
    """What a place is, the narrowest first: path and operator, the path, the operator where paths differ."""
    paths = {cell.path_sig for cell in base} & {cell.path_sig for cell in head}

    def narrow(cell: Cell) -> Place | None:
        return None if cell.path_sig is None else (cell.kind, cell.path_sig, cell.op_sig)

    def path(cell: Cell) -> Place | None:
        return None if cell.path_sig is None else (cell.kind, cell.path_sig)

    def operator(cell: Cell) -> Place | None:
        return None if cell.op_sig is None or cell.path_sig in paths else (cell.kind, cell.op_sig)

    return narrow, path, operator


def _by_place(cells: Iterable[Cell], place_of: Callable[[Cell], Place | None]) -> dict[Place, list[Cell]]:
    found: dict[Place, list[Cell]] = defaultdict(list)
    for cell in cells:
        place = place_of(cell)
        if place is not None:
            found[place].append(cell)
    return found


def _by_name(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        found[cell.name].append(cell)
    return found


def _frequent(named: dict[str, list[Cell]], kept: set[str]) -> list[str]:
    """The names that the other side does not have there, the most frequent first."""
    sums = {
        name: (sum(cell.count for cell in cells), sum(cell.ns for cell in cells))
        for name, cells in named.items()
        if name not in kept
    }
    return sorted(sums, key=lambda name: (-sums[name][0], -sums[name][1], name))
