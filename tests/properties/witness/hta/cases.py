"""The traces that both are run on: every Kineto file of the real traces, alone, as sets, as pairs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

OTHER_FORMATS = {
    "et-dlrm-8r/*": "execution traces, not profiler traces",
    "et-misc/*": "execution traces, not profiler traces",
    "hta-singles/a100_et_benchmark_simple_add_et.json.gz": "an execution trace",
    "linear-2080ti/linear_et.json.gz": "an execution trace",
    "multirank-gloo-cpu-4r/rank0_et.json.gz": "an execution trace",
    "amd-misc/rocprofv3_908_results.json.gz": "rocprofv3's own JSON",
    "hta-singles/memory_timeline.raw.json.gz": "a raw memory timeline: see MemoryAnalysis",
    "pytorch-cpu/*.memory.raw.json.gz": "a raw memory timeline",
    "pytorch-cpu/key_averages.json.gz": "the profiler's own table",
    "pytorch-cpu/nccl_trace_rank_*": "a dump of the flight recorder",
    "*/EXPECT.json": "what a derived set expects",
}
SETS = ("multirank-dlrm-v100-8r", "multirank-gloo-cpu-4r", "multirank-broken-derived")
PAIRS = {
    "trace-diff-hta": ("trace-diff-hta/control.json.gz", "trace-diff-hta/test.json.gz"),
    "odd/trace_compare": ("odd/trace_compare_base.json.gz", "odd/trace_compare_test.json.gz"),
    "before-after-resnet50-v100": (
        "before-after-resnet50-v100/num_workers_0__worker0.1623143089861.pt.trace.json.gz",
        "before-after-resnet50-v100/num_workers_4__worker0.1623212756351.pt.trace.json.gz",
    ),
    "h100-vs-mi300-hf/bert": (
        "h100-vs-mi300-hf/h100_bert-small.json.gz",
        "h100-vs-mi300-hf/mi300_bert-small.json.gz",
    ),
    "nccl-vs-df_index": (
        "hta-singles/a100_nccl_pg_config_rank0of2.json.gz",
        "hta-singles/v100_df_index_resolver_rank1of2.json.gz",
    ),
}
TIMELINE = "hta-singles/memory_timeline.raw.json.gz"


@dataclass(frozen=True)
class Case:
    """A trace of one or several ranks: its name, its files, and the run that holds it."""

    name: str
    files: tuple[Path, ...]

    @property
    def run(self) -> str:
        """The name as that of a run."""
        return self.name.replace("/", ".").replace("~", "-")[-120:].lstrip(".-")


def other_format(folder: Path, path: Path) -> str | None:
    """Why a file is not a case; None if it is one."""
    shown = path.relative_to(folder)
    return next((why for pattern, why in OTHER_FORMATS.items() if shown.match(pattern)), None)


def cases(folder: Path) -> list[Case]:
    """Every file alone, but for those of a set, which are one case together; small ones first."""
    found = []
    for path in sorted(folder.glob("*/*")):
        ours = path.name.endswith((".json", ".json.gz"))
        if ours and path.parent.name not in SETS and other_format(folder, path) is None:
            found.append(Case(str(path.relative_to(folder)), (path,)))
    found += [Case(name, _files_of(folder, name)) for name in SETS]
    return sorted(found, key=lambda case: sum(path.stat().st_size for path in case.files))


def left_out(folder: Path) -> dict[str, str]:
    """Files that are no case, with the reason."""
    found = {}
    for path in sorted(folder.glob("*/*")):
        why = other_format(folder, path)
        if why is None and not path.name.endswith((".json", ".json.gz")):
            why = "not JSON"
        if why:
            found[str(path.relative_to(folder))] = why
    return found


def _files_of(folder: Path, name: str) -> tuple[Path, ...]:
    found = sorted((folder / name).glob("*.json.gz"))
    return tuple(path for path in found if other_format(folder, path) is None)
