"""What looks like a credential becomes `[redacted:8f3a]`.

Three kinds of rules find it: the name of its key, its own shape, and the text before it. Numbers are never
touched. The digits begin a hash salted per warehouse: equal secrets stay equal.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tracewarehouse.errors import ParamError
from tracewarehouse.formats.json_text import StringToken, minify, path_text, quote, strings, unquote
from tracewarehouse.formats.redact.rules import (
    LEAST,
    LEAST_RANDOM,
    NO_POLICY,
    POLICY_FILE,
    Check,
    Policy,
    Rules,
    Strength,
    TextRule,
    is_about,
    is_random,
    is_words,
    rules,
    words_of,
)
from tracewarehouse.late_regex import late_regex

# One of these is between a name and its value, whatever the rule.
_SIGN: Final = late_regex(r"[=:,\s>]")
_QUOTE: Final = late_regex(r"""[bBrRuUfF]{0,2}(\\*["'])""")
_LIST: Final = late_regex(r"[\[(]\s*")
# A control character ends a value, as between the variables of an environment; a quote in a word does not.
_BARE: Final = late_regex(r"""(?:[^\s"'`\x00-\x1f\x7f]|["'`](?=[A-Za-z0-9]))+""")
_ENDS: Final = {
    "line": late_regex(r"""["'`\\\x00-\x08\x0a-\x1f\x7f]|$"""),
    "field": late_regex(r"""["'\x00-\x08\x0a-\x1f\x7f]|;(?=\s|$|[A-Za-z_][\w ]*=)|$"""),
    "parameter": late_regex(r"""[&\s"'<>\x00-\x1f\x7f]|$"""),
}
_LONGEST_ELEMENT: Final = 1000
# Where the next of several assignments begins: `A=1;B=2`, `a=1&b=2`.
_NEXT: Final = late_regex(r"[,;&]\s*(?:_|[A-Z]?[a-z][a-z_.-]{3,}|[A-Z_]{3,}[A-Z0-9_]*)=")
# Not a pair: `token == 'a'`, `token::Kind`.
_OPERATOR: Final = late_regex(r"""\s==|\w==(?:[\s"']|$)|\w::[A-Za-z_]{4}""")
_NUMBER: Final = late_regex(r"[-+]?[0-9][0-9_.,]{0,14}(?:[eE][-+]?[0-9]+)?")
# Words in place of a value, and marks.
_NO_VALUE: Final = late_regex(
    r"none|null|true|false|undefined|required|optional|incorrect|(?:\*+|x+|\.+)|\[redacted:.*",
    re.IGNORECASE | re.DOTALL,
)
# Placeholders: `$TOKEN`, `$(command`, `{{token}}`, `<your token>`, `%TOKEN%`, `%(token)s`, `[a]`, `@file`.
_PLACEHOLDER: Final = late_regex(
    r"\$\{?[\w:-]+\}?|\$\(\w[\w./-]*\)?|\{{1,2}[\w .!\[\]-]*\}{0,2}|<[|\w .-]*>?"
    r"|%\(?\w*\)?[%a-z]?|[(\[][\w.]*[)\]]?|@[\w./-]+"
)
_PLACEHOLDER_SIGNS: Final = "${}()[]<>|%@"
# Code, where a keyword argument is possible: `self.token`, `get_token(`, `new_token`.
_CODE: Final = late_regex(
    r"=*(?:([A-Za-z_]+[0-9]?(?:\.[A-Za-z_]+[0-9]?)+)[(\[]?|([A-Za-z_.]{4,})[(\[].*|([a-z]+(?:_[a-z]+)+))",
    re.DOTALL,
)
_PATH: Final = late_regex(r"(?:(?:~|\.{1,2})/\S+|(?:/[^\s/]+){2,}/?|[A-Za-z]:\\\S*)")
# One part is enough in PWD, the working directory of a process.
_FOLDER: Final = late_regex(r"/[A-Za-z_-]*[0-9]?")
_OPTION: Final = late_regex(r"--?[A-Za-z][\w-]*(?:=.*)?", re.DOTALL)
_SCHEME: Final = late_regex(r"(?:bearer|basic|token|digest|negotiate|apikey|ssws)\s{1,3}", re.IGNORECASE)


class Pairs(Struct, frozen=True):
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
        copied_to = position = 0
        while (match := rule.regex.search(text, position)) is not None:
            # What ends this one may begin the next.
            position = max(match.end() - 1, match.start() + 1)
            strength = self._strength(rule, match)
            if not strength:
                continue
            for start, end in _values(rule, match, strength):
                value = text[start:end]
                if _is_secret(value, strength):
                    out += [text[copied_to:start], self.mark(value)]
                    copied_to = end
                position = max(position, end)
        return "".join([*out, text[copied_to:]])

    def _strength(self, rule: TextRule, match: re.Match[str]) -> Strength:
        """How surely a value is a secret by the text before it."""
        if rule.check == "random":
            return "weak"
        if "name" not in match.re.groupindex:
            return "secret" if rule.check else "password"
        name, separator = match["name"], match[0].rstrip()[-1:]
        if "/" not in match[0] and _OPERATOR.match(match.string, match.end() - 2):
            return ""
        strength = self.rules.keys.strength(name)
        is_sure = strength in ("password", "secret")
        if is_sure and is_about(name):
            return ""
        if separator == "," and not name.startswith("-"):
            return "weak" if is_sure and _QUOTE.match(match.string, match.end()) else ""
        if strength == "secret" and match[0].endswith(":"):
            return "likely"
        return strength


def _is_secret(value: str, strength: Strength) -> bool:
    """Whether a value is a secret where the text before it is that sure; a mark stays in any case."""
    if len(value) < LEAST or _is_plain(value):
        return False
    if strength == "likely":
        return not is_words("-".join(value.split()))
    return is_random(value) if strength == "weak" else bool(strength)


def _is_plain(value: str) -> bool:
    """Whether a value is a placeholder, an option, or a path of several parts."""
    if _NO_VALUE.fullmatch(value):
        return True
    if _PLACEHOLDER.fullmatch(value):
        return is_words(value.strip(_PLACEHOLDER_SIGNS).replace(" ", "-"))
    if _PATH.fullmatch(value) or _OPTION.fullmatch(value):
        return is_words(value) if len(value) < LEAST_RANDOM else not is_random(value)
    return False


def _values(rule: TextRule, match: re.Match[str], strength: Strength) -> list[tuple[int, int]]:
    """Where the values after a head are: one, or the quoted ones of a list."""
    text, at = match.string, match.end()
    if rule.value != "word":
        return _up_to(rule, match)
    if (opened := _LIST.match(text, at)) is not None and _QUOTE.match(text, opened.end()):
        return _list(text, opened.end())
    if (quoted := _QUOTE.match(text, at)) is not None:
        return [(quoted.end(), _closing(text, quoted))]
    bare = _bare(text, at)
    value = text[slice(*bare)]
    if (_may_be_code(match) and _is_code(value)) or (
        strength != "password"
        and (
            _NUMBER.fullmatch(value)
            or (rule.check == "alnum" and not _has_letters_and_digits(value) and not is_random(value))
        )
    ):
        return []
    return [bare]


def _may_be_code(match: re.Match[str]) -> bool:
    """Whether a value may be that of a keyword argument: `token=…`, not after `--token=` or `/token:`."""
    name = match.groupdict().get("name", "")
    return name.islower() and match[0].rstrip().endswith(("=", ":")) and not {*"-/"} & {*match[0]}


def _is_code(value: str) -> bool:
    """Whether a value is an expression with names of words: 3 letters or more on average, 4 in a call.

    A call without a text in quotes is not random.
    """
    code = _CODE.fullmatch(value)
    if code is None or (code[2] and _QUOTE.search(value) is None and is_random(value)):
        return False
    name = code[code.lastindex or 0]
    words = words_of(name)
    return not name.isupper() and sum(map(len, words)) >= (4 if code[2] else 3) * len(words)


def _up_to(rule: TextRule, match: re.Match[str]) -> list[tuple[int, int]]:
    """The rest of the line, field, parameter or element; of a header without the scheme before the secret."""
    text, at = match.string, match.end()
    if (quoted := _QUOTE.match(text, at)) is not None and rule.value in ("line", "field"):
        start, end = quoted.end(), _closing(text, quoted)
    elif rule.value == "element":
        ending = re.compile(r"<\\*/" + re.escape(match["name"])).search(text, at, at + _LONGEST_ELEMENT)
        start, end = at, ending.start() if ending else at
    else:
        ending = _ENDS[rule.value].search(text, at)
        start, end = at, ending.start() if ending else len(text)
    if rule.value == "line" and (scheme := _SCHEME.match(text, start)) is not None and scheme.end() < end:
        start = scheme.end()
    end = start + len(text[start:end].rstrip())
    is_folder = "pwd" in match[0].lower() and _FOLDER.fullmatch(text, start, end)
    return [] if is_folder else [(start, end)]


def _list(text: str, at: int) -> list[tuple[int, int]]:
    values: list[tuple[int, int]] = []
    while (quoted := _QUOTE.match(text, at)) is not None:
        end = _closing(text, quoted)
        values.append((quoted.end(), end))
        following = re.compile(r"""\\*["']\s*,\s*""").match(text, end)
        if following is None:
            break
        at = following.end()
    return values


def _closing(text: str, opened: re.Match[str]) -> int:
    """Where the closing quote of a value is; the end of the text if it has none."""
    closing = re.compile(r"(?<!\\)" + re.escape(opened[1])).search(text, opened.end())
    return closing.start() if closing else len(text)


def _bare(text: str, at: int) -> tuple[int, int]:
    """A value without quotes."""
    match = _BARE.match(text, at)
    value = match[0] if match else ""
    if (following := _NEXT.search(value)) is not None:
        value = value[: following.start()]
    return at, at + len(value.rstrip(",;)}]\\"))


def _has_letters_and_digits(value: str) -> bool:
    return re.search("[0-9]", value) is not None and re.search("[A-Za-z]", value) is not None


def is_mixed(value: str) -> bool:
    """Whether a value has digits, capitals and lower-case letters."""
    return all(re.search(kind, value) for kind in ("[0-9]", "[A-Z]", "[a-z]"))


# From this length on no digit is needed; see `check` in the rules.
_LONG: Final = 16
# Shorter texts are searched faster than the pattern for bulk searches is compiled.
_SHORT: Final = 4096
# Strings that are remembered because the files of a run repeat them: their length, and their number.
_MAX_REMEMBERED_LENGTH: Final = 200
_MAX_REMEMBERED: Final = 20_000
# What the rules find in JSON text matches their patterns, or has an escaped character.
_CONTROL: Final = r"\\u00"
_MARK: Final = late_regex(r"\[redacted:[0-9a-f]{4}\]")
_FLAG: Final = late_regex(r"--?[A-Za-z][\w.-]{0,100}")
_HAS_DIGIT: Final = late_regex(r"[0-9]")


class Redaction(Struct, frozen=True):
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
        # Strings that `flagged` does not flag, and strings that hold no secret.
        self._unflagged: set[str] = set()
        self._clean: set[str] = set()

    def is_secret_key(self, key: str) -> bool:
        """Whether a value under this key is a secret by the key's name."""
        return self._rules.keys.is_secret(key)

    def is_weak_key(self, key: str) -> bool:
        """Whether a value under this key is a secret if it looks like one."""
        return self._rules.keys.strength(key) in ("likely", "weak")

    def flagged(self, texts: pa.StringArray) -> list[int]:
        """The positions of JSON texts that may hold a secret: a superset, in bulk."""
        if len(texts) > _MAX_REMEMBERED:
            return self._matching(texts, _CONTROL)
        values = texts.to_pylist()
        unseen = [at for at, value in enumerate(values) if value is not None and value not in self._unflagged]
        if sum(len(values[index]) for index in unseen) < _SHORT:
            return unseen
        flagged = [unseen[index] for index in self._matching(texts.take(pa.array(unseen)), _CONTROL)]
        _remember(self._unflagged, (values[index] for index in set(unseen).difference(flagged)))
        return flagged

    def _matching(self, texts: pa.StringArray, *more: str) -> list[int]:
        """The positions of texts that match a pattern of the rules, or one of `more`."""
        patterns = (*self._rules.in_strings, *more)
        marks = (pc.match_substring_regex(texts, pattern) for pattern in patterns)
        return sorted({position for each in marks for position in pc.indices_nonzero(each).to_pylist()})

    def suspects(self, strings: pa.Array) -> list[int]:
        """The positions of distinct strings that are a secret, hold one, or would be the key of one."""
        return [index for index in self._matching(strings) if self.is_suspect(strings[index].as_py())]

    def is_suspect(self, value: str) -> bool:
        """Whether a string is a secret, holds one, or would be the key of one."""
        return self.is_secret_key(value) or self.clean(value)[0] != value

    def text(self, text: str, event_id: int | None = None) -> tuple[str, list[Redaction]]:
        """The JSON text with its secrets replaced and all else as it was, and where they were."""
        out: list[str] = []
        redactions: list[Redaction] = []
        copied_to = 0
        flag: tuple[tuple[str | int, ...], str] | None = None
        for token in strings(text):
            value = unquote(text[token.start : token.end])
            clean, kinds = self._token(token, value)
            if clean == value and flag is not None and flag[0] == token.keys and not token.is_key:
                is_secret = _is_secret(value, self._rules.keys.strength(flag[1]))
                clean, kinds = (self.mark(value), ["flag"]) if is_secret else (value, [])
            flag = flag if token.is_key else _next_to(token, value)
            if clean != value:
                out += [text[copied_to : token.start], quote(clean)]
                copied_to = token.end
                # Secrets in keys are replaced, too.
                keys = (key if isinstance(key, int) else self.clean(key)[0] for key in token.keys)
                path = path_text(tuple(keys))
                redactions += [Redaction(event_id, path, kind) for kind in kinds]
        return "".join([*out, text[copied_to:]]), redactions

    def header(self, text: str) -> tuple[str, list[Redaction]]:
        """The same as `text`, faster for a long text that holds no secret."""
        return self.text(text) if self.flagged(pa.array([text])) else (text, [])

    def _token(self, token: StringToken, value: str) -> tuple[str, list[str]]:
        if len(value) < LEAST:
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
        return (
            isinstance(key, str)
            and self.is_weak_key(key)
            and _is_secret(value, self._rules.keys.strength(key))
        )

    def clean(self, value: str) -> tuple[str, list[str]]:
        """A string value under a key that is not secret, without its secrets, and the rules that matched.

        Strings of JSON that it may hold are searched like a file.
        """
        if len(value) < LEAST:
            return value, []
        if value.lstrip()[:1] in ("{", "[", '"') and minify(value.encode(errors="replace")) is not None:
            inside, redactions = self.text(value)
            return inside, [redaction.kind for redaction in redactions]
        return self._plain(value)

    def _plain(self, value: str) -> tuple[str, list[str]]:
        if value in self._clean:
            return value, []
        clean, kinds = self._shapes(value)
        clean, pair_kinds = self._pairs.clean(clean)
        if not kinds and not pair_kinds:
            _remember(self._clean, (value,))
        return clean, kinds + pair_kinds

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
            start, end = (position - match.start() for position in match.span(group))
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
        for index in self.flagged(array):
            clean, redactions = self.text(array[index].as_py(), first + index)
            if redactions:
                texts[index] = clean
                hits += redactions
        return texts, hits


def _remember(remembered: set[str], strings: Iterable[str]) -> None:
    """Adds short strings to a set of bounded size."""
    if len(remembered) > _MAX_REMEMBERED:
        remembered.clear()
    remembered.update(string for string in strings if len(string) <= _MAX_REMEMBERED_LENGTH)


@lru_cache(maxsize=4)
def redactor_of(salt: bytes, policy: Policy) -> Redactor:
    """One redactor for all files of a process, as it remembers strings."""
    return Redactor(salt, policy)


def _next_to(token: StringToken, value: str) -> tuple[tuple[str | int, ...], str] | None:
    """The place of the value that a string names: `["--password", "…"]`, `{"name": "PASS", "value": "…"}`."""
    last = token.keys[-1] if token.keys else None
    if isinstance(last, int) and _FLAG.fullmatch(value):
        return (*token.keys[:-1], last + 1), value
    return ((*token.keys[:-1], "value"), value) if last in ("name", "key") else None


def _passes(check: Check, secret: str) -> bool:
    if check == "digit":
        body = secret[re.match(r"[a-z]+[-_]", secret).end() :]  # type: ignore[union-attr]
        return len(body) >= _LONG or (len(body) >= LEAST and _HAS_DIGIT.search(body) is not None)
    return (check != "mixed" or is_mixed(secret)) and (check != "random" or is_random(secret))


_MARK_WITH_DIGEST: Final = late_regex(r"\[redacted:([0-9a-f]{4})\]")


def clean_name(redactor: Redactor, name: str) -> str:
    """The name of a run or file without secrets; a mark in it is spelled `redacted-8f3a`."""
    clean, _ = redactor.clean(name)
    return name if clean == name else _MARK_WITH_DIGEST.sub(r"redacted-\1", clean)


def check_text(redactor: Redactor, what: str, texts: Mapping[str, str | None]) -> None:
    """Raises ParamError where a label or reason (name → text) looks like a secret, or is not Unicode."""
    for name, text in texts.items():
        try:
            f"{name}{text}".encode()
        except UnicodeEncodeError as error:
            raise ParamError(f"{what} is not valid Unicode: {text!r}", "write it as UTF-8 text") from error
        _, redactions = redactor.text(json.dumps({name: text or ""}))
        if redactions:
            raise ParamError(
                f"{what} looks like a secret (rule {redactions[0].kind}); nothing was stored",
                f"use another text, or allow it in {POLICY_FILE}",
            )
