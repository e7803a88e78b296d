"""What must go before anything is stored, and what must stay.

The secrets here are made up; each is put together from parts, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from reader_cases import SALT, Loaded, event, load, trace, write
from tracewarehouse.reader.redact import flagged, is_secret_key, redact

HUGGING_FACE = "hf" + "_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"
SHAPES = {
    "hugging_face": HUGGING_FACE,
    "github": "ghp" + "_" + "A1b2" * 9,
    "github_fine": "github" + "_pat_" + "11ABCDE_" + "x9" * 20,
    "aws": "AKIA" + "ABCDEFGHIJKLMNOP",
    "slack": "xox" + "b-" + "1234567890-abcdefghij",
    "slack_p": "xox" + "p-" + "1234567890-abcdefghij",
    "sk": "sk" + "-" + "proj-abcDEF123456_7890",
    "gitlab": "glpat" + "-" + "abcDEF123456_7890xyz",
    "jwt": "ey" + "JhbGciOiJIUzI1NiJ9" + ".ey" + "JzdWIiOiIxIn0" + "." + "c2lnbmF0dXJl_-",
    "private_key": "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA " + "PRIVATE KEY-----",
    "hugging_face_short": "hf" + "_" + "abcdefg1",
    "github_short": "ghp" + "_" + "abcdefgh",
    "sk_short": "sk" + "-" + "abcdefg1",
    "gitlab_short": "glpat" + "-" + "abcdefgh",
    "private_key_cut": "-----BEGIN " + "PRIVATE KEY-----\nMIIEow",
}
SECRET_KEYS = [
    *("secret", "client_secret", "SecretKey", "db-password", "PASSWD", "aws.credential", "Authorization"),
    *("HF_TOKEN", "token", "accessToken", "ACCESS_TOKEN", "apikey", "OPENAI_API_KEY", "apiKey", "X-Api-Key"),
    *("GOOGLE_CREDENTIALS", "dockerSecrets"),
    *("AWS_SECRET_ACCESS_KEY", "aws_access_key", "AccessKey", "PRIVATE_KEY", "privateKey", "authtoken"),
]
PLAIN_KEYS = [
    *("num_tokens", "tokens", "TOKENIZERS_PARALLELISM", "token_count", "max_token_len", "key_padding_mask"),
    *(
        "trace_id",
        "group_trace_id",
        "key",
        "External id",
        "primary_key",
        "secretary",
        "passwordless_login",
        "name",
    ),
    *("keyboard", "api_key_id", "tokenizer", "monkey", "Addr", "Python id"),
]
PLAIN_VALUES = [
    *("0123456789abcdef0123456789abcdef", "6e4c5d49-31d6-410f-83cf-8827e227851d", "num_tokens=4096"),
    *("hf_device_map", "transformers/integrations/hf_argparser.py(12): parse", "mask-task-disk-risk-desk"),
    *("sk-learn", "https://example.org/a:b@c", "https://example.org:8080/x", "user@example.org"),
    *("void cutlass::Kernel<sm90_xmma_gemm_token>(Params)", "eyJ", "AKIA", "key_padding_mask", "xox-"),
    *("nn.Module: TokenEmbedding_0", "aten::masked_fill_", "-----BEGIN CERTIFICATE-----"),
]


def mark(secret: str, salt: bytes = SALT) -> str:
    return f"[redacted:{hashlib.sha256(salt + secret.encode()).hexdigest()[:4]}]"


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_values_of_secret_keys_go(key: str) -> None:
    assert is_secret_key(key)
    text, found = redact(json.dumps({"args": {"env": {key: "plain words", "x": "plain words"}}}), SALT, 5)
    assert json.loads(text) == {"args": {"env": {key: mark("plain words"), "x": "plain words"}}}
    assert [(hit.event_id, hit.kind) for hit in found] == [(5, "key")]
    assert found[0].path.startswith("$.args.env.") and key in found[0].path


@pytest.mark.parametrize("key", PLAIN_KEYS)
def test_values_of_plain_keys_stay(key: str) -> None:
    text = json.dumps({"args": {key: "plain words"}})
    assert redact(text, SALT) == (text, [])


@pytest.mark.parametrize("kind", SHAPES)
def test_secret_shapes_go_wherever_they_stand(kind: str) -> None:
    secret = SHAPES[kind]
    text, found = redact(json.dumps({"name": f"run {secret}", "args": {"l": [1, ["a", secret]]}}), SALT)
    tail = mark(secret)
    assert json.loads(text) == {"name": f"run {tail}", "args": {"l": [1, ["a", tail]]}}
    assert [hit.path for hit in found] == ["$.name", "$.args.l[1][1]"]


@pytest.mark.parametrize("value", PLAIN_VALUES)
def test_plain_values_stay(value: str) -> None:
    text = json.dumps({"name": value, "args": {"v": [value, {"num_tokens": value}]}})
    assert redact(text, SALT) == (text, [])


def test_passwords_in_urls_go() -> None:
    secret = "bob:" + "hunter2"
    text, found = redact(json.dumps({"args": {"u": f"git clone https://{secret}@example.org/a?b=c"}}), SALT)
    assert json.loads(text)["args"]["u"] == f"git clone https://{mark(secret)}@example.org/a?b=c"
    assert [hit.kind for hit in found] == ["url_password"]


def test_json_inside_strings_is_looked_into() -> None:
    inside = json.dumps({"env": json.dumps({"API_KEY": "abcdefgh", "n": 1.50, "num_tokens": "abcdefgh"})})
    text, found = redact(json.dumps({"args": {"config": inside}}), SALT)
    env = json.loads(json.loads(json.loads(text)["args"]["config"])["env"])
    assert env == {"API_KEY": mark("abcdefgh"), "n": 1.5, "num_tokens": "abcdefgh"}
    assert [(hit.path, hit.kind) for hit in found] == [("$.args.config", "key")]
    half = redact(json.dumps({"args": {"config": "launch {'token': 'abcdefgh', 'x': 'abcdefgh'}"}}), SALT)[0]
    assert json.loads(half)["args"]["config"] == f"launch {{'token': '{mark('abcdefgh')}', 'x': 'abcdefgh'}}"


def test_short_values_numbers_and_null_stay() -> None:
    text = '{"token": "1234567", "password": 12345678901234567890, "secret": null, "api_key": [1.50, true]}'
    assert redact(text, SALT) == (text, [])


def test_lists_under_a_secret_key_go() -> None:
    text, _ = redact('{"token": ["abcdefgh", {"x": "abcdefgh"}]}', SALT)
    assert json.loads(text) == {"token": [mark("abcdefgh"), {"x": "abcdefgh"}]}


def test_a_secret_that_is_a_key_goes_and_the_path_does_not_tell_it() -> None:
    text, found = redact(json.dumps({"args": {HUGGING_FACE: {"a": HUGGING_FACE}}}), SALT)
    assert json.loads(text) == {"args": {mark(HUGGING_FACE): {"a": mark(HUGGING_FACE)}}}
    assert HUGGING_FACE not in str(found)


def test_all_else_in_the_event_stays_byte_for_byte() -> None:
    before, after = '{"a":1.50, "b" : "\\u00e9\\/",', '"c":12345678901234567890,"d":-0.0}'
    text, _ = redact(f'{before}"token":"abcdefgh",{after}', SALT)
    assert text == f'{before}"token":"{mark("abcdefgh")}",{after}'


def test_equal_secrets_stay_equal_and_the_salt_tells_warehouses_apart() -> None:
    one, two = (redact('{"token":"abcdefgh"}', salt)[0] for salt in (b"a", b"b"))
    assert one == redact('{"x":1,"token":"abcdefgh"}', b"a")[0].replace('"x":1,', "") and one != two
    again, found = redact(one, b"a")
    assert (again, found) == (one, [])


def test_escaped_keys_and_values_do_not_hide() -> None:
    escaped = "".join(f"\\u{ord(sign):04x}" for sign in "token")
    texts = [
        f'{{"{escaped}":"abcdefgh"}}',
        '{"name":"' + "".join(f"\\u{ord(c):04x}" for c in HUGGING_FACE) + '"}',
    ]
    for text in texts:
        assert flagged(pa.array([text])) == [0]
        assert "[redacted:" in redact(text, SALT)[0]


def test_the_bulk_filter_flags_all_that_the_rules_find() -> None:
    texts = [json.dumps({"args": {key: "plain words"}}) for key in SECRET_KEYS]
    texts += [json.dumps({"name": secret}) for secret in SHAPES.values()]
    texts += [json.dumps({"args": json.dumps(text)}) for text in texts]
    texts += [
        json.dumps({"u": "https://bob:" + "hunter2@example.org"}),
        json.dumps({"u": ["'token': 'abcdefgh'"]}),
    ]
    texts += ['{"TOKEN"\n:\n"abcdefgh"}', '{"api_key":{"x":["abcdefgh"]},"apiKey":["abcdefgh"]}']
    assert flagged(pa.array(texts)) == list(range(len(texts)))
    assert all(redact(text, SALT)[1] for text in texts)


@pytest.mark.parametrize("trust", [True, False])
def test_nothing_secret_reaches_the_tables(tmp_path: Path, trust: bool) -> None:
    events = [
        event(name=f"call {HUGGING_FACE}"),
        event(args={"num_tokens": 5, "env": {"HF_TOKEN": HUGGING_FACE}}),
        event(name="plain", args={"TOKENIZERS_PARALLELISM": "false-or-true", "trace_id": "0123456789abcdef"}),
        HUGGING_FACE,
    ]
    data = trace(events, metadata={"env": {"DB_PASSWORD": "correct horse"}}, trace_id="0123456789abcdef")
    loaded = Loaded(write(tmp_path, data), trust=trust)
    assert loaded.header == {
        "metadata": {"env": {"DB_PASSWORD": mark("correct horse")}},
        "trace_id": "0123456789abcdef",
    }
    stored = json.dumps(loaded.rows("text, name, args, extra") + [(loaded.survey.header_json,)])
    assert HUGGING_FACE not in stored and "correct horse" not in stored
    assert loaded.rows("args", "name = 'plain'") == [
        (json.dumps(events[2]["args"]).replace(": ", ":").replace(", ", ","),)
    ]
    hits = loaded.con.execute(
        "SELECT event_id, path, kind FROM redactions ORDER BY ALL NULLS FIRST"
    ).fetchall()
    assert hits == [
        (None, "$.metadata.env.DB_PASSWORD", "key"),
        (0, "$.name", "hugging_face"),
        (1, "$.args.env.HF_TOKEN", "key"),
        (3, "$", "hugging_face"),
    ]
    assert loaded.column("name")[0] == f"call {mark(HUGGING_FACE)}"


def test_a_survey_and_its_errors_tell_no_secret(tmp_path: Path) -> None:
    data = trace([event()], metadata={"HF_TOKEN": HUGGING_FACE})
    assert HUGGING_FACE not in load(tmp_path, data).survey.header_json
    broken = load(tmp_path, data.replace(b'"metadata": {', b'"metadata": {{').replace(b"]", b",]"))
    assert not re.search(HUGGING_FACE, str(broken.survey))
