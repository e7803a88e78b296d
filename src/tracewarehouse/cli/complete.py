"""Shell completion of arguments: names of stored runs and of contracts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from tracewarehouse.contracts.contract import Contract


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of stored runs, @latest and @previous."""
    names = [*_stored_runs(ctx), "@latest", "@previous"]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_analyses(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of analyses with their summaries."""
    from tracewarehouse.contracts.catalog import Catalog

    return _items(Catalog.load().analyses(), incomplete)


def complete_contracts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of tables, views and analyses with their summaries."""
    from tracewarehouse.contracts.catalog import Catalog

    catalog = Catalog.load()
    return _items((*catalog.analyses(), *catalog.views(), *catalog.tables()), incomplete)


def _stored_runs(ctx: click.Context) -> list[str]:
    try:
        return list(ctx.obj.open().store.runs())
    except Exception:
        return []  # completion never prints errors


def _items(contracts: Iterable[Contract], incomplete: str) -> list[CompletionItem]:
    matches = [each for each in contracts if each.name.startswith(incomplete)]
    return [CompletionItem(each.name, help=each.summary) for each in matches]
