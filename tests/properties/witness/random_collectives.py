"""A random run of many ranks with collectives: groups, clock offsets, lost activities.

The argument `truth` of each event is its true collective, which only the brute-force check reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

RANKS = 9
GROUPS = {  # name → ranks; `far` shares no rank with the others
    "dp": (0, 2, 4, 6),
    "tp": (0, 1),
    "tq": (4, 5),
    "far": (7, 8),
}
WAITING = ("allreduce", "_allgather_base", "_reduce_scatter_base", "all_to_all")
NAMES = (*WAITING, "broadcast")


def run(name: str, seed: int) -> str:
    """The sketch of the run."""
    dice = Random(f"collectives/{seed}")
    clocks = {rank: dice.choice([0, dice.randint(-5_000_000, 5_000_000)]) for rank in range(RANKS)}
    lines = [f"{name} {rank} op t1 aten::mm 0 10" for rank in range(RANKS)]
    for group, ranks in GROUPS.items():
        numbered = dice.random() < 0.6
        at = 10_000_000
        for number in range(dice.randint(1, 20)):
            at += 4_000
            lines += _meeting(name, dice, group, ranks, number if numbered else None, number, at, clocks)
    dice.shuffle(lines)
    return "\n".join(lines)


def _meeting(name: str, dice: Random, group: str, ranks: tuple[int, ...], sequence: int | None, number: int,
             at: int, clocks: dict[int, int]) -> Iterator[str]:  # fmt: skip
    what, size = dice.choice(NAMES), dice.choice([8, 64])
    starts = {rank: at + dice.randrange(0, 1_500, 10) for rank in ranks}
    end = max(starts.values()) + dice.randrange(10, 800, 10)
    for rank in ranks:
        if dice.random() < (0.12 if sequence is None else 0.06):
            continue  # lost
        start = starts[rank] + clocks[rank]
        # Some ranks see the end so early or late that spans miss each other, within the doubt of the clocks.
        done = max(start, end + clocks[rank] + dice.randint(-3, 3) * dice.choice([1, 40]))
        reported = (
            f'"Process Group Name"={group} "Group size"={len(ranks)} "In msg nelems"={size} dtype=Float'
        )
        seq = "" if sequence is None else f"Seq={sequence}"
        head = f'{name} {rank} gpu s20 nccl {start} {done - start} "Collective name"={what}'
        yield f"{head} {reported} {seq} truth={group}.{number}"
