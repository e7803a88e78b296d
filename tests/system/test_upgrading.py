"""The guide's table of names covers all that 0.2.0 had and this release does not."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import click

import tracewarehouse as tw
from tracewarehouse.cli.app import app
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.result import Result
from tracewarehouse.warehouse import Warehouse

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "notebooks" / "guides" / "upgrading.md").read_text(encoding="utf-8")
BEFORE = json.loads((ROOT / "tests/data/releases/0.2.0/names.json").read_text(encoding="utf-8"))


def options(group: click.Group = app, words: str = "tw") -> Iterator[tuple[str, set[str]]]:
    """Each command with its options."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        own = (each for each in command.get_params(ctx) if isinstance(each, click.Option))
        yield f"{words} {name}", {name for each in own for name in (*each.opts, *each.secondary_opts)}
        if isinstance(command, click.Group):
            yield from options(command, f"{words} {name}")


def parameters(name: str) -> list[str] | None:
    """The parameters of a public method, None if there is none of that name."""
    owner = {"Warehouse": Warehouse, "Result": Result}[name.partition(".")[0]]
    member = getattr(owner, name.partition(".")[2], None)
    return list(inspect.signature(member).parameters) if callable(member) else None if member is None else []


def names() -> dict[str, dict[str, list[str]] | list[str]]:
    """The public names of this release: `make_release_warehouse.py` keeps them for tests of later ones."""
    owners = (("Warehouse", Warehouse), ("Result", Result))
    members = sorted(f"{owner}.{name}" for owner, of in owners for name in vars(of) if name[0] != "_")
    contracts = Catalog.load().contracts.values()
    return {
        "commands": {command: sorted(found) for command, found in options()},
        "methods": {name: found for name in members if (found := parameters(name)) is not None},
        "columns": {each.name: [one.name for one in each.columns] for each in contracts},
        "public": list(tw.__all__),
    }


def gone() -> Iterator[str]:
    """The names of 0.2.0 that no longer exist, as the guide writes them."""
    now = dict(options())
    for command, names in BEFORE["commands"].items():
        if command not in now:
            yield command
        else:
            yield from (name for name in names if name not in now[command])
    for method, names in BEFORE["methods"].items():
        found = parameters(method)
        if found is None:
            yield method
        else:
            yield from (name for name in names if name not in found)
    catalog = Catalog.load()
    columns = {each.name: {one.name for one in each.columns} for each in catalog.contracts.values()}
    for relation, names in BEFORE["columns"].items():
        if relation not in columns:
            yield relation
        else:
            yield from (name for name in names if name not in columns[relation])
    yield from (name for name in BEFORE["public"] if name not in tw.__all__)


def rows() -> list[tuple[str, str]]:
    """The cells of the table of names."""
    table = GUIDE.partition("## Names since 0.2.0")[2].partition("Meanings that changed")[0]
    return [(row[1], row[2]) for line in table.splitlines() if len(row := line.split("|")) == 4][2:]


def test_every_name_that_is_gone_is_in_the_guide() -> None:
    before = " ".join(cell for cell, _ in rows())
    named = set(re.findall(r"[\w.-]+", before)) | set(re.findall(r"`(tw [a-z_ ]+?)(?: --[^`]*)?`", before))
    last = {name.rpartition(".")[2] for name in named}
    assert {name for name in gone() if name not in named | last} == set()


def test_what_the_guide_names_instead_exists() -> None:
    now, after = dict(options()), " ".join(cell for _, cell in rows())
    every = {name for names in now.values() for name in names}
    for command in re.findall(r"`(tw [a-z_ ]+[a-z])", after):
        assert command in now or command.rpartition(" ")[0] in now, command
    assert {name for name in re.findall(r"--[a-z-]+", after) if name not in every} == set()
    assert {
        name for name in re.findall(r"`((?:Warehouse|Result)\.\w+)`", after) if parameters(name) is None
    } == set()
