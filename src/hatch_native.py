"""The build hook of hatchling that puts the native scanner into a wheel, or beside its source when editable.

`TW_NO_NATIVE=1` installs without it, `TW_WHEEL_TARGET` builds a wheel for another platform. Where it cannot
be built the installation fails with one sentence: one that works, but several times slower, would not be
noticed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FOLDER = "tracewarehouse/formats/kineto"


def _builder(root: str) -> ModuleType:
    """The module that builds: by its path, as the package is not installed yet."""
    spec = spec_from_file_location("build_native_scanner", Path(root, "src", _FOLDER, "build.py"))
    if spec is None or spec.loader is None:
        sys.exit("the source of the native scanner is missing")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class NativeScannerHook(BuildHookInterface[Any]):
    """Compiles scan.c for one platform; the wheel fits all versions of Python on it."""

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
        if not builder.wanted():
            return
        beside = Path(self.root, "src", _FOLDER)
        editable = version == "editable"
        self._work = None if editable else tempfile.mkdtemp()
        try:
            target = builder.wheel_target()
            path = builder.build(beside if editable else Path(self._work or ""), target=target)
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
