"""The bench in small: every case runs and its answers are right. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from conftest import ROOT


def test_every_case_gives_right_answers(tmp_path: Path) -> None:
    told = tmp_path / "rows.json"
    command = [sys.executable, "-m", "tests.bench", "--smoke", "--json", str(told)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(told.read_text(encoding="utf-8"))["rows"]
    assert not [row for row in rows if row["wrong"]]
    measured = {row["case"] for row in rows}
    assert {"ingest-one", "peak-memory", "size", "hta-analyses", "one-run", "many-ranks"} <= measured
