"""Execution traces: both schemas, collectives, the join to the trace of a rank, and damaged files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from cli_runner import tw as command
from conftest import real_traces
from sketch import write as write_sketch
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.execution_trace import decoded, node_table
from tracewarehouse.formats.redact.text import Redactor
from tracewarehouse.formats.source_tables import Notes

FOLDER = real_traces()
NAMES = ("aten::mm", "aten::add", "aten::mul", "aten::relu", "aten::view")
TENSORS = ["GenericList[Tensor(float)]", "Int", "Int", "Int", "String", "GenericList[]", "GenericList[]"]


def flat(number: int, name: str, **more: Any) -> dict[str, Any]:
    """A node of schema 1.0.1."""
    ids = {"rf_id": number, "parent": 1, "fw_parent": 0, "seq_id": -1, "tid": 1}
    return {"name": name, "id": number, **ids, **more}


def nested(number: int, name: str, values: list[Any], types: list[str], **attrs: Any) -> dict[str, Any]:
    """A node of schema 1.0.2 and later."""
    ids = {"rf_id": number, "fw_parent": 0, "seq_id": 5, "tid": 1, **attrs}
    return {
        "id": number, "name": name, "ctrl_deps": 1,
        "inputs": {"values": values, "shapes": [[] for _ in values], "types": types},
        "outputs": {"values": [], "shapes": [], "types": []},
        "attrs": [{"name": key, "type": "", "value": value} for key, value in attrs.items() | ids.items()],
    }  # fmt: skip


def text(*nodes: dict[str, Any]) -> bytes:
    return json.dumps({"schema": "1.0.2", "pid": 1, "time": "now", "nodes": nodes}).encode()


def rows(*nodes: dict[str, Any]) -> list[dict[str, Any]]:
    return list(node_table(decoded(text(*nodes), Path("et.json")), Notes()).to_pylist())


def collective(row: dict[str, Any]) -> tuple[object, ...]:
    names = ("collective", "collective_seq", "process_group", "group_size", "group_ranks")
    return tuple(row[name] for name in names)


def test_both_schemas() -> None:
    tensor = [3, 5, 0, 8, 4, "cuda:0"]
    old = flat(
        7, "aten::mm", inputs=[tensor, [tensor]], outputs=[[4, *tensor[1:]]], input_shapes=[[8], [[8]]]
    )
    new = nested(7, "aten::mm", [tensor, [tensor], 2], ["Tensor(float)", "GenericList[Tensor(float)]", "Int"])
    for row, sequence in ((rows(old)[0], None), (rows(new)[0], 5)):
        assert (row["node_id"], row["parent_node"], row["record_function"]) == (7, 1, 7)
        assert (row["sequence_number"], row["forward_node"], row["input_tensors"]) == (sequence, None, [3])
        assert json.loads(row["inputs"])[:2] == [tensor, [tensor]]
    assert rows(old)[0]["output_tensors"] == [4]


def test_a_node_may_have_inputs_of_one_schema_and_outputs_of_the_other() -> None:
    first, second = nested(7, "a", [1], ["Int"]), nested(8, "b", [1], ["Int"])
    (row, other) = rows({**first, "outputs": [2]}, {**second, "inputs": [3]})
    assert (row["inputs"], row["outputs"]) == ("[1]", "[2]")
    assert (other["inputs"], other["outputs"]) == ("[3]", None)


def test_collectives_by_pointer_by_name_and_by_attributes() -> None:
    groups = [{"pg_name": "0", "backend_id": 77, "ranks": [], "group_size": 2}]
    groups += [{"pg_name": "1", "ranks": [0, 2], "group_size": 2}]
    found = rows(
        nested(3, "## process_group:init ##", [json.dumps(groups)], ["String"]),
        nested(4, "record_param_comms", [[], 12, 77, 0, "allreduce", [], []], TENSORS),
        nested(5, "record_param_comms", [[], 13, 78, 0, "allreduce", [], []], TENSORS),
        nested(6, "record_param_comms", [14, 0, 0, "wait", [], []], [*TENSORS[1:5], *TENSORS[:2]]),
        nested(7, "record_param_comms", [[], [15, False], ["1", "tp"], 0, "allreduce", [], []], TENSORS),
        nested(8, "record_param_comms", ["<Tuple>", "<Tuple>", "<Tuple>", 0, "x"], TENSORS, pg_name="1",
               collective_name="all_gather", pg_size=2, in_msg_nelems=8, out_msg_nelems=16, dtype="Float"),
        nested(9, "record_param_comms", [1, 2], ["Int", "Int"]),
        nested(10, "record_param_comms", [[[[]]], {}, None, 0, "allreduce"], TENSORS),
    )  # fmt: skip
    assert [collective(row) for row in found[1:]] == [
        ("allreduce", 12, "0", 2, None),
        ("allreduce", 13, None, None, None),
        ("wait", 14, None, None, None),
        ("allreduce", 15, "1", 2, "[0, 2]"),
        ("all_gather", None, "1", 2, "[0, 2]"),
        (None, None, None, None, None),
        ("allreduce", None, None, None, None),
    ]
    assert [found[5][name] for name in ("dtype", "in_elements", "out_elements")] == ["Float", 8, 16]


@pytest.mark.parametrize(
    "data, message",
    [
        (text(flat(1, "aten::mm"))[:-30], "damaged"),
        (text(), "without nodes"),
        (b'{"schema": "1.0.1", "nodes": [{"id": "one"}]}', "unknown kind"),
        (b'{"schema": 5, "nodes": []}', "unknown kind"),
        (b'{"schema": "1", "nodes": [{"id": 1, "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}]}", "damaged"),
    ],
)
def test_bad_files_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(TraceFormatError, match=message):
        decoded(data, Path("et.json"))


def test_unusable_values_are_null_and_reported() -> None:
    nodes = [flat(1, "a", tid="x"), flat(1, "again"), flat(2, "b", seq_id=2.5)]
    notes = Notes()
    table = node_table(decoded(text(*nodes), Path("et.json")), notes)
    assert table.column("name").to_pylist() == ["a", "b"]
    assert table.column("thread").to_pylist() == [None, 1]
    assert [(found.rule, found.rows) for found in notes.findings(Redactor(b""))] == [("unusable_value", 3)]


def trace(names: tuple[str, ...], folder: Path, run: str = "job") -> Path:
    lines = [f"{run} 0 op t1 {name} {at * 100} 50 id={at + 1}" for at, name in enumerate(names)]
    return write_sketch("\n".join(lines), folder)[0]


def nodes_file(names: tuple[str, ...], path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text(*(flat(at + 1, name) for at, name in enumerate(names))))
    return path


def joined(folder: Path) -> dict[str, Any]:
    found = command("show", "execution_trace", "-w", folder / "w", "--run", "job", "-f", "json")
    return dict(json.loads(found.out)[0])


def test_a_file_of_the_same_run_is_joined_from_the_front_door(tmp_path: Path) -> None:
    trace(NAMES, tmp_path / "t")
    nodes_file(NAMES, tmp_path / "t/job/rank0_et.json")
    ingested = command("ingest", tmp_path / "t/job", "-w", tmp_path / "w")
    assert ingested.code == 0 and ingested.out.startswith("recording: sound\ningested 1 rank of 1 run\n")
    row = joined(tmp_path)
    assert (row["is_joined"], row["id_count"], row["op_count"], row["equal_share"]) == (True, 5, 5, 1.0)
    shown = command("info", "job", "-w", tmp_path / "w").out
    assert "untested on real data  execution trace: collectives of NCCL" in shown


@pytest.mark.parametrize(
    "names, reason",
    [
        (("aten::mm", "aten::add", *("aten::sum",) * 3), r"2 of 5 operators .*\(40 %\)"),
        (NAMES[:4], "only 4 distinct names"),
    ],
)
def test_a_file_of_another_run_is_refused_with_the_share(
    tmp_path: Path, names: tuple[str, ...], reason: str
) -> None:
    path = trace(NAMES, tmp_path / "t")
    other = nodes_file(names, tmp_path / "other/rank0_et.json")
    assert command("ingest", path, "-w", tmp_path / "w", "--run", "job").code == 0
    refused = command("ingest", other, "-w", tmp_path / "w", "--run", "job")
    assert refused.code == 1
    wh = tw.open(tmp_path / "w")
    report = wh.ingest(other, run="job")
    assert wh.select("job").analyze("execution_trace").rows() == []
    [outcome] = report.files
    assert outcome.state == "refused" and outcome.reason is not None
    assert re.search(reason, outcome.reason), outcome.reason


def test_strict_stores_neither_file_if_they_are_not_of_one_run(tmp_path: Path) -> None:
    trace(NAMES, tmp_path / "t")
    nodes_file(tuple(reversed(NAMES)), tmp_path / "t/job/rank0_et.json")
    assert command("ingest", tmp_path / "t/job", "-w", tmp_path / "w", "--strict").code == 1
    assert command("runs", "-w", tmp_path / "w", "-f", "json").out.strip() in ("", "[]")


def test_a_trace_that_comes_later_is_compared_by_the_view(tmp_path: Path) -> None:
    for names, path in ((NAMES, "t"), (tuple(reversed(NAMES)), "u")):
        folder = tmp_path / path
        other = nodes_file(names, folder / "rank0_et.json")
        assert command("ingest", other, "-w", folder / "w", "--run", "job").code == 0
        assert command("ingest", trace(NAMES, folder), "-w", folder / "w", "--run", "job").code == 0
        row = joined(folder)
        assert row["is_joined"] is (names == NAMES) and row["op_count"] == (5 if names == NAMES else 0)


PAIRS = {
    "multirank-gloo-cpu-4r/rank0.pt.trace.json.gz": ("multirank-gloo-cpu-4r/rank0_et.json.gz", 6777, 6777),
    "hta-singles/a100_et_benchmark_simple_add_trace.json.gz": (
        "hta-singles/a100_et_benchmark_simple_add_et.json.gz", 28, 28,
    ),
    "multirank-dlrm-v100-8r/worker0_step_12.1694128201545.pt.trace.json.gz": (
        "et-dlrm-8r/dlrm_eg_0.json.gz", 1597, 79,
    ),
    "linear-2080ti/linear_kineto.json.gz": ("linear-2080ti/linear_et.json.gz", 924, 217),
}  # fmt: skip


@pytest.mark.deep
@pytest.mark.skipif(FOLDER is None, reason="needs the folder of real traces")
@pytest.mark.parametrize("name", PAIRS)
def test_real_pairs(tmp_path: Path, name: str) -> None:
    assert FOLDER is not None
    other, ids, equal = PAIRS[name]
    wh = tw.open(tmp_path / "w")
    wh.ingest(FOLDER / name, run="job", rank=0)
    [outcome] = wh.ingest(FOLDER / other, run="job", rank=0).files
    if ids == equal:
        [row] = wh.select("job").analyze("execution_trace").rows()
        assert (row["id_count"], row["op_count"], outcome.state) == (ids, ids, "intact")
    else:
        assert outcome.state == "refused" and f"{equal} of {ids} operators" in (outcome.reason or "")
