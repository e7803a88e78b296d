"""Writes a process of a rocprofv3 JSON result as the CSV files that rocprofv3 writes of the same records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_TIMES: Final = ("Correlation_Id", "Start_Timestamp", "End_Timestamp")
_API: Final = ("Domain", "Function", "Process_Id", "Thread_Id", *_TIMES)
_AGENT: Final = ("Node_Id", "Logical_Node_Id", "Agent_Type", "Name", "Product_Name")
_COPY: Final = ("Kind", "Direction", "Stream_Id", "Source_Agent_Id", "Destination_Agent_Id", *_TIMES)
_KERNEL: Final = (
    "Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name",
    *_TIMES, "LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count",
    *(f"{kind}_Size_{axis}" for kind in ("Workgroup", "Grid") for axis in "XYZ"),
)  # fmt: skip


def write(process: Mapping[str, Any], folder: Path, prefix: str = "42_", *, agents: str = "relative") -> None:
    """The files of a process; `agents` is the option --agent-index, `none` leaves their file out."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = {
        "kernel_trace": (_KERNEL, _kernels(process, agents)),
        "memory_copy_trace": (_COPY, _copies(process, agents)),
    }
    for name in ("hip_api", "hsa_api", "marker_api", "rccl_api"):
        tables[f"{name}_trace"] = (_API, _calls(process, name))
    if agents != "none":
        tables["agent_info"] = (_AGENT, _agents(process))
    for name, (columns, found) in tables.items():
        rows = [
            ",".join(f'"{each}"' if isinstance(each, str) else str(each) for each in row) for row in found
        ]
        if rows:
            header = ",".join(f'"{column}"' for column in columns)
            (folder / f"{prefix}{name}.csv").write_text("\n".join([header, *rows, ""]))


def label(process: Mapping[str, Any], handle: int, agents: str) -> str | int:
    """How a table names an agent."""
    handles = [agent["id"]["handle"] for agent in process["agents"]]
    types = [agent["type"] for agent in process["agents"]]
    at = handles.index(handle)
    if agents == "type-relative":
        return f"{('CPU', 'GPU')[types[at] - 1]} {types[:at].count(types[at])}"
    return at if agents == "number" else f"Agent {at}"


def operation_name(process: Mapping[str, Any], name: str, number: int) -> str:
    kinds = process["strings"]["buffer_records"]
    word = name.removesuffix("_api")
    return str(next(each for each in kinds if each["kind"].lower().startswith(word))["operations"][number])


def _times(record: Mapping[str, Any]) -> tuple[int, int, int]:
    return record["correlation_id"]["internal"], record["start_timestamp"], record["end_timestamp"]


def _kernels(process: Mapping[str, Any], agents: str) -> Iterator[tuple[Any, ...]]:
    symbols = {symbol["kernel_id"]: symbol for symbol in process["kernel_symbols"]}
    for record in process["buffer_records"].get("kernel_dispatch", ()):
        info = record["dispatch_info"]
        sizes = [info[f"{kind}_size"][axis] for kind in ("workgroup", "grid") for axis in "xyz"]
        yield (
            "KERNEL_DISPATCH", label(process, info["agent_id"]["handle"], agents),
            info["queue_id"]["handle"], record["stream_id"]["handle"], record["thread_id"],
            info.get("dispatch_id", 0), info["kernel_id"],
            symbols[info["kernel_id"]]["formatted_kernel_name"], *_times(record),
            info["group_segment_size"], info.get("private_segment_size", 0), 8, 0, 16, *sizes,
        )  # fmt: skip


def _copies(process: Mapping[str, Any], agents: str) -> Iterator[tuple[Any, ...]]:
    for record in process["buffer_records"].get("memory_copy", ()):
        sides = (label(process, record[f"{side}_agent_id"]["handle"], agents) for side in ("src", "dst"))
        direction = operation_name(process, "memory_copy", record["operation"])
        yield "MEMORY_COPY", direction, record["stream_id"]["handle"], *sides, *_times(record)


def _calls(process: Mapping[str, Any], name: str) -> Iterator[tuple[Any, ...]]:
    for record in process["buffer_records"].get(name, ()):
        texts = process["strings"].get("marker_api", ()) if name == "marker_api" else ()
        number = record["correlation_id"]["internal"]
        function = operation_name(process, name, record["operation"])
        function = next((each["value"] for each in texts if each["key"] == number), function)
        yield name.upper(), function, process["metadata"]["pid"], record["thread_id"], *_times(record)


def _agents(process: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for number, agent in enumerate(process["agents"]):
        name = agent.get("product_name", "")
        yield number, number, ("CPU", "GPU")[agent["type"] - 1], agent.get("name", name), name
