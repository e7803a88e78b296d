"""Huge pages are disabled during an ingest only; small ranks are built again without workers."""

from __future__ import annotations

import ctypes
import sys

import pytest

from tracewarehouse.ingest import resources
from tracewarehouse.ingest.resources import no_huge_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the setting is Linux's")


def disabled() -> bool:
    return bool(ctypes.CDLL(None).prctl(42, 0, 0, 0, 0))  # PR_GET_THP_DISABLE


def test_the_setting_stays_until_the_last_ingest_ends() -> None:
    before = disabled()
    first, second = no_huge_pages(), no_huge_pages()
    with first:
        with second:
            assert disabled()
        assert disabled()
    assert disabled() == before


def test_it_ends_with_an_error() -> None:
    before = disabled()
    with pytest.raises(ValueError, match="broken"), no_huge_pages():
        raise ValueError("broken")
    assert disabled() == before


def test_a_process_without_huge_pages_stays_so() -> None:
    prctl = ctypes.CDLL(None).prctl
    before = prctl(42, 0, 0, 0, 0)
    prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE
    try:
        with no_huge_pages():
            assert disabled()
        assert disabled()
    finally:
        prctl(41, before, 0, 0, 0)


def test_small_ranks_are_built_again_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "cores", lambda: 4)
    assert resources.rebuild_jobs([]) == resources.rebuild_jobs([1 << 20] * 8) == 1
    assert resources.rebuild_jobs([20 << 20, 20 << 20]) == 2
    assert resources.rebuild_jobs([20 << 20] * 8) == 4
