"""The scanner with address and undefined-behavior sanitizers, on random and damaged texts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tracewarehouse.formats.kineto import build

HERE = Path(__file__).parent
CHECKS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
# For a separate process that preloads the sanitizer.
SCRIPT = """
import sys
from pathlib import Path
from tracewarehouse.formats.kineto import library as native
library = native.load(Path(sys.argv[1]), Path(native.__file__).with_name("scan.c"))
native.library_of_package = lambda: library
import test_scan_fuzz as fuzz
import test_scan_columns as columns
for seed in range(int(sys.argv[2])):
    fuzz.check_rows(seed)
    fuzz.check_verdict(seed)
for depth in (65, 129, 100_000) if sys.argv[3] == "all" else ():
    columns.test_deeply_nested_events_are_kept(depth)
if sys.argv[3] == "all":
    columns.test_every_column_has_its_key()
    columns.test_every_allocation_that_fails_is_a_memory_error()
    columns.test_a_too_long_element_waits_for_the_caller()
    columns.test_feed_array_appends_elements()
    for limits in ({"words_most": 7}, {"words_bytes": 60}, {"words_bytes": 1}):
        columns.test_a_full_dictionary_restarts_with_the_next_batch(limits)
    columns.test_a_batch_grows()
print("checked")
"""


def sanitizer(compiler: list[str]) -> str | None:
    """The sanitizer library to preload; None if the compiler has none."""
    command = [*compiler, "-print-file-name=libasan.so"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return found if Path(found).is_absolute() else None


@pytest.mark.deep
@pytest.mark.parametrize(
    ("flags", "which"),
    [((), "all"), (("-DPLAIN_LOOPS",), "all"), (("-DPROBES=1",), "rows")],
    ids=["usual", "plain_loops", "dictionaries_that_restart_early"],
)
def test_no_sanitizer_check_fails(flags: tuple[str, ...], which: str, tmp_path: Path) -> None:
    compiler = build.system_compiler()
    preload = sanitizer(compiler) if compiler else None
    if preload is None:
        pytest.skip("no compiler with an address sanitizer")
    library = build.build(tmp_path, *CHECKS, *flags)
    path = os.pathsep.join([str(HERE), *sys.path])
    env = {**os.environ, "LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": path}
    command = [sys.executable, "-c", SCRIPT, str(library), "2000", which]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "checked\n"), done.stderr[-5000:]
