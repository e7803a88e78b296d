"""Replaces credentials in JSON text with `[redacted:8f3a]`.

There are two rules: the name of the key and the shape of the value. Numbers are never changed, and entropy is
not estimated. The digits are the beginning of a hash that is salted per warehouse, so equal secrets stay
equal.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.base import Redaction
from tracewarehouse.formats.json_text import StringToken, minify, path_text, quote, strings, unquote

MIN_LENGTH: Final = 8
_ONE_WORD: Final = ("secret", "password", "passwd", "credential", "authorization")
_WORDS: Final = frozenset((*_ONE_WORD, *(f"{word}s" for word in _ONE_WORD)))
_ENDINGS: Final = ("token", "apikey", "api_key", "access_key", "private_key")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SPLIT = re.compile(r"[_\-.]+")

# At least 16 characters, or 8 with a digit: names such as `hf_device_map` and `sk-learn` do not match.
_SHAPES: Final = {
    "private_key": re.compile(
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL
    ),
    "url_password": re.compile(r"(?<=://)[^\s/?#:@\"'<>]*:[^\s/?#@\"'<>]+(?=@)"),
    "jwt": re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*"),
    "hugging_face": re.compile(r"(?<![A-Za-z0-9])hf_(?:(?=[A-Za-z]*[0-9])[A-Za-z0-9]{8,}|[A-Za-z0-9]{16,})"),
    "github": re.compile(r"(?<![A-Za-z0-9])(?:ghp_[A-Za-z0-9]{8,}|github_pat_[A-Za-z0-9_]{8,})"),
    "aws": re.compile(r"(?<![A-Za-z0-9])AKIA[A-Z0-9]{8,}"),
    "slack": re.compile(r"(?<![A-Za-z0-9])xox[a-z]-[A-Za-z0-9-]{6,}"),
    "sk": re.compile(r"(?<![A-Za-z0-9])sk-(?:(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{8,}|[A-Za-z0-9_-]{16,})"),
    "gitlab": re.compile(r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{8,}"),
}

# After a word that makes a key secret: the rest of the key and its closing quote.
_FOLLOWED: Final = r"[^\"\\]{0,200}\\*[\"']"
# A superset of the exact rules, matched against the verbatim text of the file.
_PREFILTER: Final = (
    r"(?i)(?:secret|passwo?r?d|credential|authorization|token|api[_.-]*key|access[_.-]+key|accesskey"
    r"|private[_.-]*key)" + _FOLLOWED + r"|hf_[a-z0-9]{8}|ghp_[a-z0-9]{8}|github_pat_|AKIA[A-Z0-9]{8}"
    r"|xox[a-z]-|sk-[a-z0-9_-]{8}|glpat-|eyJ[a-z0-9_-]{5,}\.|PRIVATE KEY-----|:(?:\\*/){2}[^/\"\s]*@|\\u00"
)
# The same for a single string, which may be a key, without the text that must follow a key.
_STRING_PREFILTER: Final = _PREFILTER.replace(_FOLLOWED, "")
_PAIR_IN_TEXT = re.compile(
    r"""(["'])([^"'\\]{1,200})\1\s*[:=]\s*(["'])((?:(?!\3)[^\\]|\\.){8,}?)\3""", re.DOTALL
)


def is_secret_key(key: str) -> bool:
    """Whether the name of the key marks its value as a secret."""
    words = [word for part in _SPLIT.split(key) for word in _CAMEL.split(part) if word]
    lowered = [word.lower() for word in words]
    return not _WORDS.isdisjoint(lowered) or "_".join(lowered).endswith(_ENDINGS)


def flagged(texts: pa.StringArray) -> list[int]:
    """The positions of texts that may contain a secret; a superset."""
    marks = pc.match_substring_regex(texts, _PREFILTER)
    return pc.indices_nonzero(marks).to_pylist()  # type: ignore[no-any-return]


def suspects(strings: pa.Array) -> list[int]:
    """The positions of strings that are a secret, contain one, or would be the key of one."""
    marks = pc.match_substring_regex(strings, _STRING_PREFILTER)
    return [at for at in pc.indices_nonzero(marks).to_pylist() if _is_suspect(strings[at].as_py())]


def _is_suspect(value: str) -> bool:
    return (
        is_secret_key(value) or clean_value(value, b"")[0] != value or _clean_shapes(value, b"")[0] != value
    )


def redact(text: str, salt: bytes, event_id: int | None = None) -> tuple[str, list[Redaction]]:
    """The JSON text with its secrets replaced and everything else verbatim, and the redactions."""
    out: list[str] = []
    found: list[Redaction] = []
    at = 0
    for token in strings(text):
        value = unquote(text[token.start : token.end])
        clean, kinds = _clean_token(token, value, salt)
        if clean != value:
            out += [text[at : token.start], quote(clean)]
            at = token.end
            found += [Redaction(event_id, _clean_path(token, salt), kind) for kind in kinds]
    return "".join([*out, text[at:]]), found


def _clean_path(token: StringToken, salt: bytes) -> str:
    """The path of a token; secrets in keys are replaced, too."""
    return path_text(
        tuple(key if isinstance(key, int) else _clean_shapes(key, salt)[0] for key in token.keys)
    )


def _clean_token(token: StringToken, value: str, salt: bytes) -> tuple[str, list[str]]:
    if len(value) < MIN_LENGTH:
        return value, []
    key = next((key for key in reversed(token.keys) if isinstance(key, str)), "")
    if not token.is_key and is_secret_key(key):
        return _mark(value, salt), ["key"]
    return _clean_shapes(value, salt) if token.is_key else clean_value(value, salt)


def clean_value(value: str, salt: bytes) -> tuple[str, list[str]]:
    """A string value without its secrets, and the rules that matched.

    Secrets are recognized by their shape and by the keys of JSON inside the string.
    """
    if len(value) < MIN_LENGTH:
        return value, []
    if value.lstrip()[:1] in ("{", "[", '"') and minify(value.encode(errors="replace")) is not None:
        inside, found = redact(value, salt)
        return inside, [redaction.kind for redaction in found]
    value, kinds = _clean_shapes(value, salt)
    if "'" in value or '"' in value:
        more, hits = _clean_pairs(value, salt)
        return more, kinds + hits
    return value, kinds


def _clean_pairs(value: str, salt: bytes) -> tuple[str, list[str]]:
    """Replaces `"key": "value"` pairs in a string that is not completely JSON."""
    kinds: list[str] = []

    def replace(match: re.Match[str]) -> str:
        if not is_secret_key(match[2]) or _is_mark(match[4]):
            return match[0]
        kinds.append("key")
        start, end = match.span(4)
        offset = match.start()
        return match[0][: start - offset] + _mark(match[4], salt) + match[0][end - offset :]

    return _PAIR_IN_TEXT.sub(replace, value), kinds


def _clean_shapes(value: str, salt: bytes) -> tuple[str, list[str]]:
    kinds: list[str] = []
    for kind, shape in _SHAPES.items():
        cleaned = shape.sub(lambda match: _mark(match[0], salt), value)
        if cleaned != value:
            kinds.append(kind)
            value = cleaned
    return value, kinds


def _mark(secret: str, salt: bytes) -> str:
    if _is_mark(secret):
        return secret
    digest = hashlib.sha256(salt + secret.encode("utf-8", errors="surrogatepass")).hexdigest()
    return f"[redacted:{digest[:4]}]"


def _is_mark(value: str) -> bool:
    return re.fullmatch(r"\[redacted:[0-9a-f]{4}\]", value) is not None


def redact_events(array: pa.StringArray, salt: bytes, first: int) -> tuple[dict[int, str], list[Redaction]]:
    """Position → redacted text of the texts that contain secrets, and the redactions."""
    texts: dict[int, str] = {}
    hits: list[Redaction] = []
    for at in flagged(array):
        clean, found = redact(array[at].as_py(), salt, first + at)
        if found:
            texts[at] = clean
            hits += found
    return texts, hits
