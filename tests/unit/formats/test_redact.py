"""Redaction: which values are replaced before data is stored, and which are not.

The secrets here are made up; each is put together from parts, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from trace_reading import SALT, ReadTrace
from trace_texts import event, trace, write
from tracewarehouse.formats.kineto import batches
from tracewarehouse.formats.redact.text import Redactor

TOKEN = "huggingface-access-token"
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
    *('PWD="/FastVideo"', "CLOUD=GCP;PWD=/FastVideo;NV_CUDNN_PACKAGE=libcudnn9", "OLDPWD=/root/work_1"),
    *("HF_API_KEY=;MODEL_ID=Wan-AI/Wan2.1-T2V-1.3B;TEMP=/tmp", "TASK_SECRET=dummy;_=/usr/local/bin/nsys"),
]


REDACTOR = Redactor(SALT)
flagged, suspects, is_secret_key = REDACTOR.flagged, REDACTOR.suspects, REDACTOR.is_secret_key
redact = REDACTOR.text


def mark(secret: str, salt: bytes = SALT) -> str:
    return f"[redacted:{hashlib.sha256(salt + secret.encode()).hexdigest()[:4]}]"


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_values_of_secret_keys_are_redacted(key: str) -> None:
    assert is_secret_key(key)
    text, found = redact(json.dumps({"args": {"env": {key: "plain words", "x": "plain words"}}}), 5)
    assert json.loads(text) == {"args": {"env": {key: mark("plain words"), "x": "plain words"}}}
    assert [(hit.event_id, hit.kind) for hit in found] == [(5, "key")]
    assert found[0].path.startswith("$.args.env.") and key in found[0].path


@pytest.mark.parametrize("key", PLAIN_KEYS)
def test_values_of_plain_keys_are_kept(key: str) -> None:
    text = json.dumps({"args": {key: "plain words"}})
    assert redact(text) == (text, [])


@pytest.mark.parametrize("kind", SHAPES)
def test_secret_shapes_are_redacted_in_any_position(kind: str) -> None:
    secret = SHAPES[kind]
    text, found = redact(json.dumps({"name": f"run {secret}", "args": {"l": [1, ["a", secret]]}}))
    tail = mark(secret)
    assert json.loads(text) == {"name": f"run {tail}", "args": {"l": [1, ["a", tail]]}}
    assert [hit.path for hit in found] == ["$.name", "$.args.l[1][1]"]


@pytest.mark.parametrize("value", PLAIN_VALUES)
def test_plain_values_are_kept(value: str) -> None:
    text = json.dumps({"name": value, "args": {"v": [value, {"num_tokens": value}]}})
    assert redact(text) == (text, [])


def test_passwords_in_urls_are_redacted() -> None:
    secret = "bob:" + "hunter2"
    text, found = redact(json.dumps({"args": {"u": f"git clone https://{secret}@example.org/a?b=c"}}))
    assert json.loads(text)["args"]["u"] == f"git clone https://{mark(secret)}@example.org/a?b=c"
    assert [hit.kind for hit in found] == ["url-password"]


def test_json_inside_strings_is_searched() -> None:
    inside = json.dumps({"env": json.dumps({"API_KEY": "abcdefgh", "n": 1.50, "num_tokens": "abcdefgh"})})
    text, found = redact(json.dumps({"args": {"config": inside}}))
    env = json.loads(json.loads(json.loads(text)["args"]["config"])["env"])
    assert env == {"API_KEY": mark("abcdefgh"), "n": 1.5, "num_tokens": "abcdefgh"}
    assert [(hit.path, hit.kind) for hit in found] == [("$.args.config", "key")]
    half = redact(json.dumps({"args": {"config": "launch {'token': 'abcdefgh', 'x': 'abcdefgh'}"}}))[0]
    assert json.loads(half)["args"]["config"] == f"launch {{'token': '{mark('abcdefgh')}', 'x': 'abcdefgh'}}"


def test_short_values_numbers_and_null_are_kept() -> None:
    text = '{"token": "1234567", "password": 12345678901234567890, "secret": null, "api_key": [1.50, true]}'
    assert redact(text) == (text, [])


def test_lists_under_a_secret_key_are_redacted() -> None:
    text, _ = redact('{"token": ["abcdefgh", {"x": "abcdefgh"}]}')
    assert json.loads(text) == {"token": [mark("abcdefgh"), {"x": "abcdefgh"}]}


def test_a_secret_that_is_a_key_is_redacted_in_the_path_too() -> None:
    text, found = redact(json.dumps({"args": {HUGGING_FACE: {"a": HUGGING_FACE}}}))
    assert json.loads(text) == {"args": {mark(HUGGING_FACE): {"a": mark(HUGGING_FACE)}}}
    assert HUGGING_FACE not in str(found)


def test_the_rest_of_the_event_is_verbatim() -> None:
    before, after = '{"a":1.50, "b" : "\\u00e9\\/",', '"c":12345678901234567890,"d":-0.0}'
    text, _ = redact(f'{before}"token":"abcdefgh",{after}')
    assert text == f'{before}"token":"{mark("abcdefgh")}",{after}'


def test_equal_secrets_have_equal_redactions_per_salt() -> None:
    one, two = (Redactor(salt).text('{"token":"abcdefgh"}')[0] for salt in (b"a", b"b"))
    assert one == Redactor(b"a").text('{"x":1,"token":"abcdefgh"}')[0].replace('"x":1,', "") and one != two
    again, found = Redactor(b"a").text(one)
    assert (again, found) == (one, [])


def test_escaped_keys_and_values_are_found() -> None:
    escaped = "".join(f"\\u{ord(sign):04x}" for sign in "token")
    texts = [
        f'{{"{escaped}":"abcdefgh"}}',
        '{"name":"' + "".join(f"\\u{ord(c):04x}" for c in HUGGING_FACE) + '"}',
    ]
    for text in texts:
        assert flagged(pa.array([text])) == [0]
        assert "[redacted:" in redact(text)[0]


def test_the_prefilter_flags_all_matches_of_the_rules() -> None:
    texts = [json.dumps({"args": {key: "plain words"}}) for key in SECRET_KEYS]
    texts += [json.dumps({"name": secret}) for secret in SHAPES.values()]
    texts += [json.dumps({"args": json.dumps(text)}) for text in texts]
    texts += [
        json.dumps({"u": "https://bob:" + "hunter2@example.org"}),
        json.dumps({"u": ["'token': 'abcdefgh'"]}),
    ]
    texts += ['{"TOKEN"\n:\n"abcdefgh"}', '{"api_key":{"x":["abcdefgh"]},"apiKey":["abcdefgh"]}']
    assert flagged(pa.array(texts)) == list(range(len(texts)))
    assert all(redact(text)[1] for text in texts)


def test_the_search_over_strings_finds_keys_and_values() -> None:
    strings = [*SECRET_KEYS, *SHAPES.values(), "https://bob:" + "hunter2@example.org", "'token': 'abcdefgh'"]
    assert suspects(pa.array(strings)) == list(range(len(strings)))
    assert suspects(pa.array([*PLAIN_KEYS, *PLAIN_VALUES])) == []


SECRETS = [
    HUGGING_FACE, "plain words", "abcdefgh1", "correct horse",
    "".join(f"\\u{ord(sign):04x}" for sign in HUGGING_FACE)
]  # fmt: skip


def with_secrets() -> bytes:
    """A trace with a secret in each position that can contain one."""
    events = [
        event(name=f"call {HUGGING_FACE}"),
        event(cat=HUGGING_FACE, pid=HUGGING_FACE, tid=f"t {HUGGING_FACE}"),
        event(args={"num_tokens": 5, "env": {"HF_TOKEN": "plain words"}}),
        event(name="plain", args={"TOKENIZERS_PARALLELISM": "false-or-true", "trace_id": "0123456789abcdef"}),
        HUGGING_FACE,
        event(ph="s", id=HUGGING_FACE),
        event(bp=HUGGING_FACE, s=HUGGING_FACE),
        event(color=HUGGING_FACE, zoo={"password": "correct horse"}),
        event(args={HUGGING_FACE: 1, "Process Group Name": HUGGING_FACE, "Input type": ["x", HUGGING_FACE]}),
        event(args={"Collective name": "x", "l": [{"api_key": ["abcdefgh1"]}], "correlation": "7"}),
        event(ts=1.00001, args={"a": f"x {HUGGING_FACE}"}),
        event(args={"cmd": json.dumps({"token": "plain words"})}),
    ]
    data = trace(events, metadata={"env": {"DB_PASSWORD": "correct horse"}}, trace_id="0123456789abcdef")
    escaped = "".join(f"\\u{ord(sign):04x}" for sign in HUGGING_FACE)
    return data.replace(b'"num_tokens": 5', b'"num_tokens": 5, "esc": "%b"' % escaped.encode())


@pytest.mark.parametrize("exact", [False, True], ids=["native", "rows"])
def test_nothing_secret_reaches_the_tables(tmp_path: Path, exact: bool) -> None:
    found = ReadTrace(write(tmp_path, with_secrets()), exact=exact)
    stored = json.dumps(found.activities.to_pylist()) + found.outcome.header_json
    assert not [secret for secret in SECRETS if secret in stored]
    assert HUGGING_FACE not in str([column.chunk(0).dictionary for column in found.activities.columns
                                    if pa.types.is_dictionary(column.type)])  # fmt: skip
    assert (
        found.column("args")[3] == '{"TOKENIZERS_PARALLELISM":"false-or-true","trace_id":"0123456789abcdef"}'
    )
    hits = found.outcome.redactions
    assert sorted((-1 if hit.event_id is None else hit.event_id, hit.path, hit.kind) for hit in hits) == [
        (-1, "$.metadata.env.DB_PASSWORD", "key"),
        (0, "$.name", TOKEN),
        (1, "$.cat", TOKEN), (1, "$.pid", TOKEN), (1, "$.tid", TOKEN),
        (2, "$.args.env.HF_TOKEN", "key"), (2, "$.args.esc", TOKEN),
        (4, "$", TOKEN),
        (5, "$.id", TOKEN),
        (6, "$.bp", TOKEN), (6, "$.s", TOKEN),
        (7, "$.color", TOKEN), (7, "$.zoo.password", "key"),
        (8, '$.args."Input type"[1]', TOKEN), (8, '$.args."Process Group Name"', TOKEN),
        (8, f'$.args.{json.dumps(mark(HUGGING_FACE))}', TOKEN),
        (9, "$.args.l[0].api_key[0]", "key"),
        (10, "$.args.a", TOKEN),
        (11, "$.args.cmd", "key"),
    ]  # fmt: skip
    assert found.column("name")[0] == f"call {mark(HUGGING_FACE)}"
    assert found.column("process_group")[8] == mark(HUGGING_FACE)
    assert found.column("dtypes")[8] == json.dumps(["x", mark(HUGGING_FACE)], separators=(",", ":"))


def test_a_secret_seen_once_is_searched_for_in_all_later_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches.Spill.__init__, "__defaults__", (1000,))
    plain = [event(name=f"op {at % 9}", args={"n": at}) for at in range(130_000)]
    secret = event(args={"env": {"HF_TOKEN": "plain words"}})
    found = ReadTrace(write(tmp_path, trace([secret, *plain, secret, *plain, secret])))
    assert [hit.event_id for hit in found.outcome.redactions] == [0, 130_001, 260_002]
    assert "plain words" not in str([found.column("args")[at] for at in (0, 130_001, 260_002)])


@pytest.mark.parametrize("count", [100_000, pytest.param(2_000_000, marks=pytest.mark.deep)])
def test_a_secret_after_the_set_of_strings_overflowed(tmp_path: Path, count: int) -> None:
    """With two million strings, the set of distinct strings overflows first: then rows are searched."""
    path = tmp_path / "many.json"
    with path.open("w") as file:
        file.write('{"traceEvents":[')
        for at in range(count):
            file.write(f'{{"ph":"X","name":"n{at}","ts":{at},"args":{{"s":"distinct string number {at}"}}}},')
        file.write(json.dumps(event(name="last", args={"s": f"x {HUGGING_FACE}"})) + "]}")
    found = ReadTrace(path)
    assert [(hit.event_id, hit.path) for hit in found.outcome.redactions] == [(count, "$.args.s")]
    assert HUGGING_FACE not in found.column("args")[-1]


_KILLED = """
import os, sys
from pathlib import Path
from tracewarehouse.formats.kineto import batches as spill
from tracewarehouse.formats.base import Request
from tracewarehouse.formats.kineto.format import KinetoSource
spill.Spill.__init__.__defaults__ = (1000,)
add = spill.Spill.add
def until(self, batch):
    add(self, batch)
    if self._file is not None and len(self) == 1:
        print(oct(os.fstat(self._file.fileno()).st_mode & 0o777), flush=True)
        content = os.pread(self._file.fileno(), 1 << 30, 0)
        print(b"plain words" in content, len(content) > 1000, flush=True)
        os.kill(os.getpid(), 9)
spill.Spill.add = until
KinetoSource(Path(sys.argv[1]), Request(b"salt", Path(sys.argv[2])))
"""


def test_a_process_killed_while_it_spills_leaves_no_secret(tmp_path: Path) -> None:
    secret = event(args={"env": {"HF_TOKEN": "plain words"}})
    plain = [event(name=f"op {at % 9}", args={"n": at}) for at in range(130_000)]
    path, spilled = write(tmp_path, trace([secret, *plain, secret, *plain])), tmp_path / "spill"
    spilled.mkdir()
    done = subprocess.run([sys.executable, "-c", _KILLED, path, spilled], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    assert done.stdout.split() == ["0o600", "False", "True"]
    assert list(spilled.iterdir()) == []


def test_errors_and_losses_contain_no_secret(tmp_path: Path) -> None:
    data = trace([event()], metadata={"HF_TOKEN": HUGGING_FACE})
    assert HUGGING_FACE not in ReadTrace(write(tmp_path, data)).outcome.header_json
    broken = ReadTrace(
        write(tmp_path, data.replace(b'"metadata": {', b'"metadata": {{').replace(b"]", b",]"))
    )
    assert broken.outcome.status != "intact" and not re.search(HUGGING_FACE, str(broken.outcome))
