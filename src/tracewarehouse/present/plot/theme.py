"""What all charts share: colors per category, units, three-digit numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from tracewarehouse.display_names import category

# Category: color on a light and on a dark page, distinguishable also for color-blind readers. Communication
# is yellow (waiting), brown (transfer) or orange (not divided); idle time without a remedy is gray.
COLORS: Mapping[str, tuple[str, str]] = {
    "compute": ("#2451a8", "#5f90ee"),
    "exposed_comm": ("#f89606", "#f39909"),
    "exposed_wait": ("#ffe577", "#5b4302"),
    "exposed_transfer": ("#762f03", "#fbe48f"),
    "exposed_unassigned": ("#f89606", "#f39909"),
    "hidden_comm": ("#6a6a91", "#3f6791"),
    "comm_wait": ("#ffe577", "#5b4302"),
    "exposed_memory": ("#308b68", "#7bca9a"),
    "other": ("#81daff", "#adf1ff"),
    "idle_host": ("#e03c0a", "#df4d28"),
    "idle_dataloader": ("#4f0748", "#bc6aa8"),
    "idle_sync": ("#c990c2", "#cea0cc"),
    "idle_call": ("#fdb197", "#90492f"),
    "idle_latency": ("#939596", "#777c81"),
    "idle_queued": ("#4b4d4f", "#c3ccd4"),
    "idle_graph": ("#766a9f", "#5b62a1"),
    "idle_unknown": ("#c1c7d1", "#4a545d"),
    "idle_outside": ("#e6ecf1", "#313336"),
    "idle": ("#939596", "#777c81"),
    "longer": ("#b3123f", "#ff7a98"),
    "shorter": ("#157f8c", "#86e6f0"),
    "base": ("#929ba8", "#7f8a99"),
    "head": ("#3f4c5d", "#dbe3ec"),
    "plain": ("#53647a", "#a9b8cb"),
}
PAGE_COLORS: Mapping[str, tuple[str, str]] = {
    "ink": ("#1b2530", "#e8edf2"),
    "soft": ("#5b6673", "#a3aeba"),
    "line": ("#d9dee4", "#36404b"),
    "paper": ("#ffffff", "#151b22"),
}


def color_key(name: str) -> str:
    """The key in `COLORS` of a column, kernel kind or idle cause; `plain` if it has no color."""
    key = category(name)
    return key if key in COLORS else "plain"


def css() -> str:
    """The CSS variables of a page, for light, dark and print."""
    light, dark = (
        "".join(f"--{name}:{pair[at]};" for name, pair in {**PAGE_COLORS, **COLORS}.items()) for at in (0, 1)
    )
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
        f"@media print{{:root:root{{color-scheme:light;{light}}}}}\n"
    )


_UNIT_STEPS: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")),
    "ts": ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")),
    "bytes": ((1, "B"), (1024, "KiB"), (1024**2, "MiB"), (1024**3, "GiB"), (1024**4, "TiB")),
    "ratio": ((0.01, "%"),),
    "bytes_per_ns": ((1, "GB/s"),),
}


class Scale(Struct, frozen=True):
    """One unit for all values of a chart: divide a value by `divisor` to get it in `unit`."""

    divisor: float
    unit: str

    @classmethod
    def of(cls, values: Iterable[float], unit: str | None) -> Scale:
        """The largest unit in which the largest value is at least 1."""
        steps = _UNIT_STEPS.get(unit or "", ((1.0, ""),))
        top = max((abs(value) for value in values), default=0.0)
        divisor, name = next((step for step in reversed(steps) if top >= step[0]), steps[0])
        return cls(divisor, name)

    def axis_title(self, quantity: str) -> str:
        """`step time (ms)`."""
        return f"{quantity} ({self.unit})" if self.unit else quantity


def format_short(value: float, unit: str | None = None) -> str:
    """A value in three significant digits, as `12.3 ms`; a count in full."""
    if unit not in _UNIT_STEPS:
        return f"{value:,}" if isinstance(value, int) else _three_digits(value)
    scale = Scale.of([value], unit)
    if scale.divisor > 1 and round(abs(value) / scale.divisor) >= 1000 and unit == "ns" and scale.unit != "s":
        scale = Scale.of([value * 1.001], unit)
    return f"{_three_digits(value / scale.divisor)} {scale.unit}"


def _three_digits(value: float) -> str:
    """Three significant digits with thousands separators; an integer has no decimals."""
    magnitude = abs(value)
    if magnitude >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}" if magnitude >= 0.095 else f"{value:.2g}"
