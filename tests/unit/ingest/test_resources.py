"""Small ranks are built again without workers."""

from __future__ import annotations

import pytest

from tracewarehouse.ingest import resources


def test_small_ranks_are_built_again_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "cores", lambda: 4)
    assert resources.rebuild_jobs([]) == resources.rebuild_jobs([1 << 20] * 8) == 1
    assert resources.rebuild_jobs([20 << 20, 20 << 20]) == 2
    assert resources.rebuild_jobs([20 << 20] * 8) == 4
