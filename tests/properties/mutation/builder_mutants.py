"""Builders broken on purpose: one edit of a module's source, of the kinds that a slip of a hand makes.

As a pytest plugin it puts one broken module in the place of the real one: `TW_BROKEN` names the module and
the number of the edit.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Final

BROKEN: Final = "TW_BROKEN"
FOLDER: Final = Path(__file__).parents[3] / "src" / "tracewarehouse" / "ingest" / "tables"
PACKAGE: Final = "tracewarehouse.ingest.tables"
# What has no rows that could be wrong.
_NO_BUILDERS: Final = ("__init__", "model")
_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
_JOINED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
_WORDS: Final = {"right": "left", "left": "right"}


@dataclass(frozen=True)
class Edit:
    """A mutant: the module, the line, what was done to it, and the whole source."""

    module: str
    line: int
    what: str
    source: str


def modules() -> list[str]:
    """The builders, by name."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in _NO_BUILDERS)


def count(module: str) -> int:
    """How many edits there are of a module's functions."""
    return len(list(_places(ast.parse(_source(module)))))


def mutants(module: str) -> list[Edit]:
    """Every edit of a module's functions."""
    return [mutant(module, number) for number in range(count(module))]


def mutant(module: str, number: int) -> Edit:
    """One edit."""
    return _edited(module, _source(module), number)


def _source(module: str) -> str:
    return (FOLDER / f"{module}.py").read_text(encoding="utf-8")


def _edited(module: str, source: str, number: int) -> Edit:
    tree = ast.parse(source)
    node, kind = list(_places(tree))[number]
    before = ast.unparse(node)
    _change(node, kind)
    what = f"{before} → {ast.unparse(node)}"
    return Edit(module, getattr(node, "lineno", 0), what, ast.unparse(tree))


def _places(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Each node that can be changed, and how; annotations are no code."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for statement in function.body:
            for node in _code(statement):
                yield from ((node, kind) for kind in _kinds(node))


def _code(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef):
        return  # it is met for itself
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _code(child)


def _kinds(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARED:
        yield "compare"
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _JOINED and not _is_text(node):
        yield "join"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        yield "invert"
    if isinstance(node, ast.Constant) and node.value in _WORDS:
        yield "side"
    if isinstance(node, ast.BoolOp):
        yield "condition"


def _is_text(node: ast.BinOp | ast.AugAssign) -> bool:
    """Texts are added, and nothing else can be done with them."""
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
    constants = [part.value for part in parts if isinstance(part, ast.Constant)]
    joined = any(isinstance(part, ast.JoinedStr) for part in parts)
    return joined or any(isinstance(value, str) for value in constants)


def _change(node: ast.AST, kind: str) -> None:
    if isinstance(node, ast.Compare):
        node.ops[0] = _COMPARED[type(node.ops[0])]()
    elif isinstance(node, (ast.BinOp, ast.AugAssign)):
        node.op = _JOINED[type(node.op)]()
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd()  # as if it were not there, but for flags
        node.operand = ast.Call(ast.Name("_same"), [node.operand], [])
    elif isinstance(node, ast.Constant):
        node.value = _WORDS[str(node.value)]
    elif isinstance(node, ast.BoolOp):
        node.values = node.values[:1]
    assert kind


class _Finder(MetaPathFinder, Loader):
    """Gives the broken source for one module."""

    def __init__(self, edit: Edit) -> None:
        self.edit = edit

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the broken module."""
        if fullname != f"{PACKAGE}.{self.edit.module}":
            return None
        return spec_from_loader(fullname, self, origin=str(FOLDER / f"{self.edit.module}.py"))

    def exec_module(self, module: ModuleType) -> None:
        """Runs the broken source."""
        module.__dict__["_same"] = lambda value: _Same(value)
        exec(compile(self.edit.source, f"broken {self.edit.module}", "exec"), module.__dict__)


class _Same:
    """A value whose plus is the value itself: flags have none."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __pos__(self) -> object:
        return self.value


def pytest_configure() -> None:
    """Puts the broken module in its place."""
    if BROKEN in os.environ:
        module, _, number = os.environ[BROKEN].partition(":")
        assert not any(name.startswith(PACKAGE) for name in sys.modules)
        sys.meta_path.insert(0, _Finder(mutant(module, int(number))))
