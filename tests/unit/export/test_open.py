"""`tw open`: serves a cut-out once, to the page of Perfetto."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from cli_runner import TW, environment, process

ADDRESS = "http://127.0.0.1:9001"


def _is_free() -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", 9001)) != 0


@pytest.mark.skipif(not _is_free(), reason="another program uses the port of Perfetto")
def test_the_trace_is_served_once_to_perfetto(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"ranks": 2, "steps": 3, "layers": 1, "hidden": 256, "sequence": 256}
    tw.simulate(tmp_path / "slow", injections=["slow-rank:rank=1,what=compute,factor=3"], **settings)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "slow", jobs=1)
    call = ("open", "slow", "--around", "slow_rank", "-w", str(tmp_path / "warehouse"))
    started = subprocess.Popen(
        [*TW, *call],
        env=environment({"BROWSER": "true"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        *_, opened = _until_opening(started)
        assert opened == f"opening https://ui.perfetto.dev/#!/?url={ADDRESS}/slow-slow_rank.json\n"
        taken = process(*call, env={"BROWSER": "true"})
        assert taken.code == 1 and "port 9001" in taken.errors[0] and "tw export trace" in taken.errors[1]
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{ADDRESS}/other.json")
        with urllib.request.urlopen(f"{ADDRESS}/slow-slow_rank.json") as answer:
            assert answer.headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
            events = json.loads(answer.read())["traceEvents"]
        out, _ = started.communicate(timeout=30)
    finally:
        started.kill()
    assert (started.returncode, out) == (0, "Perfetto has loaded slow-slow_rank.json\n")
    assert _is_free()
    # The cut-out has both ranks: one waits, the other computes.
    names = {(each["args"]["name"]) for each in events if each["name"] == "process_name"}
    assert len(names) >= 2 and any("gemm" in str(each["name"]) for each in events)


def _until_opening(started: subprocess.Popen[str]) -> list[str]:
    """The lines on stderr up to the address."""
    assert started.stderr is not None
    lines = []
    for line in started.stderr:
        lines.append(line)
        if line.startswith("opening "):
            break
    return lines
