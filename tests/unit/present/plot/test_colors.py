"""Colors of charts: categories that appear together differ, also for color-blind readers; text is legible."""

from __future__ import annotations

import math
from itertools import combinations

import pytest

from tracewarehouse.display_names import CATEGORIES, EXPOSED
from tracewarehouse.present.plot.parts import COLORS, PAGE_COLORS

Color = tuple[float, float, float]
# Linear RGB as seen with normal sight and without one kind of cone (Machado, Oliveira and Fernandes, 2009).
SIGHT: dict[str, tuple[Color, Color, Color]] = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
BUSY = ("compute", "exposed_wait", "exposed_transfer", "exposed_comm", "exposed_memory", "other")
IDLE = tuple(name for name in CATEGORIES if name.startswith("idle_"))
# What appears together in one chart, and the least distance (in hundredths of OKLab) of any two of them.
TOGETHER = [
    ((*BUSY, "idle_host", "idle_dataloader"), 11.0),
    ((*BUSY, *IDLE), 6.0),
    (("compute", "exposed_comm", "hidden_comm", "exposed_memory"), 7.0),
    (("longer", "shorter"), 11.0),
    (("base", "head"), 20.0),
]


def linear(color: str) -> Color:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return red, green, blue


def seen(color: str, sight: str) -> Color:
    """The color in OKLab, as seen with this sight."""
    rgb = linear(color)
    red, green, blue = (
        min(1.0, max(0.0, sum(factor * each for factor, each in zip(row, rgb, strict=True))))
        for row in SIGHT[sight]
    )
    long, medium, short = (
        (a * red + b * green + c * blue) ** (1 / 3)
        for a, b, c in (
            (0.4122214708, 0.5363325363, 0.0514459929),
            (0.2119034982, 0.6806995451, 0.1073969566),
            (0.0883024619, 0.2817188376, 0.6299787005),
        )
    )
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG."""
    light, dark = sorted(
        (0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in map(linear, (one, other))),
        reverse=True,
    )
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colors_that_appear_together_differ(theme: int, sight: str) -> None:
    for names, least in TOGETHER:
        for one, other in combinations(names, 2):
            distance = 100 * math.dist(*(seen(COLORS[name][theme], sight) for name in (one, other)))
            assert distance >= least, (one, other, distance)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_and_the_colors_of_alarms_are_legible(theme: int) -> None:
    paper = PAGE_COLORS["paper"][theme]
    for name in ("ink", "soft"):
        assert contrast(PAGE_COLORS[name][theme], paper) >= 4.5
    for name in ("longer", "shorter"):
        assert contrast(COLORS[name][theme], paper) >= 4.5
    for name in ("compute", "exposed_memory", "idle_host", "idle_dataloader", "plain", "head"):
        assert contrast(COLORS[name][theme], paper) >= 3, name


def test_parts_of_communication_have_three_colors_and_their_sum_one_of_them() -> None:
    wait, transfer, undivided = (COLORS[name] for name in EXPOSED)
    assert len({wait, transfer, undivided}) == 3
    assert undivided == COLORS["exposed_comm"] and wait == COLORS["comm_wait"]
