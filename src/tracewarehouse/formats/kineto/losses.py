"""What was lost of a file, and where its text was repaired."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracewarehouse.formats.base import Loss, Status


@dataclass
class Losses:
    """Collects losses while a file is read; repairs of one kind become one line with a count."""

    shift: int = 0
    damaged: bool = False
    losses: list[Loss] = field(default_factory=list)
    repairs: dict[str, tuple[int, int]] = field(default_factory=dict)

    def repair(self, at: int, reason: str) -> None:
        """A place where the text was repaired and nothing lost."""
        first, count = self.repairs.get(reason, (at, 0))
        self.repairs[reason] = first, count + 1

    def lose(self, start: int, end: int, events: int | None, reason: str, *, damaged: bool = True) -> None:
        """Bytes that could not be saved."""
        self.damaged = self.damaged or damaged
        self.losses.append(Loss(start + self.shift, end + self.shift, events, reason))

    @property
    def status(self) -> Status:
        """whole, repaired (every event is there, the text was repaired) or damaged (something is lost)."""
        if self.damaged:
            return "damaged"
        return "repaired" if self.losses or self.repairs else "intact"

    def all(self) -> tuple[Loss, ...]:
        """Everything, in file order."""
        repairs = [self._line(reason, *found) for reason, found in self.repairs.items()]
        return tuple(sorted([*self.losses, *repairs], key=lambda loss: (loss.byte_from, loss.byte_to)))

    def _line(self, reason: str, first: int, count: int) -> Loss:
        at = first + self.shift
        times = f" ({count} times, first at byte {at})" if count > 1 else ""
        return Loss(at, at, 0, reason + times)
