"""Hints: Python's form in the library, the shell's form on the command line, and no others."""

from __future__ import annotations

import ast
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_runner import tw
from conftest import ROOT
from house import nodes
from tracewarehouse import hints
from tracewarehouse.cli.app import SECTIONS
from tracewarehouse.errors import WarehouseError
from tracewarehouse.hints import Hint, cli_text
from tracewarehouse.warehouse import Warehouse

PACKAGE = ROOT / "src" / "tracewarehouse"
# The command line itself and its texts, commands of pages and of the server, and tools of a checkout.
OWN_COMMANDS = (
    "cli/",
    "serve/",
    "present/answers.py",
    "present/report/",
    "present/render/",
    "devtools/",
    "hints.py",
)
NAMES = [name for names in SECTIONS.values() for name in names if name != "dev"]
COMMAND = re.compile(rf"\btw ({'|'.join(NAMES)})\b")


def test_a_hint_is_python_text_with_a_cli_form() -> None:
    hint = hints.fill("{} of {}: {}, {}", 1, 3, hints.call("verify"), hints.option("jobs", 1))
    assert hint == "1 of 3: wh.verify(), jobs=1"
    assert cli_text(hint) == "1 of 3: tw verify, --jobs 1"
    assert cli_text("plain") == "plain"
    assert type(hints.fill("{} ranks", 3)) is str


def test_hints_nest_and_survive_pickling() -> None:
    hint = pickle.loads(pickle.dumps(hints.fill("not recorded: {}", hints.record("coverage"))))
    assert hint == 'not recorded: wh.record(analyses="coverage")'
    assert cli_text(hint) == "not recorded: tw record --all --analysis coverage"


@pytest.mark.parametrize(
    ("hint", "python", "cli"),
    [
        (hints.analysis("idle_breakdown"), "wh.idle_breakdown()", "tw show idle_breakdown"),
        (hints.query("FROM kernels"), 'wh.query("FROM kernels")', 'tw query "FROM kernels"'),
        (hints.ingest(), "wh.ingest(PATH)", "tw ingest PATH"),
        (hints.option("all_steps"), "all_steps=True", "--all-steps"),
        (hints.option("time_unit", "ns"), 'time_unit="ns"', "--time-unit ns"),
    ],
)
def test_commands_have_both_forms(hint: Hint, python: str, cli: str) -> None:
    assert (hint, hint.cli) == (python, cli)


def test_an_error_shows_python_in_notebooks_and_the_command_in_shells(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError) as raised:
        Warehouse(tmp_path / "w").runs()
    assert raised.value.hint == "wh.ingest(PATH) creates one"
    assert raised.value.__notes__ == ["hint: wh.ingest(PATH) creates one"]
    shell = "tw ingest PATH creates one; select another with -w DIR or TW_WAREHOUSE"
    done = tw("runs", "--json", "-w", tmp_path / "w")
    assert done.errors[1] == f"hint: {shell}"
    assert json.loads(done.out)["error"]["hint"] == shell


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """String literals of a module, except docstrings and the CLI forms of hints."""
    excluded: set[ast.AST] = set()
    for node in nodes(path):
        if isinstance(node, ast.Expr):
            excluded.add(node.value)
        elif isinstance(node, ast.Call) and "Hint" in (
            getattr(node.func, "id", None), getattr(node.func, "attr", None),
        ):  # fmt: skip
            excluded |= set(ast.walk(node))
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in excluded:
            yield node.lineno, node.value


def test_the_library_names_no_shell_commands() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not path.relative_to(PACKAGE).as_posix().startswith(OWN_COMMANDS)
        for line, text in texts(path)
        # What another process did has the name of its command.
        if COMMAND.search(text) and "of another process" not in text
    ]
    assert not found, "\n".join(found)
