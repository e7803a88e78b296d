"""SQL in notebooks: `%load_ext tracewarehouse`, then cells that begin with `%%tw`, and `%tw SELECT …`.

IPython is not imported: it passes itself to `register`.
"""

from __future__ import annotations

import os
import shlex
from argparse import ArgumentParser
from typing import Any, NoReturn

from tracewarehouse.errors import ExpressionError
from tracewarehouse.result import Result
from tracewarehouse.warehouse import Warehouse

_USAGE = "%%tw [WAREHOUSE] [--run RUN] [--rank N] [--name VARIABLE]"


class _Options(ArgumentParser):
    """The options of a cell; a wrong one is an error, not the end of the notebook's process."""

    def error(self, message: str) -> NoReturn:
        raise ExpressionError(f"%%tw: {message}", _USAGE)


def register(ipython: Any) -> None:
    """Registers the magics with a running IPython.

    The warehouse is a folder or a variable; by default TW_WAREHOUSE, else `warehouse`. `--run` selects runs,
    `--rank` a rank, and `--name` stores the result in a variable instead of showing it.
    """

    def tw(line: str, cell: str | None = None) -> Result | None:
        if cell is None:
            return _opened(None, ipython.user_ns).query(line)
        options = _parser().parse_args(shlex.split(line))
        warehouse = _opened(options.warehouse, ipython.user_ns)
        if options.run or options.rank is not None:
            warehouse = warehouse.select(runs=options.run, ranks=options.rank)
        result = warehouse.query(cell)
        if options.name is None:
            return result
        ipython.user_ns[options.name] = result
        return None

    ipython.register_magic_function(tw, magic_kind="line_cell", magic_name="tw")


def _parser() -> ArgumentParser:
    parser = _Options(prog="%%tw", usage=_USAGE, add_help=False)
    parser.add_argument("warehouse", nargs="?")
    parser.add_argument("--run", action="append")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--name")
    return parser


def _opened(name: str | None, variables: dict[str, Any]) -> Warehouse:
    """The warehouse in a variable or folder."""
    if name is not None and isinstance(variable := variables.get(name), Warehouse):
        return variable
    return Warehouse(name or os.environ.get("TW_WAREHOUSE", "warehouse"))
