"""The redaction policy of a warehouse: more names and patterns, allowed values, rules that are off."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.errors import PolicyError

POLICY_FILE: Final = "_tw/redact.toml"
POLICY_VARIABLE: Final = "TW_REDACT_POLICY"
_TABLES: Final = {"keys": ("secret", "plain"), "allow": ("values",), "rules": ("off",)}
_EXAMPLE: Final = """a policy has tables such as
  [keys]  secret = ["badge_id"], plain = ["page_token"]
  [[pattern]]  name = "acme", pattern = 'acme_[a-z0-9]{20}'
  [allow]  values = ["hf_this_is_an_example_1"]
  [rules]  off = ["twilio-api-key"]"""


@dataclass(frozen=True)
class Policy:
    """Changes to the rules: names of secret and plain keys, patterns by name, allowed values, rules off.

    `enabled` False: there are no rules, and nothing is redacted.
    """

    secret_keys: tuple[str, ...] = ()
    plain_keys: tuple[str, ...] = ()
    patterns: tuple[tuple[str, str], ...] = ()
    allowed: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    enabled: bool = True


NO_POLICY: Final = Policy()
NO_REDACTION: Final = Policy(enabled=False)


def policy_of(warehouse: Path, redact: bool = True) -> Policy:
    """The policy of the warehouse in a folder: the file TW_REDACT_POLICY names, else its own, else none.

    NO_REDACTION without `redact`. Raises PolicyError for a file that is missing or not a policy.
    """
    if not redact:
        return NO_REDACTION
    named = os.environ.get(POLICY_VARIABLE)
    path = Path(named) if named else warehouse / POLICY_FILE
    if not named and not path.is_file():
        return NO_POLICY
    try:
        return parse(tomllib.loads(path.read_text(encoding="utf-8")), path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise PolicyError(f"{path}: cannot be read as a redaction policy: {why}", _EXAMPLE) from error


def parse(data: Mapping[str, Any], path: Path) -> Policy:
    """The policy in a parsed file; raises PolicyError for unknown names and bad patterns."""
    unknown = [table for table in data if table not in (*_TABLES, "pattern")]
    for table, names in _TABLES.items():
        found = data.get(table, {})
        if not isinstance(found, dict):
            raise PolicyError(f"{path}: {table} is not a table", _EXAMPLE)
        unknown += [f"{table}.{name}" for name in found if name not in names]
    if unknown:
        raise PolicyError(f"{path}: unknown: {', '.join(unknown)}", _EXAMPLE)
    return Policy(
        _texts(data, path, "keys", "secret"),
        _texts(data, path, "keys", "plain"),
        _patterns(data.get("pattern", []), path),
        _texts(data, path, "allow", "values"),
        _texts(data, path, "rules", "off"),
    )


def _texts(data: Mapping[str, Any], path: Path, table: str, name: str) -> tuple[str, ...]:
    found = data.get(table, {}).get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise PolicyError(f"{path}: {table}.{name} is not a list of strings", _EXAMPLE)
    return tuple(found)


def _patterns(found: object, path: Path) -> tuple[tuple[str, str], ...]:
    patterns: list[tuple[str, str]] = []
    for each in found if isinstance(found, list) else [found]:
        if (
            not isinstance(each, dict)
            or each.keys() != {"name", "pattern"}
            or not all(isinstance(text, str) and text for text in each.values())
        ):
            raise PolicyError(f"{path}: each [[pattern]] has a name and a pattern, both text", _EXAMPLE)
        _check_pattern(each["pattern"], f"{path}: pattern {each['name']}")
        patterns.append((each["name"], each["pattern"]))
    return tuple(patterns)


def _check_pattern(pattern: str, place: str) -> None:
    """Raises PolicyError for what RE2 does not read, or what matches everything."""
    try:
        re.compile(pattern)
        everything = pc.match_substring_regex(pa.array([""]), pattern)[0].as_py()
    except (re.error, pa.ArrowInvalid) as error:
        raise PolicyError(f"{place}: not an RE2 pattern: {error}", "RE2 has no lookaround") from error
    if everything:
        raise PolicyError(f"{place}: it matches an empty text", "make it match the secret alone")
