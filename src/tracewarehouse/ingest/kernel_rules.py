"""The rules of a warehouse's users that classify kernels, before the shipped ones: `_tw/kernel_rules.toml`.

Only what stores tables reads the file, so that a broken one stops no reader. A rank keeps the digest of the
rules that classified it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, Literal

from msgspec import Struct, convert, json
from msgspec.structs import astuple

from tracewarehouse.errors import PolicyError
from tracewarehouse.late_regex import late_regex
from tracewarehouse.storage.store import Store

KERNEL_RULES_FILE: Final = "_tw/kernel_rules.toml"
_MOST_RULES: Final = 200
_EXAMPLE: Final = """a file of kernel rules has up to 200 of
  [[rule]]
  pattern = '^acme_ring_'        # RE2 (no lookaround), searched anywhere in the name
  kind = "communication"         # or computation, memory, other
  category = "kernel"            # the default; or operator: the one that launched the kernel"""
# Where an error is: a line of TOML, or a rule and its field.
_LINE: Final = late_regex(r"\(at (?:line ([0-9]+)|end)")
_PLACE: Final = late_regex(r"(?:field `(\w+)`)?(?: - at `\$\.rule(?:\[([0-9]+)\])?(?:\.(\w+))?`)?$")


class KernelRule(Struct, frozen=True, forbid_unknown_fields=True):
    """Kernels whose name, or whose operator's, has a match of the pattern (RE2) are of this kind."""

    pattern: str
    kind: Literal["computation", "communication", "memory", "other"]
    category: Literal["kernel", "operator"] = "kernel"


class _File(Struct, forbid_unknown_fields=True):
    rule: tuple[KernelRule, ...] = ()


def kernel_rules_of(store: Store) -> tuple[KernelRule, ...]:
    """The rules of a warehouse, none without the file; raises PolicyError with file, line and remedy."""
    try:
        data = store.objects.get(KERNEL_RULES_FILE)
    except FileNotFoundError:
        return ()
    try:
        rules = convert(tomllib.loads(data.decode("utf-8-sig")), _File).rule
        _check(rules)
    except ValueError as error:
        path, message = store.objects.describe(KERNEL_RULES_FILE), str(error).partition(" - at ")[0]
        line = _line(data, error)
        raise PolicyError(f"{path}:{line}: not a file of kernel rules: {message}", _EXAMPLE) from error
    return rules


def _check(rules: Sequence[KernelRule]) -> None:
    """Raises ValueError for too many rules, and for patterns that are not RE2 or match everything."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for at, rule in enumerate(rules):
        place = f" - at `$.rule[{at}].pattern`"
        if at == _MOST_RULES:
            raise ValueError(f"more than {_MOST_RULES} rules; join patterns with |{place}")
        try:
            matches_everything = pc.match_substring_regex(pa.array([""]), rule.pattern)[0].as_py()
        except pa.ArrowInvalid as error:
            raise ValueError(f"not an RE2 pattern: {error}{place}") from error
        if matches_everything:
            raise ValueError(f"the pattern matches an empty text; make it match some names{place}")


def _line(data: bytes, error: ValueError) -> int:
    """The number of the line with the error."""
    if isinstance(error, UnicodeDecodeError):
        return data.count(b"\n", 0, error.start) + 1
    lines = data.decode().splitlines()
    if found := _LINE.search(str(error)):
        return int(found[1] or len(lines))
    tables = [at for at, line in enumerate(lines) if line.lstrip().startswith("[[")]
    found = _PLACE.search(str(error))
    unknown, rule, field = found.groups() if found else (None, None, None)
    first = tables[int(rule)] if rule and int(rule) < len(tables) else 0
    named = (
        at
        for at, line in enumerate(lines)
        if at >= first and line.lstrip("[ ").startswith(unknown or field or "\n")
    )
    return next(named, first) + 1


def digest_of(rules: Sequence[KernelRule]) -> str:
    """16 hex digits of rules in their order; empty for none."""
    return sha256(json.encode([astuple(rule) for rule in rules])).hexdigest()[:16] if rules else ""
