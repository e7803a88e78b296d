"""Numbers on axes and in labels: one unit for a whole picture, three digits for a reader."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_STEPS: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")),
    "bytes": ((1, "B"), (1024, "KiB"), (1024**2, "MiB"), (1024**3, "GiB"), (1024**4, "TiB")),
    "ratio": ((0.01, "%"),),
    "bytes_per_ns": ((1, "GB/s"),),
}
_ALIKE = {"ts": "ns"}


@dataclass(frozen=True)
class Scale:
    """A unit for all values of a picture: value / `by` is so many `name`."""

    by: float
    name: str

    @classmethod
    def of(cls, values: Iterable[float], unit: str | None) -> Scale:
        """The largest unit in which the largest value is at least 1."""
        steps = _STEPS.get(_ALIKE.get(unit or "", unit or ""), ((1.0, ""),))
        top = max((abs(value) for value in values), default=0.0)
        by, name = next((step for step in reversed(steps) if top >= step[0]), steps[0])
        return cls(by, name)

    def title(self, what: str) -> str:
        """`step time, ms`."""
        return f"{what}, {self.name}" if self.name else what


def brief(value: float, unit: str | None = None) -> str:
    """A value in three digits, `12.3 ms`; a count in full."""
    if unit not in _STEPS and _ALIKE.get(unit or "") is None:
        return f"{value:,}" if isinstance(value, int) else _digits(value)
    scale = Scale.of([value], unit)
    if scale.by > 1 and round(abs(value) / scale.by) >= 1000 and unit == "ns" and scale.name != "s":
        scale = Scale.of([value * 1.001], unit)
    text = _digits(value / scale.by)
    return f"{text} {scale.name}"


def _digits(value: float) -> str:
    """Three digits that count, thousands apart, no zeros at the end of a whole number."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.095 else f"{value:.2g}"
