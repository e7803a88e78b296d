"""A fuzzer over the corpus. What breaks a reader is minimized and added to `tests/data/hostile`.

The inputs are read in another process, for a crash of native code ends it; an input is written down before
it is read. `TW_FUZZ_SEED` and `TW_FUZZ_INPUTS` choose other inputs, and more of them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli_runner import environment
from hostile.corpus import FOUND, corpus
from trace_reading import ReadTrace, same
from tracewarehouse.errors import TraceFormatError

_SEED = int(os.environ.get("TW_FUZZ_SEED", "1"))
_INPUTS = int(os.environ.get("TW_FUZZ_INPUTS", "3000"))
_MOST_INPUT_BYTES = 20_000
_MOST_SECONDS = 10.0
_MOST_KIB = 256 << 10
_MOST_BYTES = 4 << 30  # of addresses, of which most are never touched
_TOKENS = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b'"',
        b"\\",
        b"\\u",
        b"null",
        b"true",
        b"-",
        b"1e999",
        b"\0",
        b"\xff",
    ),
    *(
        b'"traceEvents":[',
        b'"args":{',
        b'"ts":',
        b'"ph":"B"',
        b'"ph":"E"',
        b'"id":',
        b"]}",
        b"}]",
        b"/*",
        b"NaN",
    ),
]


def mutated(seed: int) -> bytes:
    """A file of the corpus with a few changes, by a seed."""
    chosen = random.Random(seed)
    small = [each.data for each in corpus() if 0 < len(each.data) <= _MOST_INPUT_BYTES]
    data = bytearray(chosen.choice(small))
    for _ in range(chosen.choice((1, 1, 2, 3, 8))):
        at, size = chosen.randrange(len(data) + 1), chosen.choice((1, 1, 2, 8, 64))
        match chosen.randrange(6):
            case 0:
                data[at : at + size] = b""
            case 1:
                data[at:at] = chosen.choice(_TOKENS)
            case 2:
                data[at : at + 1] = bytes([chosen.randrange(256)])
            case 3:
                data[at:at] = data[at : at + size * 4]
            case 4:
                other = chosen.choice(small)
                start = chosen.randrange(len(other))
                data[at:at] = other[start : start + size * 4]
            case _:
                del data[at:]
    return bytes(data)


def fault(path: Path) -> str | None:
    """What is wrong with reading a file, None if nothing is: refused, or the same rows by both scanners."""
    started = time.process_time()
    found = []
    for exact in (False, True):
        try:
            found.append(ReadTrace(path, exact=exact))
        except TraceFormatError as error:
            found.append(str(error))  # type: ignore[arg-type]
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    if time.process_time() - started > _MOST_SECONDS:
        return "too slow"
    # Not `ru_maxrss`, which counts what the parent had when it started this process.
    status = Path("/proc/self/status")
    peak_kib = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    if peak_kib and int(peak_kib[1]) > _MOST_KIB:
        return f"{int(peak_kib[1]) >> 10} MiB of memory"
    one, other = found
    if isinstance(one, str) or isinstance(other, str):
        both = isinstance(one, str) and isinstance(other, str)
        return None if both else f"refused by one scanner: {one}, {other}"
    if one.tables.keys() != {"activities"}:
        return None if one.tables.keys() == other.tables.keys() else "different tables"
    differing = same(one, other)
    return f"the scanners differ in {', '.join(differing)}" if differing else None


def minimized(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """The shortest part of the data that is found to fail by leaving out ever smaller pieces."""
    size = len(data) // 2
    while size:
        at = 0
        while at < len(data):
            shorter = data[:at] + data[at + size :]
            if shorter and fails(shorter):
                data = shorter
            else:
                at += size
        size //= 2
    return data


def run(folder: Path, first: int, last: int) -> str | None:
    """Reads the inputs of these seeds in another process; what went wrong, with the input in `folder`."""
    code = "import sys; from hostile.test_fuzz import child; child(*sys.argv[1:])"
    env = environment()
    env["PYTHONPATH"] += os.pathsep.join(
        ["", *(str(Path(__file__).parents[2] / name) for name in (".", "support", "properties"))]
    )
    command = [sys.executable, "-c", code, str(folder), str(first), str(last)]
    try:
        limit_s = 60 + _MOST_SECONDS * (last - first)
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return "too slow"
    if done.returncode == 0:
        return None
    return done.stdout.strip() or f"exit code {done.returncode}: {done.stderr[-300:]}"


def child(folder: str, first: str, last: str) -> None:
    """In the other process: stops at the first input with a fault."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    path = Path(folder) / "input.json"
    for seed in range(int(first), int(last)):
        if seed >= 0:
            path.write_bytes(mutated(seed))
            path.with_name("seed").write_text(str(seed))
        if (what := fault(path)) is not None:
            print(what)
            sys.exit(1)


def keep(data: bytes) -> Path:
    """Adds an input to the corpus; its expected outcome is to be filled in once it is known."""
    FOUND.mkdir(parents=True, exist_ok=True)
    path = FOUND / f"fuzz-{hashlib.sha256(data).hexdigest()[:12]}.json"
    stored = {"data": base64.b64encode(data).decode(), "state": "any", "events": None}
    path.write_text(json.dumps(stored, indent=1) + "\n")
    return path


def _fails_alone(folder: Path) -> Callable[[bytes], bool]:
    def fails(data: bytes) -> bool:
        (folder / "input.json").write_bytes(data)
        return run(folder, -1, 0) is not None

    return fails


def test_a_mutation_depends_on_its_seed_alone() -> None:
    assert mutated(7) == mutated(7) and len({mutated(seed) for seed in range(20)}) > 15


def test_minimizing_keeps_what_fails() -> None:
    assert minimized(b"aaaaaaaaXbbbbbbYccc", lambda data: b"X" in data and b"Y" in data) == b"XY"


def test_a_few_inputs(tmp_path: Path) -> None:
    assert run(tmp_path, 0, 40) is None, (tmp_path / "input.json").read_bytes()


@pytest.mark.deep
def test_many_inputs(tmp_path: Path) -> None:
    kept = []
    first, last = _SEED * 1_000_000, _SEED * 1_000_000 + _INPUTS
    while first < last:
        until = min(last, first + 250)
        what = run(tmp_path, first, until)
        first = until
        if what is not None:
            first = int((tmp_path / "seed").read_text()) + 1
            data = minimized((tmp_path / "input.json").read_bytes(), _fails_alone(tmp_path))
            kept.append(f"{what}: {keep(data)}")
    assert not kept, "\n".join(kept)
