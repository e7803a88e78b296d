"""The size of the package: lines, modules, import cycles, and the way of two commands through the code.

`python tests/support/house.py` prints the figures; `test_house.py` bounds some of them.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
PACKAGE = SRC / "tracewarehouse"
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def modules() -> dict[str, Path]:
    """The name and path of each module below `src`."""
    paths = sorted(SRC.rglob("*.py"))
    return {
        ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


def code_lines(path: Path) -> int:
    """The lines of a module that are neither blank, nor a comment, nor part of a docstring."""
    text = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    used = {number for number, line in text if line.strip() and not line.lstrip().startswith("#")}
    docstrings: set[int] = set()
    for node in nodes(path):
        if isinstance(node, (ast.Constant, ast.JoinedStr)):
            used.update(_lines(node))  # a text of several lines, where they are blank or look like a comment
        elif isinstance(node, _WITH_DOCSTRING) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
                docstrings.update(_lines(first))
    return len(used - docstrings)


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of the syntax tree of a module."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def _lines(node: ast.expr | ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def other_lines(*suffixes: str, below: Path = SRC) -> int:
    """The lines, without blank ones, of all files with these suffixes."""
    paths = [path for suffix in suffixes for path in sorted(below.rglob(f"*{suffix}"))]
    return sum(bool(line.strip()) for path in paths for line in path.read_text("utf-8").splitlines())


def duplicate_pairs(below: Path, size: int = 6) -> set[tuple[Path, Path]]:
    """The pairs of SQL files, or a file with itself, that share `size` lines in a row.

    Comments, with them the front matter, blank lines and lines of punctuation do not count.
    """
    places: defaultdict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for path in sorted(below.rglob("*.sql")):
        lines = [" ".join(line.split()) for line in path.read_text(encoding="utf-8").splitlines()]
        lines = [line for line in lines if re.search(r"\w", line) and not line.startswith("--")]
        for at in range(len(lines) - size + 1):
            places[tuple(lines[at : at + size])].append((path, at))
    twice = (pair for same in places.values() for pair in combinations(same, 2))
    return {(a, b) for (a, at), (b, other) in twice if a != b or other - at >= size}


def imports() -> dict[str, set[str]]:
    """Module → the modules of ours that it imports: anywhere in it, also for types alone."""
    known = modules()
    return {name: set(_imports(known, path)) - {name} for name, path in known.items()}


def _imports(known: Mapping[str, Path], path: Path) -> Iterator[str]:
    for node in nodes(path):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in inner]
        yield from (name for name in names if name in known)


def cycles() -> list[list[str]]:
    """The modules that import each other, directly or through others, type imports included."""
    below = imports()
    reached = {name: _reached(below, name) for name in below}
    groups = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in below}
    return sorted(list(group) for group in groups if len(group) > 1)


def _reached(below: Mapping[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    todo = [start]
    while todo:
        new = below[todo.pop()] - reached
        reached |= new
        todo += new
    return reached


# A run of `tw` that counts our functions, the modules they are in, and the deepest call: no class bodies,
# lambdas and comprehensions.
_WALK = """
import os, sys, threading
from tracewarehouse.cli import main
def stop(code):
    raise SystemExit(code)
os._exit = stop
functions, deepest = set(), 0
def ours(frame):
    code = frame.f_code
    return code.co_filename.startswith(PACKAGE) and code.co_flags & 1 and code.co_name[0] != "<"
def count(frame, event, arg):
    global deepest
    if event != "call" or not ours(frame):
        return
    name = (frame.f_code.co_filename, frame.f_code.co_qualname)
    if name not in functions:
        functions.add(name)
        depth = 0
        while frame is not None:
            depth += bool(ours(frame))
            frame = frame.f_back
        deepest = max(deepest, depth)
threading.setprofile(count)
sys.setprofile(count)
try:
    main()
except SystemExit:
    pass
sys.setprofile(None)
print(f"WALK {len(functions)} {len({name[0] for name in functions})} {deepest}", file=sys.stderr)
"""


def small_trace() -> dict[str, object]:
    """A Kineto trace of 92 events: a step with operators, launches, kernels, a copy and syncs."""
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "ts": 0, "pid": pid, "tid": 0, "args": {"name": "python"}}
        for pid in range(36)
    ]
    step = {"cat": "user_annotation", "name": "ProfilerStep#1", "pid": 100, "tid": 100}
    events += [{"ph": "X", "ts": 1000, "dur": 3000, "args": {}, **step}]
    for number in range(10):
        host = {"pid": 100, "tid": 100, "ts": 1010 + 200 * number}
        args = {"External id": number + 1}
        events += [{"ph": "X", "cat": "cpu_op", "name": "aten::mul", "dur": 100, "args": args, **host}]
        args = {"External id": number + 1, "correlation": number + 1, "cbid": 211}
        device = {"pid": 0, "tid": 7, "ts": 1060 + 200 * number}
        call, kind, name = "cudaLaunchKernel", "kernel", "mul"
        if number == 4:
            call, kind, name = "cudaMemcpyAsync", "gpu_memcpy", "Memcpy DtoH (Device -> Pageable)"
        elif number > 4:
            call, kind, name = "cudaStreamSynchronize", "cuda_sync", "Stream Sync"
        events += [{"ph": "X", "cat": "cuda_runtime", "name": call, "dur": 20, "args": args, **host}]
        args = {**args, "device": 0, "stream": 7}
        if number < 9:
            events += [{"ph": "X", "cat": kind, "name": name, "dur": 50, "args": args, **device}]
        flow = {"cat": "ac2g", "name": "ac2g", "id": number + 1}
        if number < 7:
            events += [{"ph": "s", **flow, **host}, {"ph": "f", "bp": "e", **flow, **device}]
    events += [{"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 50 + at, "pid": 0, "tid": 7, "ts": 3000 + at}
               for at in range(9)]  # fmt: skip
    span = {
        "ph": "X",
        "cat": "Trace",
        "name": "PyTorch Profiler (0)",
        "pid": "Spans",
        "tid": "PyTorch Profiler",
    }
    events += [{"ts": 1000, "dur": 3000, "args": {"Op count": 0}, **span}]
    mark = {"ph": "i", "s": "g", "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": 1000}
    events += [{"name": "Iteration Start: PyTorch Profiler", **mark}] * 2
    return {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": events}


def walk(*args: str | Path) -> tuple[int, int, int]:
    """The functions and modules of ours that a `tw` command runs, and the depth of its deepest call."""
    script = f"PACKAGE = {str(PACKAGE) + os.sep!r}\n{_WALK}"
    env = {**os.environ, "PYTHONPATH": str(SRC), "TW_AUTO_LABELS": "0"}
    command = [sys.executable, "-c", script, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    found = re.search(r"WALK (\d+) (\d+) (\d+)", done.stderr)
    assert found, done.stderr
    return int(found[1]), int(found[2]), int(found[3])


def walks() -> dict[str, tuple[int, int, int]]:
    """Command → functions, modules and depth of its way through the code."""
    with tempfile.TemporaryDirectory() as folder:
        trace, house = Path(folder, "rank0.json"), Path(folder, "warehouse")
        trace.write_text(json.dumps(small_trace()))
        return {
            "tw ingest FILE --jobs 1": walk("ingest", trace, "--jobs", "1", "-w", house),
            "tw show temporal_breakdown": walk("show", "temporal_breakdown", "-w", house),
        }


def figures() -> dict[str, int]:
    """The bounded figures: code lines, modules, import cycles, and pairs of SQL files that share lines."""
    paths = modules().values()
    return {
        "code lines of Python": sum(map(code_lines, paths)),
        "lines of C and JavaScript": other_lines(".c", ".h", ".js"),
        "modules": len(paths),
        "import cycles": len(cycles()),
        "duplicate pairs of SQL": len(duplicate_pairs(ROOT / "sql")),
    }


def main() -> None:
    """Prints all figures."""
    for name, value in figures().items():
        print(f"{name}: {value:,}")
    print(f"lines of SQL: {other_lines('.sql', below=ROOT / 'sql'):,}")
    for command, (functions, used, depth) in walks().items():
        print(f"{command}: {functions:,} functions in {used} modules, {depth} deep")


if __name__ == "__main__":
    main()
