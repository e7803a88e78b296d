"""A trace of torch and files of NCCL's profiler plug-in of one process are one rank."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import real_traces
from simulated import SMALL
from tracewarehouse.ingest.outcome import IngestReport

Trace = dict[str, Any]
FOLDER = real_traces()
TYPES = {"BFloat16": "ncclBfloat16", "Float": "ncclFloat32", "Int": "ncclInt32", "Long": "ncclInt64"}
# A call of each names what the plug-in names another way.
NAMES = {
    "allreduce": "AllReduce", "broadcast": "Broadcast", "_allgather_base": "AllGather",
    "_reduce_scatter_base": "ReduceScatter", "send": "Send", "recv": "Recv",
}  # fmt: skip
KERNELS = "SELECT ts_ns, dur_ns, name, correlation, process_group, sequence, op_sig FROM kernels ORDER BY ALL"
LINKED = """
SELECT
  kernels.process_group, collectives.collective, collectives.in_elements,
  (events.args->>'SeqNum')::BIGINT AS number, events.args->>'CommHash' AS communicator
FROM events
JOIN kernels USING (run_id, rank, correlation)
JOIN collectives ON collectives.event_id = kernels.event_id AND collectives.run_id = kernels.run_id
WHERE events.name LIKE 'nccl::%' AND events.args->>'recorded by' = 'NCCL profiler plug-in'
ORDER BY kernels.ts_ns
"""


def trace_of(path: Path) -> Trace:
    found: Trace = json.loads(gzip.decompress(path.read_bytes()))
    return found


def messages(trace: Trace) -> list[dict[str, Any]]:
    kernels = [
        each for each in trace["traceEvents"] if each.get("cat") == "kernel" and "nccl" in each["name"]
    ]
    return sorted(kernels, key=lambda each: each["ts"])


def count_of(args: Mapping[str, Any]) -> int:
    small = args["Collective name"] == "_reduce_scatter_base"
    return int(args["Out msg nelems" if small else "In msg nelems"])


def recorded(
    trace: Trace, pid: int, *, earlier: int = 3, jitter_us: float = 5, seed: int = 0
) -> dict[str, Any]:
    """What the plug-in dumps of each process group: the trace, and earlier and later steps."""
    chance = random.Random(seed)
    found: dict[str, list[dict[str, Any]]] = {}
    kernels = messages(trace)
    first, length = kernels[0]["ts"], kernels[-1]["ts"] - kernels[0]["ts"] + 5_000
    numbers: Counter[tuple[str, str]] = Counter()
    ids: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for turn in range(-earlier, 2):
        for kernel in kernels:
            args, group = kernel["args"], kernel["args"]["Process Group Name"]
            events = found.setdefault(group, [])

            def event(
                phase: str, category: str, name: str, us: float, group: str = group,
                events: list[dict[str, Any]] = events, **given: Any,
            ) -> None:  # fmt: skip
                number = ids[group][f"{phase} {category}"]
                ids[group][f"{phase} {category}"] += 1
                one = {
                    "name": name,
                    "cat": category,
                    "ph": phase,
                    "id": number,
                    "pid": pid,
                    "tid": 1,
                    "ts": us,
                }
                events.append(one | ({"args": given} if given else {}))

            # Steps do not take exactly the same time.
            start = kernel["ts"] - first + turn * length + 10_000_000
            if turn:
                start += chance.uniform(0, 300)
            dur = kernel["dur"] * (chance.uniform(1, 1.2) if turn else 1)
            name = NAMES[args["Collective name"]]
            sequence = {"SeqNum": numbers[group, name]}
            numbers[group, name] += 1
            is_single = name in ("Send", "Recv")
            given = {"CommHash": 7_000 + sum(map(ord, group)), "Rank": 0, "Count": count_of(args),
                     "Datatype": TYPES[args["dtype"]]}  # fmt: skip
            more = {} if is_single else {"Algorithm": "RING", "Protocol": "LL"}
            category = "P2P" if is_single else "COLL"
            event("b", "GROUP_API", "Group API", start - 30)
            event(
                "b",
                category,
                name,
                start - 20,
                **({} if is_single else sequence),
                **given,
                **more,
                nChannels=2,
            )
            for channel in range(2):
                event("b", "GPU", "KernelCh", start + chance.uniform(0, jitter_us), Channel=channel)
                event("b", "PROXY", "ProgressSend", start + 1, Channel=channel, Peer=1)
                event("e", "PROXY", "ProgressSend", start + dur / 2)
                event("e", "GPU", "KernelCh", start + dur + chance.uniform(0, jitter_us))
            event("e", category, name, start + dur + 6)
            event("e", "GROUP_API", "Group API", start + dur + 7)
    return found


def write(folder: Path, trace: Trace, plugin: Mapping[str, Any]) -> None:
    folder.mkdir()
    (folder / "rank0.json").write_text(json.dumps(trace), encoding="utf-8")
    for group, events in plugin.items():
        path = folder / f"ncclprof_{group}_0.json"
        path.write_text(json.dumps([*events, {}]), encoding="utf-8")


def ingested(folder: Path, *paths: Path, **options: Any) -> tuple[tw.Warehouse, IngestReport]:
    warehouse = tw.open(folder.with_name("warehouse"))
    return warehouse, warehouse.ingest(paths or folder, jobs=1, **options)


def rows(warehouse: tw.Warehouse, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in warehouse.query(sql, limits=None).rows()]


def example(warehouse: tw.Warehouse, rule: str) -> str:
    ((text,),) = rows(warehouse, f"SELECT example FROM data_quality WHERE rule = '{rule}'")
    return str(text)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """A rank with several process groups."""
    folder = tmp_path_factory.mktemp("simulated")
    tw.simulate(folder, ranks=4, tensor=2, **SMALL | {"steps": 3})
    return trace_of(folder / "rank0.json.gz")


def pid_of(trace: Trace) -> int:
    return next(int(each["pid"]) for each in trace["traceEvents"] if each.get("cat") == "cpu_op")


def test_collectives_are_linked_with_kernels_by_communicator_and_sequence(
    tmp_path: Path, trace: Trace
) -> None:
    write(tmp_path / "run", trace, recorded(trace, pid_of(trace)))
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "rank0.json").write_text(json.dumps(trace), encoding="utf-8")
    alone = tw.open(tmp_path / "other")
    alone.ingest(tmp_path / "alone", run="run")
    warehouse, report = ingested(tmp_path / "run")
    assert {file.state for file in report.files} == {"intact"}
    assert [(file.rank, file.reason) for file in report.files[:-1]] == [(0, "joined with rank0.json")] * 2
    # Kernels are those of torch.
    assert rows(warehouse, KERNELS) == rows(alone, KERNELS)
    kernels = messages(trace)
    before: Counter[tuple[str, str]] = Counter()
    expected = []
    for kernel in kernels:
        args = kernel["args"]
        key = args["Process Group Name"], NAMES[args["Collective name"]]
        of_job = sum(
            (each["args"]["Process Group Name"], NAMES[each["args"]["Collective name"]]) == key
            for each in kernels
        )
        expected.append(
            (key[0], args["In msg nelems"], 3 * of_job + before[key], str(7_000 + sum(map(ord, key[0]))))
        )
        before[key] += 1
    found = rows(warehouse, LINKED)
    assert [(group, elements, number, hash_) for group, _, elements, number, hash_ in found] == expected
    said = example(warehouse, "joined")
    for group in {each["args"]["Process Group Name"] for each in kernels}:
        count = sum(each["args"]["Process Group Name"] == group for each in kernels)
        assert (
            f"_{group}_0.json: {count} of {len(kernels)} collectives of torch, {count} by communicator"
            in said
        )
    # Channels and proxy operations have the correlation ID of the kernel, too.
    sql = (
        "SELECT count(*) FROM events JOIN kernels USING (run_id, rank, correlation) WHERE events.name = '{}'"
    )
    assert (
        rows(warehouse, sql.format("KernelCh"))
        == rows(warehouse, sql.format("ProgressSend"))
        == [(2 * len(kernels),)]
    )
    _, again = ingested(tmp_path / "run")
    assert {file.state for file in again.files} == {"same"}


def test_algorithms_are_counted_as_they_are_recorded(tmp_path: Path, trace: Trace) -> None:
    write(tmp_path / "run", trace, recorded(trace, pid_of(trace)))
    warehouse, _ = ingested(tmp_path / "run")
    wanted: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for kernel in messages(trace):
        group = kernel["args"]["Process Group Name"]
        key = (str(7_000 + sum(map(ord, group))), NAMES[kernel["args"]["Collective name"]])
        wanted[key].append(round(kernel["dur"] * 1000))
    found: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    shortest: dict[tuple[str, str], int] = {}
    for row in warehouse.analyze("collective_algorithms").rows():
        key = row["communicator"], row["collective"].title().replace("_", "")
        found[key][0] += row["collectives"]
        found[key][1] += row["dur_ns"]
        shortest[key] = min(row["shortest_ns"], shortest.get(key, row["shortest_ns"]))
        assert (row["algorithm"], row["protocol"]) in (("RING", "LL"), (None, None))
    assert found == {key: [len(times), sum(times)] for key, times in wanted.items()}
    assert shortest == {key: min(times) for key, times in wanted.items()}


def test_collectives_of_another_job_are_not_joined(tmp_path: Path, trace: Trace) -> None:
    other = {**trace, "traceEvents": [
        {**each, "dur": each["dur"] + 40 + number % 7 * 30} if "nccl" in str(each.get("name")) else each
        for number, each in enumerate(trace["traceEvents"])
    ]}  # fmt: skip
    write(tmp_path / "run", trace, recorded(other, pid_of(trace), earlier=0))
    warehouse, report = ingested(tmp_path / "run")
    refused = [file for file in report.files if file.state == "refused"]
    assert len(refused) == 2 and all("not joined with rank0.json: " in str(file.reason) for file in refused)
    assert not rows(warehouse, LINKED)


def test_steps_that_are_alike_to_the_microsecond_are_not_joined(tmp_path: Path, trace: Trace) -> None:
    plugin = recorded(trace, pid_of(trace), earlier=0, jitter_us=0)
    for events in plugin.values():
        last = max(each["ts"] for each in events) + 1_000
        events += [{**each, "ts": each["ts"] + last, "id": each["id"] + 10_000} for each in events]
    write(tmp_path / "run", trace, plugin)
    warehouse, report = ingested(tmp_path / "run")
    assert [file.state for file in report.files] == ["refused"] * 2 + ["intact"]
    assert "its collectives fit at several times of the trace" in example(warehouse, "not_joined")


def test_without_numbers_collectives_are_linked_by_time(tmp_path: Path, trace: Trace) -> None:
    plugin = recorded(trace, pid_of(trace))
    for each in (each for events in plugin.values() for each in events):
        each.get("args", {}).pop("SeqNum", None)
    write(tmp_path / "run", trace, plugin)
    warehouse, _ = ingested(tmp_path / "run")
    assert len(rows(warehouse, LINKED)) == len(messages(trace))
    assert "0 by communicator and sequence" in example(warehouse, "joined")


def test_a_file_without_channels_says_what_to_record(tmp_path: Path, trace: Trace) -> None:
    plugin = {
        group: [each for each in events if each["cat"] != "GPU"]
        for group, events in recorded(trace, pid_of(trace)).items()
    }
    write(tmp_path / "run", trace, plugin)
    warehouse, _ = ingested(tmp_path / "run")
    assert "NCCL_PROFILE_EVENT_MASK" in example(warehouse, "not_joined")


def test_the_file_of_another_process_is_another_rank(tmp_path: Path, trace: Trace) -> None:
    write(tmp_path / "run", trace, dict([*recorded(trace, pid_of(trace) + 1).items()][:1]))
    warehouse, _ = ingested(tmp_path / "run")
    assert not rows(warehouse, "SELECT 1 FROM data_quality WHERE rule IN ('joined', 'not_joined')")


@pytest.mark.skipif(FOLDER is None, reason="no folder of real traces")
def test_a_real_trace_with_collectives(tmp_path: Path) -> None:
    assert FOLDER is not None
    trace = trace_of(FOLDER / "hta-singles" / "a100_nccl_pg_config_rank0of2.json.gz")
    write(tmp_path / "run", trace, recorded(trace, pid_of(trace), jitter_us=12))
    warehouse, report = ingested(tmp_path / "run")
    assert {file.state for file in report.files} == {"intact"}
    assert "21 of 21 collectives of torch, 21 by communicator and sequence" in example(warehouse, "joined")
    assert len(rows(warehouse, LINKED)) == 21


def test_a_file_that_comes_later_says_how_to_join_it(tmp_path: Path, trace: Trace) -> None:
    write(tmp_path / "run", trace, dict([*recorded(trace, pid_of(trace)).items()][:1]))
    (path,) = (tmp_path / "run").glob("ncclprof*")
    ingested(tmp_path / "run", tmp_path / "run" / "rank0.json", run="run")
    warehouse, report = ingested(tmp_path / "run", path, run="run")
    (refused,) = report.files
    assert refused.hint is not None and "ingest them together with replace=True" in refused.hint
    _, report = ingested(tmp_path / "run", path, tmp_path / "run" / "rank0.json", run="run", replace=True)
    assert {file.state for file in report.files} == {"intact"}
    assert rows(warehouse, LINKED)
