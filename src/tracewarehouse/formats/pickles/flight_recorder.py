"""The table of a flight recorder dump, from a pickle or JSON. Runs in the child process."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from tracewarehouse.formats.pickles.values import (
    Budget,
    Records,
    RefusedPickleError,
    Tables,
    dictionaries,
    mapping,
    unfolded,
)
from tracewarehouse.late_regex import late_regex

_NS_PER_MS: Final = 1_000_000
_INT64_LIMIT: Final = 2**63
_TORCH: Final = late_regex(r"(?:^|/)torch/|^<|^\?\?$|\.(?:cpp|cc|c|h|so)(?:\.|$)")
_NUMBERS: Final = late_regex(r"\d+")
# Nested lists of shapes have this depth at most.
_MOST_TEXT: Final = 100_000


def walk(root: object, budget: Budget) -> Tables:
    """The table of the loaded values. Raises RefusedPickleError if they are not a flight recorder dump."""
    top = mapping(root, "the top level")
    if "entries" not in top or "version" not in top:
        raise RefusedPickleError("has no list of entries with a version")
    unusable: Counter[str] = Counter()
    entries = dictionaries(top["entries"], "entries", budget)
    table = _records(entries, _members(top.get("pg_config"), budget), budget, unusable)
    facts: dict[str, Any] = {}
    if type(top["version"]) is str:
        facts["source_schema"] = top["version"][:40]
    if type(top.get("rank")) is int and 0 <= top["rank"] < 1 << 31:
        facts["rank"] = top["rank"]
    return Tables({"flight_records": table}, facts, {"pg_status": _status(top, budget)}, unusable)


def _records(
    entries: Sequence[Mapping[str, Any]],
    members: Mapping[str, list[int]],
    budget: Budget,
    unusable: Counter[str],
) -> pa.Table:
    records = Records(entries, unusable, "entries")
    names = [_group(entry) for entry in entries]
    p2p = [entry.get("is_p2p") is True for entry in entries]
    stacks = [_frames(entry.get("frames"), budget) for entry in entries]
    numbers = records.values("record_id")
    if len(set(map(type, numbers)) | {int}) > 1 or len(set(numbers)) < len(numbers):
        numbers = list(range(len(entries)))
    return pa.table({
        "record_id": records.ints("record_id", numbers),
        "process_group": records.texts("process_group", [name for name, _ in names]),
        "group_desc": records.texts("process_group", [description for _, description in names]),
        "group_ranks": pa.array([members.get(name or "") for name, _ in names], pa.list_(pa.int32())),
        "collective_seq": _sequence(records, p2p, "collective_seq_id", of_p2p=False),
        "p2p_seq": _sequence(records, p2p, "p2p_seq_id", of_p2p=True),
        "op_id": records.ints("op_id"),
        "profiling_name": records.texts("profiling_name"),
        "state": records.texts("state"),
        "created_ns": records.ints("time_created_ns"),
        "started_ns": _times(records, "time_discovered_started_ns"),
        "completed_ns": _times(records, "time_discovered_completed_ns"),
        "duration_ns": pa.array([_duration(entry.get("duration_ms")) for entry in entries], pa.int64()),
        "input_sizes": _lists(records, "input_sizes", budget),
        "input_dtypes": _lists(records, "input_dtypes", budget),
        "output_sizes": _lists(records, "output_sizes", budget),
        "output_dtypes": _lists(records, "output_dtypes", budget),
        "is_p2p": pa.array(p2p, pa.bool_()),
        "retired": records.flags("retired"),
        "thread": records.texts("thread", [_thread(entry) for entry in entries]),
        "timeout_ns": records.ints("timeout_ms", scale=_NS_PER_MS),
        "caller": records.texts("frames", [_caller(stack) for stack in stacks]),
        "stack": records.texts("frames", ["\n".join(map(_frame, stack)) or None for stack in stacks]),
    })  # fmt: skip


def _group(entry: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Name and description of the process group: a pair, which older releases do not record."""
    pair = entry.get("process_group")
    if isinstance(pair, tuple | list) and len(pair) == 2 and all(type(one) is str for one in pair):
        return pair[0], pair[1]
    number = entry.get("pg_id")
    return (str(number) if type(number) is int and abs(number) < _INT64_LIMIT else None), None


def _members(config: object, budget: Budget) -> dict[str, list[int]]:
    """Process group → its ranks, where the dump lists them."""
    found: dict[str, list[int]] = {}
    if type(config) is not dict:
        return found
    budget.spend(len(config))
    for name, group in config.items():
        text = group.get("ranks") if type(group) is dict else None
        if type(name) is str and type(text) is str and len(text) < _MOST_TEXT:
            ranks = [int(number) for number in _NUMBERS.findall(text) if len(number) < 10]
            if ranks:
                found[name] = ranks
    return found


def _status(top: Mapping[str, Any], budget: Budget) -> dict[str, dict[str, int]]:
    """Process group → the last collectives enqueued, started and completed."""
    status = top.get("pg_status")
    found: dict[str, dict[str, int]] = {}
    if type(status) is dict:
        budget.spend(len(status))
        for name, numbers in status.items():
            if type(name) is str and type(numbers) is dict and len(numbers) < 100:
                found[name[:200]] = {
                    key: value
                    for key, value in numbers.items()
                    if type(key) is str and type(value) is int and abs(value) < _INT64_LIMIT
                }
    return found


def _sequence(records: Records, p2p: Sequence[bool], key: str, *, of_p2p: bool) -> pa.Array:
    values = records.values(key)
    return records.ints(
        key, [value if own is of_p2p else None for value, own in zip(values, p2p, strict=True)]
    )


def _times(records: Records, key: str) -> pa.Array:
    """Times; 0 means not yet."""
    return records.ints(key, [value if value != 0 else None for value in records.values(key)])


def _duration(value: object) -> int | None:
    if type(value) not in (int, float) or not 0 <= value < 1e12:  # type: ignore[operator]
        return None
    return round(value * _NS_PER_MS)  # type: ignore[operator]


def _lists(records: Records, key: str, budget: Budget) -> pa.Array:
    """Lists of shapes or element types as JSON."""
    return records.texts(key, [_json(value, budget) for value in records.values(key)])


def _json(value: object, budget: Budget) -> str | None:
    """A list of names, or of lists of numbers, as JSON."""
    if type(value) not in (list, tuple):
        return None
    budget.spend(len(value))  # type: ignore[arg-type]
    parts: list[object] = []
    for one in value:  # type: ignore[attr-defined]
        if type(one) in (list, tuple):
            budget.spend(len(one))
            parts.append([number for number in one if type(number) is int and abs(number) < _INT64_LIMIT])
        elif type(one) is str:
            parts.append(one)
    return json.dumps(parts)


def _thread(entry: Mapping[str, Any]) -> str | None:
    words = [entry.get("thread_name"), entry.get("thread_id")]
    return " ".join(str(word)[:100] for word in words if type(word) is str and word) or None


def _frames(stack: object, budget: Budget) -> list[Mapping[str, Any]]:
    stack = unfolded(stack)
    if type(stack) is not list:
        return []
    budget.spend(len(stack))
    return [frame for frame in stack if type(frame) is dict]


def _frame(frame: Mapping[str, Any]) -> str:
    file, name = (value if type(value := frame.get(key)) is str else "?" for key in ("filename", "name"))
    line = frame.get("line")
    return f"{file}:{line if type(line) is int else 0} {name}"


def _caller(stack: Sequence[Mapping[str, Any]]) -> str | None:
    """The innermost frame outside of PyTorch, its file without the folder."""
    for frame in stack:
        file = frame.get("filename")
        if type(file) is str and not _TORCH.search(file):
            return _frame({**frame, "filename": file.rpartition("/")[2]})
    return None
