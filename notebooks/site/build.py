"""Builds the documentation as HTML: README, guides, commands, Python, and a page per table and analysis.

    pip install -e '.[docs]'
    python notebooks/site/build.py [FOLDER]     # default: build/site

It also takes the pictures of the pages, which needs Chromium and its driver.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
_TOUR = """# A tour in pictures

A simulated job of 64 ranks, one of which is slow: `tw report slow`, a click on *Show on the timeline*,
`tw report good slow`, and `tw serve`.

![The report: the largest problem, what to do, and the step](images/report.png)
![The timeline: ranks that wait, and the rank that they wait for](images/timeline.png)
![A comparison of two runs](images/diff.png)
![The live view: a list of runs](images/live_view.png)
"""
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_ITEM = re.compile(r"^### (\w+)\n", re.MULTILINE)


def main() -> None:
    """Writes the source files and the HTML pages below a folder."""
    from sphinx.cmd.build import main as sphinx

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
    source = out / "source"
    shutil.rmtree(out, ignore_errors=True)
    write_pages(source)
    from screenshots import take

    take(source / "images")
    sys.exit(sphinx(["-W", "--keep-going", "-q", "-c", str(HERE), str(source), str(out / "html")]))


def write_pages(source: Path) -> None:
    """The Markdown files of the site, with links between them."""
    reference = (ROOT / "sql" / "README.md").read_text()
    sections = re.split(r"^## (.*)\n", reference, flags=re.MULTILINE)[1:]
    pages: dict[str, str] = {}  # path without `.md` → text
    home = {
        each.lower().replace(" ", "-"): _folder(each) for each in sections[::2]
    }  # anchor → path of its page
    for title, text in zip(sections[::2], sections[1::2], strict=True):
        folder = _folder(title)
        intro, *items = _ITEM.split(text)
        names = items[::2]
        home |= {name: f"{folder}/{name}" for name in names}
        pages |= {
            f"{folder}/{name}": f"# {name}\n{item}{_sql(item)}"
            for name, item in zip(names, items[1::2], strict=True)
        }
        pages[folder] = f"# {title}\n{intro}{_toctree(f'/{folder}/{name}' for name in names)}"
    guides = sorted(path.stem for path in (ROOT / "notebooks" / "guides").glob("*.md"))
    pages |= {f"guides/{name}": (ROOT / "notebooks" / "guides" / f"{name}.md").read_text() for name in guides}
    pages["tour"] = _TOUR
    pages["changelog"] = (ROOT / "CHANGELOG.md").read_text()
    pages["commands"] = "# Commands\n\n" + _directive(
        "click", "tracewarehouse.cli.app:app", prog="tw", nested="full"
    )
    pages["python"] = "# Python\n\n" + "".join(_classes())
    folders = map(_folder, sections[::2])
    pages["index"] = (
        (ROOT / "README.md").read_text()
        + _toctree(("tour", *(f"guides/{name}" for name in guides)), "Guides")
        + _toctree(("commands", "python", *folders), "Reference")
        + _toctree(("changelog",), "Project")
    )
    files = {
        "README.md": "index",
        "CHANGELOG.md": "changelog",
        "sql/README.md": "reference/analyses",
        **{f"notebooks/guides/{name}.md": f"guides/{name}" for name in guides},
    }
    for path, text in pages.items():
        target = source / f"{path}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_LINK.sub(lambda link, path=path: _link(link, path, files, home), text))  # type: ignore[misc]
    (source / "tests" / "data").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "data" / "report.png", source / "tests" / "data")


def _folder(title: str) -> str:
    return f"reference/{title.lower().replace(' ', '_')}"


def _link(link: re.Match[str], page: str, files: dict[str, str], home: dict[str, str]) -> str:
    """The link to a page of the site; the text alone if the file is not on it."""
    text, url = link.groups()
    if "://" in url:
        return link[0]
    path, _, anchor = url.partition("#")
    if page.startswith("reference/") and not path:
        target = home.get(anchor)
    elif path.endswith("sql/README.md") and anchor in home:
        target = home[anchor]
    else:
        name = path.replace("../", "")
        known = name if name in files else f"notebooks/guides/{name}"
        target = files.get(known, page if not path else None)
    if target is None:
        return text
    up = "../" * page.count("/")
    of_page = f"#{anchor}" if anchor and anchor not in home else ""
    return f"[{text}]({up}{target}.md{of_page})"


def _sql(item: str) -> str:
    """The text of the SQL file that an item of the reference names first."""
    found = re.search(r"\]\(([\w/.]+\.sql)\)", item)
    if found is None:
        return ""
    text = (ROOT / "sql" / found[1]).read_text().partition("-- ///\n")[2]
    return f"\n## SQL\n\n```sql\n{text}```\n"


def _toctree(pages: Iterable[str], caption: str | None = None) -> str:
    options = {"hidden": "", "maxdepth": "1"} | ({"caption": caption} if caption else {})
    return "\n" + _directive("toctree", "", "\n".join(pages), **options)


def _directive(name: str, argument: str, body: str = "", **options: str) -> str:
    lines = "".join(f":{key}: {value}\n" for key, value in options.items())
    return f"```{{{name}}} {argument}\n{lines}\n{body}\n```\n"


def _classes() -> list[str]:
    import tracewarehouse as tw

    found = []
    for name in sorted(tw.__all__):
        kind = "autoclass" if isinstance(getattr(tw, name), type) else "autofunction"
        if not name.startswith("_"):
            members = {"members": "", "undoc-members": ""} if kind == "autoclass" else {}
            body = _rst(f"{kind}:: tracewarehouse.{name}", members)
            found.append(f"```{{eval-rst}}\n{body}```\n\n")
    return found


def _rst(directive: str, options: dict[str, str]) -> str:
    return f".. {directive}\n" + "".join(f"   :{key}: {value}\n" for key, value in options.items())


if __name__ == "__main__":
    main()
