"""What HTA says, from its own Python, kept by the digest of the files and of the question."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RUNNER = Path(__file__).with_name("runner.py")
CRITICAL_RUNNER = Path(__file__).with_name("critical_runner.py")
OPERATORS = ("aten::linear", "aten::conv2d", "autograd::engine::evaluate_function")


class Oracle:
    """HTA behind a folder of answers."""

    def __init__(self, python: Path, cache: Path) -> None:
        self.python, self.cache = python, cache
        cache.mkdir(parents=True, exist_ok=True)

    def trace(self, files: Mapping[int, Path]) -> dict[str, Any]:
        """Every method over the files, by rank."""
        named = {str(rank): str(path) for rank, path in files.items()}
        return self._ask({"files": named, "operators": OPERATORS}, list(files.values()))

    def critical(self, files: Mapping[int, Path], windows: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
        """The critical path of the first rank in each window, by the window's name."""
        named = {str(rank): str(path) for rank, path in files.items()}
        return self._ask({"files": named, "windows": windows}, list(files.values()), CRITICAL_RUNNER)

    def pair(self, control: Mapping[int, Path], test: Mapping[int, Path]) -> dict[str, Any]:
        """TraceDiff of two traces."""
        named = [{str(rank): str(path) for rank, path in each.items()} for each in (control, test)]
        return self._ask({"control": named[0], "test": named[1]}, [*control.values(), *test.values()])

    def timeline(self, path: Path) -> dict[str, Any]:
        """MemoryAnalysis of a raw memory timeline."""
        return self._ask({"timeline": str(path)}, [path])

    def _ask(self, request: dict[str, Any], files: list[Path], runner: Path = RUNNER) -> dict[str, Any]:
        kept = self.cache / f"{_digest(runner, request, files)}.json"
        if not kept.exists():
            with tempfile.TemporaryDirectory() as folder:
                requested, said = Path(folder) / "request.json", Path(folder) / "answer.json"
                requested.write_text(json.dumps(request), encoding="utf-8")
                command = ["nice", str(self.python), str(runner), str(requested), str(said)]
                done = subprocess.run(command, cwd=folder, env=_environment(), capture_output=True, text=True)
                answer = said.read_text(encoding="utf-8") if said.exists() else json.dumps(_died(done))
            written = kept.with_suffix(f".{os.getpid()}")
            written.write_text(answer, encoding="utf-8")
            written.rename(kept)
        found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"), object_hook=_spelled)
        return found


def _spelled(found: dict[str, Any]) -> dict[str, Any]:
    """Names with lone surrogates as we keep them: as the escape that the file has."""
    return {
        key: [_word(each) for each in value] if isinstance(value, list) else value
        for key, value in found.items()
    }


def _word(value: Any) -> Any:
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _died(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return {"load": {"error": f"exit {done.returncode}", "message": done.stderr[-300:]}}


def _digest(runner: Path, request: dict[str, Any], files: list[Path]) -> str:
    found = hashlib.sha256(runner.read_bytes() + json.dumps(request).encode())
    for path in files:
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:32]


def _environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "OMP_NUM_THREADS": "1"}
