"""HTA 0.6.1's critical paths, got back from ours.

HTA looks for the longest path where nothing between operators takes time, and calls that block cost nothing
themselves. With those parts scaled to 0 our path is as long as HTA's, to the us that its traces have. What is
left apart, and why, stands beside the number.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import tracewarehouse as tw
from conftest import real_traces

TRACES = real_traces()
pytestmark = pytest.mark.skipif(TRACES is None, reason="needs the real traces")

AS_HTA = [
    "host_gap=0",  # between operators
    *(f"host[name={name}]=0" for name in ("*Synchronize", "cudaMemcpyAsync", "cudaEventQuery")),
    "sync=0",  # the way back to the host
]
FORWARD = "[param|pytorch.model.alex_net|0|0|0|measure|forward]#1"
# File, scope, what HTA gives in us, how far ours is from it.
PATHS = {
    "simple_add": ("critical_path_simple_add", {"annotations": FORWARD}, 241_724, 0),
    # A kernel starts 1 us after the one on another stream that it waited for: HTA's edge has no weight.
    "alexnet": ("critical_path_alexnet", {"annotations": FORWARD}, 35_834, 1),
    # A copy to pageable memory: of HTA all 29 us of the call, of us launch 18, copy 2, and a return of 9.
    "event_sync": ("event_sync", {}, 2_411, -9),
    "multi_stream": ("event_sync_multi_stream", {}, 1_178, 0),
}


@pytest.mark.parametrize("name", PATHS)
def test_lengths_are_those_of_hta(name: str, tmp_path: Path) -> None:
    file, scope, wanted, apart = PATHS[name]
    assert TRACES is not None
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(TRACES / "hta-singles" / f"a100_{file}.json.gz", run=name)
    rows = wh.whatif(name, AS_HTA, **scope).rows()  # type: ignore[arg-type]
    (length,) = [row["new_ns"] for row in rows if row["category"] == "length"]
    assert length == (wanted + apart) * 1000


def test_what_hta_s_path_of_alexnet_is_made_of(tmp_path: Path) -> None:
    file, scope, *_ = PATHS["alexnet"]
    assert TRACES is not None
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(TRACES / "hta-singles" / f"a100_{file}.json.gz", run="alexnet")
    found = {row["category"]: row["new_ns"] for row in wh.whatif("alexnet", AS_HTA, **scope).rows()}  # type: ignore[arg-type]
    assert found["host"] == 32_042_000  # cpu_bound
    assert found["computation"] + found["memory"] == 3_712_000  # gpu_compute_bound
    assert found["launch"] == 30_000  # gpu_kernel_launch_overhead
    assert found["kernel_gap"] == (50 + 1) * 1000  # gpu_kernel_kernel_overhead
