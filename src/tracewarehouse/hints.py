"""Hints and notices that name a command: as a string in Python's form, with `cli` for the command line.

The library never prints: notebooks show the string itself, the command line shows `cli_text` of it.
"""

from __future__ import annotations

import json
from shlex import quote


class Hint(str):
    """A text in Python's form; `cli` is the same text with commands of the shell."""

    cli: str

    def __new__(cls, python: str, cli: str) -> Hint:
        hint = super().__new__(cls, python)
        hint.cli = cli
        return hint

    def __reduce__(self) -> tuple[type[Hint], tuple[str, str]]:
        """Keeps both forms when a worker process pickles the hint."""
        return Hint, (str(self), self.cli)


def cli_text(text: str) -> str:
    """The text as the command line prints it."""
    return text.cli if isinstance(text, Hint) else text


def fill(template: str, *values: object) -> str:
    """`template.format(*values)` in both forms; a plain string if they are equal."""
    shell = (cli_text(value) if isinstance(value, str) else value for value in values)
    python, cli = template.format(*values), template.format(*shell)
    return python if python == cli else Hint(python, cli)


def analysis(name: str) -> Hint:
    """Runs an analysis."""
    return Hint(f"wh.{name}()", f"tw show {name}")


def query(sql: str) -> Hint:
    """Runs a query without double quotes."""
    return Hint(f'wh.query("{sql}")', f'tw query "{sql}"')


def ingest(path: str = "PATH") -> Hint:
    """Ingests traces."""
    return Hint(f"wh.ingest({path})", f"tw ingest {path}")


def ingest_again() -> str:
    """What brings expired tables back."""
    return fill("ingest the traces again with {}", ingest())


def rebuild() -> str:
    """What brings tables that a run was stored without."""
    return fill("{} rebuilds the newest version of each run", call("upgrade"))


def ingest_inbox() -> Hint:
    """Ingests the traces in the inbox."""
    return Hint("wh.ingest(inbox=True)", "tw ingest --inbox")


def record(analysis: str | None = None) -> Hint:
    """Records results of all runs: of one analysis, or of all."""
    if analysis is None:
        return Hint("wh.record()", "tw record --all")
    return Hint(f'wh.record(analyses="{analysis}")', f"tw record --all --analysis {analysis}")


def derive(name: str, run: str) -> Hint:
    """Derives tables of a run."""
    return Hint(f'wh.derive("{name}", "{run}")', f"tw derive {name} {run}")


def call(method: str) -> Hint:
    """Calls a method without arguments: `verify`, `refresh`, `upgrade`, `clean`, `runs`, `repair`, …"""
    return Hint(f"wh.{method}()", f"tw {method}")


def repair(run: str) -> Hint:
    """Repairs a damaged run."""
    return Hint(f"wh.repair({json.dumps(run)})", f"tw repair {run}")


def seal(run: str) -> Hint:
    """Publishes the waiting ranks of a run."""
    return Hint(f"wh.seal({json.dumps(run)})", f"tw seal {quote(run)}")


def option(name: str, value: object = True) -> Hint:
    """An option with its value: `jobs=1` or `--jobs 1`."""
    shell = f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
    is_text = isinstance(value, str) and not value.isupper()  # upper case: a placeholder
    return Hint(f"{name}={json.dumps(value) if is_text else value}", shell)
