"""Kernels of torch.compile in real traces: all of them, with their operators and files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tracewarehouse as tw
from conftest import real_traces

TRACES = real_traces()
pytestmark = pytest.mark.skipif(TRACES is None, reason="needs the real traces")
COMPILED = {
    "amd-misc/mi300_torch_compile_triton.json.gz": {
        "triton_red_fused_add_mean_mul_pow_rsqrt_0": "add, mean, mul, pow, rsqrt",
        "triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_1": "_unsafe_view, add, mean, mul, pow, rsqrt",
        "triton_poi_fused__unsafe_view_mul_silu_2": "_unsafe_view, mul, silu",
        "triton_poi_fused__unsafe_view_add_3": "_unsafe_view, add",
    },
    "hta-singles/a100_triton_example.json.gz": {"triton_poi_fused_add_cos_sin_0": "add, cos, sin"},
}


def test_compiled_kernels_have_operators_and_files(tmp_path: Path) -> None:
    assert TRACES is not None
    wh = tw.open(tmp_path / "warehouse")
    for number, (file, wanted) in enumerate(COMPILED.items()):
        wh.ingest(TRACES / file, run=f"run{number}")
        rows = wh.select(f"run{number}").compiled_kernels().rows()
        assert {row["name"]: row["source_ops"] for row in rows} == wanted
        assert all(row["kernel_file"].endswith(f"{row['kernel_hash']}.py") for row in rows)
        assert {row["source_evidence"] for row in rows} == {"from the kernel's name"}
        names = [row["name"] for row in wh.select(f"run{number}").query("SELECT name FROM kernels").rows()]
        assert sum(row["count"] for row in rows) == sum(bool(re.match("triton_", name)) for name in names)
