"""The table of helpers in `tests/README.md` is complete."""

import ast

from conftest import ROOT


def test_every_helper_is_in_the_table() -> None:
    table = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    for path in sorted((ROOT / "tests" / "support").glob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        first = " ".join(text.partition("\n\n")[0].split())
        assert f"| `{path.stem}` | {first} |" in table
