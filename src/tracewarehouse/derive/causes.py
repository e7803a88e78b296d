"""Why a rank was late: what it did longer than the rank it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracewarehouse.derive.blame_chain import Charged
from tracewarehouse.derive.blame_inputs import Activities
from tracewarehouse.derive.intervals import Union

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

HOST = "host"
# What counts where several go on at once, first to last; the rest of the time is the host's.
_ON_GPU = ("computation", "communication", "copies", "data")
_ON_HOST = ("data", "communication", "computation")
CAUSES = (*_ON_GPU, HOST)


@dataclass(frozen=True)
class Causes:
    """How long a rank did what, as unions of kinds: each adds one kind to those before it."""

    on_gpu: NDArray[np.bool_]
    gpu: tuple[Union, ...]
    host: tuple[Union, ...]

    @classmethod
    def of(cls, span: int, activities: Activities, on_gpu: NDArray[np.bool_]) -> Causes:
        """The causes of a run."""
        return cls(
            on_gpu,
            _unions(span, activities, on_gpu, _ON_GPU),
            _unions(span, activities, ~on_gpu, _ON_HOST),
        )

    @property
    def computation(self) -> Union:
        """When the GPUs of ranks computed; nothing for ranks without GPU activities."""
        return self.gpu[_ON_GPU.index("computation")]

    def name(self, charged: Charged) -> Integers:
        """The index in CAUSES of what each charged rank did longest in excess of the other one."""
        tasks = charged.tasks
        late = self._times(tasks.late, tasks.cause_from_ns, tasks.late_to_ns)
        other = self._times(np.maximum(tasks.other, 0), tasks.cause_from_ns, tasks.other_to_ns)
        other[:, tasks.other < 0] = 0
        # Waiting for others is not what a rank is charged for.
        communication = CAUSES.index("communication")
        late[communication] -= charged.late_waits_ns
        other[communication] -= charged.other_waits_ns
        longest: Integers = np.argmax(late - other, axis=0)
        return longest

    def _times(self, rank: Integers, from_ns: Integers, to_ns: Integers) -> Integers:
        """Time by cause and task."""
        to_ns = np.maximum(from_ns, to_ns)
        found = np.zeros((len(CAUSES), len(rank)), dtype=np.int64)
        for kinds, unions, here in (
            (_ON_GPU, self.gpu, self.on_gpu[rank]),
            (_ON_HOST, self.host, ~self.on_gpu[rank]),
        ):
            before = np.zeros(int(here.sum()), dtype=np.int64)
            for kind, union in zip(kinds, unions, strict=True):
                until = union.within(rank[here], from_ns[here], to_ns[here])
                found[CAUSES.index(kind), here] = until - before
                before = until
            found[CAUSES.index(HOST), here] = (to_ns - from_ns)[here] - before
        return found


def _unions(
    span: int, activities: Activities, ranks: NDArray[np.bool_], kinds: tuple[str, ...]
) -> tuple[Union, ...]:
    here = ranks[activities.rank]
    rank, start, end, kind = (
        column[here] for column in (activities.rank, activities.start_ns, activities.end_ns, activities.kind)
    )
    found = []
    for count in range(1, len(kinds) + 1):
        some = np.isin(kind, kinds[:count])
        found.append(Union.of(span, rank[some], start[some], end[some]))
    return tuple(found)
