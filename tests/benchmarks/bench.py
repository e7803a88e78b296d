"""The environment of a case: folders, number of turns, peer, and how a side is run."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from .model import Run, Unmeasured
from .watch import watch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SIDES = HERE / "sides"
_NUMBERS = count()


@dataclass(frozen=True)
class Bench:
    """The settings of a call. `folder` has traces, `houses` the warehouses of this call.

    `peer` is HTA's Python and `traces` a folder of real traces, if they are known.
    In a smoke test our sides run in this process, and only their results are checked.
    """

    folder: Path
    houses: Path
    repeat: int = 5
    smoke: bool = False
    huge: bool = False
    peer: Path | None = None
    traces: Path | None = None

    def ours(self, do: str, **request: Any) -> Run:
        """One of our sides in a new process."""
        if self.smoke:
            return _here(do, json.loads(json.dumps(request, default=str)))
        return self._side([sys.executable, str(SIDES / "ours.py")], do, request)

    def floor(self, **request: Any) -> Run:
        """The bare copy in a new process."""
        return self._side([sys.executable, str(SIDES / "floor.py")], "copy", request)

    def theirs(self, do: str, **request: Any) -> Run:
        """HTA's side in a new process of its Python; raises Unmeasured without one."""
        return self._side([self.peer_python(), str(SIDES / "peer.py")], do, request)

    def peer_python(self) -> str:
        """HTA's Python; raises Unmeasured if it is not set."""
        if self.peer is None:
            raise Unmeasured("no peers with --smoke" if self.smoke else "TW_HTA_PYTHON is not set")
        return str(self.peer)

    def command(self, *command: str) -> Run:
        """An entire process; its output is the result."""
        done = watch(command, self.environment(), self.folder)
        if done.code:
            raise Unmeasured(f"{Path(command[0]).name} exits with {done.code}: {done.err.strip()[-200:]}")
        return Run(done.seconds, done.cpu_s, done.peak_bytes, done.out)

    def _side(self, command: list[str], do: str, request: Mapping[str, Any]) -> Run:
        text = json.dumps({"do": do, **request}, default=str)
        done = self.command(*command, text)
        printed = json.loads(done.answer.strip().rpartition("\n")[2])
        return Run(printed["seconds"], printed["cpu_s"], done.peak_bytes, printed["answer"])

    def turns(self, **sides: Callable[[], Run]) -> dict[str, list[Run]]:
        """Runs all sides alternately (A B A B …), each `repeat` times."""
        taken: dict[str, list[Run]] = {name: [] for name in sides}
        for _ in range(self.repeat):
            for name, side in sides.items():
                taken[name].append(side())
        return taken

    @contextmanager
    def passing(self) -> Iterator[Path]:
        """A temporary folder."""
        folder = self.houses / f"passing-{next(_NUMBERS)}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def environment(self) -> dict[str, str]:
        """The environment of the caller with our source first on PYTHONPATH, which does not affect HTA.

        Bytecode is written, since an installed peer has its bytecode too.
        """
        paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        own = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "TMPDIR": str(self.houses)}
        return {**{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}, **own}


def _here(do: str, request: dict[str, Any]) -> Run:
    """One of our sides in this process."""
    if str(SIDES) not in sys.path:
        sys.path.insert(0, str(SIDES))
    printed = json.loads(json.dumps(import_module("ours").SIDES[do](**request), default=str))
    return Run(printed["seconds"], printed["cpu_s"], 0, printed["answer"])


def tw() -> tuple[str, ...]:
    """The command `tw` of this Python."""
    found = Path(sys.executable).with_name("tw")
    return (str(found),) if found.exists() else (sys.executable, "-m", "tracewarehouse")
