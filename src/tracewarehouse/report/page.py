"""A page as HTML: all text in it is escaped, and it may ask nothing of any network."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import count
from pathlib import Path

from tracewarehouse.plot import svg
from tracewarehouse.plot.theme import css
from tracewarehouse.render.table import is_number
from tracewarehouse.render.text import show
from tracewarehouse.report.content import Finding, PageContent, Part, Picture, Section, Table
from tracewarehouse.report.wording import MEANINGS

SHORT = 12  # rows of a table that is open from the start
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def html(page: PageContent) -> Iterator[str]:
    """The file in pieces."""
    numbers = count(1)
    yield from _head(page)
    for section in page.sections:
        yield from _section(section, numbers)
    yield f'</main>\n<footer class="wrap"><small>{escape(page.made)}</small></footer>\n'
    yield '<div id="tip" hidden></div><div id="said" aria-live="polite" hidden></div>\n'
    yield f"<script>{_file('page.js')}</script>\n</body>\n</html>\n"


def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _head(page: PageContent) -> Iterator[str]:
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield '<link rel="icon" href="data:,">\n'
    yield f"<title>{escape(page.title)}</title>\n<style>{css()}{_file('page.css')}</style>\n</head>\n<body>\n"
    yield '<a class="skip" href="#main">Skip to the report</a>\n'
    yield f'<header class="wrap">\n<h1>{escape(page.title)}</h1>\n'
    yield f'<p class="soft">{escape(page.subtitle)}</p>\n'
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in page.facts
    )
    yield f'<dl class="facts">{facts}</dl>\n'
    tiles = "".join(
        f"<li><span>{escape(tile.name)}</span><b>{escape(tile.value)}</b>"
        f"<small>{escape(tile.note)}</small></li>"
        for tile in page.tiles
    )
    yield f'<ul class="tiles">{tiles}</ul>\n'
    if page.unknown:
        told = "".join(f"<li>{escape(text)}</li>" for text in page.unknown)
        yield f'<div class="unknown"><b>What this page cannot know</b><ul>{told}</ul></div>\n'
    yield f"</header>\n{_nav(page)}"
    yield '<main id="main" class="wrap">\n'
    colours = "".join(
        f'<li><i style="background:var(--{name})"></i>{escape(MEANINGS[name])}</li>' for name in page.meanings
    )
    yield f'<ul class="legend" aria-label="Colours">{colours}</ul>\n'


def _nav(page: PageContent) -> str:
    links = "".join(f'<a href="#{section.key}">{escape(section.title)}</a>' for section in page.sections)
    toggle = '<button type="button" id="theme">light / dark</button>'
    return f'<nav aria-label="Sections"><div class="wrap">{links}{toggle}</div></nav>\n'


def _section(section: Section, numbers: Iterator[int]) -> Iterator[str]:
    key = section.key
    yield f'<section id="{key}" aria-labelledby="{key}-title">\n'
    yield f'<h2 id="{key}-title">{escape(section.title)}</h2>\n'
    yield f'<p class="lead">{escape(section.sentence)}</p>\n'
    if section.findings:
        yield f'<ol class="findings">{"".join(map(_finding, section.findings))}</ol>\n'
    if section.parts:
        yield '<div class="cards">\n'
        for part in section.parts:
            yield from _part(part, numbers)
        yield "</div>\n"
    for at, table in enumerate(section.tables):
        opened = at == 0 and len(table.rows) <= SHORT
        yield from _table(table, f"t{next(numbers)}", opened)
    yield "</section>\n"


def _finding(finding: Finding) -> str:
    return (
        f'<li class="{escape(finding.severity)}"><b>{escape(finding.severity)}</b> '
        f"<strong>{escape(finding.seen)}</strong><p>{escape(finding.advice)}</p>"
        f"<p><small>{escape(finding.title)}. {escape(finding.saving)} "
        f"<code>{escape(finding.look)}</code></small></p></li>"
    )


def _part(part: Part, numbers: Iterator[int]) -> Iterator[str]:
    yield f'<article class="card"><h3>{escape(part.title)}</h3><p>{escape(part.sentence)}</p>\n'
    for picture in part.pictures:
        yield _figure(picture, next(numbers))
    yield "</article>\n"


def _figure(picture: Picture, number: int) -> str:
    title = escape(picture.title)
    return f"<figure><figcaption>{title}</figcaption>{svg(picture.spec, picture.title, number)}</figure>\n"


def _table(table: Table, key: str, opened: bool) -> Iterator[str]:
    rows = (
        f"{len(table.rows):,} of {table.total:,} rows"
        if table.total > len(table.rows)
        else _rows(table.total)
    )
    state = " open" if opened else ""
    yield f"<details{state}><summary><b>{escape(table.caption)}</b> "
    yield f"<small>{escape(table.name)}, {rows}</small></summary>\n"
    yield '<div class="tools">'
    yield f'<label><span class="soft">search</span> <input type="search" aria-controls="{key}"></label>'
    command = escape(table.command)
    yield f'<button type="button" title="copy the command" data-copy="{command}">copy</button>'
    yield f"<code>{command}</code></div>\n"
    yield f'<div class="scroll" tabindex="0"><table id="{key}" data-name="{table.name}">\n'
    yield f"<caption>{escape(_caption(table))}</caption>\n<thead><tr>"
    for each, doc in zip(table.fields, table.docs, strict=True):
        side = ' class="n"' if is_number(each) else ""
        button = f'<button type="button" title="{escape(doc)}">{escape(each.name)}</button>'
        yield f'<th scope="col"{side}>{button}</th>'
    yield "</tr></thead>\n<tbody>\n"
    for row in table.rows:
        cells = zip(row, table.fields, strict=True)
        yield f"<tr>{''.join(_cell(value, each.unit, is_number(each)) for value, each in cells)}</tr>\n"
    yield "</tbody></table></div>\n</details>\n"


def _caption(table: Table) -> str:
    more = table.total - len(table.rows)
    told = [f"and {more:,} more rows: {table.command} --head {table.total}"] if more else []
    return ". ".join([table.name, *told, *table.notes])


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _cell(value: object, unit: str | None, number: bool) -> str:
    text = escape(show(value, unit))
    if not number:
        title = f' title="{text}"' if len(text) > 40 else ""
        return f"<td{title}>{text}</td>"
    key = "" if value is None else f"{value:.10g}" if isinstance(value, float) else value
    return f'<td class="n" data-v="{key}">{text}</td>'
