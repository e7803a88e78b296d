"""Names of runs, references to versions, fingerprints."""

from __future__ import annotations

import pytest

from tracewarehouse.errors import ParamError
from tracewarehouse.storage.layout import parse_reference, run_key, run_name, uid


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fp8-on", "fp8-on"),
        ("A.b_c+d=e~1-", "A.b_c+d=e~1-"),
        ("../x", "x"),
        ("/etc/passwd", "etc-passwd"),
        (".hidden", "hidden"),
        ("-rf", "rf"),
        ("a b\tc\nd\0e", "a-b-c-d-e"),
        ("größe", "gr--e"),
        ("a'; DROP TABLE kernels", "a---DROP-TABLE-kernels"),
        ("x" * 128, "x" * 128),
    ],
)
def test_a_run_name_holds_only_allowed_characters(text: str, name: str) -> None:
    assert run_name(text) == (name, text != name)


@pytest.mark.parametrize("text", ["", ".", "..", "///", "--", "日本", "x" * 129, "\ud800", "___"])
def test_an_invalid_run_name_is_refused_on_one_line(text: str) -> None:
    with pytest.raises(ParamError) as caught:
        run_name(text)
    assert len(caught.value.message) < 200
    assert "\n" not in caught.value.message
    assert caught.value.hint is not None


def test_a_run_key_never_leaves_its_folder() -> None:
    assert run_key("FP8-On") == "fp8-on"
    for hostile in ("../x", "a/b", "", ".", "..", "a\\b", "\u017f", "\u212a"):
        with pytest.raises(ParamError):
            run_key(hostile)


def test_a_reference_may_name_a_version() -> None:
    assert parse_reference("run@v12") == ("run", 12)
    assert parse_reference("run") == ("run", None)
    assert parse_reference("@latest") == ("@latest", None)


def test_a_fingerprint_moves_with_each_of_its_parts() -> None:
    base = {
        "digest": "d", "run": "run", "rank": 0, "part": "", "format": "kineto", "format_version": 1,
        "definitions": {"events": 1}, "options": {"a": 1},
    }  # fmt: skip
    other = {
        "digest": "e", "run": "r", "rank": 1, "part": "p", "format": "nsys", "format_version": 2,
        "definitions": {"events": 2}, "options": {"a": 2},
    }  # fmt: skip
    others = [base | {name: other[name]} for name in base]
    assert len({uid(**one) for one in [base, *others]}) == 9  # type: ignore[arg-type]
    assert uid(**base) == uid(**base)  # type: ignore[arg-type]
    assert len(uid(**base)) == 16  # type: ignore[arg-type]
