"""Real traces, if available: each folder at once, each file alone, with the right runs and ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from conftest import real_traces
from ingesting import only, seen, take
from tracewarehouse.ingest.outcome import FileOutcome, IngestReport
from tracewarehouse.storage.store import Store

TRACES = real_traces()
pytestmark = pytest.mark.skipif(TRACES is None, reason="the real traces are not here")
QUICK = ("h100-stack-memory", "mtia")

# Folder → run → ranks. Folders with only other formats have none.
EXPECTED: dict[str, dict[str, tuple[int, ...]]] = {
    "amd-misc": dict.fromkeys(
        (
            "mi210_gpu_only_trace",
            "mi250_minitoy_train_ROCm6_2_kineto",
            "mi300_ddp_resnet18_no_pool",
            "mi300_normalization_layer_test",
            "mi300_torch_compile_triton",
            "mi350x_smci350_200691",
            "rocprofv3_908_results",
        ),
        (0,),
    ),
    "ascend": {"trace_view": (0,)},
    "batchsize-sweep-a100": {
        **{f"bs16__hmoss-6a49xb_1984753~{span}": (0,) for span in (1, 2, 3)},
        "bs2__hmoss-6a49xb_1981897": (0,),
        "bs512__hmoss-6a49xb_1988833": (0,),
        "gpu_working_chrome_trace": (0,),
    },
    "before-after-resnet50-v100": {
        f"num_workers_{workers}~{span}": (0,) for workers in (0, 4) for span in (1, 2)
    },
    "et-dlrm-8r": {f"dlrm_eg_{rank}": (0,) for rank in range(8)},
    "et-misc": {"chakra_1.0.2-chakra.0.0.4": (0,)},
    "h100-stack-memory": {f"dcb0aa1a78e7_4399~{span}": (0,) for span in (1, 2)},
    "h100-vs-mi300-hf": {
        f"{device}_{model}": (0,)
        for device in ("h100", "mi300")
        for model in ("bert-small", "qwen1.5-0.5b-chat")
    },
    "hta-singles": {
        **{
            f"a100_{name}": (0,)
            for name in (
                "critical_path_alexnet",
                "critical_path_simple_add",
                "cupti_profiler_range",
                "et_benchmark_simple_add_et",
                "et_benchmark_simple_add_trace",
                "event_sync",
                "event_sync_multi_stream",
                "nccl_pg_config",
                "overlaid_critical_path",
                "triton_example",
            )
        },
        "v100_df_index_resolver": (1,),
    },
    "inference-graphs-mi300": dict.fromkeys(
        (
            "sglang_decode__Qwen3-8B_decode",
            "sglang_decode__capture_bs_32",
            "vllm_decode_full__graph_capture",
            "vllm_decode_full__graph_execution",
            "xdit_flux.1__capture_trace",
        ),
        (0,),
    ),
    "linear-2080ti": {"linear_kineto": (0,)},
    "memory-snapshot": {"mosaic_output": (0,)},
    "mtia": {"mtia_inference": (0,)},
    "multirank-broken-derived": {"multirank-broken-derived": (0, 1, 3)},
    "multirank-dlrm-v100-8r": {"multirank-dlrm-v100-8r": tuple(range(8))},
    "multirank-gloo-cpu-4r": {"multirank-gloo-cpu-4r": tuple(range(4))},
    "nsys-sqlite-before-after": {f"mfu_2gpu_{name}": (0, 1) for name in ("after", "before")},
    "odd": {
        **dict.fromkeys(
            (
                "call_stack_backward_thread",
                "distributed_info_not_found",
                "kineto_gpu_metrics_expected",
                "kineto_gpu_metrics_input",
                "rank_non_gpu",
                "rank_not_found",
                "rpd_matmul_result",
                "zoology_a100_lost_gpu_events",
            ),
            (0,),
        ),
        **dict.fromkeys(("old_inference", "trace_compare_base", "trace_compare_test"), (1,)),
        "cpu_only": (34,),
    },
    "trace-diff-hta": {"control": (3,), "test": (1,)},
}
OTHER_FORMATS = ("amd-misc", "nsys-sqlite-before-after")
NOT_WHOLE = {"multirank-broken-derived": 4, "linear-2080ti": 4}
NO_EVENTS = ("memory-snapshot", "et-dlrm-8r", "et-misc")
# Files that add tables to a rank or have none of Chrome's events.
OTHER_FILES = re.compile(r"_et\.|_eg_|^chakra|rocprof|memory_timeline|\.pickle")


def folders(names: Iterable[str]) -> list[object]:
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.deep) for name in names]


def manifest() -> dict[tuple[str, str], int]:
    """Folder and file → number of events, counted by other tools."""
    assert TRACES is not None
    counts, folder = {}, ""
    for line in (TRACES / "MANIFEST.md").read_text().splitlines():
        if line.startswith("## "):
            folder = line[3:].strip()
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 4 and re.fullmatch(r"[0-9,]+", cells[4]):
            counts[folder, cells[1]] = int(cells[4].replace(",", ""))
    return counts


def place(file: FileOutcome) -> tuple[str, int]:
    assert file.run is not None and file.rank is not None
    return file.run, file.rank


def rows(root: Path) -> dict[tuple[object, object], object]:
    found = seen(
        root, "SELECT run_id, rank, count(*), max(event_id) + 1, min(event_id) FROM events GROUP BY ALL"
    )
    assert all((first, last) == (0, count) for _, _, count, last, first in found)
    return {(run, rank): count for run, rank, count, _, _ in found}


@pytest.mark.parametrize("name", folders(sorted(EXPECTED)))
def test_each_folder_at_once(tmp_path: Path, name: str) -> None:
    assert TRACES is not None
    report = take(tmp_path / "wh", TRACES / name)
    assert report.exit_code == NOT_WHOLE.get(name, 0)
    store = Store.open_or_create(tmp_path / "wh")
    assert {run: version.ranks for run in store.runs() if (version := store.newest(run))} == EXPECTED[name]
    if name in NO_EVENTS:
        return
    counts = manifest()
    found = rows(tmp_path / "wh")
    stored = [file for file in report.stored if not re.search(r"_et\.", file.path.name)]
    assert found.keys() == {place(file) for file in stored}
    # Others counted the events of Chrome JSON only.
    counted = [file for file in stored if (name, file.path.name) in counts]
    assert all(found[place(file)] == counts[name, file.path.name] for file in counted)
    assert len(counted) == len(stored) or name in OTHER_FORMATS
    assert store.verify() == []
    again = take(tmp_path / "wh", TRACES / name)
    assert {file.state for file in again.files} <= {"same", "skipped", "refused"}
    assert not any(run.written for run in again.runs)


def traces_of(name: str) -> list[Path]:
    assert TRACES is not None
    counts = manifest()
    return sorted(
        path
        for path in (TRACES / name).iterdir()
        if (name, path.name) in counts and not OTHER_FILES.search(path.name)
    )


@pytest.mark.parametrize(
    "name", folders([name for name in EXPECTED if EXPECTED[name] and not name.startswith("nsys")])
)
def test_each_file_alone(tmp_path: Path, name: str) -> None:
    counts, runs = manifest(), {run.partition("~")[0] for run in EXPECTED[name]}
    for path in traces_of(name):
        root = tmp_path / path.name
        file = only(take(root, path))
        assert file.state == "intact" and file.run in runs, path
        assert rows(root) == {place(file): counts[name, path.name]}


def test_the_folder_with_broken_ranks(tmp_path: Path) -> None:
    assert TRACES is not None
    folder = TRACES / "multirank-broken-derived"
    report: IngestReport = take(tmp_path / "wh", folder)
    assert report.exit_code == 4
    assert {file.path.name: (file.state, file.rank) for file in report.files} == {
        "rank0.json.gz": ("intact", 0),
        "rank1.json.gz": ("intact", 1),
        "rank2.json.gz": ("refused", 0),
        "rank3.json.gz": ("intact", 3),
        "EXPECT.json": ("skipped", None),
    }
    refused = report.of("refused")[0]
    assert refused.reason == "rank 0 of run multirank-broken-derived is already assigned to rank0.json.gz"
    assert refused.hint is not None and refused.hint.startswith("ingest this file alone with rank=2")
    assert dict(report.runs[0].rules)["world_size_differs"].startswith("rank 3: world size 16")
    hinted = take(tmp_path / "wh", folder / "rank2.json.gz", rank=2)
    assert hinted.exit_code == 0
    assert take(tmp_path / "wh", folder).exit_code == 0


@pytest.mark.deep
def test_the_odd_files(tmp_path: Path) -> None:
    assert TRACES is not None
    folder = TRACES / "odd-derived"
    expected = json.loads((folder / "EXPECT.json").read_text())["files"]
    report = take(tmp_path / "wh", folder)
    assert report.exit_code == 4
    files = {file.path.name: file for file in report.files}
    del files["EXPECT.json"]
    assert set(files) == set(expected)
    not_stored = {file.path.name: file.state for file in report.of("refused", "skipped")}
    refused = dict.fromkeys(
        ("empty.json", "empty.json.gz", "html_error.json.gz", "null_events.json"), "refused"
    )
    assert not_stored == {"EXPECT.json": "skipped", "no_events.json": "skipped", **refused}
    cut = {"truncated_gzip.json.gz", "truncated_json.json.gz", "no_tail.json"}
    assert {file.path.name for file in report.of("damaged")} == cut
    counted = rows(tmp_path / "wh")
    for name, file in files.items():
        if file.content is None:
            continue
        assert counted[place(file)] == file.content.events
        if name == "truncated_gzip.json.gz":
            assert 0 < file.content.events < expected[name]["events_total"]
            continue
        requested = expected[name]
        assert file.content.events == requested.get("complete_events", requested["events_total"]), name
        assert file.content.non_events == requested.get("non_events", 0), name
