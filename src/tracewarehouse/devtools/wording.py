"""Words that no contract uses: terms of a private dialect, words with several meanings, British spellings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tracewarehouse.devtools.sql_style import Violation

# Files whose entire text is checked, relative to the checkout.
CHECKED: Final = ("sql/**/*.sql",)

# A word, as a regular expression → what to write instead. An underscore is the end of a word.
WORDS: Final[Mapping[str, str]] = {
    "told|tells?|telling": "reported, known, the noun of the thing",
    "anew": "again",
    "grave|graver|gravest": "severe, severity",
    "mend|mends|mended|mending": "repair",
    "stands? around|stood|stands": "encloses, is, contains",
    "takes? in|taken in|took in": "ingest",
    "by way of": "through",
    "for want of": "because there is no",
    "added up": "sum",
    "worked out": "computed",
    "gives? back": "returns, frees",
    "is there already": "already exists",
    "nothing hides|nothing hid": "exposed",
    "(?<!there )is no": "is not a",
    "at whose": "name the thing",
    "of its own|of their own": "separate",
    "in mid-": "in steady state",
    "of old": "earlier",
    "likewise": "also",
    "so many": "N, the number of",
    "plant|plants|planted": "inject",
    "judged|judges?": "analyzed, tested",
    "gpu rows?": "GPU activity",
    "arrows?": "flow",
    "pieces?": "segment",
    "stretch|stretches": "interval",
    "brackets?": "begin/end pair",
    "asked for|asks? for": "requested",
    "unlinked": "launch unknown",
    # British spellings.
    r"analyse[dr]?|analysing": "analyze",
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
    "labell(ed|ing)|modell(ed|ing)|travell(ed|ing)": "labeled, modeled, traveled",
    "licence": "license",
    "neighbours?|neighbouring": "neighbor",
}  # fmt: skip

# (file, word): legitimate uses, each with its reason.
ALLOWED: Final[Mapping[tuple[str, str], str]] = {}

_WORD = re.compile(
    "|".join(f"(?P<w{at}>(?<![A-Za-z])(?:{word})(?![A-Za-z]))" for at, word in enumerate(WORDS)),
    re.IGNORECASE,
)
_INSTEAD = tuple(WORDS.values())


def check(root: Path) -> Iterator[Violation]:
    """A finding for each such word in the files that are checked."""
    for pattern in CHECKED:
        for path in sorted(root.glob(pattern)):
            name = path.relative_to(root).as_posix()
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                for word, instead in words(line):
                    if (name, word.lower()) not in ALLOWED:
                        yield Violation(f"{name}:{number}", f"the word `{word}`", f"write: {instead}")


def words(text: str) -> Iterator[tuple[str, str]]:
    """The words of the list in a text, each with what to write instead."""
    for match in _WORD.finditer(text):
        assert match.lastgroup is not None
        yield match[0], _INSTEAD[int(match.lastgroup.removeprefix("w"))]
