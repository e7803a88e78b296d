"""What a reader has to tell about a file: what was lost, and what was mended."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Loss:
    """Bytes that are in no event or header, or an empty range: a place that was mended.

    `events_lost` is None where it cannot be known. Bytes count in the decompressed text (UTF-16: in its
    UTF-8 form).
    """

    byte_from: int
    byte_to: int
    events_lost: int | None
    reason: str


@dataclass
class Findings:
    """Collects losses while a file is read; mends of one kind become one line with a count."""

    shift: int = 0
    damaged: bool = False
    losses: list[Loss] = field(default_factory=list)
    mends: dict[str, tuple[int, int]] = field(default_factory=dict)

    def mend(self, at: int, reason: str) -> None:
        """A place where the text was mended and nothing lost."""
        first, count = self.mends.get(reason, (at, 0))
        self.mends[reason] = first, count + 1

    def lose(self, start: int, end: int, events: int | None, reason: str, *, damaged: bool = True) -> None:
        """Bytes that could not be saved."""
        self.damaged = self.damaged or damaged
        self.losses.append(Loss(start + self.shift, end + self.shift, events, reason))

    @property
    def status(self) -> str:
        """whole, repaired (every event is there, the text needed mending) or damaged (something is lost)."""
        if self.damaged:
            return "damaged"
        return "repaired" if self.losses or self.mends else "whole"

    def told(self) -> tuple[Loss, ...]:
        """Everything, in file order."""
        mends = [self._line(reason, *found) for reason, found in self.mends.items()]
        return tuple(sorted([*self.losses, *mends], key=lambda loss: (loss.byte_from, loss.byte_to)))

    def _line(self, reason: str, first: int, count: int) -> Loss:
        at = first + self.shift
        times = f" ({count} times, first at byte {at})" if count > 1 else ""
        return Loss(at, at, 0, reason + times)
