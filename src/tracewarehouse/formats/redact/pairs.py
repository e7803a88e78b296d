"""Secrets in plain text that are given away by the text before them: `password=…`, `--token …`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tracewarehouse.formats.redact.key_names import is_about, is_random
from tracewarehouse.formats.redact.rules import Rules, TextRule

_LEAST: Final = 8
# One of these is between a name and its value, whatever the rule.
_SIGN: Final = re.compile(r"[=:,\s]")
_QUOTE: Final = re.compile(r"""[bBrRuUfF]{0,2}(\\*["'])""")
_LIST: Final = re.compile(r"[\[(]\s*")
_BARE: Final = re.compile(r"""[^\s"'`]+""")
_ENDS: Final = {
    "line": re.compile(r"""[\r\n"'`\\]|$"""),
    "field": re.compile(r"""[;"'\r\n]|$"""),
    "parameter": re.compile(r"""[&\s"'<>]|$"""),
}
_SEPARATOR: Final = re.compile(r"[,;&)}\]]")
# Where the next of several assignments begins: `A=1;B=2`, `a=1&b=2`.
_NEXT: Final = re.compile(r"[,;&]\s*[A-Za-z_][\w.-]*=")
_NUMBER: Final = re.compile(r"[-+]?[0-9][0-9_.,]*(?:[eE][-+]?[0-9]+)?")
# Placeholders, not values: `None`, `$TOKEN`, `<your token>`, `xxxxxxxx`, and marks.
_NO_VALUE: Final = re.compile(
    r"(?:none|null|true|false|undefined)|[$<{%(\[@].*|(?:\*+|x+|\.+)|\[redacted:.*", re.IGNORECASE | re.DOTALL
)
# Code, where a keyword argument is possible: `self.token`, `get_token(`, `new_token`.
_CODE: Final = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+[(\[]?|[A-Za-z_]\w*[(\[].*|[a-z]+(?:_[a-z]+)+", re.DOTALL
)
_PATH: Final = re.compile(r"(?:~|\.{0,2})/\S*|[A-Za-z]:\\\S*")
_SCHEME: Final = re.compile(r"(?:bearer|basic|token|digest|negotiate|apikey|ssws)\s{1,3}", re.IGNORECASE)


@dataclass(frozen=True)
class Pairs:
    """Finds such secrets by the text rules, and replaces them by what `mark` gives."""

    rules: Rules
    mark: Callable[[str], str]

    def clean(self, text: str) -> tuple[str, list[str]]:
        """The text without them, and the rules that matched."""
        if _SIGN.search(text) is None:
            return text, []
        kinds: list[str] = []
        for rule in self.rules.texts:
            cleaned = self._by(rule, text)
            if cleaned != text:
                kinds.append("key" if rule.name == "pair" else rule.name)
                text = cleaned
        return text, kinds

    def _by(self, rule: TextRule, text: str) -> str:
        out: list[str] = []
        done = at = 0
        while (match := rule.regex.search(text, at)) is not None:
            # What ends this one may begin the next.
            at = max(match.end() - 1, match.start() + 1)
            strength = self._strength(match)
            if not strength:
                continue
            for start, end in _values(rule, match):
                if self._is_secret(strength, match, text[start:end]):
                    out += [text[done:start], self.mark(text[start:end])]
                    done = end
                at = max(at, end)
        return "".join([*out, text[done:]])

    def _strength(self, match: re.Match[str]) -> str:
        """How surely a value is a secret by the text before it: "sure", "weak", or not at all."""
        if "name" not in match.re.groupindex:
            return "sure"
        name, separator = match["name"], match[0].rstrip()[-1:]
        if separator == "," and not name.startswith("-"):
            return ""
        if separator == "=" and match.string[match.end() : match.end() + 1] == "=":
            return ""
        if self.rules.keys.is_secret(name):
            return "" if is_about(name) else "sure"
        return "weak" if self.rules.keys.is_weak(name) else ""

    def _is_secret(self, strength: str, match: re.Match[str], value: str) -> bool:
        if len(value) < _LEAST:
            return False
        return strength == "sure" or is_random(value)


def _values(rule: TextRule, match: re.Match[str]) -> list[tuple[int, int]]:
    """Where the values after a head are: one, or the quoted ones of a list."""
    text, at = match.string, match.end()
    if rule.value != "word":
        return _up_to(rule, text, at)
    if (opened := _LIST.match(text, at)) is not None:
        return _list(text, opened.end())
    if (quoted := _QUOTE.match(text, at)) is not None:
        return [(quoted.end(), _closing(text, quoted))]
    found = _bare(text, at)
    value = text[found[0] : found[1]] if found else ""
    if _is_keyword(match) and _CODE.fullmatch(value):
        return []
    return [found] if found and (rule.check != "alnum" or _has_letters_and_digits(value)) else []


def _is_keyword(match: re.Match[str]) -> bool:
    """Whether a value may be that of a keyword argument: `token=…`, not `TOKEN=…` or `--token=…`."""
    return match[0].rstrip().endswith("=") and match["name"].islower() and "-" not in match[0]


def _up_to(rule: TextRule, text: str, at: int) -> list[tuple[int, int]]:
    """The rest of the line, field or parameter; of a header without the scheme before the secret."""
    if (quoted := _QUOTE.match(text, at)) is not None and rule.value != "parameter":
        start, end = quoted.end(), _closing(text, quoted)
    else:
        ending = _ENDS[rule.value].search(text, at)
        start, end = at, ending.start() if ending else len(text)
    if rule.value == "line" and (scheme := _SCHEME.match(text, start)) is not None and scheme.end() < end:
        start = scheme.end()
    stripped = text[start:end].rstrip()
    # PWD is also the working directory of a process.
    is_path = _PATH.fullmatch(stripped) is not None and not is_random(stripped)
    return [] if is_path or _NO_VALUE.fullmatch(stripped) else [(start, start + len(stripped))]


def _list(text: str, at: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while (quoted := _QUOTE.match(text, at)) is not None:
        end = _closing(text, quoted)
        found.append((quoted.end(), end))
        following = re.compile(r"""\\*["']\s*,\s*""").match(text, end)
        if following is None:
            break
        at = following.end()
    return found


def _closing(text: str, opened: re.Match[str]) -> int:
    """Where the closing quote of a value is; the end of the text if it has none."""
    found = re.compile(r"(?<!\\)" + re.escape(opened[1])).search(text, opened.end())
    return found.start() if found else len(text)


def _bare(text: str, at: int) -> tuple[int, int] | None:
    """A value without quotes, where it is one: no number, path or placeholder."""
    match = _BARE.match(text, at)
    if match is None:
        return None
    value = match[0]
    if (following := _NEXT.search(value)) is not None:
        value = value[: following.start()]
    if (cut := _SEPARATOR.search(value)) is not None and cut.start() >= _LEAST:
        value = value[: cut.start()]
    value = value.rstrip(",;)}]\\")
    known = _NUMBER.fullmatch(value) or _NO_VALUE.fullmatch(value) or _PATH.fullmatch(value)
    return None if known or value.startswith("-") else (at, at + len(value))


def _has_letters_and_digits(value: str) -> bool:
    return re.search("[0-9]", value) is not None and re.search("[A-Za-z]", value) is not None


def is_mixed(value: str) -> bool:
    """Whether a value has digits, capitals and lower-case letters."""
    return all(re.search(kind, value) for kind in ("[0-9]", "[A-Z]", "[a-z]"))
