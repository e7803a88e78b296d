"""What looks like a credential becomes `[redacted:8f3a]`.

Three kinds of rules find it: the name of its key, its own shape, and the text before it. Numbers are never
touched. The digits begin a hash salted per warehouse: equal secrets stay equal.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.json_text import StringToken, minify, path_text, quote, strings, unquote
from tracewarehouse.formats.redact.key_names import is_random
from tracewarehouse.formats.redact.pairs import Pairs, is_mixed
from tracewarehouse.formats.redact.policy import NO_POLICY, Policy
from tracewarehouse.formats.redact.rules import Check, rules

MIN_LENGTH: Final = 8
# From this length on no digit is needed; see `check` in the rules.
_LONG: Final = 16
# A shorter text is searched faster than the pattern for bulk searches is compiled.
_SHORT: Final = 4096
_MARK: Final = re.compile(r"\[redacted:[0-9a-f]{4}\]")
_FLAG: Final = re.compile(r"--?[A-Za-z][\w.-]{0,100}")
_HAS_DIGIT: Final = re.compile(r"[0-9]")


@dataclass(frozen=True)
class Redaction:
    """Where a secret was: the event (None: the header), the JSON path and the rule that matched."""

    event_id: int | None
    path: str
    kind: str


class Redactor:
    """Replaces secrets by marks that are salted with `salt`, by the rules under a policy."""

    def __init__(self, salt: bytes, policy: Policy = NO_POLICY) -> None:
        self._salt = salt
        self._rules = rules(policy)
        self._pairs = Pairs(self._rules, self.mark)

    def is_secret_key(self, key: str) -> bool:
        """Whether a value under this key is a secret by the key's name."""
        return self._rules.keys.is_secret(key)

    def is_weak_key(self, key: str) -> bool:
        """Whether a value under this key is a secret if it looks random."""
        return self._rules.keys.is_weak(key)

    def flagged(self, texts: pa.StringArray) -> list[int]:
        """The positions of JSON texts that may hold a secret: a superset, in bulk."""
        marks = pc.match_substring_regex(texts, self._rules.in_file_text)
        return pc.indices_nonzero(marks).to_pylist()  # type: ignore[no-any-return]

    def suspects(self, strings: pa.Array) -> list[int]:
        """The positions of distinct strings that are a secret, hold one, or would be the key of one."""
        marks = pc.match_substring_regex(strings, self._rules.in_strings)
        found = pc.indices_nonzero(marks).to_pylist()
        return [at for at in found if self.is_suspect(strings[at].as_py())]

    def is_suspect(self, value: str) -> bool:
        """Whether a string is a secret, holds one, or would be the key of one."""
        return self.is_secret_key(value) or self.clean(value)[0] != value

    def text(self, text: str, event_id: int | None = None) -> tuple[str, list[Redaction]]:
        """The JSON text with its secrets replaced and all else as it was, and where they were."""
        out: list[str] = []
        found: list[Redaction] = []
        at = 0
        for token, value, kinds, clean in self._tokens_of(text):
            if clean != value:
                out += [text[at : token.start], quote(clean)]
                at = token.end
                found += [Redaction(event_id, self._path(token), kind) for kind in kinds]
        return "".join([*out, text[at:]]), found

    def header(self, text: str) -> tuple[str, list[Redaction]]:
        """The same as `text`, faster for a long text that holds no secret."""
        is_short = len(text) < _SHORT
        return self.text(text) if is_short or self.flagged(pa.array([text])) else (text, [])

    def _tokens_of(self, text: str) -> Iterator[tuple[StringToken, str, list[str], str]]:
        flag: tuple[tuple[str | int, ...], str] | None = None
        for token in strings(text):
            value = unquote(text[token.start : token.end])
            clean, kinds = self._token(token, value)
            # ["--password", "…"]: the option is the element before.
            if clean == value and flag is not None and flag[0] == token.keys:
                clean, kinds = self._after_flag(flag[1], value)
            flag = _next_to(token, value) if _FLAG.fullmatch(value) else None
            yield token, value, kinds, clean

    def _after_flag(self, flag: str, value: str) -> tuple[str, list[str]]:
        is_secret = len(value) >= MIN_LENGTH and not value.startswith("-") and self.is_secret_key(flag)
        return (self.mark(value), ["flag"]) if is_secret else (value, [])

    def _path(self, token: StringToken) -> str:
        """The path of a token; secrets in keys are replaced, too."""
        return path_text(tuple(key if isinstance(key, int) else self.clean(key)[0] for key in token.keys))

    def _token(self, token: StringToken, value: str) -> tuple[str, list[str]]:
        if len(value) < MIN_LENGTH:
            return value, []
        if token.is_key:
            return self._plain(value)
        key = next((key for key in reversed(token.keys) if isinstance(key, str)), "")
        if self.is_secret_key(key) or self._is_weak_pair(token, value):
            marked = self.mark(value)
            return marked, ["key"] if marked != value else []
        return self.clean(value)

    def _is_weak_pair(self, token: StringToken, value: str) -> bool:
        key = token.keys[-1] if token.keys else ""
        return isinstance(key, str) and self.is_weak_key(key) and is_random(value)

    def clean(self, value: str) -> tuple[str, list[str]]:
        """A string value under a key that is not secret, without its secrets, and the rules that matched.

        Strings of JSON that it may hold are searched like a file.
        """
        if len(value) < MIN_LENGTH:
            return value, []
        if value.lstrip()[:1] in ("{", "[", '"') and minify(value.encode(errors="replace")) is not None:
            inside, found = self.text(value)
            return inside, [redaction.kind for redaction in found]
        return self._plain(value)

    def _plain(self, value: str) -> tuple[str, list[str]]:
        value, kinds = self._shapes(value)
        value, more = self._pairs.clean(value)
        return value, kinds + more

    def _shapes(self, value: str) -> tuple[str, list[str]]:
        kinds: list[str] = []
        if self._rules.starts.search(value) is None:
            return value, kinds
        for rule in self._rules.tokens:
            cleaned = rule.regex.sub(self._replacer(rule.check), value)
            if cleaned != value:
                kinds.append(rule.name)
                value = cleaned
        return value, kinds

    def _replacer(self, check: Check) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            group = "secret" if "secret" in match.re.groupindex else 0
            if not _passes(check, match[group]):
                return match[0]
            start, end = (at - match.start() for at in match.span(group))
            return match[0][:start] + self.mark(match[group]) + match[0][end:]

        return replace

    def mark(self, secret: str) -> str:
        """What replaces a secret; a mark and an allowed value stay."""
        if _MARK.fullmatch(secret) or secret in self._rules.allowed:
            return secret
        digest = hashlib.sha256(self._salt + secret.encode("utf-8", errors="surrogatepass")).hexdigest()
        return f"[redacted:{digest[:4]}]"

    def events(self, array: pa.StringArray, first: int) -> tuple[dict[int, str], list[Redaction]]:
        """The texts that hold secrets by their position, without them, and where they were."""
        texts: dict[int, str] = {}
        hits: list[Redaction] = []
        for at in self.flagged(array):
            clean, found = self.text(array[at].as_py(), first + at)
            if found:
                texts[at] = clean
                hits += found
        return texts, hits


def _next_to(token: StringToken, value: str) -> tuple[tuple[str | int, ...], str] | None:
    """The place after an element of a list, and the element."""
    last = token.keys[-1] if token.keys else None
    return ((*token.keys[:-1], last + 1), value) if isinstance(last, int) else None


def _passes(check: Check, secret: str) -> bool:
    if check == "digit":
        body = secret[re.match(r"[a-z]+[-_]", secret).end() :]  # type: ignore[union-attr]
        return len(body) >= _LONG or (len(body) >= MIN_LENGTH and _HAS_DIGIT.search(body) is not None)
    return check != "mixed" or is_mixed(secret)
