"""Size of the stored data relative to its .json.gz."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from . import inputs
from .bench import Bench
from .ingest import ingest
from .model import Case, Row, Target, check

_LEAST_BYTES = 1_000_000
_LARGE_BYTES = 2_500_000  # about 55 MB of text
# The same ratio before tables were written by pyarrow.
_BEFORE = {
    "simulated": 0.616,
    "num_workers_0__worker0.1623143089861": 0.655,
    "num_workers_0__worker0.1623143566756": 0.661,
    "num_workers_4__worker0.1623212756351": 0.716,
    "num_workers_4__worker0.1623213129365": 0.68,
    "v100_df_index_resolver_rank1of2": 0.666,
    "sglang_decode__capture_bs_32_rank0": 0.531,
    "vllm_decode_full__graph_capture_rank_0": 0.509,
    "xdit_flux": 0.609,
    "linear_kineto": 0.509,
    "control": 0.727,
    "test": 0.798,
}


def stored(bench: Bench) -> Iterator[Row]:
    """All tables over the .json.gz, for files of 1 MB and more; simulated ones at the default gzip level."""
    made = inputs.simulated(bench, "one").files[0]
    zipped = bench.houses / "simulated.json.gz"
    large = []
    for path in [made if bench.smoke else inputs.default_level(made, zipped), *_real(bench)]:
        is_large = path.stat().st_size >= _LARGE_BYTES
        row = _row(bench, [path], path.name.partition(".")[0], Target(0.64 if is_large else 0.8))
        yield row
        if is_large and row.median is not None:
            large.append(row.median)
        before = next((size for name, size in _BEFORE.items() if path.name.startswith(name)), None)
        if before is not None and row.median is not None and not bench.smoke:
            yield Row("size", f"{row.what}: over before", Target(1.1), (row.median / before,), "×")
    if large:
        yield Row("size", f"median of {len(large)} large files", Target(0.58, aim=0.45), tuple(large), "×")
    ranks = inputs.simulated(bench, "small-run").files
    copies = [inputs.default_level(path, bench.houses / path.name) for path in ranks]
    yield _row(bench, copies, f"{len(copies)} small ranks of a simulated run", Target(0.6, aim=0.4))


def _real(bench: Bench) -> list[Path]:
    if bench.traces is None or bench.smoke:
        return []
    found = sorted(bench.traces.rglob("*.json.gz"))
    return [path for path in found if path.stat().st_size >= _LEAST_BYTES and "rocprof" not in path.name]


def _row(bench: Bench, paths: Sequence[Path], name: str, target: Target) -> Row:
    run = ingest(bench, paths, lambda stored: check(stored["events"] > 0, "no events"), shell=False)
    tables, gz = run.answer["bytes"], sum(path.stat().st_size for path in paths)
    total, events = sum(tables.values()), run.answer["events"]
    largest = sorted(tables, key=lambda table: -tables[table])[:3]
    sides = {
        "per event": f"{total / events:.1f} bytes, gz {gz / events:.1f}",
        "largest": ", ".join(f"{table} {tables[table] / total:.0%}" for table in largest),
    }
    return Row("size", f"{name}, {gz / 1e6:.1f} MB gz", target, (total / gz,), "×", sides)


CASES = (Case("size", "stored bytes of all tables over the .json.gz", stored),)
