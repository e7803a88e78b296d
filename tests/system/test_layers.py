"""The layers of the package: modules import only from lower layers, and each foreign library has one home."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from conftest import ROOT
from house import nodes

PACKAGE = ROOT / "src" / "tracewarehouse"

# Lowest first. A module may import from the lines above its own and, in its line, from those before it.
LAYERS = (
    (
        "compare",
        "present",
        "version",
        "late_regex",
        "exact_text",
        "hints",
        "errors",
        "location",
        "slim_imports",
        "temp_folders",
        "limits",
        "training_log",
    ),
    ("contracts",),
    ("engines",),
    ("duck",),
    ("compare.stats",),
    ("display_names", "present.plot", "present.render", "result"),
    ("formats", "simulation"),
    ("storage",),
    ("analyses", "runs", "query"),
    ("compare.metric",),
    (
        "ingest",
        "derive",
        "findings",
        "present.pages",
        "export",
        "compare.diff",
        "compare.history",
        "present.report",
        "present.answers",
        "upkeep",
    ),
    ("devtools",),
    ("warehouse", "notebook", "__init__"),
    ("serve",),
    ("cli", "hta", "__main__"),
)
# Folders with parts in several layers.
SEVERAL = {"compare", "present"}
APART = {
    ("storage", "formats"),
    ("storage", "result"),
    ("formats", "result"),
    ("present.render", "export"),
    ("simulation", "formats"),
    ("hta", "cli"),
}

HOMES = {
    "adbc_driver_manager": {"formats"},
    "adbc_driver_sqlite": {"formats"},
    "altair": {"present.plot"},
    "vl_convert": {"present.plot"},
    "duckdb": {"duck"},
    "click": {"cli"},
    "jinja2": {"present.pages"},
    "rich": {"present.render"},
    "numpy": {"compare.stats", "ingest", "formats", "derive"},
    "scipy": {"compare.stats"},
    "isal": {"formats", "storage"},
    "obstore": {"storage"},
    "platformdirs": {"temp_folders"},
    "polars": {"result", "warehouse"},
    "pandas": {"result", "hta"},
    "plotly": {"hta"},
    "mcp": {"serve"},
    "pydantic": {"serve"},
    "starlette": {"serve"},
    "uvicorn": {"serve"},
    "pyspark": {"engines"},
    "ray": {"engines"},
    "pyarrow": {
        "slim_imports",
        "duck",
        "result",
        "storage",
        "ingest",
        "formats",
        "derive",
        "export",
        "serve",
    },
}
# Records are structs of msgspec.
EVERYWHERE = sys.stdlib_module_names | {"msgspec", "tracewarehouse"}


@cache
def modules() -> tuple[Path, ...]:
    return tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def parts() -> frozenset[str]:
    """The modules and folders right under the package, or under a folder of several layers."""
    return frozenset(top(path) for path in modules())


def top(path: Path) -> str:
    """The module or folder right under the package, or under a folder of several layers."""
    return _top([name.removesuffix(".py") for name in path.relative_to(PACKAGE).parts])


def _top(names: Sequence[str]) -> str:
    return ".".join(names[:2]) if names[0] in SEVERAL and names[1:2] != ["__init__"] else names[0]


@cache
def imports(path: Path) -> tuple[tuple[str, int, bool], ...]:
    """Each imported module by its full name, its line, and whether only type checkers see it."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    hidden = {
        inner
        for node in nodes(path)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    package = ["tracewarehouse", *path.relative_to(PACKAGE).parts[:-1]]
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, node in hidden) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{name}.{alias.name}", node.lineno, node in hidden


def module_name(path: Path) -> str:
    """The dotted name of a module."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def module_names() -> frozenset[str]:
    return frozenset(map(module_name, modules()))


def own_imports(path: Path) -> Iterator[str]:
    """The modules of our own that a module imports, inside functions too, but not for types alone."""
    known = module_names()
    for name, _, only_types in imports(path):
        if only_types:
            continue
        found = name if name in known else name.rpartition(".")[0]
        if found in known:
            yield found


def target(name: str) -> str | None:
    """The part of our own package that a full name belongs to, None for what is in no layer."""
    names = name.split(".")
    if names[0] != "tracewarehouse":
        return None  # the version is a constant, good for everyone
    return name if len(names) > 1 and (name := _top(names[1:])) in parts() else "__init__"


def test_every_module_has_a_layer() -> None:
    assert sorted(name for layer in LAYERS for name in layer) == sorted({top(path) for path in modules()})


def test_imports_come_from_below() -> None:
    order = [name for layer in LAYERS for name in layer]
    upward = []
    for path in modules():
        here = top(path)
        for name, line, _ in imports(path):
            there = target(name)
            if there is None or there == here:
                continue
            if order.index(there) > order.index(here) or (here, there) in APART:
                upward.append(f"{path.relative_to(ROOT)}:{line}: {here} imports {there}, not below it")
    assert not upward, "\n".join(upward)


def test_no_import_cycle_between_files() -> None:
    graph = {module_name(path): set(own_imports(path)) for path in modules()}
    remaining = {name: below - {name} for name, below in graph.items()}
    while free := [name for name, below in remaining.items() if not below & remaining.keys()]:
        for name in free:
            del remaining[name]
    assert not remaining, f"these modules import each other: {sorted(remaining)}"


def test_foreign_libraries_are_imported_at_home_only() -> None:
    astray = []
    for path in modules():
        for name, line, only_types in imports(path):
            library = name.split(".")[0]
            if library in EVERYWHERE or only_types:
                continue
            if top(path) not in HOMES.get(library, ()):
                astray.append(f"{path.relative_to(ROOT)}:{line}: {library} has no home here")
    assert not astray, "\n".join(astray)


def modules_after(code: str) -> set[str]:
    """The libraries with a home that a fresh Python holds after running the code."""
    show = f"atexit.register(lambda: print(*sorted(set(sys.modules) & {set(HOMES)!r})))"
    script = f"import atexit, sys\n{show}\n{code}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_contracts_load_without_libraries() -> None:
    assert modules_after("import tracewarehouse.contracts.catalog, tracewarehouse.devtools.checkout") == set()


def test_statistics_are_imported_on_use() -> None:
    assert modules_after("import tracewarehouse.compare.stats.verdict") <= {"click"}


def test_a_bare_import_is_light() -> None:
    assert modules_after("import tracewarehouse") <= {"click"}


def test_help_is_light() -> None:
    code = "from tracewarehouse.cli import main\nsys.argv = ['tw', '--help']\nmain()"
    assert modules_after(code) == {"click"}


# They speak to the store, which may be elsewhere; `Warehouse` takes a path, and so does what has no store.
ABOVE_STORAGE = (
    "runs",
    "query",
    "compare.metric",
    "export",
    "ingest",
    "derive",
    "compare.diff",
    "compare.history",
    "findings",
    "present.report",
)
LOCAL_ONLY = {"ingest/inbox.py", "ingest/handler.py"}


def path_names(path: Path) -> Iterator[tuple[int, str]]:
    """The line and name of each parameter and field of type Path."""
    for node in nodes(path):
        if isinstance(node, (ast.arg, ast.AnnAssign)) and getattr(node.annotation, "id", None) == "Path":
            yield node.lineno, node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)


def test_layers_above_storage_take_the_store() -> None:
    """Not the folder of a warehouse: it exists only on a local disk."""
    folders = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in modules()
        if top(path) in ABOVE_STORAGE and str(path.relative_to(PACKAGE)) not in LOCAL_ONLY
        for line, name in path_names(path)
        if name in ("root", "warehouse")
    ]
    assert not folders, "\n".join(folders)


def test_contributing_names_what_exists() -> None:
    text = (ROOT / ".github" / "CONTRIBUTING.md").read_text("utf-8")
    table = text.partition("## Where it is decided")[2].partition("## Add")[0]
    cells = [line.split("|")[2] for line in table.splitlines() if "? |" in line]
    paths = [PACKAGE / name for cell in cells for name in re.findall(r"`([\w/]+\.py)`", cell)]
    assert len(cells) > 10 and all(path.exists() for path in paths)
    code = "".join(path.read_text("utf-8") for path in paths)
    places = [(name, code) for cell in cells for name in re.findall(r"`([A-Za-z_]+)`", cell)]
    places += [
        (name, (PACKAGE / path).read_text("utf-8"))
        for name, path in re.findall(r"`([A-Za-z_]+)`\s\(`([\w/]+\.py)`", text)
    ]
    assert [
        name for name, code in places if not re.search(rf"(?m)(def|class) {name}\b|^{name}\b.*? = ", code)
    ] == []
