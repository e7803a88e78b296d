"""The list of rejected words: terms of a private dialect, words with several meanings, British spellings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tracewarehouse.devtools.sql_style import Violation

# Files whose entire text is checked, relative to the checkout.
CHECKED: Final = (
    "sql/**/*.sql",
    "src/**/*.py",
    "src/**/*.html",
    "notebooks/**/*.py",
    "notebooks/**/*.md",
    "README.md",
    "CHANGELOG.md",
    ".github/CONTRIBUTING.md",
    "tests/**/*.py",
    "tests/**/*.md",
    "tests/golden/**/*.golden",
)
# Files that are not checked: this list and its tests.
NOT_CHECKED: Final = (
    "src/tracewarehouse/devtools/wording.py",
    "tests/devtools/test_wording.py",
)

# A word, as a regular expression → what to write instead. An underscore is the end of a word.
WORDS: Final[Mapping[str, str]] = {
    r"told|tells?(?!\()|telling": "reported, known, the noun of the thing",
    "anew": "again",
    "asks|asked": "requires, requested, queried",
    "grave|graver|gravest": "severe, severity",
    "mend|mends|mended|mending": "repair",
    "nobody|whoever": "no process, no caller, each caller",
    "stands? around|stands?(?!-)|stood": "encloses, is, contains",
    "takes? in|taken in|took in": "ingest",
    "by way of": "through",
    "for want of": "because there is no",
    "added up": "sum",
    "works out|worked out|working out": "compute",
    "gives? back|gave back|given back": "returns, frees",
    "is there already": "already exists",
    "nothing hides|nothing hid": "exposed",
    "(?<!there )is no(?! longer)": "is not a",
    "at whose": "name the thing",
    "of its own|of their own": "separate",
    "in mid-": "in steady state",
    "of old": "earlier",
    "likewise": "also",
    "so many": "N, the number of",
    "plant|plants|planted": "inject",
    "judged|judges?": "analyzed, tested",
    "gpu rows?": "GPU activity",
    "arrows": "flows",
    "stretch|stretches": "interval",
    "asked for|asks? for": "requested",
    "knobs?": "setting",
    "the house": "the package, the project",
    # British spellings.
    r"analyse[dr]?|analysing": "analyze",
    "artefacts?": "artifact",
    "behaviours?": "behavior",
    "cancell(ed|ing)": "canceled",
    "catalogues?": "catalog",
    r"(un)?categoris\w*": "categorize",
    "centred?|centres": "center",
    "colours?|coloured|colouring": "color",
    r"favour\w*|honour\w*": "favor, honor",
    "grey": "gray",
    r"(initial|normal|serial|organ|util|summar|optim|minim|maxim|recogn|synchron|general)is(e|es|ed|er|ing|ation)\w*":
        "-ize, -ization",
    "judgements?": "judgment",
    "labell(ed|ing)|modell(ed|ing)|travell(ed|ing)": "labeled, modeled, traveled",
    "learnt|spelt|whilst|amongst": "learned, spelled, while, among",
    "licence": "license",
    "neighbours?|neighbouring": "neighbor",
}  # fmt: skip
# Rejected in contracts only: elsewhere a library, punctuation of JSON, a part of a text, a deleted file.
CONTRACT_WORDS: Final[Mapping[str, str]] = {
    "arrow": "flow",
    "brackets?": "begin/end pair",
    "pieces?": "segment",
    "unlinked": "launch unknown",
}

# (file, word): legitimate uses, each with its reason.
ALLOWED: Final[Mapping[tuple[str, str], str]] = {}


def check(root: Path) -> Iterator[Violation]:
    """A violation for each rejected word in the checked files, in the order of the files."""
    for path, name in _checked_files(root):
        pattern, instead = _IN_CONTRACTS if name.startswith("sql/") else _EVERYWHERE
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for word, better in _matches(pattern, instead, line):
                if (name, word.lower()) not in ALLOWED:
                    yield Violation(f"{name}:{number}", f"the word `{word}`", f"write: {better}")


def words(text: str) -> Iterator[tuple[str, str]]:
    """The rejected words in the text of a contract, each with what to write instead."""
    return _matches(*_IN_CONTRACTS, text)


def _checked_files(root: Path) -> Iterator[tuple[Path, str]]:
    """The checked files with their names relative to the checkout."""
    for pattern in CHECKED:
        for path in sorted(root.glob(pattern)):
            name = path.relative_to(root).as_posix()
            if not name.startswith(NOT_CHECKED):
                yield path, name


def _matches(pattern: re.Pattern[str], instead: tuple[str, ...], text: str) -> Iterator[tuple[str, str]]:
    for match in pattern.finditer(text):
        assert match.lastgroup is not None
        yield match[0], instead[int(match.lastgroup.removeprefix("w"))]


def _compiled(words: Mapping[str, str]) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """One pattern with a group per word, and what to write instead of each.

    The groups are sorted by first letter, so that most are skipped at once: ten times as fast.
    """
    by_letter: dict[str, list[str]] = {}
    for index, word in enumerate(words):
        letters = {each[0] for each in word.split("|")} if "(" not in word else {""}
        letter = letters.pop() if len(letters) == 1 else ""
        by_letter.setdefault(letter, []).append(f"(?P<w{index}>{word})")
    groups = "|".join(f"(?={letter})(?:{'|'.join(each)})" for letter, each in by_letter.items())
    return re.compile(f"(?<![A-Za-z])(?:{groups})(?![A-Za-z])", re.IGNORECASE), tuple(words.values())


_EVERYWHERE = _compiled(WORDS)
_IN_CONTRACTS = _compiled({**WORDS, **CONTRACT_WORDS})
