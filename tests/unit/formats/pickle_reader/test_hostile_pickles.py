"""Hostile pickles: nothing that they request is run, memory and time are limited, and errors say why."""

from __future__ import annotations

import os
import pickle
import resource
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from cli_runner import tw as call
from processes import use_of_snapshot
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.pickles.reader import read_plain
from tracewarehouse.formats.pickles.values import Tables
from tracewarehouse.simulation.allocator import MIB, Allocator, frames

GOOD: Final = {"segments": [], "device_traces": [[]]}


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple[Any, Any]:
        return self.call


class State:
    """Pickles with a state that a class would receive."""

    def __init__(self) -> None:
        self.segments: list[Any] = []


class Pid(pickle.Pickler):
    """Pickles strings as references to objects outside of the file."""

    def persistent_id(self, value: object) -> object:
        return "elsewhere" if value == "x" else None


def persistent() -> bytes:
    import io

    out = io.BytesIO()
    Pid(out, 4).dump({"segments": "x"})
    return out.getvalue()


def laughs(depth: int = 40) -> bytes:
    """Lists that hold the previous list twice: a tiny file, and 2 ** depth elements when visited."""
    body = b"\x80\x04]\x94"
    for at in range(depth):
        body += b"]\x94(h" + bytes([at]) + b"h" + bytes([at]) + b"e"
    return body


def shared_rows(rows: int) -> dict[str, Any]:
    """Every device has the same list of entries: rows squared in total."""
    trace = [{"action": "alloc", "addr": 1, "size": 1}] * rows
    return {"segments": [], "device_traces": [trace] * rows}


def deep(levels: int) -> bytes:
    return b"\x80\x04}\x8c\x08segments" + b"]" * levels + b"a" * (levels - 1) + b"s."


def entry(**values: Any) -> bytes:
    return pickle.dumps({"segments": [], "device_traces": [[values]]})


def requests(mark: str) -> dict[str, tuple[bytes, str]]:
    """Pickles that request something, and what the error names."""
    touch = f"touch {mark}"
    command = f"__import__('os').system('{touch}')"
    return {
        **{f"os.system-{n}": (pickle.dumps(Call(os.system, touch), n), "posix.system") for n in range(6)},
        "in a key": (pickle.dumps({"segments": Call(os.system, touch)}), "posix.system"),
        "eval": (pickle.dumps(Call(eval, command)), "builtins.eval"),
        "exec": (pickle.dumps(Call(exec, command)), "builtins.exec"),
        "open": (pickle.dumps(Call(open, mark, "w")), "open"),
        "global": (b"cos\nsystem\n(S'" + touch.encode() + b"'\ntR.", "os.system"),
        "stack global": (b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x01x\x85R.", "posix.system"),
        "inst": (b"(S'" + touch.encode() + b"'\niposix\nsystem\n.", "posix.system"),
        "obj": (b"(cos\nsystem\nS'" + touch.encode() + b"'\no.", "os.system"),
        "getattr": (pickle.dumps(getattr), "builtins.getattr"),
        "import": (b"c__builtin__\n__import__\n(S'os'\ntR.", "__import__"),
        "module attribute": (b"\x80\x04\x8c\x02os\x8c\x0bpath.exists\x93.", "os.path.exists"),
        "class": (pickle.dumps(State()), "State"),
        "new object": (b"\x80\x02cbuiltins\nobject\n)\x81.", "builtins.object"),
        "bytearray": (pickle.dumps(bytearray(b"abc"), 2), "bytearray"),
        "complex": (pickle.dumps(1j), "complex"),
        "torch": (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\x00.", "torch._utils._rebuild_tensor_v2"),
        "persistent id": (persistent(), "outside of the file"),
        "persistent id, protocol 0": (b"Phello\n.", "outside of the file"),
    }


def broken() -> dict[str, tuple[bytes, str]]:
    """Pickles that are damaged or exhaust something, and a word of the error."""
    size = struct.pack("<I", 0x7FFFFFF0)
    return {
        "extension": (b"\x80\x02\x82\x01.", "damaged"),
        "truncated": (pickle.dumps(GOOD)[:-4], "damaged"),
        "only a protocol": (b"\x80\x04", "damaged"),
        "future protocol": (b"\x80\x63}.", "damaged"),
        "memo": (b"\x80\x04h\xff.", "damaged"),
        "empty stack": (b"\x80\x04e.", "damaged"),
        "endless opcodes": (b"\x80\x04" + b"N0" * 2_000_000, "damaged"),
        "out of band": (b"\x80\x05\x97.", "damaged"),
        "build": (b"\x80\x04}}\x8c\x08segments]sb.", "damaged"),
        "reduce of a list": (b"\x80\x04](tR.", "damaged"),
        "false frame": (b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.", ""),
        "false string": (b"\x80\x04X" + size + b".", ""),
        "false long": (b"\x80\x02\x8b" + size + b".", ""),
        "false bytes": (b"\x80\x05\x96" + struct.pack("<Q", 0xFFFFFFFFFF) + b".", ""),
        "false memo": (b"\x80\x04K\x01r\xff\xff\xff\x7f.", "memory"),
        "deep": (deep(200_000), "at segments"),
        "itself": (b"\x80\x04}\x94\x8c\x08segments]\x94h\x01as.", "at segments[0]"),
        "laughs": (laughs() + b".", "at the top level"),
        "laughs inside": (laughs()[:2] + b"}\x8c\x08segments" + laughs()[2:] + b"s.", ""),
        "shared rows": (pickle.dumps(shared_rows(20_000)), "repeats"),
        "list": (pickle.dumps([1, 2]), "a list at the top level"),
        "number": (pickle.dumps(7), "an int at the top level"),
        "no segments": (pickle.dumps({"a": 1}), "no list of segments"),
        "segments of numbers": (pickle.dumps({"segments": [1]}), "an int at segments[0]"),
        "traces of text": (pickle.dumps({"segments": [], "device_traces": "abc"}), "a str at device_traces"),
    }


def odd() -> dict[str, tuple[bytes, dict[str, int]]]:
    """Pickles whose values have a wrong type: read, with null and a count."""
    return {
        "nan": (entry(action="alloc", addr=1, size=float("nan")), {"events.size": 1}),
        "infinity": (entry(action="alloc", addr=1, size=float("inf")), {"events.size": 1}),
        "huge": (entry(action="alloc", addr=1 << 70, size=1), {"events.addr": 1}),
        "huge time": (entry(action="alloc", time_us=1 << 62, size=1), {"events.time_us": 1}),
        "negative": (entry(action="alloc", addr=1, size=-5), {"events.size": 1}),
        "bool": (entry(action="alloc", addr=1, size=True), {"events.size": 1}),
        "text": (entry(action=7, addr="x", size=1), {"events.action": 1, "events.addr": 1}),
        "surrogate": (entry(action="\ud800", size=1), {}),
        "frames": (entry(action="alloc", size=1, frames=[3, {"line": "x"}]), {"frames": 1, "frames.line": 1}),
        "nested": (entry(action="alloc", size=1, frames=[{"name": [[]]}]), {}),
        "keys": (pickle.dumps({1: 2, ("a",): 3, **GOOD}), {}),
    }


def cases(mark: str) -> Iterator[tuple[str, bytes]]:
    for group in (requests(mark), broken(), odd()):
        yield from ((name, each[0]) for name, each in group.items())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tables | TraceFormatError]:
    folder = tmp_path_factory.mktemp("hostile")
    mark = folder / "executed"

    def answer(path: Path) -> Tables | TraceFormatError:
        with path.open("rb") as file:
            try:
                return read_plain(path, file, "memory_snapshot", "a memory snapshot", folder)
            except TraceFormatError as error:
                return error

    paths = []
    for number, (_, data) in enumerate(cases(str(mark))):
        paths.append(folder / f"{number}.pickle")
        paths[-1].write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(answer, paths))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert not mark.exists()
    assert grown < 30 << 10, "the parent's memory does not move"
    return dict(zip((name for name, _ in cases("")), answers, strict=True))


def test_there_are_many() -> None:
    assert len(list(cases(""))) >= 50


@pytest.mark.parametrize("name", requests(""))
def test_what_a_pickle_requests_is_named_and_not_run(
    name: str, found: dict[str, Tables | TraceFormatError]
) -> None:
    error = found[name]
    assert isinstance(error, TraceFormatError)
    assert requests("")[name][1] in error.message and "nothing was run" in error.message
    assert error.path.endswith(".pickle") and error.hint


@pytest.mark.parametrize("name", broken())
def test_damaged_and_excessive_pickles_are_refused(
    name: str, found: dict[str, Tables | TraceFormatError]
) -> None:
    error = found[name]
    assert isinstance(error, TraceFormatError)
    assert broken()[name][1] in error.message and error.hint


@pytest.mark.parametrize("name", odd())
def test_values_of_a_wrong_type_are_null(name: str, found: dict[str, Tables | TraceFormatError]) -> None:
    tables = found[name]
    assert isinstance(tables, Tables)
    assert tables.unusable == odd()[name][1]


def test_the_child_stays_small(tmp_path: Path) -> None:
    for name, (data, _) in odd().items():
        path = tmp_path / f"{name}.pickle"
        path.write_bytes(data)
        assert use_of_snapshot(path)[1] < 200 << 20


def test_the_command_names_file_request_and_remedy(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    path = tmp_path / "oom_rank3.pickle"
    path.write_bytes(pickle.dumps(Call(os.system, f"touch {mark}")))
    done = call("ingest", path, "--run", "R", "-w", tmp_path / "w")
    assert done.code == 1 and not mark.exists()
    assert "requests posix.system: not a memory snapshot; nothing was run" in done.err
    assert str(path) in done.err and "hint: " in done.err


def test_other_pickles_in_a_folder_are_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "settings.pkl").write_bytes(pickle.dumps(Call(os.system, "true")))
    allocator = Allocator(64 * MIB)
    allocator.malloc(MIB, frames(("train.py", 3, "step")))
    allocator.dump(folder / "snapshot_rank0.pickle")
    done = call("ingest", folder, "-w", tmp_path / "w")
    assert done.code == 0 and "posix.system" in done.out + done.err
