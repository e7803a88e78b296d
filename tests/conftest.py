"""What every test may use."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parent.parent


def real_traces() -> Path | None:
    """The folder of real traces that tests use where it is present, else None."""
    folder = Path(os.environ.get("TW_TRACES", ROOT.parent / "shared" / "traces"))
    return folder if folder.is_dir() else None
