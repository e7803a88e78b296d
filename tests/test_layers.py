"""The order of the house: modules import from below only, and each foreign library has one home."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT

PACKAGE = ROOT / "src" / "tracewarehouse"

# Lowest first. A module may import from the lines above its own and, in its line, from those before it.
LAYERS = (
    ("errors", "units", "lean"),
    ("sqltext", "params", "block", "columns", "contract", "between", "sqlfiles", "catalog", "sqlstyle"),
    ("arrow", "engine", "checks"),
    ("stats",),
    ("plain", "plot", "result"),
    ("formats", "simulation"),
    ("storage",),
    ("analyses", "select"),
    ("metric",),
    ("export", "render", "ingest", "handler", "derive", "diff", "history", "findings", "report"),
    ("generate", "definitions", "dev"),
    ("warehouse", "__init__"),
    ("demo",),
    ("cli", "hta", "__main__"),
)
APART = {
    ("storage", "formats"),
    ("storage", "result"),
    ("formats", "result"),
    ("render", "export"),
    ("simulation", "formats"),
    ("hta", "cli"),
}

HOMES = {
    "altair": {"plot"},
    "vl_convert": {"plot"},
    "duckdb": {"engine"},
    "click": {"cli"},
    "rich": {"render"},
    "msgspec": {"formats"},
    "numpy": {"stats", "ingest", "formats"},
    "scipy": {"stats"},
    "isal": {"formats"},
    "polars": {"result", "warehouse"},
    "pandas": {"result", "hta"},
    "plotly": {"hta"},
    "pyarrow": {"arrow", "engine", "result", "storage", "ingest", "formats"},
}
STANDARD = sys.stdlib_module_names


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def top(path: Path) -> str:
    """The module or folder right under the package."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Each imported module by its full name, its line, and whether only type checkers see it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    package = ["tracewarehouse", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, node in hidden) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{name}.{alias.name}", node.lineno, node in hidden


def target(name: str) -> str | None:
    """The part of our own package that a full name belongs to, None for what is in no layer."""
    parts = name.split(".")
    if parts[0] != "tracewarehouse" or parts[1:] == ["__version__"]:
        return None  # the version is a constant, good for everyone
    known = {top(path) for path in modules()}
    return parts[1] if len(parts) > 1 and parts[1] in known else "__init__"


def test_every_module_has_a_layer() -> None:
    known = {name for layer in LAYERS for name in layer}
    assert {top(path) for path in modules()} <= known


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_come_from_below(path: Path) -> None:
    order = [name for layer in LAYERS for name in layer]
    here = top(path)
    for name, line, _ in imports(path):
        there = target(name)
        if there is None or there == here:
            continue
        wrong = order.index(there) > order.index(here) or (here, there) in APART
        assert not wrong, f"{path.relative_to(ROOT)}:{line}: {here} imports {there}, which is not below it"


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_foreign_libraries_stay_at_home(path: Path) -> None:
    for name, line, only_types in imports(path):
        library = name.split(".")[0]
        if library in STANDARD or library == "tracewarehouse" or only_types:
            continue
        assert library in HOMES, f"{path.relative_to(ROOT)}:{line}: {library} has no home in HOMES"
        assert top(path) in HOMES[library], f"{path.relative_to(ROOT)}:{line}: {library} is not at home here"


def modules_after(code: str) -> set[str]:
    """The libraries with a home that a fresh Python holds after running the code."""
    script = f"import sys\n{code}\nprint(*sorted(set(sys.modules) & {set(HOMES)!r}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_contracts_load_without_libraries() -> None:
    assert modules_after("import tracewarehouse.catalog, tracewarehouse.generate") == set()


def test_statistics_come_late() -> None:
    assert modules_after("import tracewarehouse.stats") <= {"click"}


def test_a_bare_import_is_light() -> None:
    assert modules_after("import tracewarehouse") <= {"click"}


def test_help_is_light() -> None:
    code = "from tracewarehouse.cli import main\nsys.argv = ['tw', '--help']\n"
    assert modules_after(code + "try:\n    main()\nexcept SystemExit:\n    pass") == {"click"}
