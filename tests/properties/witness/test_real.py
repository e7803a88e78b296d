"""The basic analyses on real traces, compared with plain Python over the JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracewarehouse as tw
from conftest import real_traces
from witness import answers
from witness.trace import Trace, read

QUICK = (
    "hta-singles/a100_nccl_pg_config_rank0of2.json.gz",
    "hta-singles/a100_critical_path_alexnet.json.gz",
    "amd-misc/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "odd/kineto_gpu_metrics_input.json",
)
DEEP = (
    "hta-singles/v100_df_index_resolver_rank1of2.json.gz",
    "trace-diff-hta/control.json.gz",
    "trace-diff-hta/test.json.gz",
    "amd-misc/mi300_ddp_resnet18_no_pool.json.gz",
    "batchsize-sweep-a100/bs512__hmoss-6a49xb_1988833.1733770537022695153.pt.trace.json.gz",
    "before-after-resnet50-v100/num_workers_4__worker0.1623213129365.pt.trace.json.gz",
    "h100-vs-mi300-hf/h100_qwen1.5-0.5b-chat.json.gz",
    "h100-vs-mi300-hf/mi300_bert-small.json.gz",
    "inference-graphs-mi300/sglang_decode__Qwen3-8B_decode.json.gz",
    "inference-graphs-mi300/vllm_decode_full__graph_execution.json.gz",
    "inference-graphs-mi300/xdit_flux.1__capture_trace_rank_0.json.gz",
    "linear-2080ti/linear_kineto.json.gz",
    "multirank-dlrm-v100-8r/worker1_step_12.1694128201556.pt.trace.json.gz",
)


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.deep) for name in DEEP)])
def test_analyses_equal_plain_python(name: str, tmp_path: Path) -> None:
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces here")
    warehouse, trace = tw.open(tmp_path / "warehouse"), read(folder / name)
    warehouse.ingest(folder / name, run="real")
    compare(warehouse, trace)


def compare(warehouse: tw.Warehouse, trace: Trace) -> None:
    """Every number of five analyses."""
    split = answers.breakdown_by_unions(trace)
    agree(warehouse, "temporal_breakdown", ("device",), split)
    agree(warehouse, "comm_comp_overlap", ("device",), split)
    agree(warehouse, "kernel_summary", ("device", "kind", "name"), answers.kernel_summary(trace))
    agree(warehouse, "launch_stats", ("kernel_id",), answers.launch_stats(trace))
    agree(warehouse, "coverage", ("device",), answers.launch_coverage(trace))


def agree(warehouse: tw.Warehouse, analysis: str, grain: tuple[str, ...], wanted: list[answers.Row]) -> None:
    """Common columns are equal in every row."""
    found = answers.by_grain(warehouse.analyze(analysis).rows(), grain)
    said = answers.by_grain(wanted, grain)
    assert found.keys() == said.keys()
    for key, row in said.items():
        both = row.keys() & found[key].keys()
        assert len(both) > len(grain)
        wrong = [name for name in both if not answers.same(found[key][name], row[name])]
        assert not wrong, (analysis, key, found[key], row)
