"""Settings of an entire process: only the program `tw` has them, and it ends as other programs do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from cli_runner import environment

STATE = """
import gc, os, sys, threading
from importlib.util import find_spec
import numpy as np
if find_spec("torch"):
    import torch

def state():
    blas = {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}
    tasks = "/proc/self/task"
    threads = len(os.listdir(tasks)) if os.path.isdir(tasks) else threading.active_count()
    of_torch = torch.get_num_threads() if find_spec("torch") else None
    collector = gc.get_threshold(), gc.isenabled(), gc.get_freeze_count()
    return blas, threads, of_torch, collector, os._exit is exit_, sys.exit is leave, len(sys.meta_path)

exit_, leave = os._exit, sys.exit
before = state()
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)


@pytest.mark.parametrize("modules", ["tracewarehouse", "tracewarehouse.cli, tracewarehouse.warehouse"])
def test_an_import_changes_nothing_of_the_process(modules: str) -> None:
    done = python(f"{STATE}\nimport {modules}\nassert state() == before, (before, state())")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_program_has_its_settings() -> None:
    code = "import atexit\nfrom tracewarehouse.cli import main\nsys.argv = ['tw', '--version']\n"
    done = python(f"{STATE}\n{code}\natexit.register(lambda: print(state() == before))\nmain()")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "False")


def test_the_program_waits_for_threads_and_runs_what_others_registered() -> None:
    code = """
import atexit, sys, threading, time, weakref
from tracewarehouse.cli import main
class Held: pass
held = Held()
weakref.finalize(held, print, "finalized")
atexit.register(print, "registered")
threading.Thread(target=lambda: (time.sleep(0.3), print("thread"))).start()
sys.argv = ["tw", "no-such-command"]
main()
"""
    done = python(code)
    assert (done.returncode, done.stdout.split()) == (2, ["thread", "registered", "finalized"])


def test_slim_imports_lack_only_types_and_documentation() -> None:
    code = """
from tracewarehouse import slim_imports
slim_imports.install()
import numpy as np, pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet
from numpy.typing import NDArray
print(np.linalg.svd(np.eye(2)).S.tolist(), NDArray[np.int64].__origin__ is np.ndarray)
print(pc.and_(pa.array([True]), False).to_pylist(), pc.utf8_zfill(pa.array(["7"]), 3).to_pylist())
print(pc.round(pa.array([1.26]), ndigits=1).to_pylist(), hasattr(pc, "nope"))
"""
    done = python(code)
    assert (done.stderr, done.stdout.splitlines()) == (
        "",
        ["[1.0, 1.0] True", "[False] ['007']", "[1.3] False"],
    )


def test_slim_functions_of_scipy_are_those_of_scipy() -> None:
    code = """
import sys
from scipy.special import digamma, stdtrit, zeta
print(digamma(2.5), stdtrit(3, 0.975), zeta(2, 0.5), "scipy._lib._array_api" in sys.modules)
from scipy.special import polygamma
print(polygamma(1, 0.5))
"""
    slim = python(f"from tracewarehouse import slim_imports; slim_imports.install(){code}")
    plain = python(code)
    assert (slim.stderr, slim.stdout) == ("", plain.stdout.replace("True", "False"))
    assert "True" in plain.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full")
def test_output_to_a_full_disk_is_an_error() -> None:
    code = "import sys; from tracewarehouse.cli import main; sys.argv = ['tw', 'list', '--json']; main()"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, env=environment(), text=True
        )
    assert done.returncode == 1 and "No space left on device" in done.stderr


def test_the_version_needs_neither_numpy_nor_pyarrow() -> None:
    code = "import atexit, sys\nfrom tracewarehouse.cli import main\nsys.argv = ['tw', '--version']\n"
    code += "atexit.register(lambda: print({'numpy', 'pyarrow', 'duckdb'} & set(sys.modules)))\nmain()"
    assert python(code).stdout.splitlines()[-1] == "set()"


def test_slim_connections_have_relations_and_rows() -> None:
    code = """
from tracewarehouse import slim_imports
slim_imports.install()
import numpy as np, sys, duckdb
con = duckdb.connect()
print(con.execute("SELECT 1 AS a").to_arrow_table().to_pylist(), "duckdb._relation" in sys.modules)
print(con.sql("SELECT 2 AS b").filter("b > 1").to_arrow_table().to_pylist(), duckdb.__version__)
print(con.execute("SELECT 3 AS c").to_arrow_table().to_pylist())
print(np.unique([2, 1, 2]), np.median([1.0, 2.0]), "numpy.ma" in sys.modules)
print(np.ma.masked_array([1], [True]).sum() is np.ma.masked)
"""
    done = python(f"import warnings; warnings.simplefilter('ignore')\n{code}")
    lines = [
        "[{'a': 1}] False",
        f"[{{'b': 2}}] {duckdb.__version__}",
        "[{'c': 3}]",
        "[1 2] 1.5 False",
        "True",
    ]
    assert (done.stderr, done.stdout.splitlines()) == ("", lines)
