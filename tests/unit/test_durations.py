"""Durations: every unit, exact numbers, and texts that are not durations."""

from __future__ import annotations

import pytest

from tracewarehouse.exact_text import UNITS_NS, age_ns, trace_time_ns


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("30000", 30_000),
        ("1_000", 1_000),
        ("30us", 30_000),
        ("30 µs", 30_000),
        ("1.5us", 1_500),
        ("-2ms", -2_000_000),
        ("+2s", 2 * 10**9),
        ("0.000000001s", 1),
        ("9223372036.854775807s", 2**63 - 1),
        ("2min", 120 * 10**9),
        ("1h", 3_600 * 10**9),
    ],
)
def test_trace_times_are_exact(text: str, ns: int) -> None:
    assert trace_time_ns(text) == ns


@pytest.mark.parametrize(
    "text", ["", "us", "1.5", "1.5ns", "5m", "2d", "1e3", "\u0663s", "1 0", "1us2", "9" * 50]
)
def test_invalid_trace_times_are_rejected(text: str) -> None:
    assert trace_time_ns(text) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1.5s", 1.5), ("30m", 1_800), ("30min", 1_800), ("12h", 43_200)]
    + [("90d", 7_776_000), ("2w", 1_209_600), (" 2 w ", 1_209_600)],
)
def test_ages_have_units_up_to_weeks(text: str, seconds: float) -> None:
    assert age_ns(text) == seconds * 10**9


def test_ages_need_a_unit_unless_there_is_a_default() -> None:
    assert age_ns("30") is None
    assert age_ns("30", default_unit="s") == 30 * 10**9


@pytest.mark.parametrize("text", ["", "-1d", "soon", "5ms", "1y", "d"])
def test_invalid_ages_are_rejected(text: str) -> None:
    assert age_ns(text) is None


def test_m_means_minutes() -> None:
    assert UNITS_NS["m"] == UNITS_NS["min"]
