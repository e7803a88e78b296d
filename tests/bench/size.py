"""Size of the stored data relative to its .json.gz."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from . import inputs
from .bench import Bench
from .ingest import ingest
from .model import Case, Row, Target, check

_LEAST_BYTES = 1_000_000
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
    for path in [made if bench.smoke else inputs.default_level(made, zipped), *_real(bench)]:
        row = _row(bench, path)
        yield row
        before = next((size for name, size in _BEFORE.items() if path.name.startswith(name)), None)
        if before is not None and row.median is not None and not bench.smoke:
            yield Row("size", f"{row.what}: over before", Target(1.1), (row.median / before,), "×")


def _real(bench: Bench) -> list[Path]:
    if bench.traces is None or bench.smoke:
        return []
    found = sorted(bench.traces.rglob("*.json.gz"))
    return [path for path in found if path.stat().st_size >= _LEAST_BYTES and "rocprof" not in path.name]


def _row(bench: Bench, path: Path) -> Row:
    run = ingest(bench, [path], lambda stored: check(stored["events"] > 0, "no events"), shell=False)
    tables, gz = run.answer["bytes"], path.stat().st_size
    total, events = sum(tables.values()), run.answer["events"]
    largest = sorted(tables, key=lambda table: -tables[table])[:3]
    sides = {
        "per event": f"{total / events:.1f} bytes, gz {gz / events:.1f}",
        "largest": ", ".join(f"{table} {tables[table] / total:.0%}" for table in largest),
    }
    name = path.name.partition(".")[0]
    return Row("size", f"{name}, {gz / 1e6:.1f} MB gz", Target(0.8, aim=0.65), (total / gz,), "×", sides)


CASES = (Case("size", "stored bytes of all tables over the .json.gz", stored),)
