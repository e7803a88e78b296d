"""The data loader of one rank: who makes the batches, and how long the training thread waits for one."""

from __future__ import annotations

AHEAD = 2  # batches that a worker makes before one of its own is taken, as torch's prefetch_factor
HANDOVER_NS = 20_000  # from a worker's queue to the training thread


class Loader:
    """Batches in turn from so many workers; without any, the training thread makes them itself."""

    __slots__ = ("ready", "taken")

    def __init__(self, workers: int) -> None:
        self.ready = [0] * workers
        self.taken = [0] * AHEAD * workers

    def waits(self, at_ns: int, makes_ns: int) -> int:
        """How long the training thread waits for the batch it asks for then, which takes so long to make."""
        if not self.ready:
            return makes_ns
        # Its worker begins once its last batch is made, and once there is room for another one.
        made = max(self.ready.pop(0), self.taken.pop(0)) + makes_ns
        self.ready.append(made)
        waits = max(made - at_ns, 0) + HANDOVER_NS
        self.taken.append(at_ns + waits)
        return waits
