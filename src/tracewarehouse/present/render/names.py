"""Names of kernels without C++ boilerplate, as short as they can be while each is distinguishable."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_ARGUMENTS = {"<": ">", "(": ")"}
_TEMPLATE_OR_CALL = re.compile(r"\w[<(]")
_NAMESPACES = re.compile(r"\(anonymous namespace\)::|\b(?:at::native|at|c10|std|cutlass|thrust|cub)::")
_WORD = re.compile(r"\w+")
_MOST_WORDS = 4  # of the template arguments in which names differ


REPLACED = " → "  # between a kernel and the one that replaced it


def short_name(name: str) -> str:
    """A C++ kernel name without return type, namespaces of libraries, template arguments and arguments.

    Other names, such as `Memcpy HtoD (Pinned -> Device)` or `module.py(12): forward`, are returned unchanged;
    of a kernel and its replacement, `A → B`, both are short.
    """
    if REPLACED in name:
        return REPLACED.join(map(short_name, name.split(REPLACED)))
    text = _NAMESPACES.sub("", name.removeprefix("void "))
    is_cpp = name.startswith("void ") or any(mark in name for mark in ("<", "::", "*)"))
    if not is_cpp or name[:1] == "<" or name[-1:] not in (")", ">") or not _TEMPLATE_OR_CALL.search(text):
        return name
    return _without_arguments(text).strip() or name


def short_names(names: Iterable[str]) -> Mapping[str, str]:
    """The short name of each name; those that would collide keep the words in which they differ."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(short_name(name), []).append(name)
    short: dict[str, str] = {}
    for text, members in groups.items():
        short |= {members[0]: text} if len(members) == 1 else _distinguished(text, members)
    return short


def _distinguished(text: str, members: list[str]) -> dict[str, str]:
    """`kernel<FillFunctor>` for each member of a group; the entire name where words do not suffice."""
    words = {name: dict.fromkeys(_WORD.findall(name)) for name in members}
    shared = set.intersection(*(set(each) for each in words.values()))
    named: dict[str, str] = {}
    for name, own in words.items():
        different = [word for word in own if word not in shared][:_MOST_WORDS]
        named[name] = f"{text}<{', '.join(different)}>" if different else text
    if len(set(named.values())) == len(named):
        return named
    taken = list(named.values())
    return {name: name if taken.count(each) > 1 else each for name, each in named.items()}


def _without_arguments(text: str) -> str:
    """`text` without what is in angle brackets and parentheses; operators such as `operator<` end it."""
    kept: list[str] = []
    open_: list[str] = []
    for character in text:
        if open_:
            if character == open_[-1]:
                open_.pop()
            elif character in _ARGUMENTS:
                open_.append(_ARGUMENTS[character])
        elif character in _ARGUMENTS:
            open_.append(_ARGUMENTS[character])
        else:
            kept.append(character)
    return "".join(kept)
