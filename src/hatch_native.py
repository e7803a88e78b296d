"""The build hook of hatchling that puts the native scanner and the compiled contracts into a wheel, or beside
their sources when editable.

`TW_NO_NATIVE=1` installs without it, `TW_WHEEL_TARGET` builds a wheel for another platform. Where it cannot
be built the installation fails with one sentence: one that works, but several times slower, would not be
noticed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import nullcontext, suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FOLDER = "tracewarehouse/formats/kineto"
_CONTRACTS = "tracewarehouse/contracts"


def _builder(root: str) -> ModuleType:
    """The module that builds: by its path, as the package is not installed yet."""
    spec = spec_from_file_location("build_native_scanner", Path(root, "src", _FOLDER, "build.py"))
    if spec is None or spec.loader is None:
        sys.exit("the source of the native scanner is missing")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _write_contracts(root: str, folder: Path, editable: bool) -> Path:
    """Writes the compiled contracts; does nothing if a checkout is not writable."""
    sys.path.insert(0, str(Path(root, "src")))
    from tracewarehouse.contracts.catalog import COMPILED_FILE, Catalog

    with suppress(OSError) if editable else nullcontext():
        (folder / COMPILED_FILE.name).write_bytes(Catalog.read(Path(root, "sql")).compiled(dated=editable))
    return folder / COMPILED_FILE.name


class NativeScannerHook(BuildHookInterface[Any]):
    """Compiles the contracts, and scan.c for one platform; the wheel fits all versions of Python on it."""

    _work: str | None = None

    def dependencies(self) -> list[str]:
        """A compiler from PyPI where the machine has none."""
        found: list[str] = _builder(self.root).requirements()
        return found

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds; outside the source tree for a wheel."""
        builder = _builder(self.root)
        if sys.platform == "win32":
            sys.exit(builder.WINDOWS)
        editable = version == "editable"
        self._work = None if editable else tempfile.mkdtemp()
        source = Path(self.root, "src")
        path = _write_contracts(self.root, Path(self._work or source / _CONTRACTS), editable)
        if not editable:
            build_data["force_include"][str(path)] = f"{_CONTRACTS}/{path.name}"
        if not builder.wanted():
            return
        try:
            target = builder.wheel_target()
            path = builder.build(Path(self._work or source / _FOLDER), target=target)
        except builder.BuildError as error:
            sys.exit(str(error) if os.environ.get("TW_WHEEL_TARGET") else f"{builder.REMEDY}\n{error}")
        if not editable:
            build_data["force_include"][str(path)] = f"{_FOLDER}/{path.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{target.tag if target else builder.platform_tag()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what was built outside the source tree."""
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)
